"""Event time of a stream: where the timestamps of its records are, and which watermarks follow from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from clonos.api.checks.function_checks import check_function
from clonos.api.graph_errors import InvalidJob
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.event_time.durations import Duration, duration_ns
from clonos.operators.event_time.local_times import Ambiguous, LocalTimes, NonExistent
from clonos.operators.event_time.timestamp_assigner import TimestampAssigner
from clonos.operators.event_time.timestamps import Unit
from clonos.operators.event_time.watermark_strategies import BoundedOutOfOrderness, WatermarkStrategy

IN_ORDER: Final = BoundedOutOfOrderness(0)


@explains_calls
class Timestamps:
    """Timestamps of the records of a stream, and the watermarks that follow from them.

    Example::

        job.source(files.jsonl("in/"), timestamps=Timestamps("at", unit="ms", out_of_order="5s"))
    """

    def __init__(
        self,
        of: Callable[[Any], Any] | str,
        *,
        unit: Literal["s", "ms", "us", "ns"] = "s",
        out_of_order: Duration | None = None,
        watermarks: WatermarkStrategy | None = None,
        watermark_every: Duration = "200ms",
        idle_after: Duration | None = None,
        future_max: Duration | None = "1d",
        timezone: str | None = None,
        ambiguous: Literal["raise", "earliest", "latest"] = "raise",
        non_existent: Literal["raise", "shift_forward"] = "raise",
    ) -> None:
        """Describes the timestamps of records.

        Args:
            of: the name of a field or column, or a function of the record. It gives an aware datetime, an ISO 8601 text
                with a UTC offset, or a number; with ``timezone`` also a datetime or a text without one.
            unit: unit of timestamps that are numbers: "s", "ms", "us" or "ns" since the Unix epoch.
            out_of_order: how far a timestamp may lie behind the latest one of its split without being late. A record
                further behind may be late: watermarks come after the reads of the source, not after each record.
                None: timestamps of a split never fall, so every record behind the latest one may be late.
            watermarks: a strategy, such as ``PunctuatedWatermarks``, in place of ``out_of_order``.
            watermark_every: the least rise of event time from one watermark to the next.
            idle_after: time after which a split without records does not hold event time back any more; it may take
                twice as long. None: it holds it back for ever.
            future_max: how far a timestamp may be ahead of the clock; a record beyond it is an error. None: any.
            timezone: name of the time zone whose clocks show the times that have no UTC offset, such as
                "Europe/Berlin". None: such a time is an error of its record.
            ambiguous: which instant a local time is that comes twice, when clocks are set back: "earliest", "latest",
                or "raise", an error of its record.
            non_existent: what a local time is that never comes, when clocks are set forward: "shift_forward", the first
                instant after the missing hour, or "raise", an error of its record.

        Raises:
            InvalidJob: an argument cannot be used. InvalidDuration: a length of time is malformed.
        """
        self._refuse_unless(
            isinstance(of, str) or callable(of), f"of={of!r:.80}", "Give the name of a field or a function."
        )
        self._refuse_unless(unit in tuple(Unit), f"the unit {unit!r:.80}", f"Give one of {', '.join(Unit)}.")
        if callable(of):
            check_function("timestamps", "timestamps", of, ("record",))
        self._assigner = TimestampAssigner(
            of,
            Unit(unit),
            self._strategy(watermarks, out_of_order),
            duration_ns(watermark_every),
            0 if idle_after is None else duration_ns(idle_after),
            None if future_max is None else duration_ns(future_max),
            self._local_times(timezone, ambiguous, non_existent),
        )

    def _strategy(self, watermarks: WatermarkStrategy | None, out_of_order: Duration | None) -> WatermarkStrategy:
        if watermarks is None:
            return IN_ORDER if out_of_order is None else BoundedOutOfOrderness(duration_ns(out_of_order))
        self._refuse_unless(
            isinstance(watermarks, WatermarkStrategy),
            f"watermarks={watermarks!r:.80}",
            'Give a WatermarkStrategy, or a length of time as out_of_order="5s".',
        )
        self._refuse_unless(
            out_of_order is None, "watermarks and out_of_order", "A strategy decides alone: leave one of them out."
        )
        return watermarks

    def _local_times(self, timezone: str | None, ambiguous: str, non_existent: str) -> LocalTimes | None:
        for name, given, known in (
            ("ambiguous", ambiguous, tuple(Ambiguous)),
            ("non_existent", non_existent, tuple(NonExistent)),
        ):
            self._refuse_unless(given in known, f"{name}={given!r:.80}", f"Give one of {', '.join(known)}.")
            self._refuse_unless(
                timezone is not None or given == "raise",
                f"{name}={given!r} without timezone=",
                'Say whose clocks show the local times, as in timezone="Europe/Berlin".',
            )
        if timezone is None:
            return None
        return LocalTimes(known_timezone("timestamps", timezone), Ambiguous(ambiguous), NonExistent(non_existent))

    @staticmethod
    def _refuse_unless(condition: bool, given: str, advice: str) -> None:
        if not condition:
            raise InvalidJob("timestamps", f"gets {given}", advice)


def known_timezone(step: str, timezone: object) -> str:
    """Returns the name of a time zone.

    Raises: InvalidJob: it is unknown.
    """
    if isinstance(timezone, ZoneInfo) and timezone.key:
        return timezone.key
    try:
        return ZoneInfo(timezone).key  # type: ignore[arg-type]
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InvalidJob(
            step, f"gets timezone={timezone!r:.80}, which is unknown", 'Give a name such as "Europe/Berlin".'
        ) from None


AnyTimestamps = str | Callable[[Any], Any] | Timestamps


def assigner_of(timestamps: AnyTimestamps) -> TimestampAssigner:
    """Returns the assigner of timestamps that a user has given."""
    given = timestamps if isinstance(timestamps, Timestamps) else Timestamps(timestamps)
    return given._assigner


def check_columns(step: str, assigner: TimestampAssigner, is_columnar: bool) -> None:
    """Checks that the timestamps of a stream of columns are in a column.

    Raises: InvalidJob: they come from a function.
    """
    if is_columnar and callable(assigner.of):
        raise InvalidJob(
            step, "gives columns, and a function for their timestamps", "Give the name of the column of the timestamps."
        )
