"""Random expressions as code that Polars and clonos both read, and random columns for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow
from hypothesis import strategies as st

from clonos.expressions.expression_errors import NotComputable
from clonos.expressions.program import Program

INTEGERS = {
    "i8": pyarrow.int8(),
    "i16": pyarrow.int16(),
    "i32": pyarrow.int32(),
    "i64": pyarrow.int64(),
    "u8": pyarrow.uint8(),
    "u32": pyarrow.uint32(),
}
FLOATS = {"f32": pyarrow.float32(), "f64": pyarrow.float64()}
TEXTS = ("s", "t")
BOOLS = ("b", "c")
TIMES = ("at", "n", "z")

FIRST, LAST = datetime(1901, 1, 1), datetime(2100, 1, 1)
LETTERS = "abAB 1.é"
ROWS_MAX = 12


def _limits(type_: Any) -> tuple[int, int]:
    bits = type_.bit_width
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if str(type_).startswith("int") else (0, (1 << bits) - 1)


@st.composite
def batches(draw: st.DrawFn) -> Any:
    """Draws a batch with a column of each kind, with nulls; a slice of a longer one, so that offsets are not 0."""
    rows = draw(st.integers(1, ROWS_MAX))

    def column(values: st.SearchStrategy[Any], type_: Any) -> Any:
        return pyarrow.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), type_)

    columns = {}
    for name, type_ in INTEGERS.items():
        low, high = _limits(type_)
        columns[name] = column(st.sampled_from((low, high, 0, 1)) | st.integers(max(low, -9), 9), type_)
    for name, type_ in FLOATS.items():
        columns[name] = column(st.floats(width=32) | st.sampled_from((0.5, -1.5, 2.5, 1e6)), type_)
    for name in BOOLS:
        columns[name] = column(st.booleans(), pyarrow.bool_())
    columns["s"] = column(st.text(LETTERS, max_size=6), pyarrow.string())
    columns["t"] = column(st.text("ab", max_size=3), pyarrow.large_string())
    columns["d"] = column(st.dates(FIRST.date(), LAST.date()), pyarrow.date32())
    times = st.datetimes(FIRST, LAST)
    columns["n"] = column(times, pyarrow.timestamp("us"))
    columns["at"] = column(times.map(lambda each: each.replace(tzinfo=UTC)), pyarrow.timestamp("us", "UTC"))
    columns["z"] = columns["at"].cast(pyarrow.timestamp("us", "Asia/Tokyo"))
    offset = draw(st.integers(0, rows - 1))
    return pyarrow.record_batch(columns).slice(offset)


def _pick(draw: st.DrawFn, *makers: Callable[[], str]) -> str:
    return draw(st.sampled_from(makers))()


def _number(draw: st.DrawFn, depth: int) -> str:
    """Draws an expression of a number."""
    if depth <= 0:
        return f'col("{draw(st.sampled_from((*INTEGERS, *FLOATS)))}")'

    def inner() -> str:
        return _number(draw, depth - 1)

    def binary() -> str:
        function = draw(st.sampled_from(("+", "-", "*", "/", "//", "%")))
        # Polars multiplies by the reciprocal of a constant, which is exact for powers of two only.
        constants = ("2", "0", "-4", "0.5") if function in ("/", "//", "%") else ("2", "0", "7", "-3", "1.5")
        left, right = inner(), inner() if draw(st.booleans()) else draw(st.sampled_from(constants))
        return f"({left} {function} {right})"

    def method() -> str:
        name = draw(
            st.sampled_from(
                (
                    "floor()",
                    "ceil()",
                    "round()",
                    "round(2)",
                    'round(1, "half_away_from_zero")',
                    "clip(0, 5)",
                    "fill_null(3)",
                    "fill_null(0.5)",
                )
            )
        )
        return f"{inner()}.{name}"

    def choice() -> str:
        return f"when({_condition(draw, depth - 1)}).then({inner()}).otherwise({inner()})"

    def of_text() -> str:
        return f"{_text(draw, depth - 1)}.str.len_{draw(st.sampled_from(('chars', 'bytes')))}()"

    def of_time() -> str:
        part = draw(st.sampled_from(("year()", "month()", "day()", "weekday()", 'epoch("s")', 'epoch("d")', "epoch()")))
        return f"{_time(draw, depth - 1)}.dt.{part}"

    def of_several() -> str:
        name = draw(st.sampled_from(("coalesce", "min_horizontal", "max_horizontal")))
        return f"{name}({inner()}, {inner()})"

    def cast() -> str:
        return f"{inner()}.cast({draw(st.sampled_from(('int', 'float')))}, strict=False)"

    return _pick(draw, binary, binary, method, choice, of_text, of_time, of_several, cast)


def _condition(draw: st.DrawFn, depth: int) -> str:
    """Draws an expression of a bool."""
    if depth <= 0:
        return f'col("{draw(st.sampled_from(BOOLS))}")'
    comparator = draw(st.sampled_from(("==", "!=", "<", "<=", ">", ">=")))

    def inner() -> str:
        return _condition(draw, depth - 1)

    def numbers() -> str:
        right = _number(draw, depth - 1) if draw(st.booleans()) else draw(st.sampled_from(("2", "0", "300", "1.5")))
        return f"({_number(draw, depth - 1)} {comparator} {right})"

    def texts() -> str:
        return f"({_text(draw, depth - 1)} {comparator} {_text(draw, depth - 1)})"

    def times() -> str:
        name = draw(st.sampled_from(TIMES))
        return f'(col("{name}") {comparator} col("{name}").dt.truncate("1d"))'

    def combined() -> str:
        return f"({inner()} {draw(st.sampled_from('&|^'))} {inner()})"

    def nulls() -> str:
        value = draw(st.sampled_from((_number, _text, _condition)))(draw, depth - 1)
        return f"{value}.{draw(st.sampled_from(('is_null()', 'is_not_null()')))}"

    def membership() -> str:
        return f'col("{draw(st.sampled_from(tuple(INTEGERS)))}").is_in([1, 3, 5, None])'

    def between() -> str:
        closed = draw(st.sampled_from(("both", "left", "right", "none")))
        return f'{_number(draw, depth - 1)}.is_between(0, 5, closed="{closed}")'

    def of_text() -> str:
        test = draw(
            st.sampled_from(
                (
                    'starts_with("a")',
                    'ends_with("b")',
                    'contains("a.")',
                    'contains(".", literal=True)',
                    'contains("^b")',
                )
            )
        )
        return f"{_text(draw, depth - 1)}.str.{test}"

    return _pick(
        draw, numbers, numbers, texts, times, combined, lambda: f"~{inner()}", nulls, membership, between, of_text
    )


def _text(draw: st.DrawFn, depth: int) -> str:
    """Draws an expression of a text."""
    if depth <= 0:
        return f'col("{draw(st.sampled_from(TEXTS))}")'

    def inner() -> str:
        return _text(draw, depth - 1)

    def method() -> str:
        name = draw(
            st.sampled_from(
                (
                    *(
                        "to_lowercase()",
                        "to_uppercase()",
                        "strip_chars()",
                        'strip_chars("a")',
                        "slice(1)",
                        "slice(-2, 1)",
                    ),
                    *("slice(0, 3)", "slice(-9, 5)", 'replace("a", "$0$0")', 'replace_all("(a)(b)", "${2}$1")'),
                    *(
                        'replace_all(".", "-", literal=True)',
                        'extract("(a+)")',
                        'extract("a(.)", 0)',
                        'extract("b", 0)',
                    ),
                )
            )
        )
        return f"{inner()}.str.{name}"

    def joined() -> str:
        ignores = draw(st.booleans())
        more = draw(st.sampled_from(("", ', col("i32"), col("b")')))
        return f'concat_str({inner()}, {inner()}{more}, separator="-", ignore_nulls={ignores})'

    def added() -> str:
        return f"({inner()} + {inner()})"

    def choice() -> str:
        return f"when({_condition(draw, depth - 1)}).then({inner()})"

    def cast() -> str:
        return f'col("{draw(st.sampled_from((*INTEGERS, *BOOLS, "d")))}").cast(str)'

    return _pick(draw, method, method, joined, added, choice, cast, lambda: f'{inner()}.fill_null("x")')


def _time(draw: st.DrawFn, depth: int) -> str:
    """Draws an expression of a date or timestamp."""
    name = draw(st.sampled_from((*TIMES, "d")))
    of_days, of_hours = ("1d", "2d", "1w", "3w", "1mo", "5mo", "1q", "1y"), ("15m", "1h", "7h", "1h30m")
    every = draw(st.sampled_from(of_days if name == "d" else (*of_days, *of_hours)))
    return _pick(
        draw,
        lambda: f'col("{name}")',
        lambda: f'col("{name}").dt.truncate("{every}")',
        lambda: f'col("{name}").dt.date()',
        lambda: f'(col("{name}") + timedelta(days={draw(st.integers(-3, 3))}))',
    )


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    """Draws the code of an expression of any kind."""
    kind = draw(st.sampled_from((_number, _number, _condition, _text, _time)))
    return kind(draw, draw(st.integers(1, depth)))


def conditions(depth: int = 2) -> st.SearchStrategy[str]:
    """Draws the code of a condition."""
    return st.composite(lambda draw: _condition(draw, depth))()


def overflows(program: Program, batch: Any) -> bool:
    """Returns whether an integer of a batch does not fit its type."""
    try:
        program.run(batch)
    except NotComputable as error:
        if "a result does not fit" not in str(error):
            raise
        return True
    return False


def same(left: object, right: object) -> bool:
    """Returns whether two values are the same, for which NaN equals NaN."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and left == right


NAMES: dict[str, Any] = {"timedelta": timedelta, "date": date, "datetime": datetime, "UTC": UTC}
"""Names that the code of expressions uses beside the functions of the library."""
