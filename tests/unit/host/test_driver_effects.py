"""Order in which a driver performs what its coordinator asks for."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import cloudpickle

from clonos.core.model.ids import COORDINATOR, SlotId
from clonos.core.model.options import Options
from clonos.core.wire.control_messages import Register, View
from clonos.core.wire.messages import Message
from clonos.io.net.listening import Binding
from clonos.io.net.peers import PeerAddress
from clonos.io.net.transport import Transport
from clonos.io.process.slot_provider import Listener, SlotEnded
from clonos_standby.driver.driver import TRIED_AGAIN, is_due
from clonos_standby.launch_spec import SlotLaunchSpec, versions
from tests.harnesses.idle_driver import NoSlots, idle_driver

LONG_MS = 600_000
HELD_S_MAX = 20.0
"""Time after which an order that the test holds up goes on, so that a wrong order fails instead of hanging."""


class HeldOrders(NoSlots):
    """A provider that starts no process. Orders after the first ``free_orders`` wait until ``released`` is set."""

    def __init__(self, free_orders: int) -> None:
        super().__init__()
        self._free_orders = free_orders
        self.specs: SimpleQueue[SlotLaunchSpec] = SimpleQueue()
        self.released = Event()
        self.listener: Listener = lambda _ended: None
        self.held: SimpleQueue[bool] = SimpleQueue()  # whether an order was released

    def listening(self, listener: Listener) -> HeldOrders:
        self.listener = listener
        return self

    def order(self, launch_spec: bytes, avoid_domains: Collection[str] = ()) -> int:
        number = super().order(launch_spec, avoid_domains)
        if number >= self._free_orders:
            self.held.put(self.released.wait(HELD_S_MAX))
        self.specs.put(cloudpickle.loads(launch_spec).args[0])
        return number


class PlayedSlot:
    """A slot that only registers and remembers the views that it was sent."""

    def __init__(self, number: int, folder: Path, spec: SlotLaunchSpec) -> None:
        folder.mkdir(mode=0o700)
        self.transport = Transport(SlotId(number), Binding(folder=str(folder)))
        self.views: list[View] = []
        self.transport.add_peer(PeerAddress(COORDINATOR, "", spec.coordinator_address, spec.coordinator_key))
        own = self.transport.address
        register = Register(
            own.slot,
            f"domain-{number}",
            "host",
            own.data_address,
            own.control_address,
            own.public_key,
            spec.token,
            number,
            versions(),
        )
        self.transport.send(COORDINATOR, register)

    def on_message(self, _sender: SlotId, message: Message, _payload: Any) -> None:
        if isinstance(message, View) and message.number not in [view.number for view in self.views]:
            self.views.append(message)

    def on_peer_gone(self, slot: SlotId) -> None:
        raise AssertionError(slot)

    def on_peer_back(self, slot: SlotId) -> None:
        raise AssertionError(slot)


def await_views(slots: list[PlayedSlot], count: int) -> None:
    """Polls all slots, because a slot sends nothing unless it is polled, until each was sent ``count`` views."""
    while any(len(slot.views) < count for slot in slots):
        for slot in slots:
            slot.transport.poll(10, slot)


def test_a_lost_slot_is_ordered_after_the_view_without_it_was_sent(tmp_path: Path) -> None:
    provider = HeldOrders(2)
    with idle_driver(tmp_path, provider=provider.listening, options=Options(lease_ms=LONG_MS)) as driver:
        driver.start()
        slots = [PlayedSlot(number, tmp_path / f"slot-{number}", provider.specs.get()) for number in (1, 2)]
        await_views(slots, 1)
        provider.listener(SlotEnded(0, "killed"))
        await_views(slots[1:], 2)
        provider.released.set()
        for slot in slots:
            slot.transport.close()
        assert provider.held.get()


def test_an_alarm_of_what_is_tried_again_is_logged_once_a_minute() -> None:
    logged_s: dict[str, float] = {}
    late = "checkpoint {} did not complete in 60 s, because read/0 has not taken it; a later one replaces it"
    lost = "the metadata of checkpoint {} could not be written; trying again"
    assert [is_due(late.format(number), logged_s, now_s) for number, now_s in ((1, 0), (2, 5), (12, 59), (13, 60))] == [
        *(True, False, False, True)
    ]
    assert is_due(lost.format(13), logged_s, 61.0)
    assert all(text.endswith(TRIED_AGAIN) for text in (late, lost))
