"""Operator: one step of a chain, which takes batches, runs user code on them and passes batches on.

Work is per batch, so that only user functions run per record. An operator is a deterministic function of the calls
below, its state and the recorder; it belongs to one incarnation and is never reused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from clonos.core.model.watermark import Watermark
from clonos.core.ports.operator_chain import ROWS_AT_ONCE, ChainContext, StepFailed
from clonos.core.values.column_keys import python_keys
from clonos.core.values.column_rows import NoPythonValue
from clonos.core.values.copying import copied_rows
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.python_rows import python_rows, retained_records
from clonos.operators.columnar.row_forms import has_own_form, rows_of
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.state_spec import StateSpec
from clonos.operators.user_errors import Guard

if TYPE_CHECKING:
    from clonos.operators.event_time.column_times import IntArray

Times = Sequence[int] | None
"""Timestamps of the rows of a batch, in nanoseconds since the Unix epoch; None if the stream has none."""


def pass_in_parts(take: Callable[[list[Any], Times], None], rows: list[Any], times: Times = None) -> None:
    """Passes the rows that a source has read to ``take`` in parts, which follow from their number alone.

    Raises: StepFailed: user code raised; the index of the record is that in ``rows``.
    """
    if len(rows) <= ROWS_AT_ONCE:
        take(rows, times)
        return
    for first in range(0, len(rows), ROWS_AT_ONCE):
        end = first + ROWS_AT_ONCE
        try:
            take(rows[first:end], None if times is None else times[first:end])
        except StepFailed as failed:
            failed.move(first)
            raise


def without(items: Sequence[Any], indexes: Collection[int]) -> list[Any]:
    """Returns the items of a batch whose indexes are not in ``indexes``."""
    left_out = frozenset(indexes)
    return [item for index, item in enumerate(items) if index not in left_out]


class Scope(NamedTuple):
    """Arguments of ``Operator.open``."""

    context: ChainContext
    state: StepState


class DueTimer(NamedTuple):
    """Timer that is due: its time, and the token by which its operator knows it."""

    instant_ns: int
    token: Any


class Operator:
    """Base of all operators. The chain sets ``out`` and ``guard`` before ``open``."""

    has_timers: ClassVar[bool] = False
    checks_idleness: ClassVar[bool] = False
    """True if its processing-time timers check whether its input is idle, so that they depend on what has come. They
    fire where no other timer is due: the log then tells that none of these steps ``holds_checks``."""
    has_event_timers: ClassVar[bool] = False
    has_calls: ClassVar[bool] = False
    holds_watermarks: ClassVar[bool] = False
    """True if it may still emit records below a watermark that it has taken: ``on_watermark`` then calls
    ``pass_watermark`` itself, at once or later."""

    runs_user_code: ClassVar[bool] = False
    is_per_record: ClassVar[bool] = False
    """True if it handles each record alone."""
    is_one_to_one: ClassVar[bool] = False
    """True if result i of a batch belongs to record i."""
    selects_rows: ClassVar[bool] = False
    """True if its results are some of its records."""
    passes_records: ClassVar[bool] = False
    """True if its results are its records, or some of them, as they came; with two inputs those of the first one."""
    gives_one_at_most: ClassVar[bool] = False
    """True if it gives no more than one result for each record."""
    may_be_in_place: ClassVar[bool] = False
    """True if it may work in the vertex of a step before it that has each record in the task of its key already."""
    takes_untimed: ClassVar[bool] = False
    """True if an input without timestamps does not hold up the event time of its results."""
    takes_schema: ClassVar[bool] = False
    """True if the job may declare the schema of its results."""
    breaks_order: ClassVar[str] = ""
    """Why its results have another order than its records, in a few words; "" if they have the same."""
    requires_columns: ClassVar[bool] = False
    """True if it accepts record batches only."""
    emits_columns: ClassVar[bool] = False
    """True if its results are record batches, whatever it takes."""
    passes_columns: ClassVar[bool] = False
    """True if its results are columns where its records are."""
    ignores_order: ClassVar[bool] = False
    """True if its results are the same whatever the order of its records."""
    reads: ClassVar[tuple[str, ...] | None] = None
    """Columns of a record that it uses beside its key, None for all."""
    keeps_times: ClassVar[bool] = True
    """True if its results have the timestamps of its records."""
    called_with: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Arguments with which it calls each function of the user; () if they are not checked."""
    side_tags: ClassVar[tuple[str, ...] | None] = ()
    """Tags of its side outputs; None for any, those that its function names."""
    state: ClassVar[tuple[tuple[str, str], ...] | None] = None
    """What its state depends on, as ("window", "5s"); None without state. Its definition may add to
    it."""
    key_field: ClassVar[str | None] = None
    """Field of its results that holds their key; "" for the first field of a tuple, None if there is no such field."""

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        """Declarations of its state, known before it is opened. It cannot open other state."""
        return ()

    state_step: str | None = None
    """Step that its state belongs to, if that is not its own."""

    @property
    def fires_in_spans(self) -> bool:
        """Whether it fires the event-time timers of several instants at once as it does one after the other."""
        return False

    takes_columns: bool = False
    """True if a step before it that can give rows or columns should give columns."""

    changes_rows: bool = True
    """False if the operator passes no row to user code, so that it may share mutable rows with other consumers. The
    chain sets it where a follower does."""

    timestamp_column: TimestampColumn | None = None
    """Column that has the timestamps of the batches of columns that it takes; set by the chain."""

    keeps_types: bool = False
    """True if columns of a stream of rows stay columns there, because they go to a sink of columns."""

    rows_schema: Any = None
    """Schema of the columns from which the present rows are made; None for other rows."""

    side_outputs: Mapping[str, Operator] = MappingProxyType({})
    """Followers of the side outputs that steps read, by tag; set by the chain. ``out`` passes watermarks to them."""

    out: Operator
    guard: Guard
    pass_watermark: Callable[[Watermark], None]
    """Passes a watermark to the steps after; set by the chain if ``holds_watermarks``."""

    def open(self, scope: Scope) -> None:
        """Opens the operator, after its state is restored and before the first batch."""

    def rows(self, rows: list[Any], times: Times = None) -> None:
        """Processes a batch of rows, never empty; rows (key, value) if the input is keyed.

        It passes ``times`` on with the results. It does not change either of them.
        """
        raise NotImplementedError

    def keys(self, keys: list[Any], times: Times = None) -> None:
        """Processes a batch of a keyed input whose values are their own keys."""
        self.rows(list(zip(keys, keys, strict=True)), times)

    def columns(self, batch: RecordBatch) -> None:
        """Processes a batch of columns; by default as rows, a dict per record unless the batch has another form."""
        self.rows_schema = None if has_own_form(batch) else batch.schema
        rows, batch = self.python_rows(batch)
        if rows:
            self.rows(rows, self.times_of(batch))
        self.rows_schema = None

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        """Processes a batch of a keyed input as columns. ``key``: the name of the key column, a tuple of several."""
        self.rows_schema = None if has_own_form(batch) else batch.schema
        pairs, batch = self.pairs_of(batch, key)
        if pairs:
            self.rows(pairs, self.times_of(batch))
        self.rows_schema = None

    def timed_columns(self, batch: RecordBatch, times: IntArray) -> None:
        """Processes columns of a stream of rows, such as late records, with their timestamps; by default as rows."""
        try:
            rows = rows_of(batch)
        except NoPythonValue:
            is_retained = retained_records(batch, self.guard)
            batch, times = batch.filter(is_retained), times[is_retained.to_numpy(zero_copy_only=False)]
            rows = rows_of(batch)
        if rows:
            self.rows(rows, times.tolist())

    def python_rows(self, batch: RecordBatch) -> tuple[list[Any], Any]:
        """Returns the rows of a batch of columns, and the batch that has just these records.

        Those that Python cannot hold go to the error output.

        Raises: StepFailed: there is none.
        """
        try:
            return rows_of(batch), batch
        except NoPythonValue:
            return python_rows(batch, self.guard)

    def pairs_of(self, batch: RecordBatch, key: Any) -> tuple[list[tuple[Any, Any]], Any]:
        """Returns the rows (key, value) of a batch of columns, and the batch that has just these records."""
        rows, batch = self.python_rows(batch)
        return list(zip(python_keys(batch, key), rows, strict=True)), batch

    def times_of(self, batch: RecordBatch) -> Times:
        """Returns the timestamps of a batch of columns for its rows. Raises: see ``time_array``."""
        times = self.time_array(batch)
        return None if times is None else times.tolist()

    def time_array(self, batch: RecordBatch) -> IntArray | None:
        """Returns the timestamps of a batch of columns, in nanoseconds since the Unix epoch; None if there are none.

        Raises: NoTimestampColumn, TimestampError: the batch lacks them.
        """
        if self.timestamp_column is None:
            return None
        from clonos.operators.event_time.column_times import time_array  # loads Arrow, which jobs of rows do not need

        return time_array(self.guard.step, batch, self.timestamp_column)

    def next_timer_ns(self) -> int | None:
        """Returns the time of the earliest timer, None without timers."""
        return None

    @property
    def holds_checks(self) -> bool:
        """Whether no check for idleness may fire now, because its input may have records that it has not got."""
        return False

    def due(self, until_ns: int | None) -> list[DueTimer]:
        """Returns the timers due at ``until_ns`` (None: all) in the order in which they fire."""
        return []

    def fire(self, due: Sequence[DueTimer]) -> None:
        """Fires those timers of ``due`` that are still registered."""

    def next_event_ns(self) -> int | None:
        """Returns the time of the earliest event-time timer, None without timers."""
        return None

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        """Returns the event-time timers due at ``until_ns`` (None: all) in the order in which they fire."""
        return []

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        """Fires those event-time timers of ``due`` that are still registered, before ``on_watermark`` is called."""

    def on_watermark(self, watermark: Watermark) -> None:
        """Takes a watermark and passes it on: no record below it follows, or the input became idle or active.

        The end of the input is no watermark: ``end_of_time`` stands for it.
        """
        self.out.on_watermark(watermark)

    def end_of_time(self) -> None:
        """Emits what it holds back for a later watermark: the input and all timers before this step have ended."""

    def drain(self) -> None:
        """Emits the rows that wait in state of the scope ``DRAINED``, before a timer would; no call is open."""

    def number_calls(self, first: int, step: int) -> None:
        """Numbers the asynchronous calls of this operator: ``first``, ``first + step``, ... Called before ``open``."""

    @property
    def open_calls(self) -> int:
        """Number of open asynchronous calls."""
        return 0

    def complete(self, number: int, outcome: bytes) -> None:
        """Takes the outcome of an asynchronous call."""
        raise AssertionError(f"{type(self).__name__} makes no asynchronous calls")

    def take_part(self, number: int, name: bytes, data: bytes) -> None:
        """Keeps a part of an open asynchronous call."""
        raise AssertionError(f"{type(self).__name__} makes no asynchronous calls")

    def answer_calls(self, answers: Mapping[str, Callable[..., Any]]) -> None:
        """Lets the functions of its asynchronous calls have recorded values of clocks and the like, if the log has the
        calls inside."""

    def write_back(self) -> None:
        """Writes to its state what it holds beside it, so that the state can be shown."""

    def prepare(self, checkpoint: int) -> None:
        """Prepares for a barrier, before the state is taken."""

    def close(self) -> None:
        """Closes the operator. Called if ``open`` was called, even if that raised."""


class Fork(Operator):
    """Fan-out: each of several next steps gets every batch.

    User code may change rows in place, and an edge holds them until the end of the step. Therefore each step that runs
    user code gets its own copy of mutable rows; edges share the rows. Without edges the last step gets the rows.
    """

    def __init__(self, targets: Sequence[Operator]) -> None:
        self._targets = tuple(targets)
        last = len(targets) - 1
        has_sharing = not all(target.changes_rows for target in targets)
        self.keeps_types = any(target.keeps_types for target in targets)
        self._copies = [target.changes_rows and (has_sharing or place < last) for place, target in enumerate(targets)]

    def rows(self, rows: list[Any], times: Times = None) -> None:
        for target, copies in zip(self._targets, self._copies, strict=True):
            target.rows(copied_rows(rows) if copies else rows, times)

    def columns(self, batch: RecordBatch) -> None:
        for target in self._targets:
            target.columns(batch)

    def timed_columns(self, batch: RecordBatch, times: IntArray) -> None:
        for target in self._targets:
            target.timed_columns(batch, times)

    def on_watermark(self, watermark: Watermark) -> None:
        for target in self._targets:
            target.on_watermark(watermark)


class WithSides(Operator):
    """Output of a step with side outputs: records go to its own followers, watermarks to all."""

    def __init__(self, out: Operator, sides: Iterable[Operator]) -> None:
        self.out, self._sides = out, tuple(sides)
        self.takes_columns, self.changes_rows = out.takes_columns, out.changes_rows
        self.rows, self.columns = out.rows, out.columns  # type: ignore[method-assign]

    def on_watermark(self, watermark: Watermark) -> None:
        self.out.on_watermark(watermark)
        for side in self._sides:
            side.on_watermark(watermark)


class TwoInputOperator(Operator):
    """Base of operators with two inputs, such as joins. Its watermark is the minimum of both.

    A keyed input gives rows (key, value).
    """

    keeps_times = False

    def first(self, rows: list[Any], times: Times = None) -> None:
        """Processes a batch of rows of the first input, never empty."""
        raise NotImplementedError

    def second(self, rows: list[Any], times: Times = None) -> None:
        """Processes a batch of rows of the second input, never empty."""
        raise NotImplementedError

    def first_columns(self, batch: RecordBatch, key: Any, side: InputSide) -> None:
        """Processes a batch of the first input, which is keyed, as columns; ``side`` knows its timestamps."""
        pairs, batch = side.pairs_of(batch, key)
        if pairs:
            self.first(pairs, side.times_of(batch))

    def second_columns(self, batch: RecordBatch, key: Any, side: InputSide) -> None:
        """Processes a batch of the second input, which is keyed, as columns; ``side`` knows its timestamps."""
        pairs, batch = side.pairs_of(batch, key)
        if pairs:
            self.second(pairs, side.times_of(batch))


class InputSide(Operator):
    """Input of a ``TwoInputOperator``, which is its only follower."""

    changes_rows = False

    def __init__(self, is_first: bool) -> None:
        self._is_first = is_first

    def rows(self, rows: list[Any], times: Times = None) -> None:
        target = self.out
        assert isinstance(target, TwoInputOperator), target
        (target.first if self._is_first else target.second)(rows, times)

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        target = self.out
        assert isinstance(target, TwoInputOperator), target
        (target.first_columns if self._is_first else target.second_columns)(batch, key, self)

    def on_watermark(self, watermark: Watermark) -> None:
        """Passes a watermark on once: both sides get the task's."""
        if self._is_first:
            self.out.on_watermark(watermark)


class Drop(Operator):
    """End of a stream that no step reads."""

    def rows(self, rows: list[Any], times: Times = None) -> None:
        pass

    def columns(self, batch: RecordBatch) -> None:
        pass

    def on_watermark(self, watermark: Watermark) -> None:
        pass
