"""Writing of the record of an epoch that was read (docs/design/records.md)."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clonos.core.coordinator.coordinator_effects import JobFailed
from clonos.core.log.determinants import COMPLETION, READ, STEP, TIMER, LogReader
from clonos.core.model.errors import ClonosError, EnvironmentFault
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.ports.redaction import Redact
from clonos.core.recovery.capture import TaskCapture
from clonos.core.values.tree import PLAIN
from clonos.core.wire.capture_messages import Elements
from clonos.io.epochs.record_parts import (
    RECORD_FORMAT,
    DigestKind,
    EmittedOutput,
    EpochContent,
    FailedHere,
    Input,
    JournalBytes,
    RecordedWay,
    RecordHead,
    SourceFile,
    SourceRecords,
    StatePiece,
)
from clonos.io.epochs.record_writer import RecordWriter
from clonos.io.process.pickling import UNPICKLABLE, pickled
from clonos.io.system.wall_clock import wall_ns
from clonos.operators.job_image import JobImage
from clonos_standby.driver.redactor import NotRedacted, Redactor


class CaptureFailed(EnvironmentFault):
    """The epoch of a task cannot be captured."""

    task: str
    reason: str

    def __str__(self) -> str:
        return f"the epoch of {self.task} was not captured: {self.reason}."


@dataclass(frozen=True, slots=True)
class CapturedJob:
    """Job as a record has it. ``packed``: the image as slots get it. ``sources``: names and texts of its files.

    ``redact``: changes what is written, see ``redactor``. ``has_code``: whether a record has the job and its files.
    """

    image: JobImage
    packed: bytes
    job_id: str
    versions: tuple[tuple[str, str], ...]
    sources: tuple[tuple[str, str], ...] = ()
    redact: Redact | None = None
    has_code: bool = True


Objects = tuple[tuple[str, tuple[bytes, ...]], ...]
"""Objects of the store that restore a state, oldest first: names and pieces."""


class EpochWriting:
    """Writes one epoch: ``capture`` and the ``objects`` of its state. ``bytes_max``: of its log and input."""

    def __init__(self, job: CapturedJob, capture: TaskCapture, objects: Objects, bytes_max: int) -> None:
        self._job, self._capture, self._objects, self._bytes_max = job, capture, objects, bytes_max
        self.name, self.checkpoint = capture.plan.task_name(capture.task), int(capture.entry.snapshot)
        self._missing: list[str] = []

    def write(self, root: Path, way: RecordedWay, failed: JobFailed | None) -> Path:
        """Writes the record below ``root``; returns its folder. Raises: CaptureFailed."""
        folder = folder_of(root, self.name) / str(self.checkpoint)
        content, redacted = self._content(), tuple[str, ...]()
        if way is RecordedWay.CAPTURED and not has_steps(self._log):
            self._missing.append(f"records: {self.name} has processed none since {self._begun}")
        if self._job.redact is not None:
            content, redacted = self._redacted(content, self._job.redact)
        try:
            with RecordWriter(folder) as writer:
                if self._job.has_code:
                    writer.job(self._job.packed)
                    for file, text in self._job.sources:
                        writer.source(SourceFile(file, text))
                for state in content.state:
                    writer.state(state)
                writer.log(content.log + content.unfinished)
                for pages in self._capture.inputs:
                    if pages.saved_bytes:
                        writer.input_page(Path(pages.file), pages.saved_bytes)
                for piece in content.input:
                    writer.input(piece)
                for emitted in content.expected:
                    writer.expected(emitted)
                writer.finish(self._head(way, failed, redacted, content))
        except OSError as error:
            raise CaptureFailed(self.name, f"{folder} cannot be written: {error}") from None
        return folder

    @property
    def _begun(self) -> str:
        return f"checkpoint {self.checkpoint}" if self.checkpoint else "the job began"

    def _content(self) -> EpochContent:
        capture = self._capture
        outputs = [chunk for pages in capture.outputs for chunk in pages.chunks]
        return EpochContent(
            [StatePiece(name, piece) for name, pieces in self._objects for piece in pieces],
            bytes(capture.log.data),
            capture.log.unfinished,
            list(self._input()),
            list(map(_emitted, outputs)),
            capture.sinks,
        )

    def _redacted(self, content: EpochContent, redact: Redact) -> tuple[EpochContent, tuple[str, ...]]:
        """Returns what may be written, and what was redacted. Raises: CaptureFailed."""
        capture, plan = self._capture, self._capture.plan
        senders = {each.id: plan.vertices[plan.vertex_of[each.sender]].name for each in plan.inputs[capture.task]}
        vertex = plan.vertex_of[capture.task]
        source = self._job.image.vertices[vertex].nodes[0].step if plan.vertices[vertex].is_source else ""
        redactor = Redactor(redact, source, senders, self._job.image.declared_state())
        try:
            return redactor.redacted(content), redactor.sentences
        except NotRedacted as error:
            raise CaptureFailed(self.name, str(error)) from None

    @property
    def _log(self) -> bytes:
        log = self._capture.log
        return bytes(log.data) + log.unfinished

    def _input(self) -> Iterator[Input]:
        capture = self._capture
        if capture.journal is not None:
            yield JournalBytes(bytes(capture.journal.data))
        for pages in capture.inputs:
            yield from pages.sent
        size_bytes = len(self._log)
        try:
            for split, taken, batch in self._read_again():
                found = pickled_batch(batch)
                yield SourceRecords(split, taken, found)
                size_bytes += len(found)
                if size_bytes > self._bytes_max:
                    self._missing.append(f"the records of the source after the first {self._bytes_max >> 20} MiB")
                    return
        except (ClonosError, StepFailed, *UNPICKLABLE) as error:
            cause = error.__cause__ or error
            text = "" if self._job.redact is not None else f": {cause}"  # it may have a value
            self._missing.append(f"records of the source, which could not be read again: {type(cause).__name__}{text}")

    def _read_again(self) -> Iterator[tuple[int, int, object]]:
        """Yields what the readers of a source give for each read of the log; nothing for another task."""
        capture, plan = self._capture, self._capture.plan
        vertex = plan.vertex_of[capture.task]
        if not plan.vertices[vertex].is_source:
            return iter(())
        position = capture.snapshot.position if capture.snapshot is not None else b""
        width = plan.vertices[vertex].parallelism
        return self._job.image.new_chain(vertex).read_again(plan.index_of(capture.task), width, position, self._log)

    def _head(
        self, way: RecordedWay, failed: JobFailed | None, redacted: tuple[str, ...], content: EpochContent
    ) -> RecordHead:
        capture, plan, job = self._capture, self._capture.plan, self._job
        widths = tuple(capture.view.widths) if job.has_code else tuple(plan.widths.items())
        return RecordHead(
            RECORD_FORMAT,
            way,
            job=plan.job_name,
            job_id=self._job.job_id,
            task=self.name,
            task_id=capture.task,
            epoch=capture.entry.snapshot,
            generation=capture.view.generation,
            incarnation=capture.view.placements[capture.task].incarnation,
            widths=widths,
            log_offset_bytes=capture.log.start_bytes,
            unfinished_bytes=len(content.unfinished),
            is_whole=capture.is_whole,
            written_ns=wall_ns(),
            versions=dict(self._job.versions),
            failure=None if failed is None else failed_here(failed, is_redacted=job.redact is not None),
            missing=tuple(self._missing),
            redacted=redacted,
            parts={},
            options=None if job.has_code else job.image.options,
            sinks=content.sinks,
            digests=DigestKind.XXH3,
        )


def pickled_batch(batch: object) -> bytes:
    """Pickles what the readers of a source gave. Texts and numbers are not looked up among those before, which takes
    most of the time: none of them refers to another. Raises: an error of ``UNPICKLABLE``."""
    if type(batch) is not list or not PLAIN.issuperset(map(type, batch)):
        return pickled(batch)
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.fast = True
    pickler.dump(batch)
    return buffer.getvalue()


def has_steps(log: bytes) -> bool:
    """Returns whether a task has processed anything in a log."""
    reader = LogReader(log)
    while not reader.at_end:
        if reader.next()[0] in (STEP, READ, TIMER, COMPLETION):
            return True
    return False


def folder_of(root: Path, task: str) -> Path:
    """Returns the folder of the records of a task."""
    return root / task.replace(os.sep, "-")


def _emitted(chunk: Elements) -> EmittedOutput:
    return EmittedOutput(chunk.channel, chunk.first_seq, chunk.kind, chunk.count, chunk.checkpoint, chunk.payload)


def failed_here(failed: JobFailed, *, is_redacted: bool = False) -> FailedHere:
    """Returns the failure of a job as a record has it. ``is_redacted``: without the text of the error, the record and
    the lines of code."""
    at = failed.at
    place = (None, 0, 0) if at is None else (at.channel, at.first_seq, at.count)
    if not is_redacted:
        return FailedHere(failed.error, failed.step, failed.record, *place, failed.frames)
    name = failed.error.partition(":")[0]
    return FailedHere(name if name.isidentifier() else "an error", failed.step, "", *place, "")
