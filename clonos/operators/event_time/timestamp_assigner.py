"""Assignment of timestamps to records, and of watermarks to what follows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Self

from clonos.core.model.errors import JobError
from clonos.core.model.watermark import END_OF_TIME_NS, INSTANT_NS_MIN
from clonos.core.ports.recorder import Recorder
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.python_rows import record_at
from clonos.operators.event_time.local_times import LocalTimes
from clonos.operators.event_time.timestamps import (
    NoTimestampColumn,
    TimestampColumn,
    TimestampError,
    Unit,
    append_times,
    event_time_ns,
    from_timestamp_ns,
)
from clonos.operators.event_time.watermark_strategies import WatermarkStrategy, strategy_of_task
from clonos.operators.operator import without
from clonos.operators.user_errors import Guard

if TYPE_CHECKING:
    from clonos.operators.event_time.column_times import IntArray

FIELDS_SHOWN: Final = 12


class InvalidWatermark(JobError):
    """The watermark of a source or a strategy is not a point in time."""

    step: str
    split: int
    given: str

    def __str__(self) -> str:
        return (
            f"the step {self.step} got {self.given} as the watermark of its split {self.split}: return nanoseconds"
            " since the Unix epoch as an int of 64 bits, or None while it is not known."
        )


def checked_watermark(given: object, step: str, split: int) -> int | None:
    """Returns a watermark that user code has returned.

    Raises: InvalidWatermark: it is none.
    """
    if given is not None and (type(given) is not int or not INSTANT_NS_MIN <= given <= END_OF_TIME_NS):
        raise InvalidWatermark(step, split, repr(given)[:100])
    return given


@dataclass(frozen=True, slots=True)
class TimestampAssigner:
    """Rule by which records get timestamps and a stream its watermarks.

    ``of``: a function of the record, or the name of a field or a column. ``future_max_ns``: how far a timestamp may be
    ahead of the clock; None for any. ``local``: what a time without a UTC offset is; None: an error of its record.
    """

    of: Callable[[Any], Any] | str
    unit: Unit
    strategy: WatermarkStrategy
    every_ns: int
    idle_after_ns: int
    future_max_ns: int | None
    local: LocalTimes | None = None

    @property
    def column(self) -> TimestampColumn:
        """Column of the timestamps in batches of columns."""
        assert isinstance(self.of, str), "the graph refuses a function on columns"
        return TimestampColumn(self.of, self.unit, self.local)

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions of the user: that of the timestamp, and those of the strategy."""
        return (*((self.of,) if callable(self.of) else ()), *self.strategy.functions)

    def of_task(self, step: str) -> Self:
        """Returns the assigner of one incarnation. Its strategy is a copy, whose attributes cannot be set."""
        return replace(self, strategy=strategy_of_task(self.strategy, step))

    def assign(self, rows: list[Any], guard: Guard, recorder: Recorder, where: str) -> tuple[list[Any], list[int]]:
        """Returns the rows that have a timestamp, and their timestamps; the others go to the error output.

        ``where`` names the split. Raises: StepFailed: there is no error output.
        """
        of, unit, local, limit_ns = self._function(), self.unit, self.local, self._limit_ns(recorder)
        times: list[int] = []

        def converted(given: object) -> int:
            timestamp_ns = event_time_ns(given, unit, local)
            if timestamp_ns > limit_ns:
                raise self._too_late(timestamp_ns, limit_ns, "")
            return timestamp_ns

        def consume(records: Iterator[Any]) -> None:
            try:
                append_times(records, times, of, unit, limit_ns, converted)
            except TimestampError as error:
                raise TimestampError(f"{error}{where}") from None

        failed = guard.run(consume, rows)
        return (without(rows, failed) if failed else rows), times

    def watermark(
        self, before_ns: int | None, records: Any, times: Sequence[int] | IntArray, recorder: Recorder, where: str
    ) -> int | None:
        """Returns the watermark of the strategy after records. One of the user gets the timestamps as a list.

        ``where`` names the split. Raises: TimestampError: it is further ahead of the clock than a timestamp may be, so
        that all records to come would be late.
        """
        if not self.strategy.functions:
            return self.strategy.watermark(before_ns, records, times)  # type: ignore[arg-type]
        given = times if isinstance(times, list) else list(map(int, times))
        found = self.strategy.watermark(before_ns, records, given)
        if type(found) is not int:
            return found
        if (limit_ns := self._limit_ns(recorder)) < found <= END_OF_TIME_NS:
            raise self._too_late(found, limit_ns, where, "watermark")
        return found

    def timestamp_ns(self, row: Any) -> int:
        """Returns the timestamp of a row. Raises: TimestampError: it has none."""
        return event_time_ns(self._function()(row), self.unit, self.local)

    def _function(self) -> Callable[[Any], Any]:
        return self.of if callable(self.of) else _field(self.of)

    def assign_columns(self, batch: RecordBatch, guard: Guard, recorder: Recorder, where: str) -> tuple[Any, IntArray]:
        """Does the same for a batch of columns.

        Raises: NoTimestampColumn: the batch does not have the column.
        """
        from clonos.operators.event_time import column_times  # loads Arrow, which jobs of rows do not need

        column = self.column
        if column.name not in batch.schema.names:
            raise NoTimestampColumn(guard.step, column.name)
        times, failed = column_times.times_of(batch, column)
        if self.future_max_ns is not None:
            limit_ns = self._limit_ns(recorder)
            for index in (times > limit_ns).nonzero()[0].tolist():
                failed.append(column_times.FailedCell(index, self._too_late(int(times[index]), limit_ns, "")))
        for index, error in sorted(failed, key=itemgetter(0)):
            guard.caught(TimestampError(f"{error}{where}"), record_at(batch, index), index)
        return column_times.without(batch, times, failed) if failed else (batch, times)

    def _limit_ns(self, recorder: Recorder) -> int:
        if self.future_max_ns is None:
            return END_OF_TIME_NS
        return recorder.instant_ns(False) + self.future_max_ns

    def _too_late(self, timestamp_ns: int, limit_ns: int, where: str, what: str = "timestamp") -> TimestampError:
        assert self.future_max_ns is not None, "without a limit nothing is too late"
        text, ahead_ns = from_timestamp_ns(timestamp_ns).isoformat(), timestamp_ns - limit_ns + self.future_max_ns
        return TimestampError(
            f"the {what} {text} is {_length(ahead_ns)} ahead of the clock, and future_max allows"
            f" {_length(self.future_max_ns)}{where}"
        )


def _field(name: str) -> Callable[[Any], Any]:
    classes: set[type] = set()  # of records that have the field as an attribute

    def get(row: Any) -> Any:
        cls = type(row)
        if cls in classes:  # much faster than asking whether it is a mapping
            try:
                return getattr(row, name)
            except AttributeError:
                pass
        elif cls is dict or isinstance(row, Mapping):
            if name in row:
                return row[name]
        elif hasattr(row, name):
            classes.add(cls)
            return getattr(row, name)
        raise TimestampError(f"the record has no field {name!r} for its timestamp{_fields_of(row)}")

    return get


def _fields_of(row: Any) -> str:
    if isinstance(row, Mapping):
        names = [str(name) for name in row]
    else:
        names = list(getattr(row, "_fields", ()) or getattr(row, "__dataclass_fields__", ()))
    shown = ", ".join(names[:FIELDS_SHOWN])
    return f"; it has {shown}" if shown else f": it is of type {type(row).__name__}"


def _length(nanoseconds: int) -> str:
    """Returns a length of time for a message: whole days, or hours, minutes and seconds."""
    length = timedelta(seconds=nanoseconds // 1_000_000_000)
    return str(length) if not length.days else f"{length.days} {'day' if length.days == 1 else 'days'}"
