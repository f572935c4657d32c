"""Functions that begin an expression, with the names of Polars: ``col``, ``lit``, ``when``, ``coalesce`` and others."""

from __future__ import annotations

from typing import Any

from clonos.core.model.wrong_calls import explains_calls
from clonos.expressions.expression import Expr, as_column, as_expression, checked_name
from clonos.expressions.expression_errors import ExpressionMisused


@explains_calls
def col(name: str, *more: str) -> Expr:
    """Returns the column of this name.

    Raises: ExpressionMisused: ``name`` is no text, or there are several.
    """
    given: Any = name
    names = [*given, *more] if isinstance(given, list | tuple) else [given, *more]
    if len(names) > 1:
        listed = ", ".join(map(repr, names))
        raise ExpressionMisused(
            f"col({listed:.80})", "names several columns", f"Name them in the step: select({listed})."
        )
    return Expr("column", (), (("name", checked_name("col", name)),))


@explains_calls
def lit(value: Any) -> Expr:
    """Returns a constant: a number, text, bytes, bool, date, datetime, timedelta, Decimal or None.

    Raises: ExpressionMisused: it is none of these.
    """
    return as_expression(value)


class Then(Expr):
    """Chain of ``when(...).then(...)``: an expression, null where no condition is true."""

    __slots__ = ()

    def when(self, condition: Any) -> When:
        """Adds a condition, for records for which no earlier one is true."""
        return When((*self.inputs, as_column(condition)))

    def otherwise(self, value: Any) -> Expr:
        """Gives the value for records for which no condition is true; a text is the name of a column."""
        return Expr("when", (*self.inputs, as_column(value)))


class When:
    """Beginning of a case, which ``then`` completes."""

    def __init__(self, inputs: tuple[Expr, ...]) -> None:
        self._inputs = inputs

    def __repr__(self) -> str:
        return f"<when({self._inputs[-1]!r}), which needs .then(value)>"

    def then(self, value: Any) -> Then:
        """Gives the value for records for which the condition is true; a text is the name of a column."""
        return Then("when", (*self._inputs, as_column(value)))


@explains_calls
def when(condition: Any, *values: Any) -> When:
    """Begins a case: ``when(condition).then(value).when(...).then(...).otherwise(value)``.

    A condition that is null counts as false. A text is the name of a column: ``lit("text")`` is a constant.

    Raises: ExpressionMisused: a value is given, too.
    """
    if values:
        raise ExpressionMisused(
            f"when({condition!r}, {values[0]!r:.80})",
            "gets a value",
            "Write when(condition).then(value).otherwise(value).",
        )
    return When((as_column(condition),))


@explains_calls
def coalesce(*expressions: Any) -> Expr:
    """Returns the first value that is not null. A text is the name of a column."""
    return _of_several("coalesce", expressions)


@explains_calls
def min_horizontal(*expressions: Any) -> Expr:
    """Returns the least value of several columns; nulls are left out. A text is the name of a column."""
    return _of_several("min_horizontal", expressions)


@explains_calls
def max_horizontal(*expressions: Any) -> Expr:
    """Returns the greatest value of several columns; nulls are left out. A text is the name of a column."""
    return _of_several("max_horizontal", expressions)


@explains_calls
def concat_str(*expressions: Any, separator: str = "", ignore_nulls: bool = False) -> Expr:
    """Joins texts, and other values as texts; null if one is null, unless ``ignore_nulls``.

    A text is the name of a column: ``lit("text")`` is a constant.

    Raises: ExpressionMisused: the separator is no text, or nothing is given.
    """
    if not isinstance(separator, str):
        raise ExpressionMisused("concat_str", f"gets separator={separator!r:.80}", "Give it a text.")
    options = {"separator": separator or None, "ignore_nulls": ignore_nulls or None}
    return _of_several("concat_str", expressions, **options)


def _of_several(function: str, given: tuple[Any, ...], **options: Any) -> Expr:
    if len(given) == 1 and isinstance(given[0], list | tuple):
        given = tuple(given[0])
    if not given:
        raise ExpressionMisused(f"{function}()", "gets nothing", "Give it columns, by name or as expressions.")
    inputs = tuple(map(as_column, given))
    return Expr(function, inputs, tuple((name, value) for name, value in options.items() if value is not None))
