"""Writer of the history of a job: a thread of the driver that looks at the coordinator each second, and at once when a
task fails or an alarm is raised, and writes what is new to the checkpoint store.

A store that fails delays the history and nothing else.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from clonos.connectors.secrets import masked
from clonos.core.checkpoint.checkpoint_metadata import encoded_shape
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import Alarm, JobDone, JobFailed, Milestone, RecoveryEvent
from clonos.core.coordinator.relocation import REASON as MOVE
from clonos.io.store.object_files import StoreFailed
from clonos.io.store.segmented_log import SegmentedLog
from clonos.io.system.wall_clock import wall_ns
from clonos.job.continuing.start_widths import as_stored
from clonos.job.launch import Launched
from clonos.job.run_history.history_events import (
    CHECKPOINTS,
    EVENTS,
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
    encoded,
    log_of,
    read_events,
)
from clonos.job.status_view import checkpoint_states, recovery_state, rescale_state
from clonos.status import CheckpointState, RecoveryState, RescalePhase, RescaleState
from clonos_standby.driver.captures import WrittenRecord
from clonos_standby.driver.driver import JobEnd, Progress
from clonos_standby.launch_spec import version_of

logger = logging.getLogger("clonos.run")

LOOK_EVERY_S: Final = 1.0
WRITE_EVERY_S: Final = 0.2
"""Shortest time between two writes, however many alarms are raised."""

ALARMS_A_MINUTE_MAX: Final = 60
EVENTS_RETAINED: Final = 10_000
"""Events of this driver in memory, for the page."""

TEXT_CHARACTERS_MAX: Final = 1_000
NANOSECONDS_PER_MS: Final = 1e6


@dataclass(frozen=True, slots=True)
class HistorySnapshot:
    """State of the coordinator that a history is made of."""

    has_begun: bool
    checkpoint: int
    checkpoints: tuple[CheckpointState, ...]
    recoveries: tuple[tuple[RecoveryState, bool], ...]  # and whether it is a move
    rescale: RescaleState | None
    tasks: dict[str, int]


def look(coordinator: Coordinator) -> HistorySnapshot:
    """Returns what the coordinator knows now; runs in its thread."""
    return HistorySnapshot(
        coordinator.view is not None,
        coordinator.checkpoint,
        checkpoint_states(coordinator),
        tuple((recovery_state(each), each.is_move) for each in coordinator.recoveries),
        rescale_state(coordinator),
        coordinator.plan.widths,
    )


class HistoryWriter:
    """Writer of the history of one driver. ``note`` may be called from the beginning, in any thread."""

    def __init__(self) -> None:
        self._announced: deque[tuple[int, Progress | WrittenRecord]] = deque()
        self._events: deque[Event] = deque(maxlen=EVENTS_RETAINED)
        self._earlier: list[Event] | None = None  # of other drivers; None until somebody asks
        self._unwritten: list[Event] = []
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._checkpoints_seen: set[int] = set()
        self._milestones_seen: dict[tuple[str, int, int], int] = {}
        self._rollbacks_seen: set[int] = set()
        self._rescale: tuple[int, RescalePhase] | None = None
        self._alarm_minute, self._alarms = 0, 0
        self._listeners: list[Callable[[Event], None]] = []
        self._thread: threading.Thread | None = None

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Calls ``listener`` with each event from the start on, also if the tasks never run and nothing is written. It
        must neither wait nor raise."""
        self._listeners.append(listener)

    def note(self, progress: Progress | WrittenRecord) -> None:
        """Notes an alarm, a milestone or a record of an epoch, and wakes the thread up."""
        self._announced.append((wall_ns(), progress))
        self._wake.set()

    def start(self, launched: Launched) -> None:
        """Starts the thread. Nothing is written before the tasks run, so that a start that fails leaves nothing."""
        store = launched.start.store
        self._launched, self._job_id, self._term = launched, launched.job_id, store.term
        self._logs = {folder: SegmentedLog(store.files, folder) for folder in (EVENTS, CHECKPOINTS)}
        begin, plan = launched.start, launched.image.plan
        if begin.how == "took_over" and begin.resumed is not None:  # slots have the numbers of before a cut
            plan = as_stored(plan, begin.resumed.plan)
        self._add(
            DriverStarted(
                at_ns=wall_ns(),
                how=begin.how,
                checkpoint=0 if begin.resumed is None else begin.resumed.checkpoint,
                pid=os.getpid(),
                host=socket.gethostname(),
                version=version_of("clonos"),
                tasks=plan.widths,
                shape=encoded_shape(plan),
            )
        )
        self._thread = threading.Thread(target=self._write_on, name="history", daemon=True)
        self._thread.start()

    def of_all_drivers(self) -> list[Event]:
        """Returns what earlier drivers have left in the store, and the last events of this one. Raises: StoreFailed."""
        if self._earlier is None:
            found, _ = read_events(self._launched.start.store.files)
            self._earlier = [event for event in found if (event.job_id, event.term) != (self._job_id, self._term)]
        return [*self._earlier, *sorted(self._events.copy(), key=lambda event: event.at_ns)]

    def close(self, end: JobEnd | None) -> None:
        """Writes what is left, with the end of the job, and ends the thread. ``end``: None if the job was closed before
        its end."""
        if self._thread is None:
            return
        self._closing.set()
        self._wake.set()
        self._thread.join()
        has_begun = self._collect()
        self._add(_ended(end, self._last.checkpoint, wall_ns()))
        if has_begun:
            self._write()

    # ------------------------------------------------------------------ the thread

    def _write_on(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(LOOK_EVERY_S)
            self._wake.clear()
            if self._collect():
                self._write()
            self._closing.wait(WRITE_EVERY_S)

    def _add(self, event: Event) -> None:
        event = msgspec.structs.replace(event, job_id=self._job_id, term=self._term)
        self._events.append(event)
        self._unwritten.append(event)
        for listener in self._listeners:
            listener(event)

    def _write(self) -> None:
        self._unwritten.sort(key=lambda event: event.at_ns)
        for folder, log in self._logs.items():
            lines = [encoded(event) for event in self._unwritten if log_of(event) == folder]
            try:
                log.write(lines)  # with those that are left
            except StoreFailed as error:  # the next time may succeed, and the job itself reports a failing store
                logger.debug("the history was not written: %s", error)
        self._unwritten.clear()

    def _collect(self) -> bool:
        """Adds the events that are new; returns whether the tasks have begun."""
        self._last = seen = self._launched.driver.ask(look)
        while self._announced:
            self._add_announced(*self._announced.popleft())
        if not seen.has_begun:
            return False
        now_ns = wall_ns()
        for checkpoint in seen.checkpoints:
            self._add_checkpoint(checkpoint, now_ns)
        self._checkpoints_seen &= {each.number for each in seen.checkpoints}
        for recovery, is_move in seen.recoveries:
            if not recovery.failed_incarnation and recovery.incarnation not in self._rollbacks_seen:
                self._rollbacks_seen.add(recovery.incarnation)  # the first of all tasks, which go back together
                self._add(
                    RolledBack(
                        at_ns=next(iter(recovery.reached.values())),
                        checkpoint=seen.checkpoint,
                        cause=_text(recovery.cause),
                        incarnation=recovery.incarnation,
                    )
                )
            self._add_recovery(recovery, is_move)
        self._add_rescale(seen, now_ns)
        return True

    def _add_announced(self, at_ns: int, progress: Progress | WrittenRecord) -> None:
        if isinstance(progress, RecoveryEvent):
            if progress.milestone is Milestone.DETECTED and progress.cause != MOVE:
                self._add(
                    TaskFailure(
                        at_ns=at_ns,
                        task=progress.name,
                        incarnation=progress.incarnation,
                        cause=_text(progress.cause),
                    )
                )
        elif isinstance(progress, WrittenRecord):
            self._add(
                EpochCaptured(
                    at_ns=at_ns,
                    task=progress.task,
                    checkpoint=progress.checkpoint,
                    folder=str(progress.folder),
                    has_failed=progress.has_failed,
                )
            )
        elif isinstance(progress, Alarm) and not progress.is_routine:
            minute = at_ns // 60_000_000_000
            self._alarms = self._alarms + 1 if minute == self._alarm_minute else 1
            self._alarm_minute = minute
            fields = " ".join(f"{name}={value}" for name, value in progress.fields)
            text = _text(f"{progress.text} {fields}".rstrip())
            if self._alarms == ALARMS_A_MINUTE_MAX:
                text = "further alarms of this minute are in the log of the driver only"
            if self._alarms <= ALARMS_A_MINUTE_MAX:
                self._add(Alarmed(at_ns=at_ns, text=text))

    def _add_checkpoint(self, found: CheckpointState, now_ns: int) -> None:
        if found.is_pending or found.number in self._checkpoints_seen:
            return
        self._checkpoints_seen.add(found.number)
        done_ns = found.completed_ns
        if done_ns is None:
            self._add(CheckpointAbandoned(at_ns=now_ns, number=found.number))
            return
        self._add(
            CheckpointDone(
                at_ns=done_ns,
                number=found.number,
                duration_ms=_ms(done_ns - found.begun_ns),
                size_bytes=found.size_bytes,
            )
        )

    def _add_recovery(self, found: RecoveryState, is_move: bool) -> None:
        if (duration_ns := found.duration_ns) is None:
            return
        key = found.task, found.failed_incarnation, next(iter(found.reached.values()))
        seen = self._milestones_seen.get(key, 0)
        self._milestones_seen[key] = len(found.reached)
        phases_ms = {name: _ms(length_ns) for name, length_ns in found.phases_ns.items()}
        caught_up_ms = phases_ms.pop("caught_up", None)
        live_ns = found.reached["replayed"]
        if not seen and is_move:
            self._add(
                TaskMoved(
                    at_ns=live_ns,
                    task=found.task,
                    incarnation=found.incarnation,
                    duration_ms=_ms(duration_ns),
                    phases_ms=phases_ms,
                )
            )
        elif not seen:
            self._add(
                TaskRecovered(
                    at_ns=live_ns,
                    task=found.task,
                    incarnation=found.incarnation,
                    cause=_text(found.cause),
                    duration_ms=_ms(duration_ns),
                    phases_ms=phases_ms,
                    replayed_records=found.replayed_records,
                    replayed_calls=found.replayed_calls,
                    executed_calls=found.executed_calls,
                )
            )
        if caught_up_ms is not None and seen < len(found.reached) and not is_move:
            self._add(
                TaskCaughtUp(
                    at_ns=found.reached["caught_up"],
                    task=found.task,
                    incarnation=found.incarnation,
                    after_ms=caught_up_ms,
                )
            )

    def _add_rescale(self, seen: HistorySnapshot, now_ns: int) -> None:
        found = seen.rescale
        now = None if found is None else (found.number, found.phase)
        if found is None or now == self._rescale:
            return
        before, self._rescale = self._rescale, now
        if found.phase in (RescalePhase.DONE, RescalePhase.REFUSED):
            phase = found.phase.value
        elif before is None or before[0] != found.number:
            phase = "requested"
        else:
            return
        text = found.text if found.phase is RescalePhase.REFUSED else ""
        tasks = seen.tasks | dict(found.widths) if phase == "requested" else seen.tasks
        self._add(WidthsChanged(at_ns=now_ns, phase=phase, tasks=tasks, text=_text(text)))


def _ended(end: JobEnd | None, checkpoint: int, at_ns: int) -> RunEnded:
    if isinstance(end, JobDone):
        return RunEnded(at_ns=at_ns, how=end.ending.value, checkpoint=checkpoint)
    if isinstance(end, JobFailed):
        return RunEnded(at_ns=at_ns, how="failed", checkpoint=checkpoint, error=_text(end.reason))
    return RunEnded(at_ns=at_ns, how="closed" if end is None else "superseded", checkpoint=checkpoint)


def _text(text: str) -> str:
    """Returns a text without passwords, cut to what fits into a line of the history."""
    shown = masked(text)
    return shown if len(shown) <= TEXT_CHARACTERS_MAX else f"{shown[: TEXT_CHARACTERS_MAX - 3]}..."


def _ms(length_ns: float) -> float:
    return round(length_ns / NANOSECONDS_PER_MS, 3)
