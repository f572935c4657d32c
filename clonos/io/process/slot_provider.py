"""Port of the driver to the provider of slot processes.

A provider starts slots, reports the end of each at once, and ends all of them when it is closed. The coordinator
decides which slots are needed and what the end of one means: a provider knows no views and no tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol


class SlotEnded(NamedTuple):
    """End of an order's slot process. ``reason``: for users; empty when the process ended without an error."""

    order: int
    reason: str


class SlotProvider(Protocol):
    """Provider of slot processes. An *order* is a request for one slot; its number is never reused.

    ``launch_spec`` is a cloudpickled function that the slot process calls with its domain, and that returns when the
    slot is released; a slot that is a thread calls it with what says that it has to end, too. The listener is called
    from a thread of the provider, once for each order.
    """

    def order(self, launch_spec: bytes, avoid_domains: Collection[str] = ()) -> int:
        """Starts one more slot, outside ``avoid_domains`` if possible. Returns the order's number at once."""

    def withdraw(self, order: int) -> bool:
        """Withdraws an order that waits for a free core. Returns whether it waited; the listener is called all the
        same."""

    def close(self) -> None:
        """Ends every running slot and waits for it; their ends are reported too."""


Listener = Callable[[SlotEnded], None]
