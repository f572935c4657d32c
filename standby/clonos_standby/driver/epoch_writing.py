"""Writing of the record of an epoch that was read (docs/design/records.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clonos.core.coordinator.coordinator_effects import JobFailed
from clonos.core.model.errors import ClonosError, EnvironmentFault
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.recovery.capture import TaskCapture
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
from clonos.io.system.wall_clock import wall_ns
from clonos.operators.job_image import JobImage


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
        capture = self._capture
        folder = folder_of(root, self.name) / str(self.checkpoint)
        try:
            with RecordWriter(folder) as writer:
                writer.job(self._job.packed)
                for file, text in self._job.sources:
                    writer.source(SourceFile(file, text))
                for stored_as, pieces in self._objects:
                    for piece in pieces:
                        writer.state(StatePiece(stored_as, piece))
                writer.log(self._log)
                self._write_input(writer)
                for pages in capture.outputs:
                    for chunk in pages.chunks:
                        place = pages.channel.id, chunk.first_seq, chunk.kind, chunk.count, chunk.checkpoint
                        writer.expected(EmittedOutput(*place, chunk.payload))
                writer.finish(self._head(way, failed))
        except OSError as error:
            raise CaptureFailed(self.name, f"{folder} cannot be written: {error}") from None
        return folder

    @property
    def _log(self) -> bytes:
        log = self._capture.log
        return bytes(log.data) + log.unfinished

    def _write_input(self, writer: RecordWriter) -> None:
        capture = self._capture
        if capture.journal is not None:
            writer.input(JournalBytes(bytes(capture.journal.data)))
        for pages in capture.inputs:
            for chunk in pages.chunks:
                place = pages.channel.id, chunk.first_seq, chunk.kind, chunk.count, chunk.checkpoint
                writer.input(Elements(*place, chunk.payload))
        try:
            for split, taken, batch in self._read_again():
                writer.input(SourceRecords(split, taken, pickled(batch)))
                if writer.written_bytes > self._bytes_max:
                    self._missing.append(f"the records of the source after the first {self._bytes_max >> 20} MiB")
                    return
        except (ClonosError, StepFailed, *UNPICKLABLE) as error:
            cause = error.__cause__ or error
            text = f"records of the source, which could not be read again: {type(cause).__name__}: {cause}"
            self._missing.append(text)

    def _read_again(self) -> Iterator[tuple[int, int, object]]:
        """Yields what the readers of a source give for each read of the log; nothing for another task."""
        capture, plan = self._capture, self._capture.plan
        vertex = plan.vertex_of[capture.task]
        if not plan.vertices[vertex].is_source:
            return iter(())
        position = capture.snapshot.position if capture.snapshot is not None else b""
        width = plan.vertices[vertex].parallelism
        return self._job.image.new_chain(vertex).read_again(plan.index_of(capture.task), width, position, self._log)

    def _head(self, way: RecordedWay, failed: JobFailed | None) -> RecordHead:
        capture, plan = self._capture, self._capture.plan
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
            widths=tuple(capture.view.widths),
            log_offset_bytes=capture.log.start_bytes,
            unfinished_bytes=len(capture.log.unfinished),
            is_whole=capture.is_whole,
            written_ns=wall_ns(),
            versions=dict(self._job.versions),
            failure=None if failed is None else failed_here(failed),
            missing=tuple(self._missing),
            redacted=(),
            parts={},
        )


def folder_of(root: Path, task: str) -> Path:
    """Returns the folder of the records of a task."""
    return root / task.replace(os.sep, "-")


def failed_here(failed: JobFailed) -> FailedHere:
    """Returns the failure of a job as a record has it."""
    at = failed.at
    place = (None, 0, 0) if at is None else (at.channel, at.first_seq, at.count)
    return FailedHere(failed.error, failed.step, failed.record, *place, failed.frames)
