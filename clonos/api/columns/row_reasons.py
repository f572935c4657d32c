"""Reasons for which steps over columns work on rows, for ``explain``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clonos.api.windows import Session
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.columnar.row_forms import END, START, TIME
from clonos.operators.columnar.support import columns_read, parts_of

if TYPE_CHECKING:
    from clonos.api.window_step import WindowSettings


def aggregate_reason(aggregation: Aggregation[Any, Any], *, has_members: bool = False, has_logs: bool = False) -> str:
    """Returns which aggregate works on rows, whatever the types of columns; "" if all may work on columns.

    ``has_members``, ``has_logs``: see ``columns_read``.
    """
    for each in parts_of(aggregation).values():
        if columns_read(each, has_members=has_members, has_logs=has_logs) is None:
            return f"{each!r} works on rows"
    return ""


def name_reason(names: Sequence[str]) -> str:
    """Returns why results with columns of these names are rows; "" if no name is there twice."""
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    return f"its results would have two columns {twice[0]!r}" if twice else ""


def window_name_reason(keys: Sequence[str], aggregation: Aggregation[Any, Any]) -> str:
    """Returns the same for windows, by the columns of their key."""
    return name_reason((*keys, START, END, TIME, *parts_of(aggregation)))


def window_reason(settings: WindowSettings, aggregation: Aggregation[Any, Any], keys: Sequence[str]) -> str:
    """Returns why windows over columns work on rows."""
    if reason := aggregate_reason(aggregation, has_logs=settings.has_logs) or window_name_reason(keys, aggregation):
        return reason
    if settings.trigger is not None:
        return "windows with a trigger work on rows"
    if settings.evictor is not None:
        return "windows with an evictor work on rows"
    if isinstance(settings.kind, Session):
        return _session_reason(settings, settings.kind)
    return f"windows of the kind {type(settings.kind).__name__} work on rows"


def _session_reason(settings: WindowSettings, kind: Session) -> str:
    if callable(kind.gap):
        return "sessions whose gap is a function work on rows"
    if kind.max_length_ns is not None:
        return "sessions with max_length= work on rows"
    return "sessions by the clock work on rows"
