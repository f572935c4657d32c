"""Messages in pieces that are under way to a process: what has come of each, bounded over all of them.

Pieces are held for known senders only (``Intake`` asks first), and until their connection ends.
"""

from __future__ import annotations

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import SlotId
from clonos.core.wire.codec import MESSAGE_BYTES_MAX
from clonos.io.net.frames import OF_MESSAGE, PIECES_MAX, Head, slot_name

HELD_BYTES_MAX = 2 << 30
"""Of pieces in a slot: one message of the longest kind and some usual snapshots beside it."""

COORDINATOR_HELD_BYTES_MAX = MESSAGE_BYTES_MAX
"""Of pieces in the coordinator's process: nothing that is sent there has a payload."""


class Transfer:
    """The pieces of one message that have come by one connection."""

    __slots__ = (
        "_transfers",
        "count",
        "is_cut",
        "is_quiet",
        "message",
        "message_bytes",
        "payload",
        "sender",
        "size_bytes",
    )

    def __init__(self, sender: SlotId, transfers: Transfers) -> None:
        self.sender = sender
        self._transfers = transfers
        self.message: list[bytes | memoryview] = []
        self.payload: list[bytes | memoryview] = []
        self.count = 0
        self.message_bytes = self.size_bytes = 0
        self.is_quiet = False  # nothing has come since the last tick
        self.is_cut = False  # it was given up for another one

    def add(self, head: Head, piece: bytes | memoryview) -> None:
        """Takes the next piece.

        Raises: MessageMalformed, if the message is too long, or this process holds too much, most of it of its sender.
        """
        self.check()
        is_of_message = bool(head.flags & OF_MESSAGE)
        limits = self._transfers
        if self.count >= limits.pieces_max:
            raise MessageMalformed(slot_name(self.sender), f"more than {limits.pieces_max} pieces of one message")
        if is_of_message and self.message_bytes + len(piece) > limits.message_bytes_max:
            what = f"{self.message_bytes + len(piece)} bytes of a message, the limit is {limits.message_bytes_max}"
            raise MessageMalformed(slot_name(self.sender), what)
        (self.message if is_of_message else self.payload).append(piece)
        self.is_quiet = False
        self.count += 1
        self.message_bytes += len(piece) if is_of_message else 0
        self._transfers.hold(self, len(piece))
        self.check()

    def check(self) -> None:
        """Raises: MessageMalformed, if this transfer was given up."""
        if self.is_cut:
            reason = f"this process holds more than {self._transfers.bytes_max} bytes of unfinished messages"
            raise MessageMalformed(slot_name(self.sender), f"{reason}, and most of them are of this sender")

    def join(
        self, rest: bytes | memoryview, payload: bytes | memoryview
    ) -> tuple[bytes | memoryview, bytes | memoryview]:
        """The whole message and the whole payload, given what came last."""
        return (
            b"".join((*self.message, rest)) if self.message else rest,
            b"".join((*self.payload, payload)) if self.payload else payload,
        )

    def end(self) -> None:
        """Gives the memory back."""
        self._transfers.release(self)
        self.message.clear()
        self.payload.clear()


class Transfers:
    """All transfers of a process. ``held_bytes`` never stays above ``bytes_max``: the sender with most loses all."""

    def __init__(
        self, bytes_max: int, *, pieces_max: int = PIECES_MAX, message_bytes_max: int = MESSAGE_BYTES_MAX
    ) -> None:
        self.bytes_max, self.pieces_max, self.message_bytes_max = bytes_max, pieces_max, message_bytes_max
        self.held_bytes = 0
        self._open: dict[Transfer, None] = {}

    def begin(self, sender: SlotId) -> Transfer:
        """A message in pieces begins."""
        transfer = Transfer(sender, self)
        self._open[transfer] = None
        return transfer

    def hold(self, transfer: Transfer, size_bytes: int) -> None:
        """A piece of ``transfer`` has come."""
        transfer.size_bytes += size_bytes
        self.held_bytes += size_bytes
        if self.held_bytes > self.bytes_max:
            of_senders: dict[SlotId, int] = {}
            for each in self._open:
                of_senders[each.sender] = of_senders.get(each.sender, 0) + each.size_bytes
            loser = max(of_senders, key=lambda sender: (of_senders[sender], sender))
            for each in [each for each in self._open if each.sender == loser]:
                each.is_cut = True
                each.end()

    def release(self, transfer: Transfer) -> None:
        """``transfer`` is over."""
        if transfer in self._open:
            del self._open[transfer]
            self.held_bytes -= transfer.size_bytes
