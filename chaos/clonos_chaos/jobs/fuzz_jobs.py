"""Fuzz jobs: a few topologies with random parameters, or a job built by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.ports.operator_chain import Chain, Mirror
from clonos_chaos.jobs.fuzz_chain import FuzzChain, FuzzMirror, SharedByChains, Work
from clonos_chaos.sim.external_systems import SimService
from clonos_chaos.sim.producers import SimProducer
from clonos_chaos.sim.sim_tables import ExternalKind
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS

DOUBTS = ("again", "reconcile", "raise")
"""Treatments of a call in doubt: ``Work.doubt``."""

_SPREAD = (Partitioning.HASH, Partitioning.HASH, Partitioning.REBALANCE)


class FuzzJob(SharedByChains):
    """Job with a plan, the work of its vertices, its input, and how often each offset must come out of the sink."""

    def __init__(
        self, name: str, rng: Random, records: int, sharing_depth: int | None, build: Callable[[FuzzJob], None]
    ) -> None:
        self.name = name
        self.rng = rng
        self.service = SimService(Random(rng.getrandbits(64)), rng.choice((0.0, 0.0, 0.2)))
        self.works = []
        self.vertices: list[Vertex] = []
        self.edges: list[Edge] = []
        self.records = records
        self.copies = 1  # paths from the source to the sink
        self.chains_open = 0
        self.failed_once = []
        self.is_uneven = False  # the first of two sources has little to read
        self.producers: dict[TaskId, SimProducer] = {}
        self.external_kind = ExternalKind.ALARMING  # where the world does not draw one
        build(self)
        sources = self.vertices[0].parallelism
        self.inputs = [list(range(first, records, sources)) for first in range(sources)]
        if self.is_uneven:
            self.inputs = [list(range(6)), list(range(6, records))]
        self.plan = Plan(name, tuple(self.vertices), tuple(self.edges), 128, sharing_depth)

    def new_chain(self, vertex: int) -> Chain:
        """Makes a chain for one incarnation."""
        return FuzzChain(self, vertex)

    def new_mirror(self, vertex: int) -> Mirror:
        """Makes an empty mirror of its state."""
        return FuzzMirror()

    def expected(self) -> Sequence[int]:
        """Returns the offsets that must come out, each ``copies`` times."""
        return range(self.records)

    def complaints(self, alarms: list[dict[str, Any]], exposed: set[TaskId]) -> list[str]:
        """Returns complaints about the source, given the alarms and the tasks that died with their keepers."""
        return []

    # ------------------------------------------------------------------ built by hand

    def add(self, name: str, work: Work, parallelism: int = 1) -> int:
        """Adds a vertex; the first one is the source."""
        is_source = not self.vertices
        self.works.append(work)
        vertex = Vertex(
            name,
            parallelism,
            is_source=is_source,
            has_effects=work.effects,
            is_journalled=work.is_pushed,
            is_hot=work.is_hot,
        )
        self.vertices.append(vertex)
        return len(self.vertices) - 1

    def add_sink(self, work: Work, parallelism: int = 1) -> int:
        """Adds the last vertex: immediate where its work has a port, transactional where ``is_sink``."""
        immediate = bool(work.ports)
        self.works.append(work)
        self.vertices.append(
            Vertex("sink", parallelism, has_effects=immediate or work.effects, is_transactional=work.is_sink)
        )
        number = len(self.vertices) - 1
        if immediate:
            self.edges.append(Edge(number, None, Partitioning.EXTERNAL, 0))
        return number

    def connect(self, source: int, target: int, partitioning: Partitioning = Partitioning.HASH, port: int = 0) -> None:
        """Adds an edge."""
        self.edges.append(Edge(source, target, partitioning, port))

    # ------------------------------------------------------------------ drawn

    def vertex(self, name: str, parallelism: int, ports: tuple[int, ...]) -> int:
        """Adds a vertex with a random selection of nondeterministic work."""
        rng = self.rng
        windows_ns = rng.choice((0, 0, 0, 20, 100)) * MILLISECOND_NS
        has_effects = rng.random() < 0.1
        work = Work(
            calls=rng.random() < 0.4 or has_effects,
            effects=has_effects,
            doubt=DOUBTS[(len(self.vertices) + int(1e9 * next_of(rng))) % len(DOUBTS)],
            draws=rng.random() < 0.5,
            reads_clock=rng.random() < 0.5,
            windows_ns=windows_ns if self.vertices else 0,
            ports=ports,
        )
        return self.add(name, work, parallelism)

    def sink(self, parallelism: int) -> int:
        """Adds the last vertex: transactional, immediate, or both."""
        kind = self.rng.choice(("transactional", "immediate", "both"))
        work = Work(
            calls=self.rng.random() < 0.3,
            draws=self.rng.random() < 0.5,
            ports=(0,) if kind != "transactional" else (),
            is_sink=kind != "immediate",
        )
        return self.add_sink(work, parallelism)

    def edge(self, source: int, target: int, port: int = 0) -> None:
        """Adds an edge with a random partitioning that fits."""
        same = self.vertices[source].parallelism == self.vertices[target].parallelism
        kinds = (*_SPREAD, Partitioning.FORWARD) if same else _SPREAD
        self.connect(source, target, self.rng.choice(kinds), port)


def _shuffle(job: FuzzJob) -> None:
    """Builds a two-level shuffle."""
    width = job.rng.choice((1, 2, 2, 3))
    source = job.vertex("source", job.rng.choice((1, 2)), (0,))
    first = job.vertex("map", width, (0,))
    second = job.vertex("count", job.rng.choice((1, 2)), (0,))
    sink = job.sink(job.rng.choice((1, 2)))
    for pair in ((source, first), (first, second), (second, sink)):
        job.edge(*pair)


def _diamond(job: FuzzJob) -> None:
    """Builds two paths that meet again: each offset comes out twice."""
    source = job.vertex("source", job.rng.choice((1, 2)), (0, 1))
    left = job.vertex("left", job.rng.choice((1, 2)), (0,))
    right = job.vertex("right", 1, (0,))
    join = job.vertex("join", job.rng.choice((1, 2)), (0,))
    sink = job.sink(1)
    job.edge(source, left, 0)
    job.edge(source, right, 1)
    for pair in ((left, join), (right, join), (join, sink)):
        job.edge(*pair)
    job.copies = 2


def _chain(job: FuzzJob) -> None:
    """Builds a chain of five vertices."""
    previous = job.vertex("source", 1, (0,))
    for name in ("a", "b", "c"):
        vertex = job.vertex(name, 1, (0,))
        job.edge(previous, vertex)
        previous = vertex
    job.edge(previous, job.sink(1))


def next_of(rng: Random) -> float:
    """Returns the next random number without consuming it, so that the worlds of all seeds stay the same."""
    peeked = Random()
    peeked.setstate(rng.getstate())
    return peeked.random()


_TOPOLOGIES: dict[str, Callable[[FuzzJob], None]] = {"shuffle": _shuffle, "diamond": _diamond, "chain": _chain}
FUZZ_TOPOLOGIES = tuple(_TOPOLOGIES)


def draw_job(topology: str, rng: Random, records: int, sharing_depth: int | None) -> FuzzJob:
    """Draws a job of a topology."""
    return FuzzJob(topology, rng, records, sharing_depth, _TOPOLOGIES[topology])


def with_replicas(plan: Plan, seed: int, options: Options | None) -> Plan:
    """Sets ``replicas`` by the options; without options draws it from a separate random stream."""
    drawn = Random(f"replicas of {seed}").choice((None, None, 1, 2))
    return replace(plan, replicas=drawn if options is None else options.replicas)
