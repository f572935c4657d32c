"""Sinks whose outside is the driver: ``collect`` and ``stdout``.

The rows travel inside the prepared parts, so they leave when a checkpoint completes. The driver remembers the last
checkpoint that it showed and drops what is repeated. It remembers as long as its process lives: a job resumed in a new
process goes on from its checkpoint, and stdout may then show once more what the dead process showed last.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import count
from typing import Any, TextIO
from weakref import WeakValueDictionary

import msgspec

from clonos.connectors.connector_errors import ConnectorMisused, OutputFailed
from clonos.connectors.json_text import json_text
from clonos.core.model.errors import InternalError, JobError
from clonos.core.values import decode_rows, encode_rows
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.operators.connector_contract import WriterContext

PART_FORMAT = 1
PART_BYTES_MAX = 16 << 20
"""Of what one task hands over at one barrier: it travels to the driver within a message."""

ROWS_MAX = 1_000_000

_sink_numbers = count(1)


class OutputTooLarge(JobError):
    """A job hands more to its driver than fits there."""

    sink: str
    limit: str
    maximum: int

    def __str__(self) -> str:
        return (
            f"{self.sink} was given more than {self.maximum} {self.limit}. It is for results that fit the driver:"
            " write large ones with files.jsonl or files.parquet, or take checkpoints more often."
        )


class _RowsPart(msgspec.Struct, frozen=True, array_like=True):
    format: int
    task: str
    checkpoint: int
    batches: tuple[bytes, ...]


_part_decoder = msgspec.msgpack.Decoder(_RowsPart)


class RowsWriter:
    """Keeps rows, encoded, until the barrier."""

    def __init__(self, sink: str, *, part_bytes_max: int = PART_BYTES_MAX) -> None:
        self._sink = sink
        self._part_bytes_max = part_bytes_max
        self._task = ""
        self._batches: list[bytes] = []
        self._size_bytes = 0

    def open(self, context: WriterContext) -> None:
        """Whose life this is."""
        self._task = context.task_name

    def write(self, rows: list[Any]) -> None:
        """Raises ``ValueUnsupported`` and ``OutputTooLarge``."""
        if not rows:
            return
        batch = encode_rows(rows)
        self._batches.append(batch)
        self._size_bytes += len(batch)
        if self._size_bytes > self._part_bytes_max:
            raise OutputTooLarge(self._sink, "bytes between two checkpoints by one task", self._part_bytes_max)

    def write_columns(self, batch: Any) -> None:
        """A ``pyarrow.RecordBatch`` as dicts."""
        self.write(batch.to_pylist())

    def prepare(self, checkpoint: int) -> bytes | None:
        """The rows themselves."""
        if not self._batches:
            return None
        batches, self._batches, self._size_bytes = tuple(self._batches), [], 0
        return msgspec.msgpack.encode(_RowsPart(PART_FORMAT, self._task, checkpoint, batches))

    def close(self) -> None:
        """Drops what is not prepared."""
        self._batches.clear()


class _Shown:
    """What a process has shown for one sink: a driver's copy of the sink and the user's own find it by number."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.job_id = ""
        self.checkpoint: int | None = None  # the last one that was shown
        self.rows: list[Any] = []


_shown: WeakValueDictionary[int, _Shown] = WeakValueDictionary()
_shown_lock = threading.Lock()


def _shown_of(number: int) -> _Shown:
    with _shown_lock:
        shown = _shown.get(number)
        if shown is None:
            shown = _shown[number] = _Shown()
        return shown


class DriverSink:
    """A transactional sink that shows rows in the driver, once. Subclasses say how, and what they are called."""

    name = ""

    def __init__(self) -> None:
        self.number = next(_sink_numbers)
        self._shown = _shown_of(self.number)

    def __getstate__(self) -> dict[str, Any]:
        """A copy travels without what was shown."""
        return {name: value for name, value in vars(self).items() if name != "_shown"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy in the driver's process shares what was shown with the original."""
        vars(self).update(state)
        self._shown = _shown_of(self.number)

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """A fresh start begins with nothing; a resumed job goes on where this process is."""
        shown = self._shown
        with shown.lock:
            if not (resume and shown.job_id == job_id):
                shown.job_id, shown.checkpoint = job_id, None
                shown.rows.clear()

    def writer(self) -> RowsWriter:
        """A writer, made in the slot."""
        return RowsWriter(self.name)

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Shows the rows by barrier, then by task, unless this checkpoint was shown already."""
        shown = self._shown
        with shown.lock:
            if shown.job_id != job_id:
                raise InternalError(f"{self.name} was prepared for the job {shown.job_id!r}, not for {job_id!r}")
            if shown.checkpoint is not None and checkpoint <= shown.checkpoint:
                return
            found = sorted((_decode(part, self.name) for part in parts), key=_order)
            rows = [row for part in found for batch in part.batches for row in decode_rows(batch)]
            if rows:
                self.show(rows, shown.rows)
            shown.checkpoint = checkpoint

    def show(self, rows: list[Any], earlier: list[Any]) -> None:
        """Lets rows out; ``earlier``: a list that lives as long as the process."""
        raise NotImplementedError


class CollectSink(DriverSink):
    """Gathers rows in the driver."""

    name = "collect()"

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ConnectorMisused("collect", f"limit is {limit}", "Give at least 1.")
        super().__init__()
        self.limit = limit

    @property
    def rows(self) -> list[Any]:
        """What is committed so far, in order of checkpoints; a list of the caller's own."""
        shown = self._shown
        with shown.lock:
            return list(shown.rows)

    def show(self, rows: list[Any], earlier: list[Any]) -> None:
        """Raises ``OutputTooLarge``; what was gathered stays."""
        if len(earlier) + len(rows) > self.limit:
            raise OutputTooLarge(self.name, "rows (limit=)", self.limit)
        earlier.extend(rows)


class StdoutSink(DriverSink):
    """Prints rows on the driver's standard output, a line each."""

    name = "stdout()"

    def __init__(self, row_text: Callable[[Any], str] | None) -> None:
        super().__init__()
        self.row_text = row_text or default_row_text

    def show(self, rows: list[Any], earlier: list[Any]) -> None:
        """Raises ``OutputFailed`` where nobody listens any more."""
        lines = [f"{self.row_text(row)}\n" for row in rows]
        stream: TextIO = sys.stdout
        try:
            stream.write("".join(lines))
            stream.flush()
        except OSError as error:
            raise OutputFailed("standard output", "written", error.strerror or str(error)) from error


def default_row_text(row: Any) -> str:
    """A str as it is, everything else as JSON."""
    return row if type(row) is str else json_text(row)


def collect(limit: int = ROWS_MAX) -> CollectSink:
    """A sink into a list in the driver, ``.rows``, for tests and small results: ``limit`` rows at most."""
    return CollectSink(limit)


def stdout(format: Callable[[Any], str] | None = None) -> StdoutSink:
    """A sink that prints each row in the driver: by ``format``, else a str as it is and everything else as JSON."""
    return StdoutSink(format)


def _decode(part: bytes, sink: str) -> _RowsPart:
    try:
        found = _part_decoder.decode(part)
    except DECODE_ERRORS as error:
        raise InternalError(f"{part[:80]!r} is no prepared part of {sink}: {error}") from None
    if found.format > PART_FORMAT:
        raise InternalError(f"a prepared part of {sink} has format {found.format}: update clonos")
    return found


def _order(part: _RowsPart) -> tuple[int, str]:
    return part.checkpoint, part.task
