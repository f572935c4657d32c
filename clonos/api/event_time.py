"""Event time of a stream: where the timestamps of its records are, and which watermarks follow from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from clonos.api.checks.function_checks import check_function
from clonos.api.graph_errors import InvalidJob
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.event_time.durations import Duration, duration_ns
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
    ) -> None:
        """Describes the timestamps of records.

        Args:
            of: the name of a field or column, or a function of the record. It gives an aware datetime, an ISO 8601 text
                with a UTC offset, or a number.
            unit: unit of timestamps that are numbers: "s", "ms", "us" or "ns" since the Unix epoch.
            out_of_order: how far a timestamp may lie behind the latest one of its split without being late. A record
                further behind may be late: watermarks come after the reads of the source, not after each record.
                None: timestamps of a split never fall, so every record behind the latest one may be late.
            watermarks: a strategy, such as ``PunctuatedWatermarks``, in place of ``out_of_order``.
            watermark_every: the least rise of event time from one watermark to the next.
            idle_after: time after which a split without records does not hold event time back any more; it may take
                twice as long. None: it holds it back for ever.
            future_max: how far a timestamp may be ahead of the clock; a record beyond it is an error. None: any.

        Raises:
            InvalidJob: an argument cannot be used. InvalidDuration: a length of time is malformed.
        """
        self._refuse_unless(
            isinstance(of, str) or callable(of), f"of={of!r:.80}", "Give the name of a field or a function."
        )
        self._refuse_unless(unit in tuple(Unit), f"the unit {unit!r:.80}", f"Give one of {', '.join(Unit)}.")
        self._refuse_unless(
            watermarks is None or isinstance(watermarks, WatermarkStrategy),
            f"watermarks={watermarks!r:.80}",
            'Give a WatermarkStrategy, or a length of time as out_of_order="5s".',
        )
        self._refuse_unless(
            watermarks is None or out_of_order is None,
            "watermarks and out_of_order",
            "A strategy decides alone: leave one of them out.",
        )
        if callable(of):
            check_function("timestamps", "timestamps", of)
        bounded = IN_ORDER if out_of_order is None else BoundedOutOfOrderness(duration_ns(out_of_order))
        self._assigner = TimestampAssigner(
            of,
            Unit(unit),
            watermarks or bounded,
            duration_ns(watermark_every),
            0 if idle_after is None else duration_ns(idle_after),
            None if future_max is None else duration_ns(future_max),
        )

    @staticmethod
    def _refuse_unless(condition: bool, given: str, advice: str) -> None:
        if not condition:
            raise InvalidJob("timestamps", f"gets {given}", advice)


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
