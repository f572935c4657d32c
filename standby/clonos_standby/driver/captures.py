"""Captures of epochs of tasks: the driver's end. It asks the slots, reads the store, and writes the record.

A capture begins again with a later checkpoint when one completes meanwhile. It waits while a task recovers that has
something of the epoch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from clonos.core.checkpoint.snapshot import decode_snapshot
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import JobFailed
from clonos.core.model.errors import ClonosError, EnvironmentFault
from clonos.core.model.ids import SlotId, TaskId
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.recovery.capture import CaptureReply, CaptureRequest, TaskCapture
from clonos.io.epochs.record_parts import (
    RECORD_FORMAT,
    Elements,
    EmittedOutput,
    FailedHere,
    JournalBytes,
    RecordedWay,
    RecordHead,
    SourceFile,
    SourceRecords,
    StatePiece,
)
from clonos.io.epochs.record_writer import RecordWriter
from clonos.io.process.pickling import UNPICKLABLE, pickled
from clonos.io.store.object_files import ObjectMissing
from clonos.io.store.store import CheckpointStore
from clonos.io.system.wall_clock import wall_ns
from clonos.operators.job_image import JobImage

REPEAT_EVERY_S: Final = 0.1
"""Seconds after which a request is repeated that was not answered."""

PAUSE_S: Final = 0.05
"""Seconds until a capture begins again, because a checkpoint has completed, or a task recovers."""

BYTES_MAX: Final = 64 << 20
"""Bytes of the log and the input of an epoch that is captured."""


class CaptureFailed(EnvironmentFault):
    """The epoch of a task cannot be captured."""

    task: str
    reason: str

    def __str__(self) -> str:
        return f"the epoch of {self.task} was not captured: {self.reason}."


@dataclass(frozen=True, slots=True)
class CapturedJob:
    """Job as a record has it. ``packed``: the image as slots get it. ``sources``: names and texts of its files."""

    image: JobImage
    packed: bytes
    job_id: str
    versions: tuple[tuple[str, str], ...]
    sources: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """Record of an epoch. ``checkpoint``: after which it begins. ``has_failed``: the task's code has ended the job."""

    task: str
    checkpoint: int
    folder: Path
    has_failed: bool


@dataclass(frozen=True, slots=True)
class _Situation:
    """State and requests of an attempt; without requests, what it waits for."""

    capture: TaskCapture | None
    objects: tuple[tuple[str, tuple[bytes, ...]], ...] = ()
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
        deadline_s = time.monotonic() + timeout_s
        store, waits_for = self._open_store(), "the tasks do not run yet"
        while True:
            situation = self._situation(store, task)
            if situation.capture is not None:
                if self._read(situation.capture, deadline_s):
                    return self._write(situation, root, failed)
                waits_for = self._reason(situation.capture)
            else:
                waits_for = situation.waits_for
            if time.monotonic() > deadline_s:
                raise CaptureFailed(self._name(task), f"in {timeout_s:g} s {waits_for}")
            time.sleep(PAUSE_S)

    def _name(self, task: TaskId) -> str:
        plan = self._ask(lambda coordinator: coordinator.plan)
        return str(plan.task_name(task)) if 0 <= task < len(plan.tasks) else f"task {task}"

    def _situation(self, store: CheckpointStore, task: TaskId) -> _Situation:
        """Reads the state as of the last completed checkpoint, and prepares the requests."""
        plan, view, completed = self._ask(lambda each: (each.plan, each.view, each.completed))
        if view is None or len(completed.tasks) != len(plan.tasks) or task >= len(view.placements):
            return _Situation(None, waits_for="the tasks did not run")
        entry = completed.tasks[task]
        try:
            objects = tuple((name, tuple(map(bytes, store.read_object(name)))) for name in entry.objects)
        except ObjectMissing:
            return _Situation(None, waits_for="checkpoints completed one after the other")
        snapshot: Snapshot | None = None
        if objects:
            name, pieces = objects[-1]
            snapshot = decode_snapshot(pieces[0], name)
        capture = TaskCapture(plan, view, entry, snapshot, next(self._numbers), self._bytes_max)
        if capture.without_slot:
            names = ", ".join(map(plan.task_name, capture.without_slot))
            return _Situation(None, waits_for=f"{names} had no process")
        return _Situation(capture, objects)

    def _reason(self, capture: TaskCapture) -> str:
        if capture.is_too_large:
            size, limit = f"{capture.size_bytes / (1 << 20):.0f} MiB", f"{self._bytes_max >> 20} MiB"
            text = f"since checkpoint {capture.entry.snapshot} it has {size} of input and log, and {limit} is the limit"
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

    # ------------------------------------------------------------------ the record

    def _write(self, situation: _Situation, root: Path, failed: JobFailed | None) -> Path:
        capture = situation.capture
        assert capture is not None
        name = capture.plan.task_name(capture.task)
        folder = root / name.replace(os.sep, "-") / str(int(capture.entry.snapshot))
        try:
            with RecordWriter(folder) as writer:
                writer.job(self._job.packed)
                for file, text in self._job.sources:
                    writer.source(SourceFile(file, text))
                for stored_as, pieces in situation.objects:
                    for piece in pieces:
                        writer.state(StatePiece(stored_as, piece))
                log = bytes(capture.log.data) + capture.log.unfinished
                writer.log(log)
                missing = self._write_input(writer, capture, log)
                for pages in capture.outputs:
                    for chunk in pages.chunks:
                        place = pages.channel.id, chunk.first_seq, chunk.kind, chunk.count, chunk.checkpoint
                        writer.expected(EmittedOutput(*place, chunk.payload))
                writer.finish(self._head(capture, name, missing, failed))
        except OSError as error:
            raise CaptureFailed(name, f"{folder} cannot be written: {error}") from None
        self.on_written(WrittenRecord(name, int(capture.entry.snapshot), folder, failed is not None))
        return folder

    def _write_input(self, writer: RecordWriter, capture: TaskCapture, log: bytes) -> tuple[str, ...]:
        """Writes the input; returns sentences about what is missing."""
        if capture.journal is not None:
            writer.input(JournalBytes(bytes(capture.journal.data)))
        for pages in capture.inputs:
            for chunk in pages.chunks:
                place = pages.channel.id, chunk.first_seq, chunk.kind, chunk.count, chunk.checkpoint
                writer.input(Elements(*place, chunk.payload))
        plan = capture.plan
        vertex = plan.vertex_of[capture.task]
        if not plan.vertices[vertex].is_source:
            return ()
        position = capture.snapshot.position if capture.snapshot is not None else b""
        chain = self._job.image.new_chain(vertex)
        try:
            width = plan.vertices[vertex].parallelism
            for split, taken, batch in chain.read_again(plan.index_of(capture.task), width, position, log):
                writer.input(SourceRecords(split, taken, pickled(batch)))
                if writer.written_bytes > self._bytes_max:
                    return (f"the records of the source after the first {self._bytes_max >> 20} MiB",)
        except (ClonosError, StepFailed, *UNPICKLABLE) as error:
            cause = error.__cause__ or error
            return (f"records of the source, which could not be read again: {type(cause).__name__}: {cause}",)
        return ()

    def _head(self, capture: TaskCapture, name: str, missing: tuple[str, ...], failed: JobFailed | None) -> RecordHead:
        plan, placement = capture.plan, capture.view.placements[capture.task]
        return RecordHead(
            RECORD_FORMAT,
            RecordedWay.CAPTURED if failed is None else RecordedWay.FAILED,
            job=plan.job_name,
            job_id=self._job.job_id,
            task=name,
            task_id=capture.task,
            epoch=capture.entry.snapshot,
            generation=capture.view.generation,
            incarnation=placement.incarnation,
            widths=tuple(capture.view.widths),
            log_offset_bytes=capture.log.start_bytes,
            unfinished_bytes=len(capture.log.unfinished),
            is_whole=capture.entry.final,
            written_ns=wall_ns(),
            versions=dict(self._job.versions),
            failure=None if failed is None else failed_here(failed),
            missing=missing,
            redacted=(),
            parts={},
        )


def failed_here(failed: JobFailed) -> FailedHere:
    """Returns the failure of a job as a record has it."""
    at = failed.at
    place = (None, 0, 0) if at is None else (at.channel, at.first_seq, at.count)
    return FailedHere(failed.error, failed.step, failed.record, *place, failed.frames)
