"""Runs a compiled job in one thread, without logs: real chains, partitioning and encoding, and a manual clock.

A barrier is taken when all queues are empty, so a snapshot of all tasks is consistent by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import pyarrow

from clonos.api.graph import JobGraph
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.metric_series import MetricTable
from clonos.core.model.options import Options
from clonos.core.model.plan import Partitioning
from clonos.core.model.watermark import Watermark, decode_watermark, encode_watermark
from clonos.core.ports.operator_chain import ChainContext, ChainSnapshot, NothingToRead
from clonos.core.task.watermarks import InputWatermarks, advance, process
from clonos.core.values import decode_rows, encode_columns, encode_rows, encode_timed_rows
from clonos.core.values.column_keys import split_columns
from clonos.core.values.elements import decode_elements
from clonos.core.values.keys import Router
from clonos.io.process.pickling import pickled
from clonos.operators.chain import OperatorChain
from clonos.operators.job_image import JobImage

START_NS = 1_700_000_000_000_000_000


@dataclass
class Clock:
    """The recorder of all tasks: the time is what the test says."""

    now_ns: int = START_NS
    live: bool = True
    epoch: int = 0
    metric_table: MetricTable = field(default_factory=MetricTable)

    def metrics(self, name: str) -> MetricTable:
        return self.metric_table

    def instant_ns(self, exact: bool) -> int:
        return self.now_ns

    def seed(self) -> bytes:
        return bytes(16)

    def call(self, service: str, request: bytes, perform: Callable[[str], object], **rest: Any) -> object:
        return perform("key")


@dataclass
class Inbox:
    """Queue of one input edge of one task."""

    task: int
    port: int
    batches: deque[tuple[ElementKind, bytes, int]] = field(default_factory=deque)


@dataclass(frozen=True)
class Channel:
    """Input channel of a task, as ``InputWatermarks`` looks at it."""

    channel: Any  # (edge, sender)
    has_ended: bool = False


class TaskCollector:
    """Partitions and encodes as the core does."""

    def __init__(self, run: Run, task: int) -> None:
        self.run = run
        self.task = task
        self.sent: dict[int, int] = {}
        self.errors: list[bytes] = []

    def rows(
        self, port: int, rows: list[Any], keys: Sequence[Any] | None = None, times: Sequence[int] | None = None
    ) -> None:
        assert rows, "an empty batch was emitted"
        for number in self._edges(port):
            edge = self.run.plan.edges[number]
            if edge.partitioning is Partitioning.EXTERNAL:
                self.run.written.setdefault(self.vertex_name, []).extend(decode_rows(encode_rows(rows)))
                continue
            stamped: list[Any] = rows if times is None else list(zip(rows, times, strict=True))
            for target, part in enumerate(self._parts(number, stamped, keys)):
                if part:
                    data = (
                        encode_rows(part) if times is None else encode_timed_rows(*map(list, zip(*part, strict=True)))
                    )
                    self.run.deliver(number, self.task, target, ElementKind.ROWS, data)

    def pairs(self, port: int, keys: list[Any], rows: list[Any], times: Sequence[int] | None = None) -> None:
        self.rows(port, list(zip(keys, rows, strict=True)), keys, times)

    def columns(self, port: int, batch: Any, groups: Any = None) -> None:
        assert batch.num_rows, "an empty batch was emitted"
        for number in self._edges(port):
            edge = self.run.plan.edges[number]
            if edge.partitioning is Partitioning.HASH:
                width = self.run.plan.vertices[edge.target].parallelism
                parts = split_columns(Router(width, self.run.plan.max_parallelism), batch, groups)
            else:
                parts = [
                    batch.take(pyarrow.array(part, pyarrow.int64()))
                    for part in self._parts(number, list(range(batch.num_rows)), None)
                ]
            for target, part in enumerate(parts):
                if part.num_rows:
                    self.run.deliver(number, self.task, target, ElementKind.COLUMNS, encode_columns(part))

    def watermark(self, port: int, watermark: Watermark) -> None:
        for number in self._edges(port):
            edge = self.run.plan.edges[number]
            if edge.partitioning is not Partitioning.EXTERNAL:
                for target in range(self.run.plan.vertices[edge.target].parallelism):
                    self.run.deliver(number, self.task, target, ElementKind.WATERMARK, encode_watermark(watermark))

    def prepared(self, part: bytes) -> None:
        self.run.prepared.setdefault(self.run.plan.vertex_of[self.task], []).append(part)

    def reach_limit(self) -> None:
        pass

    def routed_error(self, description: bytes) -> bool:
        self.errors.append(description)
        return True

    @property
    def vertex_name(self) -> str:
        name: str = self.run.plan.vertices[self.run.plan.vertex_of[self.task]].name
        return name

    def _edges(self, port: int) -> list[int]:
        vertex = self.run.plan.vertex_of[self.task]
        return [i for i, edge in enumerate(self.run.plan.edges) if (edge.source, edge.port) == (vertex, port)]

    def _parts(self, number: int, rows: list[Any], keys: Sequence[Any] | None) -> list[list[Any]]:
        edge = self.run.plan.edges[number]
        width = self.run.plan.vertices[edge.target].parallelism
        if edge.partitioning is Partitioning.HASH:
            assert keys is not None
            return Router(width, self.run.plan.max_parallelism).split(keys, rows)[0]
        if edge.partitioning is Partitioning.BROADCAST:
            return [rows] * width
        if edge.partitioning is Partitioning.REBALANCE:
            start = self.sent.get(number, 0)
            self.sent[number] = start + len(rows)
            return [rows[(target - start) % width :: width] for target in range(width)]
        index = self.run.plan.index_of(self.run.plan.tasks[self.task])
        return [rows if target == index else [] for target in range(width)]


class Run:
    """A job that runs; ``restored`` is the answer of another run's ``barrier``."""

    def __init__(
        self,
        image: JobImage,
        restored: Sequence[tuple[list[bytes], bytes]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.image: JobImage = cloudpickle.loads(pickled(image))
        self.plan = self.image.plan
        self.clock = clock or Clock()
        self.written: dict[str, list[Any]] = {}
        self.prepared: dict[int, list[bytes]] = {}
        self.snapshots: list[list[bytes]] = [[] for _ in self.plan.tasks]
        self.chains: list[OperatorChain] = []
        self.inboxes: dict[tuple[int, int], Inbox] = {}
        self.ended: set[int] = set()
        self.watermarks = {task: InputWatermarks(self.channels_of(task), None) for task in self.plan.tasks}
        self.collectors = [TaskCollector(self, task) for task in self.plan.tasks]
        for task in self.plan.tasks:
            self._open(task, restored[task] if restored else None)

    def _open(self, task: int, restored: tuple[list[bytes], bytes] | None) -> None:
        vertex = self.plan.vertex_of[task]
        chain = self.image.new_chain(vertex)
        context = ChainContext(
            task_name=self.plan.task_name(task),
            vertex=vertex,
            index=self.plan.index_of(self.plan.tasks[task]),
            parallelism=self.plan.vertices[vertex].parallelism,
            max_parallelism=self.plan.max_parallelism,
            job_id="job",
            generation=0,
            incarnation=1,
            recorder=self.clock,
            collector=self.collectors[task],
            local_folder="",
            receivers=self.plan.receivers[vertex],
        )
        if restored is None:
            chain.open(context, None, None)
        else:
            mirror = self.image.new_mirror(vertex)
            for changes in restored[0]:
                mirror.apply(changes)
            self.snapshots[task] = list(restored[0])
            chain.open(context, mirror, restored[1])
        self.chains.append(chain)

    def channels_of(self, task: int) -> list[Any]:
        """The input channels of a task: one for each sender of each edge."""
        vertex = self.plan.vertex_of[task]
        return [
            Channel((number, self.plan.first_task[edge.source] + index))
            for number, edge in enumerate(self.plan.edges)
            if edge.target == vertex and edge.has_event_time
            for index in range(self.plan.vertices[edge.source].parallelism)
            if edge.partitioning is not Partitioning.FORWARD or index == self.plan.index_of(self.plan.tasks[task])
        ]

    def deliver(self, edge: int, sender: int, target: int, kind: ElementKind, payload: bytes) -> None:
        """Passes an element from one task to another."""
        vertex = self.plan.edges[edge].target
        ports = [number for number, each in enumerate(self.plan.edges) if each.target == vertex]
        task = self.plan.first_task[vertex] + target
        inbox = self.inboxes.setdefault((edge, task), Inbox(task, ports.index(edge)))
        inbox.batches.append((kind, payload, sender))

    def read(self, records_max: int = 7) -> bool:
        """Every source reads once. False: all has been read."""
        is_open = False
        for task in self.plan.sources:
            found = self.chains[task].poll(records_max)
            if not isinstance(found, NothingToRead):
                self.chains[task].read(*found)
            is_open = is_open or found is not NothingToRead.ALL_READ
        return is_open

    def drain(self) -> None:
        """Until nothing waits."""
        while waiting := [key for key in sorted(self.inboxes) if self.inboxes[key].batches]:
            inbox = self.inboxes[waiting[0]]
            kind, payload, sender = inbox.batches.popleft()
            if kind.is_data:
                process(self.chains[inbox.task], kind, inbox.port, decode_elements(kind, payload))
            else:
                channel: Any = (waiting[0][0], sender)
                advance(self.chains[inbox.task], self.watermarks[inbox.task].take(channel, decode_watermark(payload)))

    def fire(self) -> None:
        """Fires what is due in every task."""
        for chain in self.chains:
            due_ns = chain.next_timer_ns()
            if due_ns is not None and due_ns <= self.clock.now_ns:
                chain.fire_timers(self.clock.now_ns)
        self.drain()

    def pass_time(self, seconds: float) -> None:
        """The clock goes on, and timers fire."""
        self.clock.now_ns += int(seconds * 1_000_000_000)
        self.fire()

    def barrier(self, checkpoint: int, full: bool = False) -> list[tuple[list[bytes], bytes]]:
        """Per task what to restore from: its changes since the first full snapshot, and its position."""
        self.drain()
        taken: list[tuple[list[bytes], bytes]] = []
        for task, chain in enumerate(self.chains):
            is_full = full or not self.snapshots[task]
            snapshot: ChainSnapshot = chain.snapshot(checkpoint, is_full)
            self.snapshots[task] = [snapshot.changes] if is_full else [*self.snapshots[task], snapshot.changes]
            taken.append((list(self.snapshots[task]), snapshot.position))
        return taken

    def finish(self, records_max: int = 7) -> None:
        """Runs to the end of the input."""
        while self.read(records_max):
            self.drain()
        for chain in self.chains:
            chain.end_of_input()
            self.drain()

    def close(self) -> None:
        """Closes all chains."""
        for chain in self.chains:
            chain.close()


def run(graph: JobGraph, parallelism: int = 2, records_max: int = 7) -> Run:
    """The whole job, from its beginning to its end."""
    finished = Run(graph.compile(Options(), parallelism=parallelism))
    finished.finish(records_max)
    finished.barrier(1)
    finished.close()
    return finished


class Given:
    """A source of the given records: task i of n has every n-th. Its marks are places in the share."""

    def __init__(self, records: Iterable[Any]) -> None:
        self.records = list(records)

    def splits(self, parallelism: int) -> list[bytes]:
        return [f"{index} {parallelism}".encode() for index in range(parallelism)]

    def reader(self) -> GivenReader:
        return GivenReader(self.records)


class GivenReader:
    """Reads a share of the records, three at a time."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records
        self.at_once = 3
        self.share: list[Any] = []
        self.place = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        index, width = map(int, split.split())
        self.share = self.records[index::width]
        self.place = int(mark or b"0")

    def read(self, records_max: int) -> list[Any] | None:
        chunk = self.share[self.place : self.place + min(self.at_once, records_max)]
        self.place += len(chunk)
        return chunk or None

    def mark(self) -> bytes:
        return str(self.place).encode()

    def close(self) -> None:
        pass


class Outbox:
    """An immediate sink: what reaches it stands in ``Run.written``."""

    def immediate_writer(self) -> Any:
        raise AssertionError("the driver of the tests keeps what would go there")
