"""Slot process: its I/O thread and the threads around it."""

from __future__ import annotations

from collections.abc import Callable

from clonos_standby.launch_spec import SlotLaunchSpec


def run_slot(launch_spec: SlotLaunchSpec, domain: str, has_to_end: Callable[[], bool] | None = None) -> None:
    """Runs a slot in this process until it ends. The driver, which only sends this function, has no slot's modules.

    ``has_to_end``: says that a slot which is a thread of the driver has to end; None for a process of its own.
    """
    from clonos_standby.slot import host

    if has_to_end is None:
        host.run_slot(launch_spec, domain)
    else:
        host.run_slot_in_thread(launch_spec, domain, has_to_end)
