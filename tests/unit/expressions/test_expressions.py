"""The tree of an expression: its text is the code that makes it, it travels by value, and misuse gets one sentence."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

import numpy
import polars
import pyarrow
import pyarrow.compute as compute
import pytest
from hypothesis import given, settings

from clonos import Expr, coalesce, col, concat_str, lit, max_horizontal, min_horizontal, when
from clonos.expressions.expression_errors import ExpressionMisused
from tests.speed import scaled
from tests.unit.expressions.expression_texts import NAMES, expressions

FUNCTIONS = {each.__name__: each for each in (col, lit, when, coalesce, concat_str, min_horizontal, max_horizontal)}
EVERYTHING: dict[str, Any] = {**NAMES, **FUNCTIONS, "Decimal": Decimal, "datetime": sys.modules["datetime"]}


def made(text: str, **names: Any) -> Expr:
    """Returns the expression that the code makes."""
    found = eval(text, {**NAMES, **FUNCTIONS, **names})  # noqa: S307  the code of the test itself
    assert isinstance(found, Expr)
    return found


@settings(max_examples=100, deadline=None)
@given(expressions(depth=4))
def test_the_text_of_an_expression_is_code_that_makes_it(text: str) -> None:
    expression = made(text)
    assert repr(made(repr(expression), **EVERYTHING)) == repr(expression)
    copied = pickle.loads(pickle.dumps(expression))  # noqa: S301  what the test has pickled
    assert (repr(copied), type(copied)) == (repr(expression), type(expression))


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (col("a") + 1 * col("b"), "col('a') + 1 * col('b')"),
        ((col("a") + 1) * col("b"), "(col('a') + 1) * col('b')"),
        (col("a") - (col("b") - col("c")), "col('a') - (col('b') - col('c'))"),
        (col("a") - col("b") - col("c"), "col('a') - col('b') - col('c')"),
        (-(col("a") ** 2), "-col('a') ** 2"),
        ((-col("a")) ** 2, "(-col('a')) ** 2"),
        (-col("a").abs(), "-col('a').abs()"),
        ((-col("a")).abs(), "(-col('a')).abs()"),
        ((col("a") > 1) & ~(col("b") | col("c")), "(col('a') > 1) & ~(col('b') | col('c'))"),
        ((col("a") > 1) == col("b"), "(col('a') > 1) == col('b')"),
        (1 < col("a"), "col('a') > 1"),  # noqa: SIM300
        (col("a") == "x", "col('a') == 'x'"),
        (
            when(col("a") == 1).then(lit("x")).otherwise(col("y")),
            "when(col('a') == 1).then(lit('x')).otherwise(col('y'))",
        ),
        (when("b").then(1).when("c").then("d"), "when(col('b')).then(1).when(col('c')).then(col('d'))"),
        (col("a").is_in({3, 1, 2}), "col('a').is_in([1, 2, 3])"),
        (col("a").cast(float, strict=False), "col('a').cast(float, strict=False)"),
        (col("a").cast("int32"), "col('a').cast('int32')"),
        (col("a").round(2), "col('a').round(2)"),
        (col("a").clip(0, None), "col('a').clip(0, None)"),
        (col("a").is_between(1, "b", closed="left"), "col('a').is_between(1, col('b'), closed='left')"),
        (col("a").str.contains("x.", literal=True), "col('a').str.contains('x.', literal=True)"),
        (col("at").dt.truncate(timedelta(minutes=5)), "col('at').dt.truncate('300000000us')"),
        (col("p").struct.field("x").alias("y"), "col('p').struct.field('x').alias('y')"),
        (concat_str("a", lit("-"), separator="/"), "concat_str(col('a'), lit('-'), separator='/')"),
        (col("a") + float("nan"), "col('a') + float(\"nan\")"),
        (lit(1) + lit(date(2026, 1, 2)), "lit(1) + lit(datetime.date(2026, 1, 2))"),
        (lit(-1) + col("a"), "lit(-1) + col('a')"),
        (col("a") > datetime(2026, 1, 2), "col('a') > datetime.datetime(2026, 1, 2, 0, 0)"),
        (col("a") * Decimal("1.5"), "col('a') * Decimal('1.5')"),
    ],
)
def test_a_text_has_as_few_parentheses_as_python_needs(expression: Expr, text: str) -> None:
    assert repr(expression) == text
    assert repr(made(text, **EVERYTHING)) == text


class Kind(StrEnum):
    """An enum of texts."""

    BID = "bid"


def test_constants_of_other_libraries_become_those_of_python() -> None:
    assert repr(col("a") + numpy.int64(3)) == "col('a') + 3"
    assert repr(numpy.float64(1.5) * col("a")) == "1.5 * col('a')"
    assert repr(col("a") == pyarrow.scalar("x")) == "col('a') == 'x'"
    assert repr(col("a") == Kind.BID) == "col('a') == 'bid'"


def test_an_expression_knows_its_columns_and_its_name() -> None:
    expression = when(col("a") > col("b")).then(col("c") + 1).otherwise(lit(2))
    assert (expression.columns(), expression.output_name()) == ({"a", "b", "c"}, "c")
    assert (lit(1) + col("x")).output_name() == "literal"
    assert (col("x") + 1).name.suffix("_more").output_name() == "x_more"
    assert (col("x") + 1).name.prefix("more_").alias("y").output_name() == "y"
    assert col("p").struct.field("q").output_name() == "q"


MISUSES: list[tuple[str, tuple[str, ...]]] = [
    ("bool(col('x') > 1)", ("col('x') > 1 has no truth value", "Combine conditions with & | ~", "when(...)")),
    ("col('x') > 1 and col('y') > 2", ("has no truth value", "in place of and, or, not")),
    ("1 < col('x') < 5", ("has no truth value", "chained comparisons")),
    ("col('x') == None", ("col('x') == None is null for every record. Write col('x').is_null().",)),
    ("None != col('x')", ("Write col('x').is_not_null().",)),
    ("'a' in col('x')", (".is_in([...])", '.str.contains("...", literal=True)')),
    ("list(col('x'))", ("cannot be iterated over",)),
    ("col(3)", ("col(3) needs the name of a column. Give a text.",)),
    ("col('x') + [1]", ("[1] is a list, which no expression can hold",)),
    ("col('x') + 2**70", ("does not fit a column of int64 or uint64",)),
    ("col('x').is_in('abc')", ("gets no list of constants. Write is_in([1, 2, 3]).",)),
    ("col('x').is_between(1, 2, closed='all')", ("gets no such choice. Give one of 'both', 'left'",)),
    ("col('x').cast('itn64')", ("gets the type 'itn64' which is none. Did you mean int64?",)),
    ("col('x').round(-1)", ("needs an int of at least 0",)),
    ("col('x').str.slice('a')", ("gets 'a'. Give ints.",)),
    ("col('x').str.contains(3)", ("col('x').str.contains gets 3. Give it a text.",)),
    ("col('x').str.extract('a(b)', 2)", ("names a group of a pattern that has 1 group",)),
    ("col('x').str.replace('(a)' * 12, '$10')", ("names group 10. Name one of the first nine.",)),
    ("col('x').dt.truncate('1x')", ("gets no length of time",)),
    ("col('x').dt.truncate('1mo1d')", ("gets no length of time", "several of the same kind")),
    ("col('x').dt.epoch('h')", ("gets no unit. Give one of s, ms, us, ns, d.",)),
    ("coalesce()", ("coalesce() gets nothing",)),
    ("col('x') + arrow", ("is an expression of pyarrow, which does not mix with those of clonos",)),
    ("col('x') + theirs", ("is an expression of polars, which does not mix with those of clonos",)),
]


@pytest.mark.parametrize(("code", "sentences"), MISUSES, ids=[code for code, _ in MISUSES])
def test_misuse_gets_one_sentence(code: str, sentences: tuple[str, ...]) -> None:
    names = {**FUNCTIONS, "arrow": compute.field("y"), "theirs": polars.col("y")}
    with pytest.raises(ExpressionMisused) as raised:
        eval(code, names)  # noqa: S307  the code of the test itself
    assert [each for each in sentences if each not in str(raised.value)] == [], str(raised.value)


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("col('x').sum()", "An expression computes each record alone"),
        ("col('x').over('y')", "An expression computes each record alone"),
        ("col('x').isnull()", "Use is_null()"),
        ("col('x').startswith('a')", 'Use .str.starts_with("...")'),
        ("col('x').str.len()", "Use len_chars()"),
        ("col('x').str.split(',')", "Columns of lists are not supported"),
        ("col('x').dt.yaer()", "Did you mean year?"),
        ("col('x').fill_nul(1)", "Did you mean fill_null?"),
    ],
)
def test_a_method_that_is_missing_is_named_with_what_to_use(code: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=r"an expression has no|Namespace has no") as raised:
        eval(code, dict(FUNCTIONS))  # noqa: S307  the code of the test itself
    assert hint in str(raised.value)


@pytest.mark.slow
def test_an_expression_is_written_without_pyarrow() -> None:
    code = """
import sys
from clonos import Job, col, when
when(col("a").str.contains("x") & (col("at").dt.year() > 2000)).then(1).otherwise(col("b").cast("int32"))
assert "pyarrow" not in sys.modules and "numpy" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=scaled(60)).returncode == 0
