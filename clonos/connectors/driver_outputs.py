"""Sinks that show rows in the driver: ``collect`` and ``stdout``.

The rows travel in the prepared parts, so they become visible when a checkpoint completes. The driver remembers, while
its process lives, the last checkpoint that it showed, and drops repeated ones. A job resumed in a new process continues
from its checkpoint; stdout may then repeat what the previous process printed last.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import count
from typing import Any, TextIO
from weakref import WeakValueDictionary

import msgspec

from clonos.connectors.connector_errors import InvalidConnector, OutputClosed, OutputFailed, row_not_writable
from clonos.connectors.html_table import html_of_rows
from clonos.connectors.json_text import json_text
from clonos.core.model.errors import InternalError, JobError
from clonos.core.model.wrong_calls import explains_calls
from clonos.core.values import ValueBeyondLimit, decode_rows, encode_rows
from clonos.core.values.column_rows import rows_of_columns
from clonos.core.wire.decoding import DECODE_ERRORS, check_format
from clonos.io.system.closed_pipes import discard
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import WriterContext
from clonos.operators.deep_rows import too_deep

PART_FORMAT = 1
PART_BYTES_MAX = 16 << 20
"""Bytes that one task may hand over at one barrier: a part travels to the driver in one message."""

ROWS_MAX = 1_000_000

_sink_numbers = count(1)


class OutputTooLarge(JobError):
    """A job sends more rows to its driver than the sink allows."""

    sink: str
    limit: str
    maximum: int

    def __str__(self) -> str:
        return (
            f"{self.sink} was given more than {self.maximum} {self.limit}. It is for results that fit into the driver:"
            " write larger ones with files.jsonl or files.parquet, or take checkpoints more often."
        )


class _RowsPart(msgspec.Struct, frozen=True, array_like=True):
    format: int
    task: str
    checkpoint: int
    batches: tuple[bytes, ...]


_part_decoder = msgspec.msgpack.Decoder(_RowsPart)


class RowsWriter:
    """Writer that keeps encoded rows until the barrier."""

    def __init__(self, sink: str, *, part_bytes_max: int = PART_BYTES_MAX) -> None:
        self._sink = sink
        self._part_bytes_max = part_bytes_max
        self._task = ""
        self._batches: list[bytes] = []
        self._size_bytes = 0

    def open(self, context: WriterContext) -> None:
        """Takes the name of the task."""
        self._task = context.task_name

    def write(self, rows: list[Any]) -> None:
        """Encodes and keeps rows.

        Raises: ValueUnsupported: a value cannot be encoded. RowNotWritable: a row is nested too deep. OutputTooLarge:
        the part exceeds ``PART_BYTES_MAX``.
        """
        if not rows:
            return
        try:
            batch = encode_rows(rows)
        except ValueBeyondLimit:
            for index, error in too_deep(rows):
                raise row_not_writable(self._sink, index, rows[index], str(error).rstrip(".")) from None
            raise
        self._batches.append(batch)
        self._size_bytes += len(batch)
        if self._size_bytes > self._part_bytes_max:
            raise OutputTooLarge(self._sink, "bytes from one task between two checkpoints", self._part_bytes_max)

    def write_columns(self, batch: RecordBatch) -> None:
        """Keeps the rows of a ``pyarrow.RecordBatch`` as dicts."""
        self.write(rows_of_columns(batch))

    def prepare(self, checkpoint: int) -> bytes | None:
        """Returns the rows since the last call as a part; None without rows."""
        if not self._batches:
            return None
        batches, self._batches, self._size_bytes = tuple(self._batches), [], 0
        return msgspec.msgpack.encode(_RowsPart(PART_FORMAT, self._task, checkpoint, batches))

    def close(self) -> None:
        """Drops the rows that are not prepared."""
        self._batches.clear()


class _Shown:
    """Rows that this process has shown for one sink; the driver's copy of the sink and the user's original share it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.job_id = ""
        self.checkpoint: int | None = None  # the last one shown
        self.rows: list[Any] = []
        self.row_count = 0


_shown: WeakValueDictionary[int, _Shown] = WeakValueDictionary()
_shown_lock = threading.Lock()


def _shown_of(number: int) -> _Shown:
    with _shown_lock:
        shown = _shown.get(number)
        if shown is None:
            shown = _shown[number] = _Shown()
        return shown


class DriverSink:
    """Transactional sink that shows rows once, in the driver. A subclass sets ``name`` and implements ``show``."""

    name = ""
    routes_refused = True

    def __init__(self) -> None:
        self.number = next(_sink_numbers)
        self._shown = _shown_of(self.number)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what was shown."""
        return {name: value for name, value in vars(self).items() if name != "_shown"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Shares what was shown with the original sink, in the driver's process."""
        vars(self).update(state)
        self._shown = _shown_of(self.number)

    def __repr__(self) -> str:
        return self.name

    @property
    def connector(self) -> str:
        """Kind of the sink, which a resume compares."""
        return self.name

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Drops the rows of earlier runs, unless this process resumes the job that it ran before."""
        shown = self._shown
        with shown.lock:
            if not (resume and shown.job_id == job_id):
                shown.job_id, shown.checkpoint = job_id, None
                shown.rows.clear()
                shown.row_count = 0

    def writer(self) -> RowsWriter:
        """Creates a writer."""
        return RowsWriter(self.name)

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Shows the rows in order of checkpoint, then task, unless this checkpoint was shown already.

        Raises: InternalError: the sink was prepared for another job.
        """
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
                shown.row_count += len(rows)
            shown.checkpoint = checkpoint

    def rows_written(self) -> int:
        """Returns how many rows this process has shown."""
        with self._shown.lock:
            return self._shown.row_count

    def show(self, rows: list[Any], earlier: list[Any]) -> None:
        """Shows rows. ``earlier`` is a list that lives as long as the process."""
        raise NotImplementedError


class CollectSink(DriverSink):
    """Sink that gathers rows in the driver, in ``rows``."""

    name = "collect()"

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise InvalidConnector("collect", f"limit is {limit}", "Give at least 1.")
        super().__init__()
        self.limit = limit
        self._job = ""

    def join(self, job: str) -> None:
        """Takes the name of the job that writes to this sink.

        Raises: InvalidConnector: a job of another name does, whose rows each start of this one would remove.
        """
        if self._job not in ("", job):
            raise InvalidConnector(
                self.name,
                f"the jobs {self._job} and {job} share it, and each start of one removes the rows of the other",
                "Give each job its own collect().",
            )
        self._job = job

    def __repr__(self) -> str:
        count = len(self.rows)
        return f"<{self.name}: {count} {'row' if count == 1 else 'rows'}>"

    def _repr_html_(self) -> str:
        """Returns the first rows as a table: notebooks call this method."""
        return html_of_rows(self.rows, f"{len(self.rows)} rows")

    @property
    def rows(self) -> list[Any]:
        """Returns a copy of the committed rows, in order of checkpoints."""
        shown = self._shown
        with shown.lock:
            return list(shown.rows)

    def show(self, rows: list[Any], earlier: list[Any]) -> None:
        """Appends the rows to ``earlier``.

        Raises: OutputTooLarge: there would be more than ``limit``; earlier rows stay.
        """
        if len(earlier) + len(rows) > self.limit:
            raise OutputTooLarge(self.name, "rows (limit=)", self.limit)
        earlier.extend(rows)


class FirstRowsSink(CollectSink):
    """Sink that gathers the first ``limit`` rows in the driver and discards all others."""

    name = "take()"

    def writer(self) -> RowsWriter:
        """Creates a writer."""
        return FirstRowsWriter(self.name, self.limit)

    def show(self, rows: list[Any], earlier: list[Any]) -> None:
        """Appends the rows to ``earlier`` up to the limit."""
        earlier.extend(rows[: self.limit - len(earlier)])


class FirstRowsWriter(RowsWriter):
    """Writer that keeps the first ``count`` rows of its task."""

    def __init__(self, sink: str, count: int) -> None:
        super().__init__(sink)
        self._left = count

    def write(self, rows: list[Any]) -> None:
        """Encodes and keeps rows; all after ``count`` are discarded."""
        first = rows[: self._left]
        self._left -= len(first)
        super().write(first)


class StdoutSink(DriverSink):
    """Sink that prints each row as a line on the driver's standard output."""

    name = "stdout()"

    def __init__(self, row_text: Callable[[Any], str] | None) -> None:
        super().__init__()
        self.row_text = row_text or default_row_text
        self._is_closed = False

    def show(self, rows: list[Any], earlier: list[Any]) -> None:
        """Prints the rows.

        Raises: OutputClosed: the program that read standard output has ended. OutputFailed: it cannot be written.
        """
        if self._is_closed:
            raise OutputClosed("standard output")
        lines = [f"{self.row_text(row)}\n" for row in rows]
        stream: TextIO = sys.stdout
        try:
            stream.write("".join(lines))
            stream.flush()
        except BrokenPipeError:
            self._is_closed = True
            discard(stream)
            raise OutputClosed("standard output") from None
        except OSError as error:
            raise OutputFailed("standard output", "written", error.strerror or str(error)) from error


def default_row_text(row: Any) -> str:
    """Returns a str unchanged and any other row as JSON."""
    return row if type(row) is str else json_text(row)


@explains_calls
def collect(limit: int = ROWS_MAX) -> CollectSink:
    """Sink that gathers at most ``limit`` rows in the driver; read them from its ``rows``.

    For tests and small results: with more rows the job fails with ``OutputTooLarge``.

    Raises:
        InvalidConnector: ``limit`` is below 1.

    Example::

        counts = clonos.collect()
        stream.sink(counts)
        job.run()
        print(counts.rows)
    """
    return CollectSink(limit)


@explains_calls
def stdout(format: Callable[[Any], str] | None = None) -> StdoutSink:
    """Sink that prints each row as a line on the driver's standard output.

    ``format`` makes the line of a row; without it a str is printed unchanged and any other row as JSON.
    """
    return StdoutSink(format)


def _decode(part: bytes, sink: str) -> _RowsPart:
    try:
        found = _part_decoder.decode(part)
    except DECODE_ERRORS as error:
        raise InternalError(f"{part[:80]!r} is not a prepared part of {sink}: {error}") from None
    check_format(f"a prepared part of {sink}", found.format, PART_FORMAT)
    return found


def _order(part: _RowsPart) -> tuple[int, str]:
    return part.checkpoint, part.task
