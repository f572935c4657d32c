"""Tap: a look at the next batch that a step emits, without a cost for steps that nobody looks at.

It takes the place of the next step until one batch has passed. It changes no row and leaves no trace in the log, so a
replay does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clonos.core.values import ValueBeyondLimit, ValueUnsupported, encode_rows
from clonos.core.values.column_rows import rows_of_columns
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.operator import Operator, Times
from clonos.operators.user_errors import shortened

ROWS_BYTES_MAX = 1 << 18
"""Encoded rows of one look; larger ones are shown as shortened texts."""


class Tap:
    """Stands between a step and the next one. ``show`` gets the last rows of the next batch, encoded."""

    def __init__(self, operator: Operator, rows_max: int, show: Callable[[bytes], None]) -> None:
        target: Any = operator.out
        self._operator = operator
        self._target: Any = target._target if isinstance(target, Tap) else target  # a later look replaces an earlier
        self._rows_max = rows_max
        self._show = show

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        """Shows the last rows and passes the batch on."""
        self._remove(rows[-self._rows_max :])
        self._target.rows(rows, times)

    def columns(self, batch: RecordBatch) -> None:
        """Shows the last rows as dicts and passes the batch on."""
        self._remove(rows_of_columns(batch.slice(max(0, batch.num_rows - self._rows_max))))
        self._target.columns(batch)

    def _remove(self, rows: list[Any]) -> None:
        self._operator.out = self._target
        self._show(encoded(rows))


def tap(operator: Operator, rows_max: int, show: Callable[[bytes], None]) -> None:
    """Shows the last rows of the next batch that an open operator emits. Any thread may call this."""
    setattr(operator, "out", Tap(operator, rows_max, show))  # noqa: B010  to mypy a tap is no operator


def encoded(rows: list[Any]) -> bytes:
    """Encodes rows, or their shortened texts if they cannot be encoded or are large."""
    try:
        found = encode_rows(rows)
        if len(found) <= ROWS_BYTES_MAX:
            return found
    except (ValueUnsupported, ValueBeyondLimit):
        pass
    return encode_rows(list(map(shortened, rows)))
