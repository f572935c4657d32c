"""Local times without a UTC offset, as most exports have them: which instant each of them is."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo


class Ambiguous(StrEnum):
    """Reading of a local time that comes twice, when clocks are set back. The names are those of Polars."""

    RAISE = "raise"
    EARLIEST = "earliest"
    LATEST = "latest"


class NonExistent(StrEnum):
    """Reading of a local time that never comes, when clocks are set forward. ``shift_forward`` is pandas's name."""

    RAISE = "raise"
    SHIFT_FORWARD = "shift_forward"


class LocalTimeError(ValueError):
    """A local time comes twice or never, and the user has not said which instant it is."""


class LocalTimes(NamedTuple):
    """The rule by which a local time without a UTC offset becomes an instant."""

    timezone: str
    ambiguous: Ambiguous = Ambiguous.RAISE
    non_existent: NonExistent = NonExistent.RAISE

    def instant(self, local: datetime) -> datetime:
        """Returns the instant of a naive datetime. Its ``fold`` does not count: files and columns have none.

        Raises: LocalTimeError: the local time comes twice or never. OverflowError: it is outside the years of Python.
        """
        zone = _zone(self.timezone)
        if type(local) is not datetime:  # pandas has a subclass, with nanoseconds
            local = datetime.combine(local.date(), local.time())
        first = local.replace(tzinfo=zone, fold=0)
        second = first.replace(fold=1)
        offset, offset_second = first.utcoffset(), second.utcoffset()
        assert offset is not None and offset_second is not None, "the zone of a name always has an offset"
        if offset == offset_second:
            return first.astimezone(UTC)
        if offset > offset_second:  # set back
            if self.ambiguous is Ambiguous.RAISE:
                raise LocalTimeError(
                    f'comes twice in {self.timezone}: give ambiguous="earliest" or "latest" beside timezone='
                )
            return (first if self.ambiguous is Ambiguous.EARLIEST else second).astimezone(UTC)
        if self.non_existent is NonExistent.RAISE:
            raise LocalTimeError(
                f'never comes in {self.timezone}: give non_existent="shift_forward" beside timezone= if the first'
                " instant after the missing hour is meant"
            )
        return _begin_after_gap(local, zone)

    def text(self) -> str:
        """Returns the rule as ``explain`` shows it."""
        decided = [
            f"{name}={choice.value}"
            for name, choice in (("ambiguous", self.ambiguous), ("non_existent", self.non_existent))
            if choice.value != "raise"
        ]
        return ", ".join([f"local times of {self.timezone}", *decided])


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _begin_after_gap(local: datetime, zone: ZoneInfo) -> datetime:
    """Returns the instant at which the clocks were set forward over a local time: the first one with the new offset.

    A time in the gap is read by the offset before it (fold 0) and by that after it (fold 1); the change lies between.
    """
    after = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    before = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    offset = after.astimezone(zone).utcoffset()
    low, high = int(before.timestamp()), int(after.timestamp()) + 1
    while high - low > 1:  # changes are at whole seconds
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, UTC).astimezone(zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return datetime.fromtimestamp(high, UTC)
