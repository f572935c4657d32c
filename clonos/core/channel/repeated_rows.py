"""Rows that a receiver has taken and that the replay of a later incarnation of the sender must repeat (protocol 4.4).

The receiver keeps the last batch of rows as it came, and takes the digest of its last row only for a handshake with
another incarnation of the sender. The sender compares it with its own row of this number where its log ends.
"""

from __future__ import annotations

from clonos.core.channel.segment import Chunk
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import Divergence
from clonos.core.model.ids import Incarnation
from clonos.core.values.row_digest import row_digest
from clonos.core.wire.channel_messages import TakenRow


class RowNotRepeated(Divergence):
    """Error for a task whose replay, with the log and the input of the first execution, has made another row in the
    place of a row that a receiver has taken.

    ``receiver``: name of that task. ``seq``: number of the row in the channel.
    """

    task: str
    receiver: str
    seq: int

    def __str__(self) -> str:
        return (
            f"task {self.task} does not repeat its output: for element {self.seq} of the channel to {self.receiver},"
            f" its replay makes another row than {self.receiver} had received before the failure."
            "\nLikely cause: the output depends on a time, a random number, the environment, a variable outside"
            " declared state, or the order of a set."
            "\nTake time, randomness and data from the services of clonos, keep variables as state, sort sets; clonos"
            " check finds most such lines (docs/determinism.md). Then go on from the last checkpoint with --resume."
        )


class LastBatch:
    """Last batch of rows that a receiver has accepted, from one incarnation of the sender."""

    __slots__ = ("_count", "_first_seq", "_payload", "_sender", "_taken")

    def __init__(self, sender: Incarnation, first_seq: int, count: int, payload: bytes | memoryview) -> None:
        self._sender, self._first_seq, self._count = sender, first_seq, count
        self._payload: bytes | memoryview = payload
        self._taken: TakenRow | None = None

    def taken_from_other(self, sender: Incarnation) -> TakenRow | None:
        """Returns the last row if another incarnation than ``sender`` has sent it. The batch is then given up."""
        if sender == self._sender:
            return None
        if self._payload:
            self._taken = _taken(self._first_seq, self._count, self._payload)
            self._payload = b""
        return self._taken


def _taken(first_seq: int, count: int, payload: bytes | memoryview) -> TakenRow | None:
    try:
        return TakenRow(first_seq + count - 1, row_digest(payload, count - 1))
    except Exception:  # noqa: BLE001  malformed bytes, which the task reports
        return None


def is_repeated(taken: TakenRow, chunk: Chunk) -> bool:
    """Returns whether a chunk of the replay, which has the element of this number, has the same row there."""
    if chunk.kind is not ElementKind.ROWS:
        return chunk.kind is ElementKind.COLUMNS  # which are not compared
    return row_digest(chunk.payload, taken.seq - chunk.first_seq) == taken.digest
