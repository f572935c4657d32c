"""Load of a job over a window: the rates of its vertices, made of two samples of the counters of its tasks.

A sample has the counters as the tasks report them, summed since their incarnations began. A window in which a task was
not live, or became another incarnation, says nothing about what the job can do, so there is no load for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from clonos.core.model.plan import Plan

NANOSECONDS_PER_S: Final = 1_000_000_000
MICROSECONDS_PER_S: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class TaskSample:
    """Counters of one task. ``hot_key``: of which most of its latest records are; empty if no key stands out."""

    incarnation: int
    records_in: int = 0
    records_out: int = 0
    busy_us: int = 0
    blocked_us: int = 0
    lag_records: int | None = None  # of a source: that wait outside of the job; None if the connector does not tell
    hot_key: str = ""
    hot_key_share: float = 0.0  # of its latest records


@dataclass(frozen=True, slots=True)
class LoadSample:
    """Counters of all tasks at one instant, by the names of the tasks.

    ``ended``: tasks that are at the end of their stream, such as one of a source with fewer splits than tasks.
    ``processor_us``: processor time of the job's processes, by host. ``processors``: how many each host has, if all
    hosts are known and no other host can join; else empty.
    """

    at_ns: int
    tasks: Mapping[str, TaskSample]
    is_settled: bool = True  # every task is live or has ended, and a source goes on
    ended: frozenset[str] = frozenset()
    processor_us: Mapping[str, int] | None = None
    processors: Mapping[str, int] | None = None
    latency_ms: float | None = None  # from a source to the last task, 99th percentile of the last seconds


@dataclass(frozen=True, slots=True)
class VertexLoad:
    """Load of one vertex over a window. Shares are between 0 and 1, and those of its busiest task."""

    width: int
    records_in_per_s: float
    records_out_per_s: float
    busy_share: float
    blocked_share: float
    lag_records: int | None = None  # at the end of the window
    lag_growth_per_s: float = 0.0
    hot_key: str = ""
    hot_key_share: float = 0.0  # of the records of the busiest task


@dataclass(frozen=True, slots=True)
class Load:
    """Load of a job over a window, by the names of its vertices."""

    end_ns: int
    vertices: Mapping[str, VertexLoad]
    processors_share: float | None = None  # that is used of the host with the most to spare; None: there is room
    latency_ms: float | None = None


def load_between(plan: Plan, before: LoadSample, after: LoadSample) -> Load | None:
    """Returns the load between two samples; None if they cannot be compared."""
    seconds = (after.at_ns - before.at_ns) / NANOSECONDS_PER_S
    if seconds <= 0 or not (before.is_settled and after.is_settled) or before.tasks.keys() != after.tasks.keys():
        return None
    if before.ended != after.ended:
        return None
    if any(task.incarnation != before.tasks[name].incarnation for name, task in after.tasks.items()):
        return None
    names: dict[str, list[str]] = {vertex.name: [] for vertex in plan.vertices}
    for name in after.tasks:
        names[name.rpartition("/")[0]].append(name)
    if not all(names.values()):
        return None
    leaving = {plan.vertices[edge.source].name for edge in plan.edges if edge.target is None}
    feeding = {plan.vertices[edge.source].name for edge in plan.edges if edge.target is not None}
    vertices = {
        vertex: _vertex(
            [(before.tasks[name], after.tasks[name]) for name in tasks], seconds, vertex in leaving - feeding
        )
        for vertex, tasks in names.items()
    }
    return Load(after.at_ns, vertices, _processors_share(before, after, seconds), after.latency_ms)


def _vertex(tasks: list[tuple[TaskSample, TaskSample]], seconds: float, only_leaves: bool) -> VertexLoad:
    """Returns the load of a vertex. ``only_leaves``: its output goes to the external system alone. There a task that
    waits for its receiver works as well as it can, so that time is busy time.
    """
    busiest, busy_share, blocked_share = tasks[0][1], -1.0, 0.0
    for then, now in tasks:
        blocked = _share(now.blocked_us - then.blocked_us, seconds)
        busy = min(1.0, _share(now.busy_us - then.busy_us, seconds) + (blocked if only_leaves else 0.0))
        blocked_share = max(blocked_share, blocked)
        if busy > busy_share:
            busiest, busy_share = now, busy
    first, last = (_lag(samples) for samples in zip(*tasks, strict=True))
    return VertexLoad(
        width=len(tasks),
        records_in_per_s=sum(max(0, now.records_in - then.records_in) for then, now in tasks) / seconds,
        records_out_per_s=sum(max(0, now.records_out - then.records_out) for then, now in tasks) / seconds,
        busy_share=busy_share,
        blocked_share=0.0 if only_leaves else blocked_share,
        lag_records=last,
        lag_growth_per_s=0.0 if first is None or last is None else (last - first) / seconds,
        hot_key=busiest.hot_key,
        hot_key_share=busiest.hot_key_share if busiest.hot_key else 0.0,
    )


def _share(microseconds: int, seconds: float) -> float:
    return min(1.0, max(0.0, microseconds / MICROSECONDS_PER_S / seconds))


def _lag(samples: tuple[TaskSample, ...]) -> int | None:
    lags = [sample.lag_records for sample in samples if sample.lag_records is not None]
    return sum(lags) if len(lags) == len(samples) else None


def _processors_share(before: LoadSample, after: LoadSample, seconds: float) -> float | None:
    if not after.processors or after.processor_us is None or before.processor_us is None:
        return None
    if after.processor_us.keys() - after.processors.keys():
        return None
    return min(
        (
            _share(used - before.processor_us.get(host, used), seconds * after.processors[host])
            for host, used in after.processor_us.items()
        ),
        default=None,
    )
