"""Windows and their results as users see them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from clonos.core.values import register
from clonos.operators.event_time.timestamps import from_timestamp_ns

K = TypeVar("K")
V = TypeVar("V")


class Window(NamedTuple):
    """Window of a key: it includes ``start`` and excludes ``end``, both aware datetimes in UTC.

    For count and global windows these are the times of the earliest and of the latest record.
    """

    start: datetime
    end: datetime


@register
class WindowResult(NamedTuple, Generic[K, V]):
    """Result of a window for one key, which is None on a stream without keys.

    The window includes ``start`` and excludes ``end``, both aware datetimes in UTC. For count and global windows these
    are the times of the earliest and of the latest record.
    """

    key: K
    start: datetime
    end: datetime
    value: V


def window_of(start_ns: int, end_ns: int) -> Window:
    """Creates the window from ``start_ns`` to ``end_ns``."""
    return Window(from_timestamp_ns(start_ns), from_timestamp_ns(end_ns))


def result_of(key: Any, window: Window, value: Any) -> WindowResult[Any, Any]:
    """Creates the result of a window for one key."""
    return WindowResult(key, window.start, window.end, value)
