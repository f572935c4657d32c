"""Fuzz jobs whose source cannot be re-read: a producer sends lines, the real ``JournalHead`` reads the journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from clonos.core.model.ids import TaskId
from clonos.core.model.plan import Edge, Partitioning
from clonos.core.ports.operator_chain import ChainContext, ChainSnapshot, Mirror, NothingToRead
from clonos.operators.connector_contract import ProducerConnection
from clonos.operators.journal_source import JournalHead
from clonos.operators.operator import Operator, Times
from clonos_chaos.jobs.fuzz_chain import FuzzChain, Work
from clonos_chaos.jobs.fuzz_jobs import FuzzJob
from clonos_chaos.sim.producers import SimProducer


class PushedOffsets:
    """Source of lines of offsets. The simulated slot feeds them, so that no connection is made."""

    def connect(self, offset_bytes: int) -> ProducerConnection:
        raise AssertionError(offset_bytes)

    def cut(self, data: bytes) -> list[bytes]:
        return data.splitlines(keepends=True)

    def decode(self, records: list[bytes]) -> list[tuple[int, Any]]:
        return [(int(record), ()) for record in records]


class PushedChain(FuzzChain):
    """Fuzz chain that reads a journal."""

    def __init__(self, job: PushedJob, vertex: int) -> None:
        super().__init__(job, vertex)
        self._head = JournalHead("source", PushedOffsets())
        self._head.out = _Into(self)

    def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
        super().open(context, mirror, position)
        if position is not None:
            self._head.restore(self.position)

    def snapshot(self, checkpoint: int, full: bool) -> ChainSnapshot:
        self.position = self._head.position()
        return super().snapshot(checkpoint, full)

    def feed(self, data: bytes) -> bool:
        return self._head.feed(data)

    def unread_bytes(self) -> int:
        return self._head.unread_bytes()

    def poll(self, records_max: int) -> tuple[int, int] | NothingToRead:
        return self._head.poll(records_max)

    def read(self, split: int, count: int) -> None:
        self._head.read(split, count)

    def take(self, rows: list[Any]) -> None:
        """Processes the rows that the journal head has read."""
        self._process(rows)


class _Into(Operator):
    def __init__(self, chain: PushedChain) -> None:
        self._chain = chain

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self._chain.take(rows)


class PushedJob(FuzzJob):
    """Job with one producer per source task. ``goes_back``: producers resend what was not replicated."""

    def __init__(
        self,
        name: str,
        rng: Random,
        records: int,
        sharing_depth: int | None,
        build: Callable[[FuzzJob], None] | None = None,
        goes_back: bool | None = None,
    ) -> None:
        self.goes_back = rng.random() < 0.5 if goes_back is None else goes_back
        super().__init__(name, rng, records, sharing_depth, build or _drawn)
        self.producers = {
            task: SimProducer(task, self.inputs[self.plan.index_of(task)], Random(rng.getrandbits(64)), self.goes_back)
            for task in self.plan.sources
        }

    def new_chain(self, vertex: int) -> FuzzChain:
        """Makes a chain for one incarnation."""
        return PushedChain(self, vertex) if self.works[vertex].is_pushed else FuzzChain(self, vertex)

    def expected(self) -> Sequence[int]:
        """Returns the offsets that the keepers held, and no others."""
        return sorted(offset for producer in self.producers.values() for offset in producer.retained())

    def complaints(self, alarms: list[dict[str, Any]], exposed: set[TaskId]) -> list[str]:
        """Returns the complaints of the producers."""
        return [text for producer in self.producers.values() for text in producer.complaints_of(alarms, exposed)]


def _drawn(job: FuzzJob) -> None:
    """Draws one vertex with an external system, or two or three in a row."""
    rng = job.rng
    length = rng.choice((1, 2, 2, 3))
    calls_with_effect = rng.random() < 0.2
    source = job.add(
        "source",
        Work(
            calls=rng.random() < 0.4 or calls_with_effect,
            effects=calls_with_effect,
            draws=rng.random() < 0.5,
            reads_clock=rng.random() < 0.5,
            ports=(0,),
            is_pushed=True,
        ),
        rng.choice((1, 1, 2)),
    )
    if length == 1:
        job.edges.append(Edge(source, None, Partitioning.EXTERNAL, 0))
        job.vertices[source] = replace(job.vertices[source], has_effects=True)
        return
    previous = source
    if length == 3:
        previous = job.vertex("map", rng.choice((1, 2)), (0,))
        job.edge(source, previous)
    job.edge(previous, job.sink(rng.choice((1, 2))))
