"""Events of a job's history, each a line of JSON in the checkpoint store (docs/history.md).

Two logs hold them: ``CHECKPOINTS`` has the checkpoints, which come every few seconds, and ``EVENTS`` all else, so that
checkpoints do not push out a failure of last month.
"""

from __future__ import annotations

import heapq
from typing import Final

import msgspec

from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.io.store.object_files import ObjectFiles
from clonos.io.store.segmented_log import lines_of

EVENTS: Final = "history/events"
CHECKPOINTS: Final = "history/checkpoints"


class HistoryEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", omit_defaults=True):
    """Fields of every event. ``at_ns``: wall clock, nanoseconds since the Unix epoch. ``job_id``: of the run, which a
    resume continues and a fresh start replaces. ``term``: of the driver that wrote it."""

    at_ns: int
    job_id: str = ""
    term: int = 0


class DriverStarted(HistoryEvent, frozen=True, kw_only=True, tag="start"):
    """A driver has begun. ``how``: afresh, resumed, took_over (the tasks lived on) or from_savepoint. ``checkpoint``:
    from which the job goes on; 0 at the beginning of its input. ``tasks``: their number by vertex. ``shape``: the plan,
    as the metadata of a checkpoint has it."""

    how: str
    checkpoint: int
    pid: int
    host: str
    version: str
    tasks: dict[str, int]
    shape: bytes


class RunEnded(HistoryEvent, frozen=True, kw_only=True, tag="end"):
    """The job has ended. ``how``: finished, drained, aborted, failed, superseded or closed. ``error``: why it
    failed."""

    how: str
    checkpoint: int
    error: str = ""


class CheckpointDone(HistoryEvent, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint is complete. ``size_bytes``: of what its tasks have stored for it; None: unknown."""

    number: int
    duration_ms: float
    size_bytes: int | None = None


class CheckpointAbandoned(HistoryEvent, frozen=True, kw_only=True, tag="checkpoint_abandoned"):
    """A checkpoint was given up; a later one replaces it."""

    number: int


class TaskFailure(HistoryEvent, frozen=True, kw_only=True, tag="failure"):
    """A task has failed, or its process has died. ``incarnation``: that which has ended."""

    task: str
    incarnation: int
    cause: str


class TaskRecovered(HistoryEvent, frozen=True, kw_only=True, tag="recovery"):
    """A task is live again. ``duration_ms`` is the sum of ``phases_ms``, whose names are those of the milestones that
    end them. ``incarnation``: the new one."""

    task: str
    incarnation: int
    cause: str
    duration_ms: float
    phases_ms: dict[str, float]
    replayed_records: int = 0
    replayed_calls: int = 0
    executed_calls: int = 0


class TaskCaughtUp(HistoryEvent, frozen=True, kw_only=True, tag="caught_up"):
    """A recovered task has worked off the input that came meanwhile. ``after_ms``: since it was live again."""

    task: str
    incarnation: int
    after_ms: float


class TaskMoved(HistoryEvent, frozen=True, kw_only=True, tag="move"):
    """A task that had not failed goes on in another process."""

    task: str
    incarnation: int
    duration_ms: float
    phases_ms: dict[str, float]


class RolledBack(HistoryEvent, frozen=True, kw_only=True, tag="rollback"):
    """Rollback of all tasks to a checkpoint. ``incarnation``: that with which all of them go on; 0 in old histories."""

    checkpoint: int
    cause: str
    incarnation: int = 0


class WidthsChanged(HistoryEvent, frozen=True, kw_only=True, tag="rescale"):
    """A change of the numbers or places of tasks: requested, done or refused. ``tasks``: their number by vertex now, or
    as requested. ``text``: why it was refused."""

    phase: str
    tasks: dict[str, int]
    text: str = ""


class EpochCaptured(HistoryEvent, frozen=True, kw_only=True, tag="capture"):
    """The record of an epoch was written. ``checkpoint``: after which the epoch begins. ``folder``: of the record.
    ``has_failed``: the task's code has ended the job in it."""

    task: str
    checkpoint: int
    folder: str
    has_failed: bool = False


class Alarmed(HistoryEvent, frozen=True, kw_only=True, tag="alarm"):
    """An alarm was raised."""

    text: str


Event = (
    DriverStarted
    | RunEnded
    | CheckpointDone
    | CheckpointAbandoned
    | TaskFailure
    | TaskRecovered
    | TaskCaughtUp
    | TaskMoved
    | RolledBack
    | WidthsChanged
    | EpochCaptured
    | Alarmed
)

_encoder = msgspec.json.Encoder()
_decoder: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)


def encoded(event: Event) -> bytes:
    """Returns an event as a line, without its end."""
    return _encoder.encode(event)


def log_of(event: Event) -> str:
    """Returns the folder of the log that an event belongs to."""
    return CHECKPOINTS if isinstance(event, CheckpointDone | CheckpointAbandoned) else EVENTS


def read_events(files: ObjectFiles) -> tuple[list[Event], int]:
    """Returns the events of a store in the order of time, and the number of lines that this version cannot read.

    Raises: StoreFailed.
    """
    logs: list[list[Event]] = []
    unreadable = 0
    for folder in (EVENTS, CHECKPOINTS):
        events: list[Event] = []
        for line in lines_of(files, folder):
            try:
                events.append(_decoder.decode(line))
            except DECODE_ERRORS:
                unreadable += 1
        logs.append(events)
    return list(heapq.merge(*logs, key=lambda event: event.at_ns)), unreadable
