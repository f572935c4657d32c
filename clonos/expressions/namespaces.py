"""Methods of expressions by the kind of their values, as Polars has them: ``.str``, ``.dt``, ``.struct``, ``.name``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from clonos.core.model.missing_names import attribute_missing
from clonos.expressions.expression import Expr, checked_name
from clonos.expressions.expression_errors import ExpressionMisused
from clonos.expressions.patterns import checked_group, replacement_text
from clonos.expressions.periods import checked_period

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
