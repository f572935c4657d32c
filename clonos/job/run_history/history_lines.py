"""History as sentences: what each event says, with what follows from their order: a driver that has died, and a plan
that has changed.

The command line and the page show these, so that both say the same.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from clonos.core.checkpoint.checkpoint_metadata import decode_shape
from clonos.core.checkpoint.plan_shape import differences
from clonos.core.model.errors import ClonosError
from clonos.core.wire.printable import escaped
from clonos.job.run_history.history_events import (
    Alarmed,
    CheckpointAbandoned,
    CheckpointDone,
    DriverStarted,
    EpochCaptured,
    Event,
    RolledBack,
    RunEnded,
    TaskCaughtUp,
    TaskFailure,
    TaskMoved,
    TaskRecovered,
    WidthsChanged,
)

HOW_STARTED: Final = {
    "afresh": "begins afresh",
    "resumed": "continues from checkpoint {}",
    "took_over": "takes over the living tasks at checkpoint {}",
    "from_savepoint": "begins from a savepoint, as checkpoint {}",
}
HOW_ENDED: Final = {
    "finished": "all input is processed",
    "drained": "it was stopped with a final checkpoint",
    "aborted": "it was stopped at once",
    "failed": "it has failed",
    "superseded": "another driver has taken it over",
    "closed": "its driver was closed while it ran",
}
DIED: Final = "driver_death"
CHANGED: Final = "plan_change"
CHECKPOINTS: Final = "checkpoints"
"""Kinds of lines that are no events: of a driver's death, of a changed plan, and of several checkpoints."""

KIBIBYTE: Final = 1024
NANOSECONDS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """Line of a history. ``kind``: tag of the event, or one of the kinds above. ``events``: those that it tells of.
    ``at_ns``: when it was over. ``began_ns``: when it began, of what lasts."""

    at_ns: int
    kind: str
    text: str
    job_id: str
    term: int
    task: str = ""
    began_ns: int | None = None
    events: tuple[Event, ...] = ()


def lines_of_history(events: Iterable[Event], has_ended: bool = True) -> Iterator[HistoryLine]:
    """Yields the lines of a history. ``has_ended``: no driver runs, so that one without an end has died."""
    last: Event | None = None
    started: DriverStarted | None = None
    for event in events:
        if isinstance(event, DriverStarted):
            if last is not None and not isinstance(last, RunEnded):
                yield _death(last)
            if started is not None and (changed := _changes(started, event)):
                yield HistoryLine(event.at_ns, CHANGED, escaped("; ".join(changed)), event.job_id, event.term)
            started = event
        yield _line(event)
        last = event
    if has_ended and last is not None and not isinstance(last, RunEnded):
        yield _death(last)


def _death(last: Event) -> HistoryLine:
    text = f"the driver of term {last.term} left no end: it was killed, or lost its store, after this"
    return HistoryLine(last.at_ns, DIED, text, last.job_id, last.term)


def _changes(before: DriverStarted, now: DriverStarted) -> list[str]:
    try:
        found = differences(decode_shape(before.shape, "the history"), decode_shape(now.shape, "the history"))
    except ClonosError:  # of another version
        return []
    return list(found)


def _line(event: Event) -> HistoryLine:
    task, began_ns = str(getattr(event, "task", "")), None
    if isinstance(event, TaskRecovered | TaskMoved | CheckpointDone):
        began_ns = event.at_ns - round(event.duration_ms * NANOSECONDS_PER_MS)
    kind = str(type(event).__struct_config__.tag)
    return HistoryLine(event.at_ns, kind, escaped(_text(event)), event.job_id, event.term, task, began_ns, (event,))


def _text(event: Event) -> str:
    match event:
        case DriverStarted():
            tasks = ", ".join(f"{name} {count}" for name, count in event.tasks.items())
            how = HOW_STARTED.get(event.how, event.how).format(event.checkpoint)
            return f"{how} in process {event.pid} on {event.host}, term {event.term}; tasks: {tasks}"
        case RunEnded():
            how = HOW_ENDED.get(event.how, event.how)
            return f"{how}, after checkpoint {event.checkpoint}" + (f": {event.error}" if event.error else "")
        case CheckpointDone():
            return f"{event.number} in {milliseconds(event.duration_ms)}, {bytes_text(event.size_bytes)}"
        case CheckpointAbandoned():
            return f"{event.number} was given up; a later one replaces it"
        case TaskFailure():
            return f"{event.task} has failed: {event.cause}"
        case TaskRecovered():
            work = f"{event.replayed_records:,} {'record' if event.replayed_records == 1 else 'records'} replayed"
            if event.replayed_calls or event.executed_calls:
                work += f", {event.replayed_calls:,} calls replayed, {event.executed_calls:,} executed"
            return f"{event.task} is live after {milliseconds(event.duration_ms)} ({_phases(event.phases_ms)}); {work}"
        case TaskCaughtUp():
            return f"{event.task} has caught up {milliseconds(event.after_ms)} after it was live"
        case TaskMoved():
            return f"{event.task} has moved in {milliseconds(event.duration_ms)} ({_phases(event.phases_ms)})"
        case RolledBack():
            return f"all tasks go back to checkpoint {event.checkpoint}: {event.cause}"
        case WidthsChanged():
            tasks = ", ".join(f"{name} {count}" for name, count in event.tasks.items())
            return f"{event.phase}: {event.text}" if event.text else f"{event.phase}; tasks: {tasks}"
        case EpochCaptured():
            what = "the epoch in which its code has failed" if event.has_failed else "its epoch"
            where = f"{what}, since checkpoint {event.checkpoint}, is in a record"
            return f"{event.task}: {where}: clonos replay {shlex.quote(event.folder)}"
        case Alarmed():
            return event.text
        case _:
            assert_never(event)


def _phases(phases_ms: dict[str, float]) -> str:
    return ", ".join(f"{name} {length_ms:,.1f}" for name, length_ms in phases_ms.items())


def milliseconds(length_ms: float) -> str:
    """Returns a length of time as text."""
    return f"{length_ms:,.0f} ms"


def bytes_text(size_bytes: float | None) -> str:
    """Returns a size as text."""
    if size_bytes is None:
        return "size unknown"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < KIBIBYTE:
            return f"{size_bytes:,.0f} {unit}" if unit == "B" else f"{size_bytes:,.1f} {unit}"
        size_bytes /= KIBIBYTE
    return f"{size_bytes:,.1f} TiB"


def joined_checkpoints(lines: Iterable[HistoryLine]) -> Iterator[HistoryLine]:
    """Yields the lines, in which checkpoints without anything between them are one line."""
    waiting: list[HistoryLine] = []
    for line in lines:
        if line.kind == "checkpoint" and (not waiting or waiting[-1].term == line.term):
            waiting.append(line)
            continue
        yield from _joined(waiting)
        waiting = [line] if line.kind == "checkpoint" else []
        if not waiting:
            yield line
    yield from _joined(waiting)


def _joined(lines: Sequence[HistoryLine]) -> Iterator[HistoryLine]:
    if len(lines) < 2:
        yield from lines
        return
    done = [event for line in lines for event in line.events if isinstance(event, CheckpointDone)]
    lengths_ms = [event.duration_ms for event in done]
    sizes = [event.size_bytes for event in done if event.size_bytes is not None]
    size = f"{bytes_text(min(sizes))} to {bytes_text(max(sizes))}" if sizes else bytes_text(None)
    text = f"{done[0].number} to {done[-1].number}: {len(done)} in {min(lengths_ms):,.0f} to {max(lengths_ms):,.0f} ms"
    began_ns = lines[0].began_ns
    yield replace(lines[-1], kind=CHECKPOINTS, text=f"{text}, {size}", began_ns=began_ns, events=tuple(done))
