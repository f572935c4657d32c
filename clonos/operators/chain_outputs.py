"""Outputs of a chain: edges to the next vertices, immediate sinks and transactional writers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any, Final

import msgspec

from clonos.core.model.errors import EnvironmentFault, InternalError
from clonos.core.model.watermark import Watermark
from clonos.core.ports.operator_chain import ChainContext, Collector
from clonos.core.values import ValueBeyondLimit
from clonos.core.values.column_keys import KeyGroups
from clonos.core.values.column_rows import NoPythonValue
from clonos.core.values.key_encoding import KeyUnsupported, encode_key
from clonos.core.values.keys import state_keys
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.core.wire.log_delta import Count
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.python_rows import only_record
from clonos.operators.columnar.row_forms import OWN_METADATA, ColumnsLost, for_sink
from clonos.operators.connector_contract import (
    AbortingSink,
    AsideWriter,
    RefusingSink,
    TransactionalSink,
    TransactionalWriter,
    WriterContext,
    finish_output,
)
from clonos.operators.deep_rows import too_deep
from clonos.operators.exchange_sample import ExchangeSample
from clonos.operators.fields import Field, Fields, function_of
from clonos.operators.operator import Operator, Scope, Times, without
from clonos.operators.row_errors import RowNotWritable
from clonos.operators.state.state_spec import ANY, Encoding, StateScope, StateSpec, small
from clonos.operators.transforms.sink_rows import bare
from clonos.operators.user_errors import Guard, RoutedError, as_text

SAMPLE: Final = small(f"keys of {ANY}", StateScope.UNION, encoding=Encoding.RESUMED, encoded_place=())
"""Table of a sending task with a sample of keys: of the step that keeps state by them, named for that which makes
them."""


class ToImmediateSink(Operator):
    """Output to the external system of an immediate sink: as rows, or as it comes if its writers take columns."""

    changes_rows = False
    is_error_output = False

    def __init__(self, port: int, writes_columns: bool = False, sink: object = None) -> None:
        """Creates the output. ``sink``: tells which rows it refuses, if it is a ``RefusingSink``."""
        self._port, self._writes_columns = port, writes_columns
        self._refusing = sink if isinstance(sink, RefusingSink) else None
        self._holds: Callable[[RecordBatch], bool] = getattr(sink, "holds", lambda batch: False)

    @property
    def port(self) -> int:
        """Number of the output."""
        return self._port

    def open(self, scope: Scope) -> None:
        self._collector: Collector = scope.context.collector
        if not self.guard.routes and not self.is_error_output:
            self._refusing = None  # its writer says it, and costs nothing here

    def rows(self, rows: list[Any], times: Times = None) -> None:
        if self.is_error_output and self._refusing is not None:
            rows = [_held(self._refusing, row) for row in rows]
        elif self._refusing is not None and (refused := self._refused(self._refusing, rows)):
            rows = without(rows, refused)
        if self.guard.routes and (deep := routed_deep(self.guard, rows)):
            rows = without(rows, deep)
        if rows:
            self._collector.rows(self._port, rows)

    def columns(self, batch: RecordBatch) -> None:
        if self._writes_columns and (self._refusing is None or self._holds(batch)):
            self._collector.columns(self._port, batch)
        else:
            super().columns(batch)

    def on_watermark(self, watermark: Watermark) -> None:
        self._collector.watermark(self._port, watermark)

    def _refused(self, sink: RefusingSink, rows: list[Any]) -> list[int]:
        """Routes the rows that the sink refuses, and returns their indexes."""
        refused = []
        for index, row in enumerate(rows):
            try:
                sink.check_row(row)
            except RowNotWritable as error:
                self.guard.refused(error, bare(row), index)
                refused.append(index)
            except EnvironmentFault:  # such as a registry of schemas that is away: its writer tries again
                pass
        return refused


def _held(sink: RefusingSink, row: Any) -> Any:
    """Returns a row of the error output as it is, or as text where the sink refuses it."""
    try:
        sink.check_row(row)
    except RowNotWritable:
        return as_text(row) if isinstance(row, RoutedError) else row
    return row


def routed_deep(guard: Guard, sent: list[Any], records: list[Any] | None = None) -> list[int]:
    """Routes the records that are nested too deep to leave the task, and returns their indexes.

    ``sent``: what leaves of each, the records themselves if they are not given.
    """
    found = []
    for index, error in too_deep(sent):
        guard.refused(error, bare((sent if records is None else records)[index]), index)
        found.append(index)
    return found


class ToEdge(ToImmediateSink):
    """Output to an edge, batches unchanged; rows with their timestamps, which a sink of columns does not need."""

    def __init__(self, port: int, keeps_types: bool = False) -> None:
        super().__init__(port)
        self.keeps_types = keeps_types

    def rows(self, rows: list[Any], times: Times = None) -> None:
        if self.guard.routes and (deep := routed_deep(self.guard, rows)):
            rows, times = without(rows, deep), times and without(times, deep)
        if rows:
            self._collector.rows(self._port, rows, None, times)

    def columns(self, batch: RecordBatch) -> None:
        self._collector.columns(self._port, batch)

    def timed_columns(self, batch: RecordBatch, times: Any) -> None:
        if self.keeps_types:
            self.columns(batch)
        else:
            super().timed_columns(batch, times)


class DropKeys(Operator):
    """Removal of the keys in front of a keyed sink."""

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.out.rows([value for _, value in rows], times)

    def keys(self, keys: list[Any], times: Times = None) -> None:
        self.out.rows(keys, times)

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        self.out.columns(batch)


class ToKeys(Operator):
    """Output partitioned by key: rows (key, value), or keys alone where the step after it reads no more."""

    def __init__(
        self,
        ports: Sequence[int],
        key: Callable[[Any], Any] | str | tuple[str, ...],
        keys_alone: Sequence[bool],
        readers: Sequence[str] = (),
    ) -> None:
        """Creates the output for all edges with this key, a function or fields, so that it runs once per record.

        ``keys_alone``: whether each port gets keys alone. ``readers``: the steps after it that keep state by a key
        that a function gives.
        """
        self._readers, self.state_step = readers, readers[0] if readers else None
        self._sample: ExchangeSample | None = None  # while it grows
        self._ports = tuple(zip(ports, keys_alone, strict=True))
        self._has_pairs = not all(keys_alone)
        self._fields = () if callable(key) else (key,) if isinstance(key, str) else key
        self._key = function_of(key)
        self._rows_are_keys = callable(key) and is_identity(key)
        self.changes_rows = not (self._rows_are_keys or self._fields)

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (SAMPLE,) if self._readers else ()

    def open(self, scope: Scope) -> None:
        self.guard.fields = self._fields
        self._collector: Collector = scope.context.collector
        if self._readers:
            sample = ExchangeSample(scope.state.table(SAMPLE, self.guard.step))
            sample.check(self._key, self.guard.step, self._readers[0])
            self._sample = sample if sample.is_wanted else None

    def rows(self, rows: list[Any], times: Times = None) -> None:
        keys = rows
        if not self._rows_are_keys:
            key = self._key
            keys, failed = (
                key.of_each(rows, self.guard) if isinstance(key, Field | Fields) else self.guard.each(key, rows)
            )
            if failed:
                rows, times = without(rows, failed), times and without(times, failed)
        if self._sample is not None:
            self._sample.add(rows, keys)
            if not self._sample.is_wanted:
                self._sample = None
        if self.guard.routes:
            sent = list(zip(keys, rows, strict=True)) if self._has_pairs else keys
            if deep := routed_deep(self.guard, sent, rows):
                keys, rows = without(keys, deep), without(rows, deep)
                times = times and without(times, deep)
        if rows:
            self._send(keys, rows, times)

    def _send(self, keys: list[Any], rows: list[Any], times: Times) -> None:
        try:
            self._deliver(keys, rows, times)
        except (KeyUnsupported, ValueBeyondLimit):
            bad = self._bad_keys(keys, rows)
            if not bad:
                raise
            if len(bad) < len(rows):
                self._send(without(keys, bad), without(rows, bad), times and without(times, bad))

    def _deliver(self, keys: list[Any], rows: list[Any], times: Times) -> None:
        """Passes records on. Raises: KeyUnsupported, ValueBeyondLimit: a key cannot be one; nothing is passed on."""
        for port, has_keys_alone in self._ports:
            if has_keys_alone:
                self._collector.rows(port, keys, keys, times)
            else:
                self._collector.pairs(port, keys, rows, times)

    def on_watermark(self, watermark: Watermark) -> None:
        for port, _ in self._ports:
            self._collector.watermark(port, watermark)

    def _bad_keys(self, keys: list[Any], rows: list[Any]) -> list[int]:
        """Routes the records that have an invalid key, and returns their indexes.

        Raises: StepFailed: there is no error output.
        """
        bad = []
        for index, (key, row) in enumerate(zip(keys, rows, strict=True)):
            try:
                encode_key(key)
            except (KeyUnsupported, ValueBeyondLimit) as error:
                self.guard.refused(error, row, index)
                bad.append(index)
        return bad


class WithKeys(ToKeys):
    """Keys of rows for steps that follow in the chain, which get rows (key, value)."""

    def __init__(self, key: Callable[[Any], Any] | str | tuple[str, ...], readers: Sequence[str] = ()) -> None:
        """Creates it: see ``ToKeys``."""
        super().__init__((), key, (), readers)
        self._has_pairs = self.changes_rows = True

    def _deliver(self, keys: list[Any], rows: list[Any], times: Times) -> None:
        for key in dict.fromkeys(state_keys(keys)):
            encode_key(key)  # raises before anything is made of the records
        self.out.rows(list(zip(keys, rows, strict=True)), times)

    def on_watermark(self, watermark: Watermark) -> None:
        self.out.on_watermark(watermark)


class ToKeyedEdge(Operator):
    """Output of rows (key, value) that is partitioned by key."""

    changes_rows = False

    def __init__(self, port: int) -> None:
        self._port = port

    def open(self, scope: Scope) -> None:
        self._collector: Collector = scope.context.collector

    def rows(self, rows: list[Any], times: Times = None) -> None:
        if self.guard.routes and (deep := routed_deep(self.guard, rows, [value for _, value in rows])):
            rows, times = without(rows, deep), times and without(times, deep)
        if rows:
            self._collector.pairs(self._port, [key for key, _ in rows], [value for _, value in rows], times)

    def on_watermark(self, watermark: Watermark) -> None:
        self._collector.watermark(self._port, watermark)


class ToColumnKeys(Operator):
    """Output of columns partitioned by one or several columns.

    Batches leave with the columns that are read after it. They leave whole if one of these is missing, which the step
    there reports, and if they have a form of their own.
    """

    def __init__(
        self, ports: Sequence[int], columns: tuple[str, ...], read: Sequence[frozenset[str] | None] = (None,)
    ) -> None:
        """Creates the output. ``read``: for each port the columns that are read after it, None for all."""
        self._ports = tuple(ports)
        self._columns = columns
        self._read = None if None in read else frozenset().union(*(each for each in read if each is not None))
        self.changes_rows = False

    def open(self, scope: Scope) -> None:
        self.guard.fields = self._columns
        self._collector: Collector = scope.context.collector
        self._groups = KeyGroups(scope.context.max_parallelism)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        raise ColumnsLost(self.guard.step)

    def columns(self, batch: RecordBatch) -> None:
        found, _ = self.guard.each(lambda batch: self._groups.of(list(map(batch.column, self._columns))), [batch])
        for groups in found:
            narrowed = batch if self._read is None else self._with_read(batch, self._read)
            for port in self._ports:
                self._collector.columns(port, narrowed, groups)

    def _with_read(self, batch: RecordBatch, read: frozenset[str]) -> Any:
        """Returns a batch with the columns that are read."""
        names = batch.schema.names
        left = [name for name in names if name in read]
        has_form = any(name.startswith(OWN_METADATA) for name in batch.schema.metadata or ())
        return batch if has_form or len(left) in (len(names), 0) or len(left) != len(read) else batch.select(left)

    def on_watermark(self, watermark: Watermark) -> None:
        for port in self._ports:
            self._collector.watermark(port, watermark)


class KeyInPlace(Operator):
    """Key of columns whose records are in the task of their key already: they get there without an exchange."""

    changes_rows = False

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._key: Any = columns[0] if len(columns) == 1 else columns

    def rows(self, rows: list[Any], times: Times = None) -> None:
        raise ColumnsLost(self.guard.step)

    def columns(self, batch: RecordBatch) -> None:
        self.out.keyed_columns(batch, self._key)


def routes_refused(sink: object) -> bool:
    """Returns whether rows that a sink refuses go to the error output of the job.

    Such a sink is a ``RefusingSink``; or it is transactional and has the attribute ``routes_refused = True``, and its
    writers have written nothing of a batch when they raise ``RowNotWritable``.
    """
    return bool(getattr(sink, "routes_refused", False)) or isinstance(sink, RefusingSink)


class ToSink(Operator):
    """Output to a transactional sink: rows written between two barriers are prepared at the second one."""

    is_error_output = False

    def __init__(self, sink: TransactionalSink, number: int, sinks: Sequence[TransactionalSink]) -> None:
        """Creates the output to ``sinks[number]``; with several sinks in a chain, each part carries that number."""
        self._sink = sink
        self.takes_columns = self.keeps_types = bool(getattr(sink, "is_columnar", False))
        self._routes_refused = routes_refused(sink)
        self._number = number if len(sinks) > 1 else None
        self._writer: TransactionalWriter | None = None

    def open(self, scope: Scope) -> None:
        context: ChainContext = scope.context
        self._collector: Collector = context.collector
        identity = WriterContext(
            context.job_id, context.task_name, context.index, context.generation, context.incarnation
        )
        try:
            self._writer = self._sink.writer()
            if self._sets_aside() and isinstance(self._writer, AsideWriter):
                self._writer.set_aside = self.guard.refused
            self._writer.open(identity)
        except Exception as error:
            raise self.guard.failed() from error

    def rows(self, rows: list[Any], times: Times = None) -> None:
        assert self._writer is not None
        try:
            self._writer.write(rows)
        except RowNotWritable as error:
            if not self._sets_aside() and not self.is_error_output:
                raise self.guard.failed() from error
            self._one_by_one(self._writer, rows)
        except Exception as error:
            raise self.guard.failed() from error

    def columns(self, batch: RecordBatch) -> None:
        written = for_sink(batch)
        if written is not None:
            self._write_columns(written, 0)
            return
        rows, _ = self.python_rows(batch)
        if rows:
            self.rows(rows)

    def _write_columns(self, batch: RecordBatch, first: int) -> None:
        """Writes a batch, or where its writer refuses it one half after the other."""
        assert self._writer is not None
        try:
            self._writer.write_columns(batch)
        except (RowNotWritable, NoPythonValue) as error:
            if not self._sets_aside():
                raise self.guard.failed() from error
            if batch.num_rows == 1:
                record, refused = only_record(batch)
                self.guard.refused(error if isinstance(error, RowNotWritable) else refused or error, record, first)
                return
            half = batch.num_rows // 2
            self._write_columns(batch.slice(0, half), first)
            self._write_columns(batch.slice(half), first + half)
        except Exception as error:
            raise self.guard.failed() from error

    def timed_columns(self, batch: RecordBatch, times: Any) -> None:
        if self.keeps_types:
            self.columns(batch)
        else:
            super().timed_columns(batch, times)

    def _sets_aside(self) -> bool:
        return self._routes_refused and self.guard.routes

    def _one_by_one(self, writer: TransactionalWriter, rows: list[Any]) -> None:
        for index, row in enumerate(rows):
            try:
                writer.write([row])
            except RowNotWritable as error:
                if self.is_error_output:
                    self._write_as_text(writer, bare(row), error)
                else:
                    self.guard.refused(error, bare(row), index)
            except Exception as error:
                raise self.guard.failed() from error

    def _write_as_text(self, writer: TransactionalWriter, row: Any, refused: RowNotWritable) -> None:
        """Writes a row of the error output that its sink has refused, which nothing can set aside."""
        if not isinstance(row, RoutedError):
            raise self.guard.failed() from refused
        try:
            writer.write([as_text(row)])
        except Exception as error:
            raise self.guard.failed() from error

    def prepare(self, checkpoint: int) -> None:
        assert self._writer is not None
        try:
            part = self._writer.prepare(checkpoint)
        except Exception as error:
            raise self.guard.failed() from error
        if part is not None:
            self._collector.prepared(part if self._number is None else _encode_part((self._number, part)))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


_encode_part = msgspec.msgpack.Encoder().encode
_part_decoder = msgspec.msgpack.Decoder(tuple[Count, bytes])


def error_output(make: Callable[[], Operator]) -> Operator:
    """Returns an output for the errors of a job: a record that its sink does not hold is written as text."""
    operator = make()
    assert isinstance(operator, ToSink | ToImmediateSink), operator
    operator.is_error_output = True
    return operator


class CombinedSinks:
    """Sink that stands for several transactional sinks of a chain; a part carries the number of its sink."""

    def __init__(self, sinks: tuple[TransactionalSink, ...]) -> None:
        self._sinks = sinks

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Prepares the output of each sink, in the driver at the start of the job."""
        for sink in self._sinks:
            sink.prepare_output(job_id, resume, overwrite)

    @property
    def sinks(self) -> tuple[TransactionalSink, ...]:
        """Returns the sinks."""
        return self._sinks

    def writer(self) -> TransactionalWriter:
        """Never called: the chain opens the writer of each sink."""
        raise AssertionError("a chain opens the writers of its sinks one by one")

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Commits the parts of each sink, in the driver; also calls sinks without parts."""
        of_sink: list[list[bytes]] = [[] for _ in self._sinks]
        for encoded in parts:
            try:
                number, part = _part_decoder.decode(encoded)
                of_sink[number].append(part)
            except (*DECODE_ERRORS, IndexError) as error:
                raise InternalError(f"{encoded[:80]!r} is not a part of {len(self._sinks)} sinks: {error}") from None
        for sink, parts_of_it in zip(self._sinks, of_sink, strict=True):
            sink.commit(job_id, checkpoint, parts_of_it)

    def abort(self, job_id: str, checkpoint: int, generation: int) -> None:
        """Removes what no checkpoint will commit, of each sink that can."""
        for sink in self._sinks:
            abort_output(sink, job_id, checkpoint, generation)

    def finish_output(self, job_id: str) -> None:
        """Completes the output of each sink."""
        finish_output(self._sinks, job_id)

    def close_output(self) -> None:
        """Closes what the driver has open of each sink."""
        close_output(self._sinks)


def abort_output(sink: object, job_id: str, checkpoint: int, generation: int) -> None:
    """Calls ``abort`` of a sink that has it."""
    if isinstance(sink, AbortingSink):
        sink.abort(job_id, checkpoint, generation)


def close_output(sinks: Iterable[object]) -> None:
    """Closes what the driver, which commits nothing more, has open of each sink that has ``close_output``."""
    for sink in sinks:
        close: Callable[[], None] | None = getattr(sink, "close_output", None)
        if close is not None:
            close()


def _identity(value: Any) -> Any:
    return value


def is_identity(function: Callable[[Any], Any]) -> bool:
    """Returns whether a function only returns its argument, as ``lambda word: word`` does."""
    if type(function) is not FunctionType or hasattr(function, "__wrapped__"):
        return False
    code = function.__code__
    return code.co_code == _identity.__code__.co_code and (
        code.co_argcount,
        code.co_kwonlyargcount,
        code.co_flags & VARIABLE_ARGUMENTS,
    ) == (1, 0, 0)


VARIABLE_ARGUMENTS = 0x04 | 0x08
"""Code flags of functions that take *arguments or **keywords."""
