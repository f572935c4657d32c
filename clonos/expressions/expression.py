"""Expression: a tree of functions over columns, with the method names of Polars.

``function`` names what a node computes: "column", "literal", an operator such as "+", a method such as
"str.starts_with", or a function such as "coalesce". A node is never changed. It is pickled by value, and its ``repr``
is the code that makes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from clonos.core.model.wrong_calls import explains_calls
from clonos.expressions.expression_errors import ExpressionMisused
from clonos.expressions.misuse import NoValue, method_missing
from clonos.expressions.type_names import type_name
from clonos.expressions.writing import written

if TYPE_CHECKING:
    from clonos.expressions.namespaces import DateNamespace, NameNamespace, StringNamespace, StructNamespace

Text = str
"""``str``, whose name the property of texts takes inside of the class."""

Options = tuple[tuple[str, Any], ...]
"""Arguments of a function that are no columns, by name; only those that are not the default."""

CLOSED: Final = ("both", "left", "right", "none")

ROUND_MODES: Final = ("half_to_even", "half_away_from_zero")


@explains_calls
class Expr(NoValue):
    """Expression over the columns of a batch; made by ``col``, ``lit``, ``when`` and the methods of other ones."""

    __slots__ = ("function", "inputs", "options")

    __array_ufunc__ = None  # a number of numpy leaves the operators to the expression

    def __init__(self, function: Text, inputs: tuple[Expr, ...] = (), options: Options = ()) -> None:
        self.function = function
        self.inputs = inputs
        self.options = options

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.function, self.inputs, self.options)

    def __repr__(self) -> Text:
        return written(self)

    __hash__ = None  # type: ignore[assignment]

    if not TYPE_CHECKING:  # a type checker must go on to report a missing method

        def __getattr__(self, attribute):
            raise method_missing(self, attribute)

    def option(self, name: Text, default: Any = None) -> Any:
        """Returns an argument of the function."""
        return dict(self.options).get(name, default)

    def columns(self) -> set[Text]:
        """Returns the names of the columns that it reads."""
        if self.function == "column":
            return {self.option("name")}
        return set().union(*(each.columns() for each in self.inputs))

    def output_name(self) -> Text:
        """Returns the name of its column where it is not given one: that of the leftmost column, or "literal"."""
        match self.function:
            case "column" | "alias" | "struct.field":
                return str(self.option("name"))
            case "literal":
                return "literal"
            case "name.suffix":
                return self.inputs[0].output_name() + str(self.option("text"))
            case "name.prefix":
                return str(self.option("text")) + self.inputs[0].output_name()
            case "when":
                return self.inputs[1].output_name()
        return self.inputs[0].output_name()

    def made_into(self, function: Text, *others: Any, **options: Any) -> Expr:
        """Returns a function of this expression and of others; an option of None is the default."""
        inputs = (self, *map(as_expression, others))
        return Expr(function, inputs, tuple((name, value) for name, value in options.items() if value is not None))

    # --- arithmetic

    def __add__(self, other: Any) -> Expr:
        return self.made_into("+", other)

    def __radd__(self, other: Any) -> Expr:
        return as_expression(other).made_into("+", self)

    def __sub__(self, other: Any) -> Expr:
        return self.made_into("-", other)

    def __rsub__(self, other: Any) -> Expr:
        return as_expression(other).made_into("-", self)

    def __mul__(self, other: Any) -> Expr:
        return self.made_into("*", other)

    def __rmul__(self, other: Any) -> Expr:
        return as_expression(other).made_into("*", self)

    def __truediv__(self, other: Any) -> Expr:
        return self.made_into("/", other)

    def __rtruediv__(self, other: Any) -> Expr:
        return as_expression(other).made_into("/", self)

    def __floordiv__(self, other: Any) -> Expr:
        return self.made_into("//", other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return as_expression(other).made_into("//", self)

    def __mod__(self, other: Any) -> Expr:
        return self.made_into("%", other)

    def __rmod__(self, other: Any) -> Expr:
        return as_expression(other).made_into("%", self)

    def __pow__(self, other: Any) -> Expr:
        return self.made_into("**", other)

    def __neg__(self) -> Expr:
        return self.made_into("negate")

    # --- comparison

    def _compared(self, function: Text, other: Any) -> Expr:
        if other is None:
            method = {"==": "is_null", "!=": "is_not_null"}.get(function, "is_not_null")
            raise ExpressionMisused(
                f"{self!r} {function} None", "is null for every record", f"Write {self!r:.100}.{method}()."
            )
        return self.made_into(function, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return self._compared("!=", other)

    def __lt__(self, other: Any) -> Expr:
        return self._compared("<", other)

    def __le__(self, other: Any) -> Expr:
        return self._compared("<=", other)

    def __gt__(self, other: Any) -> Expr:
        return self._compared(">", other)

    def __ge__(self, other: Any) -> Expr:
        return self._compared(">=", other)

    # --- Boolean

    def __and__(self, other: Any) -> Expr:
        return self.made_into("&", other)

    def __rand__(self, other: Any) -> Expr:
        return as_expression(other).made_into("&", self)

    def __or__(self, other: Any) -> Expr:
        return self.made_into("|", other)

    def __ror__(self, other: Any) -> Expr:
        return as_expression(other).made_into("|", self)

    def __xor__(self, other: Any) -> Expr:
        return self.made_into("^", other)

    def __rxor__(self, other: Any) -> Expr:
        return as_expression(other).made_into("^", self)

    def __invert__(self) -> Expr:
        return self.made_into("invert")

    # --- nulls, membership, types

    def is_null(self) -> Expr:
        """Returns whether the value is null."""
        return self.made_into("is_null")

    def is_not_null(self) -> Expr:
        """Returns whether the value is not null."""
        return self.made_into("is_not_null")

    def is_nan(self) -> Expr:
        """Returns whether a float is NaN."""
        return self.made_into("is_nan")

    def fill_null(self, value: Any) -> Expr:
        """Replaces null by ``value``, a constant or an expression."""
        return self.made_into("fill_null", value)

    def is_in(self, values: Collection[Any]) -> Expr:
        """Returns whether the value is one of the constants ``values``; null for null.

        Raises: ExpressionMisused: an argument does not fit.
        """
        if isinstance(values, Text | bytes | Expr) or not isinstance(values, Collection):
            raise ExpressionMisused(
                f"{self!r}.is_in({values!r:.80})", "gets no list of constants", "Write is_in([1, 2, 3])."
            )
        constants = sorted(values, key=repr) if isinstance(values, set | frozenset) else values
        return self.made_into("is_in", values=tuple(checked_literal(each) for each in constants))

    def is_between(self, lower: Any, upper: Any, closed: Text = "both") -> Expr:
        """Returns whether the value lies between two bounds; ``closed``: "both", "left", "right" or "none"."""
        _check_choice(f"{self!r}.is_between", "closed", closed, CLOSED)
        closed_option = None if closed == "both" else closed
        return self.made_into("is_between", as_column(lower), as_column(upper), closed=closed_option)

    def cast(self, dtype: Any, *, strict: bool = True) -> Expr:
        """Converts to another type; a value that does not fit fails its record, or is null with ``strict=False``."""
        name = type_name(dtype, f"{self!r}.cast")
        return self.made_into("cast", dtype=name, strict=None if strict else False)

    # --- numbers

    def abs(self) -> Expr:
        """Returns the absolute value."""
        return self.made_into("abs")

    def __abs__(self) -> Expr:
        return self.made_into("abs")

    def __round__(self, decimals: int | None = None) -> Expr:
        return self.round(decimals or 0)

    def __floor__(self) -> Expr:
        return self.floor()

    def __ceil__(self) -> Expr:
        return self.ceil()

    def round(self, decimals: int = 0, mode: Text = "half_to_even") -> Expr:
        """Rounds floats to ``decimals`` digits after the point; ``mode``: "half_to_even", "half_away_from_zero".

        Raises: ExpressionMisused: an argument does not fit.
        """
        if type(decimals) is not int or decimals < 0:
            raise ExpressionMisused(f"{self!r}.round({decimals!r})", "needs an int of at least 0", "Write round(2).")
        _check_choice(f"{self!r}.round", "mode", mode, ROUND_MODES)
        return self.made_into("round", decimals=decimals or None, mode=None if mode == "half_to_even" else mode)

    def floor(self) -> Expr:
        """Rounds floats down."""
        return self.made_into("floor")

    def ceil(self) -> Expr:
        """Rounds floats up."""
        return self.made_into("ceil")

    def clip(self, lower_bound: Any = None, upper_bound: Any = None) -> Expr:
        """Limits numbers to a range; a bound is a constant or an expression, and keeps the type of the column."""
        return self.made_into("clip", as_column(lower_bound), as_column(upper_bound))

    # --- names

    def alias(self, name: Text) -> Expr:
        """Names the column of the result."""
        return self.made_into("alias", name=checked_name("alias", name))

    @property
    def str(self) -> StringNamespace:
        """Methods of texts."""
        from clonos.expressions.namespaces import StringNamespace

        return StringNamespace(self)

    @property
    def dt(self) -> DateNamespace:
        """Methods of dates and timestamps."""
        from clonos.expressions.namespaces import DateNamespace

        return DateNamespace(self)

    @property
    def struct(self) -> StructNamespace:
        """Methods of structs."""
        from clonos.expressions.namespaces import StructNamespace

        return StructNamespace(self)

    @property
    def name(self) -> NameNamespace:
        """Methods that derive the name of the result from that of the column."""
        from clonos.expressions.namespaces import NameNamespace

        return NameNamespace(self)


def as_expression(given: Any) -> Expr:
    """Returns an expression as it is, and a constant as a literal.

    Raises: ExpressionMisused: it is neither.
    """
    return given if isinstance(given, Expr) else Expr("literal", (), (("value", checked_literal(given)),))


def as_column(given: Any) -> Expr:
    """Returns a text as the column of that name, anything else as ``as_expression`` does."""
    return Expr("column", (), (("name", given),)) if isinstance(given, str) else as_expression(given)


def checked_name(where: Any, name: Any) -> Any:
    """Returns the name of a column.

    Raises: ExpressionMisused: it is no text, or empty.
    """
    if not isinstance(name, str) or not name:
        raise ExpressionMisused(f"{where}({name!r:.80})", "needs the name of a column", "Give a text.")
    return name


def _check_choice(where: Any, what: Any, given: Any, choices: tuple[Any, ...]) -> None:
    if given not in choices:
        raise ExpressionMisused(
            f"{where}({what}={given!r:.80})", "gets no such choice", f"Give one of {', '.join(map(repr, choices))}."
        )


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
