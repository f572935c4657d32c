"""Watermark strategies: how far event time has come with the records of a split, as a function of these alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from clonos.core.model.errors import JobError
from clonos.core.model.watermark import INSTANT_NS_MIN
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.event_time.timestamps import TimestampError, Unit, event_time_ns, from_timestamp_ns
from clonos.operators.steps.frozen_class import frozen


class StrategyChanged(JobError):
    """A watermark strategy sets one of its attributes."""

    step: str
    attribute: str

    def __str__(self) -> str:
        return (
            f"the watermark strategy of {self.step} sets self.{self.attribute}: the value would be lost when its"
            " process dies, and one object serves all splits. Compute the watermark from before_ns, the records and"
            " their timestamps."
        )


class WatermarkStrategy:
    """Base of watermark strategies. Subclass it for a strategy of your own.

    It must depend on the arguments of ``watermark`` alone, not on a clock: a replay asks again. One object serves all
    splits of a task, and its attributes cannot be set once the job runs.
    """

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions of the user that it calls, for the checks of a job."""
        return () if type(self).watermark.__module__ == __name__ else (self.watermark,)

    def watermark(self, before_ns: int | None, records: Sequence[Any], timestamps_ns: Sequence[int]) -> int | None:
        """Returns the watermark after ``records``, never empty: later records of the split are not older.

        Times are nanoseconds since the Unix epoch. ``before_ns`` is the watermark before the records. None: it is not
        known yet. A watermark that falls changes nothing.
        """
        raise NotImplementedError


class BoundedOutOfOrderness(WatermarkStrategy):
    """Watermark that stays ``bound_ns`` behind the latest timestamp; 0 if timestamps of a split never fall."""

    def __init__(self, bound_ns: int) -> None:
        self.bound_ns = bound_ns

    def __repr__(self) -> str:
        return f"BoundedOutOfOrderness({self.bound_ns} ns)"

    def watermark(self, before_ns: int | None, records: Sequence[Any], timestamps_ns: Sequence[int]) -> int | None:
        latest_ns = max(timestamps_ns) if isinstance(timestamps_ns, list) else int(timestamps_ns.max())  # type: ignore[attr-defined]
        return max(latest_ns - self.bound_ns, INSTANT_NS_MIN)


@explains_calls
class PunctuatedWatermarks(WatermarkStrategy):
    """Watermark that some records carry.

    ``of`` is called with the record and its timestamp. It returns the watermark as an aware datetime or seconds since
    the Unix epoch, or None for a record without one.
    """

    def __init__(self, of: Callable[[Any, datetime], datetime | float | None]) -> None:
        self._of = of

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self._of,)

    def watermark(self, before_ns: int | None, records: Sequence[Any], timestamps_ns: Sequence[int]) -> int | None:
        latest_ns = before_ns
        for record, timestamp_ns in zip(records, timestamps_ns, strict=True):
            given = self._of(record, from_timestamp_ns(timestamp_ns))
            if given is not None:
                try:
                    found_ns = event_time_ns(given, Unit.SECONDS)
                except TimestampError as error:
                    raise TimestampError(
                        f"the function of PunctuatedWatermarks has returned no watermark: {error}"
                    ) from None
                latest_ns = found_ns if latest_ns is None else max(latest_ns, found_ns)
        return latest_ns


def strategy_of_task(strategy: WatermarkStrategy, step: str) -> WatermarkStrategy:
    """Returns a copy of a strategy whose attributes cannot be set."""
    own = copy.deepcopy(strategy)
    object.__setattr__(own, "__class__", frozen(type(own), partial(StrategyChanged, step)))
    return own
