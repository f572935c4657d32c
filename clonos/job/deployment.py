"""Deployment of slots: child processes of the driver, Spark on this machine, or Spark on other machines."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from clonos.config import JobSettings, RunOptions, SlotKind
from clonos.core.model.errors import ExtraMissing, JobError
from clonos.io.local.local_folder import LocalFolder, default_root, sweep
from clonos.io.net.listening import Binding
from clonos.io.net.transport import AddressRewriter
from clonos.io.process.retained_slots import retained_slots
from clonos.io.process.slot_provider import Listener, SlotProvider
from clonos.io.system.entropy import random_bytes

if TYPE_CHECKING:
    from clonos.spark.session import Context

ANY_HOST: Final = "0.0.0.0"
LOCAL_MASTERS: Final = "local"
"""Beginning of the masters whose executors all run on the driver's machine."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Deployment of one run. ``provider``: creates the slot provider for a listener, for a job with columns or one
    without, and for the modules that its slots import; it must be closed before ``close`` is called.

    ``is_one_machine``: driver and slots share a file system, and ``folder_root`` is the root of their local folders;
    else it is empty, and each slot uses its own default root. ``can_spread``: a new slot may run in another failure
    domain than the existing ones. ``address_rewriter``: maps addresses for the connections of driver and slots.
    """

    provider: Callable[[Listener, bool, tuple[str, ...]], SlotProvider]
    driver_binding: Binding
    slot_binding: Binding
    hash_seed: str
    is_one_machine: bool
    can_spread: bool
    close: Callable[[], None]
    folder_root: str = ""
    address_rewriter: AddressRewriter | None = None


def open_deployment(name: str, settings: JobSettings, session: Any, hash_seed: str) -> Deployment:
    """Opens the deployment; starts Spark if it needs Spark and ``session`` is None. ``hash_seed``: the job's; a given
    session has its own.

    Raises: JobError when a session is given for process slots.
    """
    if settings.run.slots is not SlotKind.SPARK:
        if session is not None:
            kind = "threads" if settings.run.slots is SlotKind.THREAD else "processes"
            raise JobError(f"spark= is given, but the slots are {kind}. Remove spark=, or set slots='spark'.")
        return _threads() if settings.run.slots is SlotKind.THREAD else _processes(settings.run, hash_seed)
    return _spark(name, settings, session, hash_seed)


def is_one_machine(run: RunOptions, session: Any) -> bool:
    """Returns True when driver and slots certainly share a file system; can be called before anything is started."""
    if run.slots is not SlotKind.SPARK:
        return True
    if session is None:
        return run.master.startswith(LOCAL_MASTERS)
    from clonos.spark.session import context_of, is_local

    return is_local(context_of(session))


def _processes(run: RunOptions, hash_seed: str) -> Deployment:
    from clonos.io.process.fork_server_process import COLUMN_MODULES, WARM_MODULES
    from clonos.io.process.processes import ProcessSlots

    def provider(listener: Listener, has_columns: bool, modules: tuple[str, ...]) -> ProcessSlots:
        job_modules = (*(COLUMN_MODULES if has_columns else ()), *modules)
        return ProcessSlots(listener, hash_seed, run.domains, warm_modules=WARM_MODULES, job_modules=job_modules)

    retained = retained_slots()
    local = _local_folder() if retained is None else _local_folder(retained.record.driver_folder)
    return Deployment(
        provider=provider,
        driver_binding=Binding(folder=str(local.path)),
        slot_binding=Binding(folder="ipc"),
        hash_seed=hash_seed,
        is_one_machine=True,
        can_spread=run.domains != 1,
        close=lambda: _close(None, local),
        folder_root=str(local.root),
    )


def _threads() -> Deployment:
    from clonos.io.process.thread_slots import ThreadSlots

    local = _local_folder()
    return Deployment(
        provider=lambda listener, has_columns, modules: ThreadSlots(listener),
        driver_binding=Binding(folder=str(local.path)),
        slot_binding=Binding(folder="ipc"),
        hash_seed=os.environ.get("PYTHONHASHSEED", "random"),
        is_one_machine=True,
        can_spread=True,
        close=lambda: _close(None, local),
        folder_root=str(local.root),
    )


def _spark(name: str, settings: JobSettings, session: Any, hash_seed: str) -> Deployment:
    if find_spec("pyspark") is None:
        raise ExtraMissing("a job on Spark (--slots process runs it without Spark)", "pyspark", "spark")
    from clonos.spark.session import (
        OwnContext,
        context_of,
        has_executors,
        hash_seed_of,
        is_local,
        warn_if_open,
        warn_if_unauthenticated,
    )
    from clonos.spark.slots import SparkSlots

    run = settings.run
    own = OwnContext.start(name, run.master, hash_seed) if session is None else None
    context = own.context if own is not None else context_of(session)
    try:
        for file in run.py_files:
            context.addPyFile(file)
        local = _local_folder() if is_local(context) else None
        if local is None:
            warn_if_open(context)
        warn_if_unauthenticated(context)
        return Deployment(
            provider=lambda listener, has_columns, modules: SparkSlots(context, listener),
            driver_binding=_driver_binding(context, run) if local is None else Binding(folder=str(local.path)),
            slot_binding=_slot_binding(run) if local is None else Binding(folder="ipc"),
            hash_seed=hash_seed if own is not None else hash_seed_of(context),
            is_one_machine=local is not None,
            can_spread=has_executors(context),
            close=lambda: _close(own, local),
            folder_root="" if local is None else str(local.root),
        )
    except BaseException:
        _close(own, None)
        raise


def _close(own: Any, local: LocalFolder | None) -> None:
    if local is not None:
        local.close()
    if own is not None:
        own.close()
    if local is not None:
        sweep(local.root)  # a killed slot did not remove its folder


def _local_folder(name: str = "") -> LocalFolder:
    root = default_root()
    sweep(root)
    return LocalFolder(root, name or f"driver-{random_bytes(6).hex()}")


def _driver_binding(context: Context, run: RunOptions) -> Binding:
    host = str(context.getConf().get("spark.driver.host", "") or "")
    return Binding(host=ANY_HOST, advertised_host=host)


def _slot_binding(run: RunOptions) -> Binding:
    return Binding(host=ANY_HOST, advertised_host=run.data_host, ports=ports_of(run.data_ports))


def ports_of(text: str) -> range | None:
    """Returns the ports of "40000-40100" or "40000"; None, for any port, when the text is empty.

    Raises: JobError when the text is no range of ports from 1 to 65,535.
    """
    if not text:
        return None
    first, _, last = text.partition("-")
    try:
        ports = range(int(first), int(last or first) + 1)
    except ValueError:
        ports = range(0)
    if not ports or ports[0] < 1 or ports[-1] > 65_535:
        raise JobError(f'data_ports is {text!r}, but a range such as "40000-40100" is expected.')
    return ports
