"""Figures of one run of a job, from its history, and two runs compared."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from clonos.job.run_history.history_events import (
    Alarmed,
    CheckpointAbandoned,
    CheckpointDone,
    DriverStarted,
    Event,
    RolledBack,
    TaskFailure,
    TaskMoved,
    TaskRecovered,
    WidthsChanged,
)
from clonos.job.run_history.history_lines import CHANGED, DIED, HistoryLine, lines_of_history


@dataclass(frozen=True, slots=True)
class Figure:
    """Figure of a run. ``value``: None if the run has none. ``unit``: "", s, ms or bytes."""

    name: str
    value: float | None
    unit: str


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """Figure of two runs."""

    name: str
    unit: str
    value: float | None
    other: float | None

    @property
    def ratio(self) -> float | None:
        """How many times the other value it is; None if one is missing or 0."""
        return self.value / self.other if self.value and self.other else None


def runs_of(events: Iterable[Event]) -> list[list[Event]]:
    """Returns the events of each run, the oldest run first. A resume continues a run, a fresh start begins another."""
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event.job_id, []).append(event)
    return list(found.values())


def figures_of(events: Sequence[Event], has_ended: bool = True) -> list[Figure]:
    """Returns the figures of one run. ``has_ended``: no driver runs."""
    done = [event for event in events if isinstance(event, CheckpointDone)]
    recovered = [event for event in events if isinstance(event, TaskRecovered)]
    sizes = [float(event.size_bytes) for event in done if event.size_bytes is not None]
    deaths = sum(line.kind == DIED for line in lines_of_history(events, has_ended))
    phases = dict.fromkeys(name for event in recovered for name in event.phases_ms)
    return [
        Figure("time", (events[-1].at_ns - events[0].at_ns) / 1e9, "s"),
        Figure("starts", _count(events, DriverStarted), ""),
        Figure("deaths of drivers", deaths, ""),
        Figure("checkpoints", len(done), ""),
        Figure("checkpoints given up", _count(events, CheckpointAbandoned), ""),
        *_spread("checkpoint", [event.duration_ms for event in done], "ms"),
        *_spread("checkpoint size", sizes, "bytes"),
        Figure("failures of tasks", _count(events, TaskFailure), ""),
        Figure("recoveries", len(recovered), ""),
        *_spread("recovery", [event.duration_ms for event in recovered], "ms"),
        *(
            Figure(
                f"recovery: {name}, median",
                statistics.median(event.phases_ms.get(name, 0.0) for event in recovered),
                "ms",
            )
            for name in phases
        ),
        Figure("rollbacks", _count(events, RolledBack), ""),
        Figure("moves", _count(events, TaskMoved), ""),
        Figure("changes of widths", sum(isinstance(e, WidthsChanged) and e.phase == "done" for e in events), ""),
        Figure("alarms", _count(events, Alarmed), ""),
    ]


def _count(events: Iterable[Event], kind: type[Event]) -> int:
    return sum(isinstance(event, kind) for event in events)


def _spread(name: str, values: Sequence[float], unit: str) -> Iterator[Figure]:
    yield Figure(f"{name}, median", statistics.median(values) if values else None, unit)
    yield Figure(f"{name}, longest" if unit == "ms" else f"{name}, largest", max(values, default=None), unit)


def compared(run: Sequence[Figure], other: Sequence[Figure]) -> list[ComparedFigure]:
    """Returns the figures of two runs side by side, in the order of the first."""
    theirs = {figure.name: figure for figure in other}
    units = {figure.name: figure.unit for figure in (*run, *other)}
    own = {figure.name: figure for figure in run}
    return [
        ComparedFigure(
            name,
            unit,
            own[name].value if name in own else None,
            theirs[name].value if name in theirs else None,
        )
        for name, unit in units.items()
    ]


def differing_plan(run: Sequence[Event], other: Sequence[Event]) -> list[HistoryLine]:
    """Returns how the plan of the last start of a run differs from that of the last start of another."""
    starts = [[event for event in events if isinstance(event, DriverStarted)] for events in (other, run)]
    if not all(starts):
        return []
    return [line for line in lines_of_history([each[-1] for each in starts]) if line.kind == CHANGED]
