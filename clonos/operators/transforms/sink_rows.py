"""Rows of a sink with their keys and timestamps, for sinks that ask for them.

Other sinks get the bare rows, and nothing is added in front of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clonos.core.values import register
from clonos.operators.operator import Operator, Times


@register(name="clonos.SinkRow")
class SinkRow(NamedTuple):
    """Row as the writers of a sink with the attribute ``takes_keys_and_times = True`` get it.

    ``key``: the key of its stream; None if that is not keyed. ``timestamp``: in nanoseconds since the Unix epoch; None
    if the stream has none.
    """

    value: Any
    key: Any
    timestamp: int | None


def takes_keys_and_times(sink: object) -> bool:
    """Returns whether the writers of a sink get each row as a ``SinkRow``."""
    return bool(getattr(sink, "takes_keys_and_times", False))


def bare(row: Any) -> Any:
    """Returns a row as its stream has it."""
    return row.value if type(row) is SinkRow else row


class ToSinkRows(Operator):
    """Rows with their keys and timestamps in front of a sink that takes them."""

    changes_rows = False

    def __init__(self, is_keyed: bool) -> None:
        self._is_keyed = is_keyed

    def rows(self, rows: list[Any], times: Times = None) -> None:
        pairs = rows if self._is_keyed else [(None, value) for value in rows]
        stamps = [None] * len(rows) if times is None else times
        stamped = zip(pairs, stamps, strict=True)
        self.out.rows([SinkRow(value, key, stamp) for (key, value), stamp in stamped], times)
