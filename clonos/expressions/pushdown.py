"""Split of a condition into comparisons of a column with constants, for the statistics of files, and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from clonos.expressions.expression import Expr

SWAPPED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

BOUNDS: Final = {"both": (">=", "<="), "left": (">=", "<"), "right": (">", "<="), "none": (">", "<")}


class Comparison(NamedTuple):
    """Comparison of a column with a constant, which each record that passes the filter fulfils.

    ``comparator``: "==", "!=", "<", "<=", ">", ">=", "is_in" (``value`` is a tuple), "is_null" or "is_not_null". In a
    column of floats NaN is greater than any number: statistics, which leave NaN out, cannot refute ">", ">=" and "!=".
    """

    column: str
    comparator: str
    value: Any = None


class SplitCondition(NamedTuple):
    """Condition that is true where all ``comparisons`` hold and ``rest`` is true; None: there is no rest."""

    comparisons: tuple[Comparison, ...]
    rest: Expr | None


def split_condition(condition: Expr) -> SplitCondition:
    """Splits a condition at its ``&``. The comparisons hold for no record in which their column is null, except
    "is_null"."""
    comparisons: list[Comparison] = []
    rest: Expr | None = None
    for part in _conjuncts(condition):
        found = _comparisons(part)
        comparisons += found
        if not found:
            rest = part if rest is None else rest & part
    return SplitCondition(tuple(comparisons), rest)


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if condition.function == "&":
        for each in condition.inputs:
            yield from _conjuncts(each)
    else:
        yield condition


def _comparisons(part: Expr) -> list[Comparison]:
    kinds = [each.function for each in part.inputs]
    function = part.function
    if function in SWAPPED and kinds in (["column", "literal"], ["literal", "column"]):
        column, constant = part.inputs if kinds[0] == "column" else part.inputs[::-1]
        comparator = function if kinds[0] == "column" else SWAPPED[function]
        return [Comparison(column.option("name"), comparator, constant.option("value"))]
    if function == "is_between" and kinds == ["column", "literal", "literal"]:
        name, bounds = part.inputs[0].option("name"), [each.option("value") for each in part.inputs[1:]]
        comparators = BOUNDS[part.option("closed", "both")]
        return [Comparison(name, *each) for each in zip(comparators, bounds, strict=True)] if None not in bounds else []
    if function == "is_in" and kinds == ["column"]:
        return [Comparison(part.inputs[0].option("name"), "is_in", part.option("values"))]
    if function in ("is_null", "is_not_null") and kinds == ["column"]:
        return [Comparison(part.inputs[0].option("name"), function)]
    return []
