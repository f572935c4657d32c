"""Evictors: which values leave a window before each of its results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

TimedValue = tuple[int, Any]
"""Time of a value in nanoseconds since the Unix epoch, and the value."""


class Evictor(ABC):
    """Base of all evictors."""

    @abstractmethod
    def rest_of(self, values: list[TimedValue]) -> list[TimedValue]:
        """Returns the values that stay, in order of arrival; ``values`` is never empty, and one stays."""


@dataclass(frozen=True, slots=True)
class LastValues(Evictor):
    """Evictor that leaves the last values by arrival."""

    count: int

    def rest_of(self, values: list[TimedValue]) -> list[TimedValue]:
        return values[-self.count :]


@dataclass(frozen=True, slots=True)
class NewestValues(Evictor):
    """Evictor that leaves the values whose time is less than an age behind the latest one."""

    age_ns: int

    def rest_of(self, values: list[TimedValue]) -> list[TimedValue]:
        after_ns = max(time_ns for time_ns, _ in values) - self.age_ns
        return [value for value in values if value[0] > after_ns]
