"""What bears slots: the door between the driver and the places where slot processes live.

A provider starts slots, says at once when one has ended, and ends them all when it is closed. It knows nothing of
views and tasks: which slots are wanted, and what the death of one means, the coordinator decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol


class SlotEnded(NamedTuple):
    """An order's slot process is over. ``reason``: for people; empty when it ended by itself as it should."""

    order: int
    reason: str


class SlotProvider(Protocol):
    """Starts slot processes. An *order* is one slot asked for; its number is never used twice.

    A birth is the cloudpickled function that the slot process calls with its domain, and that returns when the slot
    is released. The listener is called from a thread of the provider, once for each order that was begun.
    """

    def order(self, birth: bytes, avoid_domains: Collection[str] = ()) -> int:
        """Starts one more slot, in none of these domains where there is a choice; returns at once with the order's
        number."""

    def close(self) -> None:
        """Ends every slot that still runs and waits for it. Orders that end thereby are reported too."""


Listener = Callable[[SlotEnded], None]
