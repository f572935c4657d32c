"""What a slot is born with: how to reach the coordinator and prove that it was asked for, and the whole job."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass

from clonos.core.model.ids import SlotId
from clonos.core.wire.codec import WIRE_FORMAT
from clonos.io.net.binding import Binding


@dataclass(frozen=True, slots=True)
class SlotLaunchSpec:
    """Travels by cloudpickle from the driver. ``token`` is good for one slot.

    ``image``: the cloudpickled ``JobImage``, unpickled once the slot is at its place. ``folder_root``: where the slot's
    local folder is made; empty for the user's own below the folder for temporary files. ``binding``: where the slot
    listens; a ``folder`` in it only says that it is ipc, in the slot's local folder. ``address_rewriter``: (peer, its
    address) to the address to connect to. ``log_level``: of the lines that go to the driver's log.
    ``fault_points``: address of who listens for them, see ``clonos.io.process.fault_points``.
    ``slot_trace``: folder for a trace of all events (``clonos.core.slot.event_trace``); empty: none is written.
    """

    coordinator_address: str
    coordinator_key: bytes
    token: str
    image: bytes
    store_url: str
    binding: Binding
    folder_root: str = ""
    address_rewriter: Callable[[SlotId, str], str] | None = None
    log_level: int = logging.WARNING
    fault_points: str = ""
    slot_trace: str = ""


def versions(hash_seed: str | None = None) -> tuple[tuple[str, str], ...]:
    """What must be equal in all processes of a job; the driver names the ``hash_seed`` that it gives its slots."""
    return (
        ("clonos", _version_of("clonos")),
        ("hash_seed", os.environ.get("PYTHONHASHSEED", "random") if hash_seed is None else hash_seed),
        ("pyarrow", _version_of("pyarrow")),
        ("python", ".".join(platform.python_version_tuple()[:2])),
        ("wire", str(WIRE_FORMAT)),
    )


def _version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return "sources"
