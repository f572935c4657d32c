"""Expression: a tree of functions over columns, with the method names of Polars.

``function`` names what a node computes: "column", "literal", an operator such as "+", a method such as
"str.starts_with", or a function such as "coalesce". A node is never changed. It is pickled by value, and its ``repr``
is the code that makes it. Methods by the kind of the values stand in namespaces, as Polars has them: ``.str``, ``.dt``,
``.struct``, ``.name``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from clonos.core.model.missing_names import attribute_missing
from clonos.core.model.wrong_calls import explains_calls
from clonos.expressions.expression_errors import ExpressionMisused
from clonos.expressions.misuse import NoValue, method_missing
from clonos.expressions.patterns import checked_group, replacement_text
from clonos.expressions.periods import checked_period
from clonos.expressions.type_names import type_name
from clonos.expressions.writing import written

Text = str
"""``str``, whose name the property of texts takes inside of the class."""

Options = tuple[tuple[str, Any], ...]
"""Arguments of a function that are no columns, by name; only those that are not the default."""

CLOSED: Final = ("both", "left", "right", "none")

ROUND_MODES: Final = ("half_to_even", "half_away_from_zero")

UNITS: Final = ("s", "ms", "us", "ns", "d")

STRING_HINTS: Final = {
    **dict.fromkeys(("len", "length", "lengths", "n_chars"), "Use len_chars()."),
    "lower": "Use to_lowercase().",
    "upper": "Use to_uppercase().",
    "startswith": "Use starts_with(text).",
    "endswith": "Use ends_with(text).",
    "strip": "Use strip_chars().",
    "split": "Columns of lists are not supported: use extract(pattern, group), or map_batches.",
    **dict.fromkeys(("match", "search"), "Use contains(pattern)."),
    **dict.fromkeys(("to_date", "to_datetime", "strptime"), "Use cast(date) or cast(datetime) for ISO 8601."),
}

DATE_HINTS: Final = {
    "timestamp": 'Use epoch("ms").',
    **dict.fromkeys(("dayofweek", "day_of_week", "isoweekday"), "Use weekday(): Monday is 1."),
    **dict.fromkeys(("floor", "round"), 'Use truncate("1h").'),
}


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
        return StringNamespace(self)

    @property
    def dt(self) -> DateNamespace:
        """Methods of dates and timestamps."""
        return DateNamespace(self)

    @property
    def struct(self) -> StructNamespace:
        """Methods of structs."""
        return StructNamespace(self)

    @property
    def name(self) -> NameNamespace:
        """Methods that derive the name of the result from that of the column."""
        return NameNamespace(self)


class Namespace:
    """Base of the namespaces of an expression."""

    __slots__ = ("_expression",)
    _hints: Mapping[str, str] = MappingProxyType({})

    def __init__(self, expression: Expr) -> None:
        self._expression = expression

    if not TYPE_CHECKING:  # a type checker must go on to report a missing method

        def __getattr__(self, attribute):
            raise attribute_missing(type(self), attribute, self._hints)


class StringNamespace(Namespace):
    """Methods of texts. Patterns are regular expressions of RE2."""

    __slots__ = ()
    _hints = STRING_HINTS

    def len_chars(self) -> Expr:
        """Returns the number of characters, a uint32."""
        return self._expression.made_into("str.len_chars")

    def len_bytes(self) -> Expr:
        """Returns the number of bytes in UTF-8, a uint32."""
        return self._expression.made_into("str.len_bytes")

    def to_lowercase(self) -> Expr:
        """Returns the text in lower case."""
        return self._expression.made_into("str.to_lowercase")

    def to_uppercase(self) -> Expr:
        """Returns the text in upper case."""
        return self._expression.made_into("str.to_uppercase")

    def starts_with(self, prefix: str) -> Expr:
        """Returns whether the text starts with ``prefix``."""
        return self._with_text("starts_with", prefix)

    def ends_with(self, suffix: str) -> Expr:
        """Returns whether the text ends with ``suffix``."""
        return self._with_text("ends_with", suffix)

    def contains(self, pattern: str, *, literal: bool = False) -> Expr:
        """Returns whether a regular expression matches somewhere; with ``literal`` whether the text itself occurs."""
        self._check_text("contains", pattern)
        return self._expression.made_into("str.contains", pattern=pattern, literal=literal or None)

    def replace(self, pattern: str, value: str, *, literal: bool = False) -> Expr:
        """Replaces the first match by ``value``, in which ``$1`` or ``${name}`` is a group and ``$$`` a dollar sign."""
        return self._replaced("replace", pattern, value, literal)

    def replace_all(self, pattern: str, value: str, *, literal: bool = False) -> Expr:
        """Replaces every match by ``value``; see ``replace``."""
        return self._replaced("replace_all", pattern, value, literal)

    def slice(self, offset: int, length: int | None = None) -> Expr:
        """Returns ``length`` characters from ``offset`` on; a negative offset counts from the end.

        Raises: ExpressionMisused: an argument does not fit.
        """
        for given in (offset, 0 if length is None else length):
            if type(given) is not int:
                raise ExpressionMisused(f"{self._expression!r}.str.slice", f"gets {given!r:.80}", "Give ints.")
        if length is not None and length < 0:
            raise ExpressionMisused(f"{self._expression!r}.str.slice", f"gets the length {length}", "Give at least 0.")
        return self._expression.made_into("str.slice", offset=offset, length=length)

    def strip_chars(self, characters: str | None = None) -> Expr:
        """Removes white space, or any of ``characters``, from both ends."""
        if characters is not None:
            self._check_text("strip_chars", characters)
        return self._expression.made_into("str.strip_chars", characters=characters)

    def extract(self, pattern: str, group: int = 1) -> Expr:
        """Returns what a group of the first match matched, the whole match for 0; null without a match."""
        self._check_text("extract", pattern)
        checked_group(f"{self._expression!r}.str.extract", pattern, group)
        return self._expression.made_into("str.extract", pattern=pattern, group=None if group == 1 else group)

    def _with_text(self, method: str, text: str) -> Expr:
        self._check_text(method, text)
        return self._expression.made_into(f"str.{method}", text=text)

    def _replaced(self, method: str, pattern: str, value: str, literal: bool) -> Expr:
        self._check_text(method, pattern)
        self._check_text(method, value)
        if not literal:
            replacement_text(f"{self._expression!r}.str.{method}", pattern, value)
        return self._expression.made_into(f"str.{method}", pattern=pattern, value=value, literal=literal or None)

    def _check_text(self, method: str, given: object) -> None:
        if not isinstance(given, str):
            raise ExpressionMisused(f"{self._expression!r}.str.{method}", f"gets {given!r:.80}", "Give it a text.")


class DateNamespace(Namespace):
    """Methods of dates and timestamps; parts of a timestamp are those of its time zone."""

    __slots__ = ()
    _hints = DATE_HINTS

    def year(self) -> Expr:
        """Returns the year, an int32."""
        return self._expression.made_into("dt.year")

    def month(self) -> Expr:
        """Returns the month from 1 to 12, an int8."""
        return self._expression.made_into("dt.month")

    def day(self) -> Expr:
        """Returns the day of the month from 1, an int8."""
        return self._expression.made_into("dt.day")

    def hour(self) -> Expr:
        """Returns the hour from 0 to 23, an int8."""
        return self._expression.made_into("dt.hour")

    def minute(self) -> Expr:
        """Returns the minute from 0 to 59, an int8."""
        return self._expression.made_into("dt.minute")

    def second(self) -> Expr:
        """Returns the second from 0 to 59, an int8."""
        return self._expression.made_into("dt.second")

    def weekday(self) -> Expr:
        """Returns the day of the week, an int8: Monday is 1, Sunday 7."""
        return self._expression.made_into("dt.weekday")

    def date(self) -> Expr:
        """Returns the day of a timestamp."""
        return self._expression.made_into("dt.date")

    def truncate(self, every: str | timedelta) -> Expr:
        """Returns the begin of the interval of length ``every`` that holds the time.

        ``every`` is such as "15m", "1h", "1d", "1w" from Monday, "1mo", "1q" or "1y"; m is a minute.
        """
        period = checked_period(f"{self._expression!r}.dt.truncate", every)
        return self._expression.made_into("dt.truncate", every=period)

    def epoch(self, unit: str = "us") -> Expr:
        """Returns the time since 1970 in UTC, an int64 in "s", "ms", "us" or "ns", an int32 in days "d".

        Raises: ExpressionMisused: an argument does not fit.
        """
        if unit not in UNITS:
            raise ExpressionMisused(
                f"{self._expression!r}.dt.epoch({unit!r:.80})", "gets no unit", f"Give one of {', '.join(UNITS)}."
            )
        return self._expression.made_into("dt.epoch", unit=None if unit == "us" else unit)


class StructNamespace(Namespace):
    """Methods of structs."""

    __slots__ = ()

    def field(self, name: str) -> Expr:
        """Returns a field of a struct; null where the struct is."""
        return self._expression.made_into("struct.field", name=checked_name("struct.field", name))


class NameNamespace(Namespace):
    """Methods that derive the name of the result."""

    __slots__ = ()

    def suffix(self, suffix: str) -> Expr:
        """Appends a text to the name."""
        return self._expression.made_into("name.suffix", text=checked_name("name.suffix", suffix))

    def prefix(self, prefix: str) -> Expr:
        """Puts a text in front of the name."""
        return self._expression.made_into("name.prefix", text=checked_name("name.prefix", prefix))


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
