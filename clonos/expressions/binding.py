"""Binding of an expression to the columns of a schema: types are checked, and each function becomes a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from clonos.core.model.missing_names import nearest
from clonos.expressions.expression import Expr
from clonos.expressions.expression_errors import CannotBind
from clonos.expressions.functions import arithmetic, casts, choices, conditions, dates, text_functions
from clonos.expressions.functions.binder import Binder, BoundValue
from clonos.expressions.functions.foreign_calls import foreign
from clonos.expressions.functions.value_types import literal_type
from clonos.expressions.stages import NAMING

Function = Callable[[Binder, Expr, list[BoundValue]], BoundValue]

FUNCTIONS: Final[Mapping[str, Function]] = {
    **arithmetic.FUNCTIONS,
    **casts.FUNCTIONS,
    **choices.FUNCTIONS,
    **conditions.FUNCTIONS,
    **dates.FUNCTIONS,
    **text_functions.FUNCTIONS,
}

TEXTS_ARE_COLUMNS: Final = ("when", "coalesce", "concat_str", "min_horizontal", "max_horizontal")

FOREIGN: Final = ("arrow", "polars")


def bind(binder: Binder, expression: Expr, columns: Mapping[str, BoundValue]) -> BoundValue:
    """Returns the value of an expression.

    Raises: CannotBind: a column is missing, or a type does not fit.
    """
    if expression.function == "column":
        return _column(expression, columns)
    if expression.function == "literal":
        value = expression.option("value")
        type_ = literal_type(value)
        return binder.constant(value, type_)._replace(is_literal=True, literal=value)
    if expression.function in NAMING:
        return bind(binder, expression.inputs[0], columns)
    inputs = [binder.plain(_input(binder, expression, each, columns)) for each in expression.inputs]
    binder.text = repr(expression)
    try:
        if expression.function in FOREIGN:
            return _foreign(binder, expression, columns)
        return FUNCTIONS[expression.function](binder, expression, inputs)
    except CannotBind as error:
        if error.expression:
            raise
        raise CannotBind(repr(expression), error.problem) from None


def _input(binder: Binder, expression: Expr, given: Expr, columns: Mapping[str, BoundValue]) -> BoundValue:
    try:
        return bind(binder, given, columns)
    except CannotBind as error:
        if given.function == "column" and expression.function in TEXTS_ARE_COLUMNS:
            text = f"{error.problem}; a text names a column here, and lit({given.option('name')!r}) is the text"
            raise CannotBind(error.expression, text) from None
        raise


def _foreign(binder: Binder, expression: Expr, columns: Mapping[str, BoundValue]) -> BoundValue:
    for name in sorted(expression.columns()):
        if name not in columns:
            raise CannotBind("", missing_column(name, columns))
    return foreign(binder, expression, columns)


def _column(expression: Expr, columns: Mapping[str, BoundValue]) -> BoundValue:
    name = expression.option("name")
    if name not in columns:
        raise CannotBind(repr(expression), missing_column(name, columns))
    return columns[name]


def missing_column(name: str, columns: Any) -> str:
    """Returns that there is no such column, with the most similar one, or with what else was meant."""
    struct, _, field = name.partition(".")
    if name == "*":
        hint = "with_columns keeps all columns; without select they are all there"
    elif name.startswith(("col(", "lit(", "when(")):
        hint = "give the expression itself, without str() and quotes"
    elif field and struct in columns:
        hint = f'a field of a struct is col("{struct}").struct.field("{field}")'
    else:
        hint = nearest(name, columns)
    return f"there is no column {name!r}" + (f" ({hint})" if hint else "")
