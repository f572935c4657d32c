"""Slots that the driver has ordered or taken over, by the tokens with which they register."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clonos.core.model.ids import SlotId
from clonos.core.wire.control_messages import Register
from clonos.io.process.retained_slots import RetainedSlots


@dataclass(slots=True)
class SlotOrder:
    """Requested slot. ``slot``: the slot that has registered with its token; None before."""

    number: int
    token: str
    slot: SlotId | None = None
    has_ended: bool = False


class SlotOrders:
    """Orders of one driver. ``retained``: file of the slots that outlive the driver; None if they end with it."""

    def __init__(self, retained: RetainedSlots | None) -> None:
        self._retained = retained
        self._by_number: dict[int, SlotOrder] = {}
        self._by_token: dict[str, SlotOrder] = {}

    def add(self, number: int, token: str, slot: SlotId | None = None) -> None:
        """Adds an order. ``slot``: of an earlier driver, which has registered."""
        self._by_number[number] = self._by_token[token] = SlotOrder(number, token, slot)

    def running(self) -> list[SlotOrder]:
        """Returns the orders whose process has not ended."""
        return [order for order in self._by_number.values() if not order.has_ended]

    def has_unregistered(self) -> bool:
        """Returns whether a requested slot has not registered."""
        return any(order.slot is None for order in self.running())

    def withdraw(self, withdraws: Callable[[int], bool]) -> None:
        """Withdraws the orders whose slot has not registered, if the provider ``withdraws`` them. A slot that registers
        for one of them later is refused."""
        for order in self.running():
            if order.slot is None and withdraws(order.number):
                order.has_ended = True

    def take(self, register: Register) -> bool:
        """Takes a registration; returns True when this driver launched the slot or took it over.

        A token is valid for the first slot that registers with it. The slot is in the file before anybody relies on it.
        """
        order = self._by_token.get(register.token)
        if order is None or order.has_ended or order.slot not in (None, register.slot):
            return False
        if self._retained is not None and order.slot is None:
            self._retained.add(register)
        order.slot = register.slot
        return True

    def end(self, number: int) -> SlotOrder | None:
        """Notes that the process of an order has ended. Returns the order; None if that is not news."""
        order = self._by_number.get(number)
        if order is None or order.has_ended:
            return None
        order.has_ended = True
        if self._retained is not None and order.slot is not None:
            self._retained.remove(order.slot)
        return order
