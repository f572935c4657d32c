"""Recorder of the epochs of chosen tasks while a job runs.

When a checkpoint is complete, each chosen task's epoch up to it is read and written by a thread of its own. The slots
learn of the checkpoint after that, so that they have the epoch until then (``CompletedHold``). No task waits. An epoch
that is too large, or not read in ``WHOLE_TIME_S``, is given up, and a line beside the records says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator.coordinator_effects import Alarm, Effect, Ending, JobDone
from clonos.core.model.errors import ClonosError
from clonos.core.model.ids import CheckpointId, TaskId
from clonos.core.model.plan import Plan
from clonos.core.recovery.completed_hold import CompletedHold
from clonos.io.epochs.record_writer import note_given_up, rotate
from clonos_standby.driver.captures import WHOLE_TIME_S, Captures, WholeEpoch
from clonos_standby.driver.epoch_writing import CaptureFailed, folder_of

CLOSE_TIMEOUT_S: Final = 5.0
CLOSE_STEP_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Recording:
    """Choice of what is recorded. ``root``: folder. ``chosen``: the tasks of a plan. ``count``: records of each task
    that stay. ``bytes_max``: of the log and the input of an epoch, and of its state."""

    root: Path
    chosen: Callable[[Plan], tuple[TaskId, ...]]
    count: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class _Due:
    """Epoch to be read, of these tasks. ``names``: of the tasks, at that time."""

    epoch: WholeEpoch
    names: dict[TaskId, str]


class EpochRecorder:
    """Recorder of one driver. All methods run in the coordinator's thread."""

    def __init__(
        self,
        captures: Captures,
        recording: Recording,
        later: Callable[..., object],
        perform: Callable[[list[Effect]], object],
    ) -> None:
        """``later``: calls a function in the coordinator's thread. ``perform``: performs effects there."""
        self._captures, self._recording, self._later, self._perform = captures, recording, later, perform
        self.hold = CompletedHold(CheckpointId(0))
        self._queue = SimpleQueue[_Due | None]()
        self._open: list[_Due] = []
        self._held: list[Effect] = []
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name="epoch recorder", daemon=True)

    def begin(self, completed: CheckpointMetadata) -> None:
        """Begins with the checkpoint from which the job starts."""
        self.hold.release(completed.checkpoint)
        self._thread.start()

    def reach(self, before: CheckpointMetadata, after: CheckpointMetadata, plan: Plan) -> None:
        """Records the epoch between two completed checkpoints."""
        names = {}
        if len(before.tasks) == len(after.tasks) == len(plan.tasks):
            names = {t: plan.task_name(t) for t in self._recording.chosen(plan) if not before.tasks[t].final}
        if self._has_ended or (not names and not self._open):
            self.hold.release(after.checkpoint)
            return
        due = _Due(WholeEpoch(before, after, time.monotonic() + WHOLE_TIME_S), names)
        self._open.append(due)
        self._queue.put(due)

    def takes(self, effects: list[Effect]) -> bool:
        """Returns whether the effects wait for the last epochs: those of the end of a job that has done its work, and
        all that come after it, because they release slots too."""
        if self._held:
            self._held += effects
            return True
        done = next((effect for effect in effects if isinstance(effect, JobDone)), None)
        if done is None or done.ending is Ending.ABORTED or not self._open:
            return False
        self._held = effects
        return True

    def _finish(self, due: _Due) -> None:
        self._open.remove(due)
        self.hold.release(due.epoch.ended.checkpoint)
        if self._held and not self._open:
            held, self._held = self._held, []
            self._perform(held)

    def _give_up(self, reason: str) -> None:
        """Records nothing more, and lets the slots go on."""
        self._has_ended = True
        self._perform([Alarm(f"no more epochs are recorded: {reason}")])
        for due in tuple(self._open):
            self._finish(due)

    def close(self, drain: Callable[[], object]) -> None:
        """Ends the thread. ``drain``: makes the calls that wait for this thread."""
        for due in self._open:
            due.epoch.due_s = 0.0
        self._queue.put(None)
        deadline_s = time.monotonic() + CLOSE_TIMEOUT_S
        while self._thread.is_alive() and time.monotonic() < deadline_s:
            drain()
            self._thread.join(CLOSE_STEP_S)

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # noqa: BLE001  of the code of a source; slots would keep their logs for ever
            self._later(self._give_up, f"{type(error).__name__}: {error}")

    def _serve(self) -> None:
        while (due := self._queue.get()) is not None:
            given_up: dict[str, str] = {}
            for task, name in sorted(due.names.items(), reverse=True):  # receivers before their senders
                if reason := self._record(task, name, due.epoch):
                    given_up[name] = reason
            if given_up:
                self._later(self._perform, [_alarm(due.epoch, given_up)])
            self._later(self._finish, due)

    def _record(self, task: TaskId, name: str, epoch: WholeEpoch) -> str:
        """Records the epoch of a task. Returns why it was given up, "" if it was not."""
        recording, reason = self._recording, ""
        folder = folder_of(recording.root, name)
        try:
            try:
                self._captures.take_whole(task, epoch, recording.root, recording.bytes_max)
            except ClonosError as error:
                reason = error.reason if isinstance(error, CaptureFailed) else str(error)
                note_given_up(folder, epoch.begun.tasks[task].snapshot, reason, recording.count)
            else:
                rotate(folder, recording.count)
        except OSError as error:
            reason = f"{reason}; {error}" if reason else str(error)
        return reason


def _alarm(epoch: WholeEpoch, given_up: dict[str, str]) -> Alarm:
    name, reason = next(iter(given_up.items()))
    others = f", and of {len(given_up) - 1} more tasks" if len(given_up) > 1 else ""
    return Alarm(f"the epoch {epoch.begun.checkpoint} of {name}{others} was not recorded: {reason}")
