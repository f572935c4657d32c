"""Constants in expressions: which values of Python they may be."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from clonos.expressions.expression_errors import ExpressionMisused

LITERALS: Final = (bool, int, float, str, bytes, date, datetime, time, timedelta, Decimal)
INT_MIN, INT_MAX = -(1 << 63), (1 << 64) - 1


def checked_literal(given: Any) -> Any:
    """Returns a constant as a value of Python, such as the number in a scalar of numpy or pyarrow.

    Raises: ExpressionMisused: it is no constant that a column could hold.
    """
    module = type(given).__module__.partition(".")[0]
    if module in ("polars", "pyarrow") and type(given).__name__ in ("Expr", "Expression"):
        raise ExpressionMisused(
            f"{given!s:.80}",
            f"is an expression of {module}, which does not mix with those of clonos",
            "Write the whole of it with one of them.",
        )
    if module == "numpy" and hasattr(given, "item"):
        given = given.item()
    elif module == "pyarrow" and hasattr(given, "as_py"):
        given = given.as_py()
    if isinstance(given, int) and not INT_MIN <= given <= INT_MAX:
        raise ExpressionMisused(f"{given}", "does not fit a column of int64 or uint64", "Use a float or a Decimal.")
    if given is None or type(given) in LITERALS:
        return given
    if isinstance(given, str):  # a member of an enum, for example
        return str.__str__(given)
    if isinstance(given, int):
        return int(given)
    if isinstance(given, float):
        return float(given)
    name = getattr(given, "__name__", "") if callable(given) else ""
    raise ExpressionMisused(
        name or f"{given!r:.80}", f"is a {type(given).__name__}, which no expression can hold", _advice(given)
    )


def _advice(given: Any) -> str:
    """Returns what to write in place of a value that is no constant."""
    if type(given).__module__.startswith("clonos.operators.aggregates."):  # a package above this one
        return (
            "An aggregate is a step of the stream, after key_by or window for each key or window:"
            f" .aggregate(result={given!r:.80})."
        )
    if callable(given):
        return 'An expression such as col("x") * 2 computes columns; the step map calls a function with each record.'
    if isinstance(given, Mapping):
        return "Name results by keywords: with_columns(total=...), or with_columns(**{...})."
    return "Give a number, a text, bytes, a bool, a date, a datetime, a timedelta, a Decimal or None."
