"""Output of a task: gathered during a step, then partitioned and encoded (protocol 2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, TaskId
from clonos.core.model.plan import Channel, Edge, Partitioning, Plan
from clonos.core.model.watermark import Watermark, encode_watermark
from clonos.core.ports.operator_chain import FailedAt, StepFailed
from clonos.core.ports.task_port import Output
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.task.record_or_replay import TaskLog
from clonos.core.values import ValueUnsupported, encode_columns, encode_rows, encode_timed_rows
from clonos.core.values.column_keys import split_columns
from clonos.core.values.keys import Router
from clonos.kernels.record_batch import RecordBatch

RECORD_CHARACTERS_MAX = 500


def _unsupported_row(rows: list[Any], error: ValueUnsupported) -> str:
    """Returns the text of the row that has no encoding, whose index is in ``error.path``."""
    found = re.match(r"rows\[(\d+)\]", error.path)
    if found is None:
        return ""
    try:
        return repr(rows[int(found[1])])[:RECORD_CHARACTERS_MAX]
    except Exception as raised:  # noqa: BLE001  the user's __repr__
        return f"<its repr raised {type(raised).__name__}>"


class OutputPort:
    """Output on one edge of the plan at its sending task: gathers a step's rows, then partitions and encodes them."""

    __slots__ = (
        *("_gathered", "_giver", "_known_seq", "_outputs", "_router", "_shape"),
        *("channels", "next_seqs", "partitioning"),
    )

    def __init__(
        self, edge: Edge, channels: Sequence[Channel], next_seqs: list[int], max_parallelism: int, known_seq: int = 0
    ) -> None:
        """Takes the positions of the channels. Output below ``known_seq`` was received already and is only counted."""
        self.partitioning = partitioning = edge.partitioning
        self._giver = edge.giver
        self.channels: list[ChannelId] = [channel.id for channel in channels]
        self.next_seqs = next_seqs
        self._router = Router(len(channels), max_parallelism) if partitioning is Partitioning.HASH else None
        self._known_seq = known_seq
        self._gathered: list[list[list[Any]]] = []  # of each target: rows, and beside them keys and timestamps
        self._shape = False, False  # whether they have keys and timestamps
        self._outputs: list[Output] = []

    def rows(
        self,
        rows: list[Any],
        keys: Sequence[Any] | None,
        times: Sequence[int] | None = None,
        *,
        are_pairs: bool = False,
    ) -> None:
        """Adds rows, or the pairs (key, row), to the step's output, with their timestamps if they have them."""
        if not rows:
            return
        if self._gathered and self._shape != (are_pairs, times is not None):
            self._encode_gathered()
        self._shape = are_pairs, times is not None
        columns = [rows]
        if are_pairs:
            columns.append(cast(list[Any], keys))
        if times is not None:
            columns.append(list(times))
        if self._router is not None:
            assert keys is not None, self.channels
            self._add(self._router.split(keys, *columns))
        elif self.partitioning is Partitioning.REBALANCE and len(self.channels) > 1:
            first = self._next_target()
            self._add([self._dealt(column, first) for column in columns])
        else:
            self._add([[list(column)] for column in columns])

    def _next_target(self) -> int:
        """Returns the receiver of the next element: element k of this task goes to receiver k mod n, a function of the
        output positions alone.
        """
        gathered = sum([len(columns[0]) for columns in self._gathered])
        return (sum(self.next_seqs) + gathered) % len(self.channels)

    def _dealt(self, items: list[Any], first: int) -> list[list[Any]]:
        width = len(self.channels)
        return [items[(target - first) % width :: width] for target in range(width)]

    def _add(self, parts: Sequence[Sequence[list[Any]]]) -> None:
        """Adds columns, each by target, in lists that nobody else has."""
        if not self._gathered:
            self._gathered = list(map(list, zip(*parts, strict=True)))
            return
        for gathered, columns in zip(self._gathered, zip(*parts, strict=True), strict=True):
            for cells, part in zip(gathered, columns, strict=True):
                cells += part

    def columns(self, batch: RecordBatch, groups: Any) -> None:
        """Adds a RecordBatch, which stays a separate batch."""
        self._encode_gathered()
        width = len(self.channels)
        if self.partitioning is Partitioning.BROADCAST or width == 1:
            parts = [batch]
        elif self._router is not None:
            assert groups is not None, self.channels
            parts = split_columns(self._router, batch, groups)
        else:
            import pyarrow as pa

            start = sum(self.next_seqs) % width
            rows = range(batch.num_rows)
            parts = [
                batch.take(
                    pa.array(rows[(target - start) % width :: width], pa.int64())
                )  # an empty part has a type too
                for target in range(width)
            ]
        for target, part in enumerate(parts):
            if part.num_rows:
                count = part.num_rows
                self._put(
                    target, ElementKind.COLUMNS, count, b"" if self._is_known(target, count) else encode_columns(part)
                )

    def _encode_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        for target, columns in enumerate(gathered):
            count = len(columns[0])
            if count:
                payload = b"" if self._is_known(target, count) else self._encoded(*columns)
                self._put(target, ElementKind.ROWS, count, payload)

    def _is_known(self, target: int, count: int) -> bool:
        return self.next_seqs[target] + count <= self._known_seq

    def _encoded(self, rows: list[Any], *beside: list[Any]) -> bytes:
        are_pairs, are_timed = self._shape
        keys = beside[0] if are_pairs else None
        try:
            return encode_timed_rows(rows, beside[-1], keys) if are_timed else encode_rows(rows, keys)
        except ValueUnsupported as error:
            sent = rows if keys is None else list(zip(keys, rows, strict=True))
            raise StepFailed(FailedAt(self._giver, None, _unsupported_row(sent, error))) from error

    def _put(self, target: int, kind: ElementKind, count: int, payload: bytes) -> None:
        everywhere = self.partitioning is Partitioning.BROADCAST
        for index in range(len(self.channels)) if everywhere else (target,):
            self._outputs.append(Output(self.channels[index], kind, count, CheckpointId(0), payload))
            self.next_seqs[index] += count

    def control(self, kind: ElementKind, checkpoint: CheckpointId, payload: bytes = b"") -> None:
        """Adds a barrier, a watermark or the end of the stream for every receiver, but not for an external system."""
        self._encode_gathered()
        if self.partitioning is Partitioning.EXTERNAL:
            return
        for index, channel in enumerate(self.channels):
            self._outputs.append(Output(channel, kind, 1, checkpoint, payload))
            self.next_seqs[index] += 1

    def drain(self) -> list[Output]:
        """Returns the encoded output of the step."""
        self._encode_gathered()
        outputs, self._outputs = self._outputs, []
        return outputs


class TaskOutputs:
    """Output ports of one incarnation, and the output positions at the beginning of its current step."""

    __slots__ = ("_by_port", "_ports", "_positions", "are_columnar")

    def __init__(self, plan: Plan, task: TaskId, snapshot: Snapshot | None, external_seq: int) -> None:
        restored = dict(snapshot.outputs) if snapshot else {}
        by_edge: dict[int, list[Channel]] = {}
        for channel in plan.outputs[task]:
            by_edge.setdefault(channel.edge, []).append(channel)
        self._ports: list[OutputPort] = []
        self._by_port: dict[int, list[OutputPort]] = {}
        for number, channels in by_edge.items():
            edge = plan.edges[number]
            next_seqs = [restored.get(channel.id, 0) for channel in channels]
            known_seq = external_seq if edge.partitioning is Partitioning.EXTERNAL else 0
            output_port = OutputPort(edge, channels, next_seqs, plan.max_parallelism, known_seq)
            self._ports.append(output_port)
            self._by_port.setdefault(edge.port, []).append(output_port)
        self._positions: dict[ChannelId, int] = {}
        self.are_columnar = False  # whether any output was columns
        self._remember()

    def _remember(self) -> None:
        for port in self._ports:
            self._positions.update(zip(port.channels, port.next_seqs, strict=True))

    def positions(self) -> dict[ChannelId, int]:
        """Returns, per channel, the number of the next element as of the last ``drain``."""
        return dict(self._positions)

    def rows(
        self,
        port: int,
        rows: list[Any],
        keys: Sequence[Any] | None,
        times: Sequence[int] | None,
        *,
        are_pairs: bool = False,
    ) -> None:
        """Adds rows, or the pairs (key, row), to every edge on ``port``, with their timestamps if they have them."""
        for output_port in self._by_port.get(port, ()):
            output_port.rows(rows, keys, times, are_pairs=are_pairs)

    def columns(self, port: int, batch: RecordBatch, groups: Any) -> None:
        """Adds a RecordBatch to every edge on ``port``."""
        self.are_columnar = True
        for output_port in self._by_port.get(port, ()):
            output_port.columns(batch, groups)

    def control(self, kind: ElementKind, checkpoint: CheckpointId, payload: bytes = b"") -> None:
        """Adds a barrier or the end of the stream on every edge."""
        for port in self._ports:
            port.control(kind, checkpoint, payload)

    def watermark(self, port: int, watermark: Watermark) -> None:
        """Adds a watermark to every edge on ``port``."""
        payload = encode_watermark(watermark)
        for output_port in self._by_port.get(port, ()):
            output_port.control(ElementKind.WATERMARK, CheckpointId(0), payload)

    def drain(self) -> tuple[Output, ...]:
        """Returns the encoded output of the step, and begins the next step's positions after it."""
        outputs = [output for port in self._ports for output in port.drain()]
        if outputs:
            self._remember()
        return tuple(outputs)


class StepCollector:
    """Collector of what user code emits in a step (``clonos.core.ports.operator_chain.Collector``)."""

    def __init__(self, outputs: TaskOutputs, log: TaskLog) -> None:
        self._outputs, self._log = outputs, log
        self._parts: list[bytes] = []
        self.has_reached_limit = False  # a limit of the task lets nothing more through

    def rows(
        self, port: int, rows: list[Any], keys: Sequence[Any] | None = None, times: Sequence[int] | None = None
    ) -> None:
        """Adds rows to every edge on ``port``, with their timestamps if they have them."""
        self._outputs.rows(port, rows, keys, times)

    def pairs(self, port: int, keys: list[Any], rows: list[Any], times: Sequence[int] | None = None) -> None:
        """Adds the pairs (key, row) to every edge on ``port``, with their timestamps if they have them."""
        self._outputs.rows(port, rows, keys, times, are_pairs=True)

    def columns(self, port: int, batch: RecordBatch, groups: Any = None) -> None:
        """Adds a RecordBatch to every edge on ``port``."""
        self._outputs.columns(port, batch, groups)

    def watermark(self, port: int, watermark: Watermark) -> None:
        """Adds a watermark to every edge on ``port``, after the rows and columns that were added before."""
        self._outputs.watermark(port, watermark)

    def prepared(self, part: bytes) -> None:
        """Adds a part that the completed checkpoint will commit."""
        self._parts.append(part)

    def routed_error(self, description: bytes) -> bool:
        """Records that an exception was routed to the error output, so that replay routes it at the same place."""
        self._log.follow_routed(description)
        return True

    def reach_limit(self) -> None:
        """Notes that a limit lets nothing more through; the coordinator then ends the sources in front of it."""
        self.has_reached_limit = True

    def parts(self) -> tuple[bytes, ...]:
        """Returns the parts prepared since the last call."""
        found = tuple(self._parts)
        self._parts.clear()
        return found
