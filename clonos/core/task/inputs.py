"""Input queues of a task: delivered elements that wait to be processed (protocol 2)."""

from __future__ import annotations

from collections import deque
from typing import Any

from clonos.core.channel.credit import cost_bytes
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, TaskId
from clonos.core.model.plan import Channel, Plan
from clonos.core.model.watermark import decode_watermark
from clonos.core.ports.operator_chain import ROWS_AT_ONCE
from clonos.core.ports.task_port import Delivered
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.task.latency import LatencyMarks
from clonos.core.values.elements import RowParts, can_join, cut_elements, decode_elements, join_elements
from clonos.core.values.rows import take_rows
from clonos.core.values.value_errors import ValueMalformed


class _Piece:
    """Delivered batch, decoded when its first element is taken."""

    __slots__ = ("batch", "checkpoint", "freed_bytes", "kind", "left", "mark", "payload", "skip")

    def __init__(self, delivered: Delivered) -> None:
        self.kind = delivered.kind
        self.left = delivered.count - delivered.skip
        self.skip = delivered.skip
        self.checkpoint = delivered.checkpoint
        self.payload = delivered.payload
        self.mark = delivered.mark
        self.freed_bytes = cost_bytes(delivered.count, len(delivered.payload))
        self.batch: Any = None

    def decode(self) -> Any:
        """Returns its elements, as ``RowParts`` or a RecordBatch.

        Raises: ValueMalformed, if they are no valid batch, or others in number than was said.
        """
        if self.batch is None:
            are_rows, count = self.kind is ElementKind.ROWS, self.skip + self.left
            batch = RowParts(self.payload) if are_rows else decode_elements(self.kind, self.payload)
            if len(batch) != count:
                raise ValueMalformed("batch", f"{len(batch)} records for {count} elements")
            if are_rows and self.skip:
                batch.take(self.skip)
            self.batch, self.payload = batch, b""
        return self.batch

    def take(self, count: int) -> Any:
        """Takes the next ``count`` elements, as rows or a RecordBatch."""
        batch, start = self.decode(), self.skip
        self.skip += count
        self.left -= count
        if self.kind is ElementKind.ROWS:
            return batch.take(count)
        return batch if start == 0 and self.left == 0 else cut_elements(self.kind, batch, start, count)


class InputQueue:
    """Queue of one input channel, in the order of its elements."""

    __slots__ = ("blocked_by", "channel", "freed_bytes", "has_ended", "marks", "next_seq", "pieces", "port", "sender")

    def __init__(
        self, channel: Channel, port: int, next_seq: int, has_ended: bool, marks: LatencyMarks | None = None
    ) -> None:
        self.channel, self.sender = channel.id, channel.sender
        self.port = port  # index of its edge among the input edges of the vertex
        self.next_seq = next_seq  # number of the next element to process
        self.has_ended = has_ended
        self.blocked_by: CheckpointId | None = None  # barrier at its head, which waits for the other channels
        self.freed_bytes = 0
        self.pieces: deque[_Piece] = deque()
        self.marks = marks

    def end(self) -> None:
        """Notes that the end of the stream has been processed."""
        self.has_ended = True

    def block(self, checkpoint: CheckpointId) -> None:
        """Waits with what lies behind a barrier until the other channels have it too."""
        self.blocked_by = checkpoint

    def unblock(self) -> None:
        """Continues after the barrier."""
        self.blocked_by = None

    def put(self, delivered: Delivered) -> None:
        """Queues a batch that the slot has accepted."""
        self.pieces.append(_Piece(delivered))

    @property
    def waiting_count(self) -> int:
        """Number of elements in the queue, of any kind."""
        return sum(piece.left for piece in self.pieces)

    def run_length(self, limit: int) -> int:
        """Returns how many elements at the head of the queue a step can take, at most ``limit``.

        These are records of one kind and the watermarks between them, or one barrier, or the end.
        """
        total, kind = 0, None
        for piece in self.pieces:
            if piece.kind is not kind and piece.kind is not ElementKind.WATERMARK:
                if kind is not None:
                    break
                if piece.kind.is_control:
                    return total or 1
                kind = piece.kind
            total += piece.left
            if total >= limit:
                return limit
        return total

    def take_freed(self) -> tuple[ChannelId, int, int]:
        """Returns (channel, next sequence number, bytes freed) since the last call."""
        freed_bytes, self.freed_bytes = self.freed_bytes, 0
        return self.channel, self.next_seq, freed_bytes

    def take(self, count: int) -> tuple[ElementKind, Any]:
        """Takes the next ``count`` elements as one contiguous batch, of records only up to the next watermark, of rows
        at most ``ROWS_AT_ONCE``, and of columns only up to the next change of their schema.

        Returns their kind and the batch; for a watermark its content, for a barrier its checkpoint and whether the job
        stops there.
        """
        head = self.pieces[0]
        if head.kind.is_control:
            self.next_seq += 1
            self._drop(head)
            is_watermark = head.kind is ElementKind.WATERMARK
            return head.kind, decode_watermark(head.payload) if is_watermark else (head.checkpoint, bool(head.payload))
        if head.kind is ElementKind.ROWS:
            count = min(count, ROWS_AT_ONCE)
        if head.left == count:
            self.next_seq += count
            self._drop(head)
            return head.kind, head.take(count)
        parts: list[Any] = []
        missing = count
        while missing:
            piece = self.pieces[0]
            if piece.kind is not head.kind or (parts and not can_join(head.kind, parts[0], piece.decode())):
                break
            taken = min(missing, piece.left)
            parts.append(piece.take(taken))
            missing -= taken
            if not piece.left:
                self._drop(piece)
        self.next_seq += count - missing
        if len(parts) == 1:
            return head.kind, parts[0]
        if all(type(part) is list for part in parts):
            return head.kind, take_rows([(part, 0, len(part)) for part in parts])
        return head.kind, join_elements(head.kind, parts)

    def _drop(self, piece: _Piece) -> None:
        self.freed_bytes += piece.freed_bytes
        self.pieces.popleft()
        if piece.mark is not None and self.marks is not None:
            self.marks.arrive(piece.mark, self.sender)


def open_inputs(plan: Plan, task: TaskId, snapshot: Snapshot | None, marks: LatencyMarks) -> list[InputQueue]:
    """Returns the queues of a task's input channels, ascending, at the restored positions."""
    restored = dict(snapshot.inputs) if snapshot else {}
    ended = set(snapshot.ended) if snapshot else set()
    vertex = plan.vertex_of[task]
    edges = [number for number, edge in enumerate(plan.edges) if edge.target == vertex]
    queues = [
        InputQueue(c, edges.index(c.edge), restored.get(c.id, 0), c.id in ended, marks) for c in plan.inputs[task]
    ]
    blocked = dict(snapshot.blocked) if snapshot else {}
    for queue in queues:
        if queue.channel in blocked:
            queue.block(blocked[queue.channel])
    return queues


def blocked_inputs(queues: list[InputQueue]) -> tuple[tuple[ChannelId, CheckpointId], ...]:
    """Returns the channels that wait behind a barrier, and the checkpoint of each."""
    return tuple((queue.channel, queue.blocked_by) for queue in queues if queue.blocked_by is not None)
