"""Rates of a job: of tasks, of the edges between vertices, and in total."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

from clonos.core.model.plan import Partitioning
from clonos.core.model.progress import TaskCounter
from clonos.core.task.latency import BOUNDS_S, END_TO_END
from clonos.io.system.wall_clock import time_text
from clonos.job.prometheus.job_counters import GrowingHistogram, quantile
from clonos.job.skew import hot_tasks
from clonos.server.job_api.documents import EdgeDocument, PlanDocument, TaskDocument, TaskRates, slot_text
from clonos.status import Rate, Status, TaskState

RATED: Final = (TaskCounter.RECORDS_IN, TaskCounter.RECORDS_OUT, TaskCounter.BUSY_US, TaskCounter.BLOCKED_US)
MICROSECONDS_PER_S: Final = 1e6
LATENCY_SAMPLES: Final = 6
"""Samples, one per second, over which the curves of latency go."""


def vertex_name(task: str) -> str:
    """Returns the name of the vertex of a task."""
    return task.rpartition("/")[0]


class JobRates:
    """Rates of the tasks of one job, by the plan. ``add`` is called with each sample."""

    def __init__(self, plan: PlanDocument) -> None:
        self._plan = plan
        self._steps = {vertex.name: vertex.steps for vertex in plan.vertices}
        self._keyed = frozenset(edge.target for edge in plan.edges if edge.exchange == Partitioning.HASH.value)
        self._sources = {vertex.name for vertex in plan.vertices if vertex.is_source}
        self._in = Counter(edge.target for edge in plan.edges)
        self._out = Counter(edge.source for edge in plan.edges)
        self._rates: dict[tuple[str, str], Rate] = {}
        self._latencies: dict[str, GrowingHistogram] = {}  # from source to sink, by task
        self._latency_seen: deque[list[float]] = deque([[]], maxlen=LATENCY_SAMPLES)  # what came before counts too

    def add(self, status: Status, now_s: float) -> None:
        """Adds a sample."""
        for task in status.tasks:
            for counter in RATED:
                rate = self._rates.setdefault((task.name, counter), Rate())
                rate.add(task.incarnation, task.counters.get(counter), now_s)

            for family in task.latencies:
                if family.metric.name == END_TO_END.name and not self._out[vertex_name(task.name)]:
                    found = self._latencies.setdefault(task.name, GrowingHistogram(family.metric))
                    found.add(task.incarnation, family.series[0].numbers)
        counts = [found.numbers[1:] for found in self._latencies.values()]
        self._latency_seen.append([sum(each) for each in zip(*counts, strict=True)])

    def latencies_ms(self) -> dict[str, float]:
        """Returns the median and the 99th percentile of the last seconds, from a source to the last task; nothing
        without values."""
        last, first = self._latency_seen[-1], self._latency_seen[0] or [0.0] * len(self._latency_seen[-1])
        growth = [now - then for now, then in zip(last, first, strict=True)]
        found = {name: quantile(BOUNDS_S, growth, share) for name, share in (("p50", 0.5), ("p99", 0.99))}
        return {f"latency_ms_{name}": round(1e3 * at, 2) for name, at in found.items() if at is not None}

    def _rate(self, task: str, counter: TaskCounter) -> float:
        found = self._rates.get((task, counter))
        return 0.0 if found is None else round(found.per_second(), 1)

    def _ratio(self, task: str, counter: TaskCounter) -> float:
        found = self._rates.get((task, counter))
        return 0.0 if found is None else round(min(1.0, found.per_second() / MICROSECONDS_PER_S), 3)

    def totals(self, status: Status) -> dict[str, float]:
        """Returns one point of each curve."""
        vertices_out = {edge.target for edge in self._plan.edges}
        sinks = [task.name for task in status.tasks if not self._out[vertex_name(task.name)]]
        found = {
            "records_in_per_s": self._sum(
                (task.name for task in status.tasks if vertex_name(task.name) in self._sources), TaskCounter.RECORDS_IN
            ),
            "records_out_per_s": self._sum(sinks, TaskCounter.RECORDS_IN) if vertices_out else 0.0,
            "backlog": float(sum(_backlog(task) or 0 for task in status.tasks)),
        }
        return {name: round(value, 1) for name, value in found.items()} | self.latencies_ms()

    def _sum(self, tasks: Iterable[str], counter: TaskCounter) -> float:
        return sum(self._rate(task, counter) for task in tasks)

    def skew(self, status: Status) -> list[str]:
        """Returns a sentence for each keyed step with a busy task that gets far more records than the others."""
        return hot_tasks(
            status.tasks,
            self._keyed,
            lambda task: self._rate(task.name, TaskCounter.RECORDS_IN),
            lambda task: self._ratio(task.name, TaskCounter.BUSY_US),
        )

    def tasks(self, status: Status) -> list[TaskDocument]:
        """Returns the tasks, with the rates of the last sample."""
        hosts = {slot.slot: slot.host for slot in status.slots}
        return [self._task(task, hosts.get(task.slot, "")) for task in status.tasks]

    def _task(self, task: TaskState, host: str) -> TaskDocument:
        vertex, _, index = task.name.rpartition("/")
        watermark_ns = task.counters.get(TaskCounter.WATERMARK_NS)
        busy = self._ratio(task.name, TaskCounter.BUSY_US)
        blocked = min(self._ratio(task.name, TaskCounter.BLOCKED_US), round(1.0 - busy, 3))
        return TaskDocument(
            name=task.name,
            vertex=vertex,
            steps=self._steps.get(vertex, [vertex]),
            index=int(index),
            phase=task.phase.value,
            incarnation=task.incarnation,
            slot=slot_text(task.slot),
            host=host,
            domain=task.domain,
            pid=task.pid,
            standbys=task.standbys,
            keepers=task.keepers,
            hot_standbys=task.hot_standbys,
            losses_survived=task.losses_survived,
            counters=dict(task.counters),
            rates=TaskRates(
                records_in_per_s=self._rate(task.name, TaskCounter.RECORDS_IN),
                records_out_per_s=self._rate(task.name, TaskCounter.RECORDS_OUT),
                busy_ratio=busy,
                backpressure_ratio=blocked,
            ),
            watermark=None if watermark_ns is None else time_text(watermark_ns),
            hot_key=task.hot_key,
            hot_key_share=task.hot_key_share,
        )

    def edges(self, status: Status) -> list[EdgeDocument]:
        """Returns the traffic on each edge.

        Its rate is what its target receives, if that has no other input, else what its source sends, if that has no
        other output.
        """
        by_vertex: dict[str, list[TaskState]] = {}
        for task in status.tasks:
            by_vertex.setdefault(vertex_name(task.name), []).append(task)
        return [
            self._edge(edge.source, edge.target, by_vertex.get(edge.source, []), by_vertex.get(edge.target, []))
            for edge in self._plan.edges
        ]

    def _edge(self, source: str, target: str, senders: list[TaskState], receivers: list[TaskState]) -> EdgeDocument:
        is_only_input = self._in[target] == 1
        rate: float | None = None
        if is_only_input:
            rate = self._sum((task.name for task in receivers), TaskCounter.RECORDS_IN)
        elif self._out[source] == 1:
            rate = self._sum((task.name for task in senders), TaskCounter.RECORDS_OUT)
        blocked = [self._ratio(task.name, TaskCounter.BLOCKED_US) for task in senders]
        backlogs = [backlog for task in receivers if (backlog := _backlog(task)) is not None]
        watermarks = [found for task in senders if (found := task.counters.get(TaskCounter.WATERMARK_NS)) is not None]
        return EdgeDocument(
            source=source,
            target=target,
            records_per_s=rate,
            backlog=sum(backlogs) if is_only_input and backlogs else None,
            backpressure_ratio=max(blocked, default=None),
            watermark=time_text(min(watermarks)) if watermarks else None,
        )


def _backlog(task: TaskState) -> int | None:
    return task.counters.get(TaskCounter.BACKLOG_ELEMENTS, task.counters.get(TaskCounter.BACKLOG_BYTES))
