"""Fuzz jobs: a few topologies, their parameters drawn from the world's luck."""

from __future__ import annotations

from random import Random

from clonos.core.chain import Chain, Mirror
from clonos.core.plan import Edge, Partitioning, Plan, Vertex
from clonos_chaos.clockwork import MILLISECOND_NS
from clonos_chaos.fuzz_chain import FuzzChain, FuzzMirror, Work
from clonos_chaos.outsides import SimService

_SPREAD = (Partitioning.HASH, Partitioning.HASH, Partitioning.REBALANCE)


class FuzzJob:
    """A plan, what its vertices do, its input, and how often each offset must come out of which vertex."""

    def __init__(self, name: str, luck: Random, records: int, sharing_depth: int | None) -> None:
        self.name = name
        self.luck = luck
        self.service = SimService(Random(luck.getrandbits(64)))
        self.works: list[Work] = []
        self.vertices: list[Vertex] = []
        self.edges: list[Edge] = []
        self.records = records
        self.copies = 1  # paths from the source to the sink
        _TOPOLOGIES[name](self)
        sources = self.vertices[0].parallelism
        self.inputs = [[(offset, ()) for offset in range(first, records, sources)] for first in range(sources)]
        self.plan = Plan(name, tuple(self.vertices), tuple(self.edges), 128, sharing_depth)

    def new_chain(self, vertex: int) -> Chain:
        """A chain for one incarnation."""
        return FuzzChain(self.works[vertex], self.service, self.inputs if vertex == 0 else None)

    def new_mirror(self, vertex: int) -> Mirror:
        """An empty image of its state."""
        return FuzzMirror()

    # ------------------------------------------------------------------ building

    def vertex(self, name: str, parallelism: int, ports: tuple[int, ...], **overrides: bool) -> int:
        """A vertex that does a random selection of nondeterministic things."""
        luck = self.luck
        windows_ns = luck.choice((0, 0, 0, 20, 100)) * MILLISECOND_NS
        has_effects = overrides.get("effects", luck.random() < 0.1)
        is_source = not self.vertices
        self.works.append(
            Work(
                calls=luck.random() < 0.4 or has_effects,
                effects=has_effects,
                draws=luck.random() < 0.5,
                reads_clock=luck.random() < 0.5,
                windows_ns=0 if is_source else windows_ns,
                ports=ports,
            )
        )
        self.vertices.append(Vertex(name, parallelism, is_source=is_source, has_effects=has_effects))
        return len(self.vertices) - 1

    def sink(self, parallelism: int) -> int:
        """The last vertex: transactional, immediate, or both."""
        kind = self.luck.choice(("transactional", "immediate", "both"))
        immediate = kind != "transactional"
        transactional = kind != "immediate"
        self.works.append(
            Work(
                calls=self.luck.random() < 0.3,
                draws=self.luck.random() < 0.5,
                ports=(0,) if immediate else (),
                is_sink=transactional,
            )
        )
        self.vertices.append(
            Vertex("sink", parallelism, has_effects=immediate, is_transactional=transactional)
        )
        number = len(self.vertices) - 1
        if immediate:
            self.edges.append(Edge(number, -1, Partitioning.OUTSIDE, 0))
        return number

    def edge(self, source: int, target: int, port: int = 0) -> None:
        """An edge with a random partitioning that fits."""
        same = self.vertices[source].parallelism == self.vertices[target].parallelism
        kinds = (*_SPREAD, Partitioning.FORWARD) if same else _SPREAD
        self.edges.append(Edge(source, target, self.luck.choice(kinds), port))


def _shuffle(job: FuzzJob) -> None:
    """Two-level shuffle."""
    width = job.luck.choice((1, 2, 2, 3))
    source = job.vertex("source", job.luck.choice((1, 2)), (0,))
    first = job.vertex("map", width, (0,))
    second = job.vertex("count", job.luck.choice((1, 2)), (0,))
    sink = job.sink(job.luck.choice((1, 2)))
    for pair in ((source, first), (first, second), (second, sink)):
        job.edge(*pair)


def _diamond(job: FuzzJob) -> None:
    """Two paths that meet again: each offset comes out twice."""
    source = job.vertex("source", job.luck.choice((1, 2)), (0, 1))
    left = job.vertex("left", job.luck.choice((1, 2)), (0,))
    right = job.vertex("right", 1, (0,))
    join = job.vertex("join", job.luck.choice((1, 2)), (0,))
    sink = job.sink(1)
    job.edge(source, left, 0)
    job.edge(source, right, 1)
    for pair in ((left, join), (right, join), (join, sink)):
        job.edge(*pair)
    job.copies = 2


def _chain(job: FuzzJob) -> None:
    """Five in a row."""
    previous = job.vertex("source", 1, (0,))
    for name in ("a", "b", "c"):
        vertex = job.vertex(name, 1, (0,))
        job.edge(previous, vertex)
        previous = vertex
    job.edge(previous, job.sink(1))


_TOPOLOGIES = {"shuffle": _shuffle, "diamond": _diamond, "chain": _chain}
FUZZ_TOPOLOGIES = tuple(_TOPOLOGIES)
