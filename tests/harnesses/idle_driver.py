"""A driver that has not begun and starts no slot: messages are handed to it directly, or tests play its slots."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from clonos.core.coordinator.coordinator_events import Begin
from clonos.core.model.options import Options
from clonos.io.net.listening import Binding
from clonos.io.process.slot_provider import Listener, SlotProvider
from clonos.io.store.store import CheckpointStore
from clonos_standby.driver.driver import Driver, DriverPlan, Progress
from clonos_standby.launch_spec import SlotLaunchSpec
from tests.harnesses.lone_slot import small_image


class NoSlots:
    """A provider that numbers orders and starts no process."""

    def __init__(self) -> None:
        self._numbers = count()

    def order(self, launch_spec: bytes, avoid_domains: Collection[str] = ()) -> int:
        return next(self._numbers)

    def withdraw(self, order: int) -> bool:
        """Returns False: there is nothing to withdraw."""
        return False

    def close(self) -> None:
        """Does nothing: nothing is open."""


@contextmanager
def idle_driver(
    folder: Path,
    listener: Callable[[Progress], None] = lambda _: None,
    *,
    provider: Callable[[Listener], SlotProvider] = lambda _listener: NoSlots(),
    options: Options | None = None,
) -> Iterator[Driver]:
    """Makes a driver with its store and sockets in ``folder``; closes it at the end of the block."""
    folder.chmod(0o700)
    driver = Driver(
        DriverPlan(
            image=small_image(options),
            begin=Begin(1, "job-1"),
            store=CheckpointStore(str(folder / "store")),
            launch_spec=SlotLaunchSpec("", b"", "", b"", "", Binding(folder="ipc")),
            binding=Binding(folder=str(folder)),
            provider=provider,
            listener=listener,
            divide=lambda cut: cut,
        )
    )
    try:
        yield driver
    finally:
        driver.close()
