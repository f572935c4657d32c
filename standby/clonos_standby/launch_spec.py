"""Launch spec of a slot: the coordinator's address and a token to register with, and the whole job."""

from __future__ import annotations

import functools
import logging
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from clonos.core.model.ids import SlotId
from clonos.core.wire.message_codec import WIRE_FORMAT
from clonos.io.net.listening import Binding

INFO: Final = ".dist-info"
"""End of the name of a folder with the metadata of a distribution, after its name and version."""

SWITCH_INTERVAL_S = 0.0005
"""Beside a busy Python thread the I/O thread of a slot or driver answers in 0.7 ms instead of 5."""


@dataclass(frozen=True, slots=True)
class SlotLaunchSpec:
    """Specification of a slot process, cloudpickled by the driver. ``token``: registers one slot.

    ``image``: the cloudpickled ``JobImage``, unpickled in the slot. ``folder_root``: root of the slot's local folder;
    empty for the user's default root. ``binding``: where the slot listens; its ``folder`` only selects ipc in the
    slot's local folder. ``address_rewriter``: maps (peer, its address) to the address to connect to. ``log_level``:
    minimum level of the library's lines that are sent to the driver's log, ``root_log_level`` that of all others.
    ``fault_points``: address of their listener, see ``clonos.io.process.fault_points``.
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
    root_log_level: int = logging.WARNING
    fault_points: str = ""
    slot_trace: str = ""


def versions(hash_seed: str | None = None) -> tuple[tuple[str, str], ...]:
    """Returns the versions that must be equal in all processes of a job. ``hash_seed``: given by the driver, which does
    not run with the hash seed of its slots."""
    return (
        ("clonos", version_of("clonos")),
        ("hash_seed", os.environ.get("PYTHONHASHSEED", "random") if hash_seed is None else hash_seed),
        ("pyarrow", version_of("pyarrow")),
        ("python", ".".join(platform.python_version_tuple()[:2])),
        ("wire", str(WIRE_FORMAT)),
    )


NO_DISTRIBUTION: Final = "sources"
"""Version of what is not installed as a distribution."""


@functools.cache
def version_of(distribution: str) -> str:
    """Returns the version of an installed distribution; ``NO_DISTRIBUTION`` without one."""
    for folder in sys.path:
        for name in _names_in(folder):
            if name.startswith(f"{distribution}-") and name.endswith(INFO):
                return name.removeprefix(f"{distribution}-").removesuffix(INFO)
    return _version_in_metadata(distribution)


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder or os.curdir)
    except OSError:  # it does not exist, or is an archive
        return []


def _version_in_metadata(distribution: str) -> str:
    import importlib.metadata  # 15 ms

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return NO_DISTRIBUTION
