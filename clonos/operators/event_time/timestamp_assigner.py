"""Assignment of timestamps to records, and of watermarks to what follows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Self

from clonos.core.model.errors import JobError
from clonos.core.model.watermark import END_OF_TIME_NS, INSTANT_NS_MIN
from clonos.core.ports.recorder import Recorder
from clonos.operators.event_time.timestamps import (
    NoTimestampColumn,
    TimestampColumn,
    TimestampError,
    Unit,
    event_time_ns,
    from_timestamp_ns,
)
from clonos.operators.event_time.watermark_strategies import WatermarkStrategy, strategy_of_task
from clonos.operators.operator import without
from clonos.operators.user_errors import Guard

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
    ahead of the clock; None for any.
    """

    of: Callable[[Any], Any] | str
    unit: Unit
    strategy: WatermarkStrategy
    every_ns: int
    idle_after_ns: int
    future_max_ns: int | None

    @property
    def column(self) -> TimestampColumn:
        """Column of the timestamps in batches of columns."""
        assert isinstance(self.of, str), "the graph refuses a function on columns"
        return TimestampColumn(self.of, self.unit)

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
        of, unit, limit_ns = self._function(), self.unit, self._limit_ns(recorder)

        def time_of(row: Any) -> int:
            try:
                timestamp_ns = event_time_ns(of(row), unit)
            except TimestampError as error:
                raise TimestampError(f"{error}{where}") from None
            if timestamp_ns > limit_ns:
                raise self._too_late(timestamp_ns, limit_ns, where)
            return timestamp_ns

        times, failed = guard.each(time_of, rows)
        return (without(rows, failed) if failed else rows), times

    def watermark(
        self, before_ns: int | None, records: Any, times: list[int], recorder: Recorder, where: str
    ) -> int | None:
        """Returns the watermark of the strategy behind records.

        ``where`` names the split. Raises: TimestampError: it is further ahead of the clock than a timestamp may be, so
        that all records to come would be late.
        """
        found = self.strategy.watermark(before_ns, records, times)
        if not self.strategy.functions or type(found) is not int:
            return found
        if (limit_ns := self._limit_ns(recorder)) < found <= END_OF_TIME_NS:
            raise self._too_late(found, limit_ns, where, "watermark")
        return found

    def timestamp_ns(self, row: Any) -> int:
        """Returns the timestamp of a row. Raises: TimestampError: it has none."""
        return event_time_ns(self._function()(row), self.unit)

    def _function(self) -> Callable[[Any], Any]:
        return self.of if callable(self.of) else _field(self.of)

    def assign_columns(self, batch: Any, guard: Guard, recorder: Recorder, where: str) -> tuple[Any, list[int]]:
        """Does the same for a batch of columns.

        Raises: NoTimestampColumn: the batch does not have the column.
        """
        column = self.column
        if column.name not in batch.schema.names:
            raise NoTimestampColumn(guard.step, column.name)
        limit_ns = self._limit_ns(recorder)
        cells = batch.column(column.name).to_pylist()
        times: list[int] = []
        valid: list[int] = []
        for index, cell in enumerate(cells):
            try:
                timestamp_ns = event_time_ns(cell, column.unit)
                if timestamp_ns > limit_ns:
                    raise self._too_late(timestamp_ns, limit_ns, "")
            except TimestampError as error:
                guard.caught(TimestampError(f"{error}{where}"), batch.slice(index, 1).to_pylist()[0], index)
                continue
            times.append(timestamp_ns)
            valid.append(index)
        return (batch.take(valid) if len(valid) < len(cells) else batch), times

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
    def get(row: Any) -> Any:
        if isinstance(row, Mapping):
            if name in row:
                return row[name]
        elif hasattr(row, name):
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
