"""Simulated job in simulated time: a chain of vertices that takes what arrives, as fast as its tasks can.

It is a model of flow, not of records. In each tick the source reads what has arrived and waits, up to what the
narrowest vertex can take. Time of work and of waiting for receivers follows from that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.scaling.autoscaler import Autoscaler, Decision, ScalingGroup, ScalingMemory, ScalingSettings
from clonos.core.scaling.load import Load, LoadSample, TaskSample, load_between

TICK_S = 5


@dataclass(frozen=True)
class PlantVertex:
    """Vertex of the plant. A task works ``cost_us`` for a record, and gives ``ratio`` records for it.

    ``hot_key_share``: of all records that have one key. ``external_per_s``: records that something outside of the job
    takes from all tasks together. ``processors``: that all tasks share.
    """

    name: str
    cost_us: float
    ratio: float = 1.0
    hot_key_share: float = 0.0
    external_per_s: float = inf
    processors: float = inf

    def hot_share(self, width: int) -> float:
        """Returns the share of the records of the busiest task."""
        return self.hot_key_share + (1.0 - self.hot_key_share) / width

    def capacity_per_s(self, width: int) -> float:
        """Returns the records per second that the vertex can take."""
        return min(
            1e6 / self.cost_us / self.hot_share(width), self.external_per_s, self.processors * 1e6 / self.cost_us
        )


class Plant:
    """The job. ``arrivals_per_s``: by the time in seconds. Its widths are those of ``widths``."""

    def __init__(
        self,
        vertices: tuple[PlantVertex, ...],
        arrivals_per_s: Callable[[float], float],
        reports_lag: bool = True,
    ) -> None:
        self.vertices, self.widths = vertices, {vertex.name: 1 for vertex in vertices}
        self._arrivals_per_s, self._reports_lag = arrivals_per_s, reports_lag
        self.now_s, self.lag = 0, 0.0
        self._incarnation = 1
        self._counters: dict[str, list[float]] = {}
        self._used_us = 0.0

    @property
    def plan(self) -> Plan:
        """Plan of the job, at width 1."""
        vertices = tuple(Vertex(each.name, 1, is_source=not number) for number, each in enumerate(self.vertices))
        edges = tuple(Edge(number, number + 1, Partitioning.HASH, 0) for number in range(len(vertices) - 1))
        return Plan("plant", vertices, edges)

    def tick(self) -> None:
        """Lets one tick pass."""
        arrived = self._arrivals_per_s(self.now_s) * TICK_S
        gain, flow = 1.0, (self.lag + arrived) / TICK_S
        for vertex in self.vertices:
            flow = min(flow, vertex.capacity_per_s(self.widths[vertex.name]) / gain)
            gain *= vertex.ratio
        self.lag += arrived - flow * TICK_S
        rate, is_behind = flow, self.lag > 1e-6
        for number, vertex in enumerate(self.vertices):
            self._work(vertex, rate, is_behind and not number)
            rate *= vertex.ratio
        self.now_s += TICK_S

    def _work(self, vertex: PlantVertex, rate: float, is_blocked: bool) -> None:
        width = self.widths[vertex.name]
        # What limits all tasks together lets each of them work longer for a record.
        together = min(vertex.external_per_s, vertex.processors * 1e6 / vertex.cost_us)
        shares = [vertex.hot_share(width)] + [(1.0 - vertex.hot_key_share) / width] * (width - 1)
        self._used_us += rate * vertex.cost_us * TICK_S
        for index, share in enumerate(shares):
            busy = min(1.0, max(share * rate * vertex.cost_us / 1e6, rate / together))
            counters = self._counters.setdefault(f"{vertex.name}/{index}", [0.0] * 4)
            worked = (share * rate, share * rate * vertex.ratio, busy * 1e6, (1.0 - busy) * 1e6 * is_blocked)
            for place, each in enumerate(worked):
                counters[place] += each * TICK_S

    def sample(self) -> LoadSample:
        """Returns the counters as the tasks report them."""
        tasks = {}
        for number, vertex in enumerate(self.vertices):
            width = self.widths[vertex.name]
            hot_share = vertex.hot_key_share / vertex.hot_share(width)
            for index in range(width):
                records_in, records_out, busy_us, blocked_us = self._counters.get(f"{vertex.name}/{index}", [0.0] * 4)
                is_hot = not index and hot_share > 0.2
                tasks[f"{vertex.name}/{index}"] = TaskSample(
                    self._incarnation,
                    round(records_in),
                    round(records_out),
                    round(busy_us),
                    round(blocked_us),
                    round(self.lag / width) if self._reports_lag and not number else None,
                    "'ann'" if is_hot else "",
                    hot_share if is_hot else 0.0,
                )
        processors = min(vertex.processors for vertex in self.vertices)
        at_ns = self.now_s * 1_000_000_000
        if processors == inf:
            return LoadSample(at_ns, tasks)
        return LoadSample(at_ns, tasks, True, frozenset(), {"host": round(self._used_us)}, {"host": round(processors)})

    def rescale(self, widths: Mapping[str, int]) -> None:
        """Changes widths, as a new generation with new incarnations."""
        self.widths.update(widths)
        self._incarnation += 1
        self._counters = {}


@dataclass
class Run:
    """What a run of the plant was like. ``lags``: in records, at the end of each window."""

    changes: list[tuple[int, dict[str, int], dict[str, int]]]  # at, widths before, widths after
    lags: list[tuple[int, float]]
    loads: list[Load]
    decisions: list[Decision]
    plant: Plant

    def count(self, grows: bool) -> int:
        """Returns the number of changes up, or down."""
        return sum((sum(after.values()) > sum(before.values())) == grows for _, before, after in self.changes)

    def last_sentence(self, group: str) -> str:
        """Returns what was said last about a group."""
        return next(each.sentence for each in self.decisions[-1].advice if each.group == group)


def run_plant(
    plant: Plant,
    seconds: int,
    bounds: Mapping[str, tuple[int, int]],
    settings: ScalingSettings | None = None,
    is_dry: bool = False,
    splits: Mapping[str, int] | None = None,
) -> Run:
    """Runs the plant with an autoscaler. ``is_dry``: nobody does what it decides."""
    settings = settings or ScalingSettings()
    numbers = {vertex.name: number for number, vertex in enumerate(plant.vertices)}
    groups = tuple(
        ScalingGroup(name, (numbers[name],), low, high, (splits or {}).get(name))
        for name, (low, high) in bounds.items()
    )
    autoscaler, memory = Autoscaler(plant.plan, groups, settings), ScalingMemory()
    run = Run([], [], [], [], plant)
    before = plant.sample()
    while plant.now_s < seconds:
        for _ in range(round(settings.window_s) // TICK_S):
            plant.tick()
        after = plant.sample()
        load = load_between(plant.plan, before, after)
        run.lags.append((plant.now_s, plant.lag))
        before = after
        if load is None:
            continue
        memory, decision = autoscaler.step(memory, load)
        run.loads.append(load)
        run.decisions.append(decision)
        if decision.widths and not is_dry:
            run.changes.append((plant.now_s, dict(plant.widths), plant.widths | decision.widths))
            plant.rescale(decision.widths)
            before = plant.sample()
    return run
