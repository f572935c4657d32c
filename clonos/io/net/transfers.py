"""Messages in pieces that a process is receiving, with one limit on the bytes of all of them.

Pieces are held only for admitted senders (``MessageReceiver`` checks that), and only while their connection is open.
"""

from __future__ import annotations

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import SlotId
from clonos.core.wire.message_codec import MESSAGE_BYTES_MAX
from clonos.io.net.frames import OF_MESSAGE, PIECES_MAX, Head, slot_name

HELD_BYTES_MAX = 2 << 30
"""Bytes of pieces in a slot: room for one message of the greatest length and for some usual snapshots."""

COORDINATOR_HELD_BYTES_MAX = MESSAGE_BYTES_MAX
"""Bytes of pieces in the coordinator's process, where no message has a payload."""


class Transfer:
    """Pieces of one message, received on one connection."""

    __slots__ = (
        "_transfers",
        "count",
        "is_discarded",
        "is_idle",
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
        self.is_idle = False  # no piece since the last tick
        self.is_discarded = False  # discarded, because the process held too much

    def add(self, head: Head, piece: bytes | memoryview) -> None:
        """Adds the next piece.

        Raises: MessageMalformed when the message is too long, or when the process holds too much and most of it is from
        this sender.
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
        self.is_idle = False
        self.count += 1
        self.message_bytes += len(piece) if is_of_message else 0
        self._transfers.hold(self, len(piece))
        self.check()

    def check(self) -> None:
        """Checks that this transfer was not discarded. Raises: MessageMalformed when it was."""
        if self.is_discarded:
            reason = f"this process holds more than {self._transfers.bytes_max} bytes of unfinished messages"
            raise MessageMalformed(slot_name(self.sender), f"{reason}, and most of them are from this sender")

    def join(
        self, rest: bytes | memoryview, payload: bytes | memoryview
    ) -> tuple[bytes | memoryview, bytes | memoryview]:
        """Returns the whole message and the whole payload, given the rest of both."""
        return (
            b"".join((*self.message, rest)) if self.message else rest,
            b"".join((*self.payload, payload)) if self.payload else payload,
        )

    def end(self) -> None:
        """Releases the memory."""
        self._transfers.release(self)
        self.message.clear()
        self.payload.clear()


class Transfers:
    """Transfers of a process. Above ``bytes_max``, all transfers of the sender with the most bytes are discarded."""

    def __init__(
        self, bytes_max: int, *, pieces_max: int = PIECES_MAX, message_bytes_max: int = MESSAGE_BYTES_MAX
    ) -> None:
        self.bytes_max, self.pieces_max, self.message_bytes_max = bytes_max, pieces_max, message_bytes_max
        self.held_bytes = 0
        """Invariant: the sum of ``size_bytes`` over the open transfers; at most ``bytes_max`` after ``hold``."""
        self._open: dict[Transfer, None] = {}

    def begin(self, sender: SlotId) -> Transfer:
        """Starts a transfer."""
        transfer = Transfer(sender, self)
        self._open[transfer] = None
        return transfer

    def hold(self, transfer: Transfer, size_bytes: int) -> None:
        """Counts a piece of ``transfer``, and enforces the limit."""
        transfer.size_bytes += size_bytes
        self.held_bytes += size_bytes
        if self.held_bytes > self.bytes_max:
            of_senders: dict[SlotId, int] = {}
            for each in self._open:
                of_senders[each.sender] = of_senders.get(each.sender, 0) + each.size_bytes
            loser = max(of_senders, key=lambda sender: (of_senders[sender], sender))
            for each in [each for each in self._open if each.sender == loser]:
                each.is_discarded = True
                each.end()

    def release(self, transfer: Transfer) -> None:
        """Removes ``transfer``."""
        if transfer in self._open:
            del self._open[transfer]
            self.held_bytes -= transfer.size_bytes
