"""Captures of epochs of tasks: the driver's end. It asks the slots, reads the store, and writes the record.

A capture begins again with a later checkpoint when one completes meanwhile. It waits while a task recovers that has
something of the epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, TaskEntry
from clonos.core.checkpoint.snapshot import decode_snapshot
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import JobFailed
from clonos.core.model.ids import ChannelId, SlotId, TaskId
from clonos.core.model.plan import Plan
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.recovery.capture import CaptureReply, CaptureRequest, EpochEnd, TaskCapture
from clonos.core.wire.capture_messages import Elements
from clonos.io.epochs.page_files import PageFiles
from clonos.io.epochs.record_parts import RecordedWay
from clonos.io.store.object_files import ObjectMissing
from clonos.io.store.store import CheckpointStore
from clonos_standby.driver.epoch_writing import CapturedJob, CaptureFailed, EpochWriting, Objects

REPEAT_EVERY_S: Final = 0.1
"""Seconds after which a request is repeated that was not answered."""

PAUSE_S: Final = 0.05
"""Seconds until a capture begins again, because a checkpoint has completed, or a task recovers."""

WHOLE_TIME_S: Final = 5.0
"""Seconds for which slots keep what has become needless, while the epochs of all recorded tasks are read."""

BYTES_MAX: Final = 64 << 20
"""Bytes of the log and the input of an epoch that is captured."""


@dataclass(slots=True)
class WholeEpoch:
    """Epoch between two completed checkpoints. ``due_s``: until when it is read, on the monotonic clock; another thread
    may end it earlier. ``digests``: of the channels that were read for their receivers, so that a sender's record needs
    no second reading."""

    begun: CheckpointMetadata
    ended: CheckpointMetadata
    due_s: float
    digests: dict[ChannelId, list[Elements]] = field(default_factory=dict)

    def end_of(self, task: TaskId, store: CheckpointStore) -> EpochEnd:
        """Returns where the epoch of a task ends. Raises: ObjectMissing."""
        entry = self.ended.tasks[task]
        name = entry.objects[-1]
        return EpochEnd(entry.log_offset_bytes, decode_snapshot(next(iter(store.read_object(name))), name))


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """Record of an epoch. ``checkpoint``: after which it begins. ``has_failed``: the task's code has ended the job."""

    task: str
    checkpoint: int
    folder: Path
    has_failed: bool


@dataclass(frozen=True, slots=True)
class _Whole:
    """Limits and files of the reading of a whole epoch. ``bytes_max``: of the state, and of the log and the input.
    ``files``: for its input; None: that is sent."""

    epoch: WholeEpoch
    bytes_max: int
    files: PageFiles | None


@dataclass(frozen=True, slots=True)
class _Time:
    """Time for a capture. ``due_s``: its end, on the monotonic clock."""

    due_s: float
    text: str


@dataclass(frozen=True, slots=True)
class _Situation:
    """State and requests of an attempt; without requests, what it waits for."""

    capture: TaskCapture | None
    objects: Objects = ()
    waits_for: str = ""


class Captures:
    """Captures of one driver. ``on_captured`` runs in the coordinator's thread, ``take`` in any other."""

    def __init__(
        self,
        ask: Callable[[Callable[[Coordinator], Any]], Any],
        send: Callable[[SlotId, CaptureRequest], object],
        open_store: Callable[[], CheckpointStore],
        job: CapturedJob,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """Takes how to run a function in the coordinator's thread, and how to send from there. ``bytes_max``: of the
        log and the input of an epoch."""
        self._bytes_max = bytes_max
        self._ask, self._send, self._open_store, self._job = ask, send, open_store, job
        self._numbers = count(1)
        self.on_written: Callable[[WrittenRecord], None] = lambda _: None  # any thread calls it
        self._replies: dict[int, SimpleQueue[tuple[SlotId, CaptureReply, bytes]]] = {}

    @property
    def has_code(self) -> bool:
        """Whether a replay of a record needs no other code."""
        return self._job.has_code

    def on_captured(self, sender: SlotId, message: CaptureReply, payload: bytes | memoryview) -> None:
        """Takes a page; that of a capture that has ended is dropped."""
        if (replies := self._replies.get(message.number)) is not None:
            replies.put((sender, message, bytes(payload)))

    def take(self, task: TaskId, root: Path, timeout_s: float, failed: JobFailed | None = None) -> Path:
        """Captures the epoch of a task since the last completed checkpoint; returns the folder of its record, below
        ``root``.

        ``failed``: how the task has ended the job.

        Raises: CaptureFailed: it takes longer, has more than ``bytes_max``, or cannot be written.
        """
        way = RecordedWay.CAPTURED if failed is None else RecordedWay.FAILED
        time_of = _Time(time.monotonic() + timeout_s, f"{timeout_s:g} s")
        writing = self._writing(self._awaited(task, time_of), self._bytes_max)
        folder = writing.write(root, way, failed)
        self.on_written(WrittenRecord(writing.name, writing.checkpoint, folder, failed is not None))
        return folder

    def take_whole(self, task: TaskId, epoch: WholeEpoch, root: Path, bytes_max: int) -> Path:
        """Captures a whole epoch of a task, while the slots do not know that it has ended; returns the folder.

        ``bytes_max``: of the state, and of the log and the input.

        Raises: CaptureFailed: it is not read in time, or has more than ``bytes_max``, or cannot be written.
        """
        limit = _Time(epoch.due_s, f"{WHOLE_TIME_S:g} s")
        with PageFiles(root) as files:
            whole = _Whole(epoch, bytes_max, files if self._job.redact is None else None)
            situation = self._awaited(task, limit, whole)
            assert situation.capture is not None
            epoch.digests |= {pages.channel.id: pages.digests() for pages in situation.capture.inputs}
            return self._writing(situation, bytes_max).write(root, RecordedWay.RUNNING, None)

    def _writing(self, situation: _Situation, bytes_max: int) -> EpochWriting:
        assert situation.capture is not None
        return EpochWriting(self._job, situation.capture, situation.objects, bytes_max)

    def _awaited(self, task: TaskId, limit: _Time, whole: _Whole | None = None) -> _Situation:
        """Reads the epoch, in as many attempts as it takes. Raises: CaptureFailed."""
        store, waits_for = self._open_store(), "the tasks do not run yet"
        while True:
            situation = self._situation(store, task, whole)
            if situation.capture is not None:
                if self._read(situation.capture, limit.due_s):
                    return situation
                waits_for = self._reason(situation.capture)
            else:
                waits_for = situation.waits_for
            if time.monotonic() > limit.due_s:
                raise CaptureFailed(self._name(task), f"in {limit.text} {waits_for}")
            time.sleep(PAUSE_S)

    def _name(self, task: TaskId) -> str:
        plan = self._ask(lambda coordinator: coordinator.plan)
        return str(plan.task_name(task)) if 0 <= task < len(plan.tasks) else f"task {task}"

    def _situation(self, store: CheckpointStore, task: TaskId, whole: _Whole | None) -> _Situation:
        """Reads the state as of the last completed checkpoint, or that at which a whole epoch begins, and prepares the
        requests. Raises: CaptureFailed: it cannot be read any more, or is too large."""
        plan, view, completed = self._ask(lambda each: (each.plan, each.view, each.completed))
        epoch = None if whole is None else whole.epoch
        bytes_max = self._bytes_max if whole is None else whole.bytes_max
        if epoch is not None:
            if view is not None and len(view.placements) != len(epoch.begun.tasks):
                raise CaptureFailed(self._name(task), "the widths of the job have changed")
            completed = epoch.begun
        if view is None or len(completed.tasks) != len(plan.tasks) or task >= len(view.placements):
            return _Situation(None, waits_for="the tasks did not run")
        entry = completed.tasks[task]
        try:
            objects = self._objects(store, entry, 0 if whole is None else bytes_max)
            end = None if epoch is None else epoch.end_of(task, store)
        except ObjectMissing:
            if epoch is not None:
                raise CaptureFailed(plan.task_name(task), "its state is not in the store any more") from None
            return _Situation(None, waits_for="checkpoints completed one after the other")
        snapshot: Snapshot | None = None
        if objects:
            name, pieces = objects[-1]
            snapshot = decode_snapshot(pieces[0], name)
        files = self._files(plan, task, whole)
        capture = TaskCapture(plan, view, entry, snapshot, next(self._numbers), bytes_max, end, files)
        if epoch is not None:
            capture.take_outputs(epoch.digests)
        if capture.without_slot:
            names = ", ".join(map(plan.task_name, capture.without_slot))
            return _Situation(None, waits_for=f"{names} had no process")
        return _Situation(capture, objects)

    def _files(self, plan: Plan, task: TaskId, whole: _Whole | None) -> dict[ChannelId, str]:
        """Returns new files for the inputs, none for what is sent. Raises: CaptureFailed."""
        if whole is None or whole.files is None:
            return {}
        try:
            return whole.files.create(channel.id for channel in plan.inputs[task])
        except OSError as error:
            raise CaptureFailed(plan.task_name(task), f"its input cannot be written: {error}") from None

    def _objects(self, store: CheckpointStore, entry: TaskEntry, bytes_max: int) -> Objects:
        """Reads the state of a task. ``bytes_max``: of it; 0: any number. Raises: ObjectMissing, CaptureFailed."""
        found, size_bytes = [], 0
        for name in entry.objects:
            pieces = []
            for piece in store.read_object(name):
                pieces.append(bytes(piece))
                size_bytes += len(piece)
                if 0 < bytes_max < size_bytes:
                    text = f"its state at checkpoint {entry.snapshot} has more than {bytes_max >> 20} MiB"
                    raise CaptureFailed(self._name(entry.task), text)
            found.append((name, tuple(pieces)))
        return tuple(found)

    def _reason(self, capture: TaskCapture) -> str:
        if capture.is_too_large:
            size, limit = f"{capture.size_bytes / (1 << 20):.0f} MiB", f"{capture.bytes_max >> 20} MiB"
            text = f"since checkpoint {capture.entry.snapshot} it has {size} of input and log, and {limit} is the limit"
            raise CaptureFailed(capture.plan.task_name(capture.task), text)
        if capture.is_stale and capture.log.ends_at_barrier:
            text = f"a task has recovered from the end of the epoch of checkpoint {capture.entry.snapshot}"
            raise CaptureFailed(capture.plan.task_name(capture.task), text)
        return "checkpoints completed one after the other" if capture.is_stale else "its slots did not answer"

    def _read(self, capture: TaskCapture, deadline_s: float) -> bool:
        """Asks until all is there; returns False if the capture has to begin again, or the time is up."""
        replies = self._replies[capture.number] = SimpleQueue[tuple[SlotId, CaptureReply, bytes]]()
        try:
            while not capture.is_read:
                if time.monotonic() > deadline_s or not self._ask(
                    lambda coordinator: self._request(coordinator, capture)
                ):
                    return False
                self._take_replies(capture, replies)
                if capture.is_stale or capture.is_too_large:
                    return False
            return True
        finally:
            del self._replies[capture.number]

    def _request(self, coordinator: Coordinator, capture: TaskCapture) -> bool:
        """Sends what is to be asked. Returns False if a later view is in force."""
        if coordinator.view is None or coordinator.view.number != capture.view.number:
            return False
        for slot, request in capture.requests():
            self._send(slot, request)
        return True

    def _take_replies(self, capture: TaskCapture, replies: SimpleQueue[tuple[SlotId, CaptureReply, bytes]]) -> None:
        """Takes pages until one brings something and no other has come."""
        with suppress(Empty):
            while not capture.on_reply(*replies.get(timeout=REPEAT_EVERY_S)):
                pass
            while True:
                capture.on_reply(*replies.get_nowait())
