"""Spans of a job, made of the events of its history: recoveries with their phases, rollbacks, moves, checkpoints,
changes of widths, and the run itself; and of traced records, the steps that they have passed.

The ids of a span follow from its key, so that a span which is sent twice is one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import xxhash

from clonos.core.wire.trace_messages import TracedStep
from clonos.job.run_history.history_events import (
    CheckpointDone,
    DriverStarted,
    Event,
    RolledBack,
    RunEnded,
    TaskCaughtUp,
    TaskMoved,
    TaskRecovered,
    WidthsChanged,
)

NANOSECONDS_PER_MS: Final = 1_000_000

EARLY_MAX: Final = 1_000
"""Steps of traced records that wait for the start of the run; further ones push out the oldest."""

Value = str | int | float | bool
Attributes = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Span:
    """Span: what lasts from ``began_ns`` to ``ended_ns``, wall clock in nanoseconds since the Unix epoch.

    ``trace``, ``key``, ``parent``: keys of its trace, of itself, and of the span that it is in; "" without one.
    ``link``: key of a span of another trace that it belongs to, whose trace has the same key. ``error``: why it failed.
    """

    name: str
    trace: str
    key: str
    began_ns: int
    ended_ns: int
    attributes: Attributes = field(default_factory=dict)
    parent: str = ""
    link: str = ""
    error: str = ""


def trace_id(key: str) -> int:
    """Returns the id of a trace, never 0."""
    return xxhash.xxh3_128_intdigest(key.encode()) or 1


def span_id(key: str) -> int:
    """Returns the id of a span, never 0."""
    return xxhash.xxh3_64_intdigest(key.encode()) or 1


def run_key(event: Event) -> str:
    """Returns the key of the span of a run, of which an event is."""
    return f"{event.job_id}/{event.term}/job"


@dataclass(slots=True)
class _Rollback:
    """Rollback whose tasks are not all live yet. ``ended_ns``: when the last of those that are became so."""

    event: RolledBack
    left: int
    ended_ns: int


class HistorySpans:
    """Spans of one driver. ``add`` takes its events in the order in which the history has them."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._started: DriverStarted | None = None
        self._tasks = 0
        self._requested_ns: int | None = None
        self._rollback: _Rollback | None = None
        self._early: deque[TracedStep] = deque(maxlen=EARLY_MAX)  # before it is known of which run they are

    def add(self, event: Event) -> Iterator[Span]:
        """Yields the spans that are complete with an event."""
        attributes: dict[str, Value]
        match event:
            case DriverStarted():
                self._started, self._tasks = event, sum(event.tasks.values())
                run = run_key(event)
                attributes = {"clonos.how": event.how, "clonos.checkpoint": event.checkpoint, "host.name": event.host}
                yield self._span(event, "job start", f"{run}/start", event.at_ns, attributes, trace=run, parent=run)
                while self._early:
                    yield from self.traced(self._early.popleft())
            case RunEnded():
                yield from self._rolled_back()
                began_ns = event.at_ns if self._started is None else self._started.at_ns
                attributes = {"clonos.how": event.how, "clonos.checkpoint": event.checkpoint}
                yield self._span(event, f"job {self._job}", run_key(event), began_ns, attributes, event.error)
            case CheckpointDone():
                key = self._key(event, f"checkpoint/{event.number}")
                attributes = {"clonos.checkpoint": event.number}
                if event.size_bytes is not None:
                    attributes["clonos.checkpoint.size_bytes"] = event.size_bytes
                yield self._span(event, "checkpoint", key, _began_ns(event), attributes)
            case TaskRecovered():
                yield from self._recovered(event)
            case TaskMoved():
                key = self._key(event, f"move/{event.task}/{event.incarnation}")
                yield from self._with_phases(event, "move", key, {}, key, "")
            case TaskCaughtUp():
                key, trace, _ = self._recovery(event, event.task, event.incarnation)
                ended_ns = event.at_ns
                began_ns = ended_ns - round(event.after_ms * NANOSECONDS_PER_MS)
                yield self._span(event, "caught_up", f"{key}/caught_up", began_ns, {}, trace=trace, parent=key)
            case RolledBack():
                yield from self._rolled_back()
                self._rollback = _Rollback(event, self._tasks, event.at_ns)
            case WidthsChanged(phase="requested"):
                self._requested_ns = event.at_ns
            case WidthsChanged():
                self._tasks = sum(event.tasks.values()) or self._tasks
                began_ns = event.at_ns if self._requested_ns is None else self._requested_ns
                self._requested_ns = None
                widths: Attributes = {f"clonos.tasks.{name}": count for name, count in event.tasks.items()}
                key = self._key(event, f"rescale/{event.at_ns}")
                yield self._span(event, "rescale", key, began_ns, {"clonos.how": event.phase, **widths}, event.text)
            case _:
                return

    def traced(self, step: TracedStep) -> Iterator[Span]:
        """Yields the span of a step that a traced record has passed, from when the task took the record until it
        emitted what came of it; before the start of the run, the span follows that start. It is in the span of the task
        that had sent the record; that of a source is in none.
        """
        started = self._started
        if started is None:
            self._early.append(step)
            return
        trace = self._key(started, f"record/{step.source}/{step.read_ns}")
        attributes: Attributes = {
            "clonos.task": step.task,
            "clonos.incarnation": step.incarnation,
            "clonos.records": step.records,
            "clonos.queued_ms": max(0, step.taken_ns - step.sent_ns) / NANOSECONDS_PER_MS,
            "clonos.call_ms": step.call_ns / NANOSECONDS_PER_MS,
            "clonos.processed_ms": max(0, step.ended_ns - step.taken_ns - step.call_ns) / NANOSECONDS_PER_MS,
        }
        key = f"{trace}/{step.task}/{step.ended_ns}"
        parent = f"{trace}/{step.sender}/{step.sent_ns}" if step.sender else ""
        name, ended_ns = step.task.rpartition("/")[0], step.ended_ns
        yield self._span(started, name, key, step.taken_ns, attributes, trace=trace, parent=parent, ended_ns=ended_ns)

    def _recovered(self, event: TaskRecovered) -> Iterator[Span]:
        attributes: dict[str, Value] = {
            "clonos.cause": event.cause,
            "clonos.replayed_records": event.replayed_records,
            "clonos.replayed_calls": event.replayed_calls,
            "clonos.live_calls": event.executed_calls,
        }
        key, trace, parent = self._recovery(event, event.task, event.incarnation)
        yield from self._with_phases(event, "recovery", key, attributes, trace, parent)
        back = self._rollback
        if back is not None and back.event.incarnation == event.incarnation:
            back.left -= 1
            back.ended_ns = max(back.ended_ns, event.at_ns)
            if not back.left:
                yield from self._rolled_back()

    def _recovery(self, event: Event, task: str, incarnation: int) -> tuple[str, str, str]:
        """Returns the key of a recovery, that of its trace, and that of the span that it is in: a rollback, or none."""
        key = self._key(event, f"recovery/{task}/{incarnation}")
        back = self._rollback
        if back is None or back.event.incarnation != incarnation:
            return key, key, ""
        whole = self._key(event, f"rollback/{incarnation}")
        return key, whole, whole

    def _rolled_back(self) -> Iterator[Span]:
        """Yields the rollback whose tasks are live, or of which nothing more is to come."""
        back = self._rollback
        if back is None or back.left < 0:
            return
        back.left = -1  # its tasks may still catch up
        event = back.event
        key = self._key(event, f"rollback/{event.incarnation}")
        attributes: Attributes = {"clonos.checkpoint": event.checkpoint, "clonos.cause": event.cause}
        yield self._span(event, "rollback", key, event.at_ns, attributes, ended_ns=back.ended_ns)

    def _with_phases(
        self,
        event: TaskRecovered | TaskMoved,
        name: str,
        key: str,
        attributes: Attributes,
        trace: str,
        parent: str,
    ) -> Iterator[Span]:
        """Yields a span, and one for each of its phases."""
        task: Attributes = {"clonos.task": event.task, "clonos.incarnation": event.incarnation}
        at_ns = _began_ns(event)
        yield self._span(event, name, key, at_ns, {**task, **attributes}, trace=trace, parent=parent)
        for phase, length_ms in event.phases_ms.items():
            began_ns, at_ns = at_ns, at_ns + round(length_ms * NANOSECONDS_PER_MS)
            yield self._span(event, phase, f"{key}/{phase}", began_ns, task, trace=trace, parent=key, ended_ns=at_ns)

    def _key(self, event: Event, what: str) -> str:
        return f"{event.job_id}/{event.term}/{what}"

    def _span(
        self,
        event: Event,
        name: str,
        key: str,
        began_ns: int,
        attributes: Attributes,
        error: str = "",
        *,
        trace: str = "",
        parent: str = "",
        ended_ns: int | None = None,
    ) -> Span:
        run = run_key(event)
        shared: Attributes = {"clonos.job": self._job, "clonos.job_id": event.job_id, "clonos.term": event.term}
        return Span(
            name,
            trace or key,
            key,
            min(began_ns, event.at_ns if ended_ns is None else ended_ns),
            event.at_ns if ended_ns is None else ended_ns,
            {**shared, **attributes},
            parent,
            "" if run in (trace, key) else run,
            error,
        )


def _began_ns(event: TaskRecovered | TaskMoved | CheckpointDone) -> int:
    return event.at_ns - round(event.duration_ms * NANOSECONDS_PER_MS)
