"""Programs: what several steps compute is computed once, over any types of Arrow, and what they refuse."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import hypothesis
import polars
import pyarrow
import pyarrow.compute as compute
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from clonos import Expr, col, concat_str, lit, when
from clonos.expressions.expression_errors import InvalidExpression, NotComputable
from clonos.expressions.foreign import as_foreign
from clonos.expressions.functions.binder import FilterCall
from clonos.expressions.functions.constants import arrow_array, arrow_scalar
from clonos.expressions.functions.value_types import literal_type
from clonos.expressions.program import Program
from clonos.expressions.stages import Stage
from tests.unit.values.samples import printed_by


def select(**columns: Expr) -> Stage:
    """Returns a step that gives these columns."""
    return Stage("select", "select", tuple(columns.items()))


def where(condition: Expr) -> Stage:
    """Returns a filter."""
    return Stage("filter", "filter", (("condition", condition),))


def add(**columns: Expr) -> Stage:
    """Returns a step that adds these columns."""
    return Stage("add", "with_columns", tuple(columns.items()))


def computed(expression: Expr, *arrays: Any) -> Any:
    """Returns a column that is computed from the columns a, b, c."""
    batch = pyarrow.RecordBatch.from_arrays(list(arrays), names=list("abc"[: len(arrays)]))
    result = Program([select(r=expression)], batch.schema).run(batch)
    assert result is not None
    return result.column(0)


def refused(expression: Expr, *types: Any) -> str:
    """Returns why an expression over columns of these types is refused."""
    schema = pyarrow.schema(list(zip("abc", types, strict=False)))
    with pytest.raises(InvalidExpression) as raised:
        Program([select(r=expression)], schema)
    return raised.value.problem


NUMBERS = pyarrow.schema({"n": pyarrow.int64(), "x": pyarrow.float64(), "s": pyarrow.string()})


def texts_of(program: Program) -> list[str]:
    """Returns the expressions that a program computes, in order, with "filter" for filters."""
    return ["filter" if isinstance(call, FilterCall) else call.text for call in program.calls]


def test_an_expression_of_several_steps_is_computed_once() -> None:
    double = col("n") * 2
    program = Program(
        [add(a=double + 1, b=double + 2), where(double > 6), add(c=double, d=(col("n") * 2 > 6))], NUMBERS
    )
    assert texts_of(program) == [
        "col('n') * 2",
        "col('n') * 2 + 1",
        "col('n') * 2 + 2",
        "col('n') * 2 > 6",
        "filter",
    ]
    batch = pyarrow.RecordBatch.from_pydict({"n": [3, 4], "x": [0.5, 1.5], "s": ["a", "b"]}, schema=NUMBERS)
    result = program.run(batch)
    assert result is not None
    assert result.to_pylist() == [{"n": 4, "x": 1.5, "s": "b", "a": 9, "b": 10, "c": 8, "d": True}]


def test_a_filter_copies_only_columns_that_are_read_after_it() -> None:
    program = Program([where(col("n") > 1), select(r=col("x") + 1, t=lit("c")), where(col("r") > 2)], NUMBERS)
    pairs = [len(call.pairs) for call in program.calls if isinstance(call, FilterCall)]
    assert pairs == [1, 1]
    batch = pyarrow.RecordBatch.from_pydict({"n": [1, 2, 3], "x": [5.0, 0.5, 1.5], "s": ["", "", ""]}, schema=NUMBERS)
    result = program.run(batch)
    assert result is not None
    assert result.to_pylist() == [{"r": 2.5, "t": "c"}]


def test_constants_are_computed_when_the_program_is_made() -> None:
    program = Program([select(r=lit(2) * 3 + 1, t=when(lit(True)).then(lit("x")))], NUMBERS)
    assert program.calls == []


def test_a_filter_by_a_constant_leaves_all_records_or_none() -> None:
    batch = pyarrow.RecordBatch.from_pydict({"n": [1, 2], "x": [5.0, 0.5], "s": ["", None]}, schema=NUMBERS)
    assert Program([where(lit(True))], NUMBERS).run(batch) == batch
    for condition in (lit(False), lit(None), col("s") == lit(None)):
        assert Program([where(condition)], NUMBERS).run(batch) is None


def test_dictionaries_views_and_structs_are_taken() -> None:
    words = pyarrow.array(["a", "b", None, "a"]).dictionary_encode()
    assert computed(col("a").str.to_uppercase(), words).to_pylist() == ["A", "B", None, "A"]
    assert computed(col("a") == "a", words).to_pylist() == [True, False, None, True]
    assert computed(col("a"), words).type == words.type
    views = pyarrow.array(["a", "b"], pyarrow.string_view())
    assert computed(col("a") + "x", views).to_pylist() == ["ax", "bx"]
    bids = pyarrow.array([{"price": 3, "item": {"name": "x"}}, None])
    assert computed(col("a").struct.field("price") + 1, bids).to_pylist() == [4, None]
    assert computed(col("a").struct.field("item").struct.field("name"), bids).to_pylist() == ["x", None]
    assert refused(col("a").struct.field("prize"), bids.type) == (
        "the struct has no field 'prize'; it has price, item. Did you mean price?"
    )


def test_a_column_of_nulls_fits_every_function() -> None:
    nothing = pyarrow.nulls(2)
    assert computed(col("a") + 1, nothing).to_pylist() == [None, None]
    assert computed(col("a").str.len_chars(), nothing).to_pylist() == [None, None]
    assert computed(col("a") & True, nothing).to_pylist() == [None, None]
    assert computed((col("a") > 1) | True, nothing).to_pylist() == [True, True]
    assert computed(col("a").fill_null(3), nothing).to_pylist() == [3, 3]
    assert computed(col("a").cast("int32"), nothing).type == pyarrow.int32()


def test_decimals_keep_their_digits() -> None:
    prices = pyarrow.array([Decimal("1.50"), None, Decimal("-2.25")])
    assert computed(col("a") * Decimal("0.908"), prices).to_pylist() == [Decimal("1.36200"), None, Decimal("-2.04300")]
    assert computed(col("a") + 1, prices).to_pylist() == [Decimal("2.50"), None, Decimal("-1.25")]
    assert computed(col("a") * 0.5, prices).to_pylist() == [0.75, None, -1.125]
    assert computed(col("a") > 1, prices).to_pylist() == [True, None, False]
    assert computed(col("a").cast(int), prices).to_pylist() == [1, None, -2]
    assert computed(col("a").round(1), prices).to_pylist() == [Decimal("1.50"), None, Decimal("-2.20")]
    assert "more than 38 digits" in refused(col("a") * col("b"), pyarrow.decimal128(38, 2), pyarrow.decimal128(38, 2))
    assert "// is not defined for decimals" in refused(col("a") // 2, prices.type)


def test_unsigned_and_signed_integers_compare_and_have_no_sum() -> None:
    unsigned, signed = pyarrow.array([1 << 63, 0], pyarrow.uint64()), pyarrow.array([-1, 0])
    assert computed(col("a") > col("b"), unsigned, signed).to_pylist() == [True, False]
    assert computed(col("a") > -1, unsigned).to_pylist() == [True, True]
    assert computed(col("a") == (1 << 63), unsigned).to_pylist() == [True, False]
    assert refused(col("a") + col("b"), unsigned.type, signed.type) == (
        "uint64 and int64 have no common type: cast one of them"
    )


def test_times_of_zones_and_units_compare_as_instants() -> None:
    instant = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    coarse = pyarrow.array([instant], pyarrow.timestamp("s", "Europe/Berlin"))
    fine = pyarrow.array([instant + timedelta(milliseconds=1)], pyarrow.timestamp("ms", "UTC"))
    assert computed(col("a") < col("b"), coarse, fine).to_pylist() == [True]
    assert computed(col("a") == instant, coarse).to_pylist() == [True]
    assert computed(col("a").is_in([instant]), coarse).to_pylist() == [True]
    assert "one has a time zone" in refused(col("a") > datetime(2026, 1, 1), coarse.type)
    assert "cast the text, or give a datetime" in refused(col("a") > "2026-01-01", coarse.type)
    naive = pyarrow.array([datetime(2026, 1, 2)], pyarrow.timestamp("us"))
    assert computed(col("a") > date(2026, 1, 1), naive).to_pylist() == [True]
    assert computed(col("a") - date(2026, 1, 1), naive).to_pylist() == [timedelta(days=1)]


@pytest.mark.parametrize("every", ["30m", "1h", "1d", "1mo"])
def test_intervals_follow_the_clock_of_a_zone(every: str) -> None:
    night = [datetime(2026, 10, 24, 20, tzinfo=UTC) + timedelta(minutes=15 * index) for index in range(40)]
    times = pyarrow.array(night, pyarrow.timestamp("us", "Europe/Berlin"))
    frame = polars.DataFrame({"a": times})
    wanted = frame.select(polars.col("a").dt.truncate(every).dt.epoch("us"))["a"].to_list()
    assert computed(col("a").dt.truncate(every).dt.epoch(), times).to_pylist() == wanted


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_clocks_of_a_zone_are_right_in_years_after_its_tables(unit: str) -> None:
    """In 2040 Berlin has summer time by a rule. Arrow knew none, and gave hours of winter time."""
    summer = [datetime(2040, 7, 1, 22, 30, tzinfo=UTC), None, datetime(2040, 1, 31, 23, 5, tzinfo=UTC)]
    times = pyarrow.array(summer, pyarrow.timestamp(unit, "Europe/Berlin"))
    for column in (times, times.slice(1)):
        wanted = [each and each.astimezone(ZoneInfo("Europe/Berlin")) for each in column.to_pylist()]
        assert computed(col("a").dt.hour(), column).to_pylist() == [each and each.hour for each in wanted]
        assert computed(col("a").dt.day(), column).to_pylist() == [each and each.day for each in wanted]
        assert computed(col("a").dt.weekday(), column).to_pylist() == [each and each.isoweekday() for each in wanted]
        assert computed(col("a").dt.date(), column).to_pylist() == [each and each.date() for each in wanted]
        days = [each and each.replace(hour=0, minute=0) for each in wanted]
        assert computed(col("a").dt.truncate("1d"), column).to_pylist() == days
        hours = [each and each.replace(minute=0) for each in wanted]
        assert computed(col("a").dt.truncate("1h"), column).to_pylist() == hours


@pytest.mark.parametrize("year", [2024, 2040])
def test_a_day_without_a_midnight_begins_when_the_clocks_were_set_forward(year: int) -> None:
    """In Cairo the last Friday of April begins at 1 o'clock. Arrow's earliest reading is the end of Thursday."""
    cairo, day = ZoneInfo("Africa/Cairo"), {2024: 26, 2040: 27}[year]
    times = pyarrow.array([datetime(year, 4, day, 9, tzinfo=cairo)], pyarrow.timestamp("us", "Africa/Cairo"))
    assert computed(col("a").dt.truncate("1d"), times).to_pylist() == [datetime(year, 4, day, 1, tzinfo=cairo)]


TEXTS = ["12", "+3", "-0", "007", " 3", "3 ", "1.5", "1e3", "", "x", "0x10", "1_0", "inf", "-NaN", "9" * 30, "٣", None]


@pytest.mark.parametrize("kind", [int, float])
def test_a_text_becomes_a_number_or_null_as_in_polars(kind: type) -> None:
    texts = pyarrow.array(TEXTS)
    wanted = polars.DataFrame({"a": TEXTS}).select(polars.col("a").cast(kind, strict=False))["a"].to_list()
    assert repr(computed(col("a").cast(kind, strict=False), texts).to_pylist()) == repr(wanted)
    for text, number in zip(TEXTS, wanted, strict=True):
        if text is not None and number is None:
            with pytest.raises(NotComputable, match="is no "):
                computed(col("a").cast(kind), pyarrow.array([text]))
        else:
            assert repr(computed(col("a").cast(kind), pyarrow.array([text], pyarrow.string()))[0].as_py()) == repr(
                number
            )


def test_a_number_that_does_not_fit_fails_or_is_null() -> None:
    for value, given, wanted in (
        (300, "int64", "uint8"),
        (-1, "int64", "uint64"),
        (float("nan"), "double", "int64"),
        (1e20, "double", "int64"),
        (2.0**63, "double", "int64"),
    ):
        number = pyarrow.array([value, 7], given)
        assert computed(col("a").cast(wanted, strict=False), number).to_pylist() == [None, 7]
        with pytest.raises(NotComputable, match=rf"col\('a'\)\.cast\('?{'int' if wanted == 'int64' else wanted}'?\): "):
            computed(col("a").cast(wanted), number)
    assert computed(col("a").cast(int), pyarrow.array([1.9, -1.9])).to_pylist() == [1, -1]


def test_texts_in_iso_8601_become_times() -> None:
    texts = pyarrow.array(["2026-01-02T03:04:05Z", None])
    assert computed(col("a").cast(datetime), texts).to_pylist() == [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), None]
    assert computed(col("a").cast(date), pyarrow.array(["2026-01-02"])).to_pylist() == [date(2026, 1, 2)]
    with pytest.raises(NotComputable, match=r"'yesterday' is no date32\[day\]"):
        computed(col("a").cast(date), pyarrow.array(["yesterday"]))


def test_text_and_numbers_are_not_mixed_silently() -> None:
    text, number, flag = pyarrow.string(), pyarrow.int64(), pyarrow.bool_()
    assert "join texts with concat_str" in refused(col("a") + col("b"), text, number)
    assert "a bool is no number" in refused(col("a") + 1, flag)
    assert "have no common type" in refused(when(col("a")).then(col("b")).otherwise(lit("x")), flag, number)
    assert "have no common type" in refused(col("a").fill_null("x"), number)
    assert "have no common type" in refused(col("a") > 1, flag)
    assert "it needs a condition and gets int64" in refused(col("a") & True, number)
    assert computed(concat_str("a", "b"), pyarrow.array([1]), pyarrow.array([True])).to_pylist() == ["1true"]


def test_groups_of_patterns_are_found_after_escapes_and_classes() -> None:
    texts = pyarrow.array(["(a)[b]c-9"])
    assert computed(col("a").str.extract(r"\((\w)\)[[(\]]+(?:b)(?P<rest>.*)", 2), texts).to_pylist() == ["]c-9"]
    assert computed(col("a").str.replace(r"\((\w)\)", r"$1\$$${1}$9"), texts).to_pylist() == [r"a\$a[b]c-9"]
    assert computed(col("a").str.replace(r"(?P<x>\w)", "<${x}>"), texts).to_pylist() == ["(<a>)[b]c-9"]


def test_two_columns_of_one_name_are_refused() -> None:
    schema = pyarrow.schema([("a", pyarrow.int64()), ("a", pyarrow.int64())])
    with pytest.raises(InvalidExpression, match="two columns have the name 'a'"):
        Program([select(r=col("a"))], schema)


def foreign(expression: Any) -> Expr:
    """Returns an expression of another library as a part of a step."""
    found = as_foreign(expression)
    assert found is not None
    return found


def test_expressions_of_other_libraries_know_their_columns_and_names() -> None:
    arrow = foreign((compute.field("x") > 1) & compute.field("p", "q").is_valid() & (compute.field("it's y") == 2))
    assert arrow.columns() == {"x", "p", "it's y"}
    assert foreign(compute.field("x")).output_name() == "x"
    theirs = foreign((polars.col("a") + polars.col("b")).alias("c"))
    assert (theirs.columns(), theirs.output_name()) == ({"a", "b"}, "c")
    numbers = pyarrow.array([1, 2, None])
    assert computed(foreign(polars.col("a") * 2), numbers).to_pylist() == [2, 4, None]
    assert computed(foreign(compute.field("a") * 2), numbers).to_pylist() == [2, 4, None]
    words = pyarrow.array(["x", None])
    assert computed(foreign(polars.col("a").str.to_uppercase()), words).type == pyarrow.string()
    assert "there is no column 'b'" in refused(foreign(polars.col("b") * 2), pyarrow.int64())
    assert refused(foreign(compute.field("a").is_nan()), pyarrow.string())


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (polars.col("a").sum(), "computes a record from other records too"),
        (polars.col("a").cum_sum(), "computes a record from other records too"),
        (polars.col("a").sort(), "computes a record from other records too"),
        (polars.col("a", "b"), "gives several columns"),
        (polars.lit(3), "reads no column"),
    ],
    ids=["sum", "cum_sum", "sort", "several", "constant"],
)
def test_an_expression_that_depends_on_cuts_of_batches_is_refused(expression: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        as_foreign(expression)


def test_a_foreign_expression_that_fails_fails_for_its_record() -> None:
    with pytest.raises(NotComputable):
        computed(foreign(polars.col("a").cast(polars.Int64)), pyarrow.array(["x"]))


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (-(1 << 63), pyarrow.int64()),
        (1 << 63, pyarrow.uint64()),
        (-3, pyarrow.int8()),
        (200, pyarrow.uint8()),
        (-0.0, pyarrow.float64()),
        (float("nan"), pyarrow.float64()),
        (True, pyarrow.bool_()),
        (False, pyarrow.bool_()),
        ("", pyarrow.string()),
        ("äß", pyarrow.string()),
        (3, pyarrow.float64()),
        ("a", pyarrow.large_string()),
        (Decimal("0.908"), pyarrow.decimal128(3, 3)),
        (Decimal("-3.5"), pyarrow.decimal128(9, 4)),
        (Decimal("1E+3"), pyarrow.decimal128(4, 0)),
        (Decimal("9" * 38), pyarrow.decimal128(38, 0)),
        (Decimal("-0.00"), pyarrow.decimal128(2, 2)),
        (Decimal("3"), pyarrow.decimal256(3, 0)),
        (None, pyarrow.int32()),
        (None, pyarrow.string()),
        (None, pyarrow.null()),
        (date(2026, 1, 1), pyarrow.date32()),
    ],
)
def test_a_constant_is_the_scalar_that_arrow_makes(value: Any, type_: Any) -> None:
    found, wanted = arrow_scalar(value, type_), pyarrow.scalar(value, type_)
    assert (type(found), found.type, repr(found)) == (type(wanted), wanted.type, repr(wanted))
    assert math.isnan(wanted.as_py()) if value != value else found.equals(wanted)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (200, pyarrow.int8()),
        (-1, pyarrow.uint64()),
        ("\ud800", pyarrow.string()),
        (Decimal("100"), pyarrow.decimal128(2, 0)),
        (Decimal("0.001"), pyarrow.decimal128(5, 2)),
        (Decimal("nan"), pyarrow.decimal128(5, 2)),
    ],
)
def test_a_constant_that_does_not_fit_its_type_is_refused_as_arrow_does(value: Any, type_: Any) -> None:
    with pytest.raises((pyarrow.ArrowException, OverflowError, UnicodeError)) as wanted:
        pyarrow.scalar(value, type_)
    with pytest.raises(wanted.type):
        arrow_scalar(value, type_)


@pytest.mark.parametrize(
    "text", ["0.908", "1", "-3.50", "1E+3", "0E+2", "0E-5", "-0.00", "1E-3", "9" * 38, "9" * 39, "1E-40"]
)
def test_the_type_of_a_decimal_is_that_of_arrow(text: str) -> None:
    assert literal_type(Decimal(text)) == pyarrow.scalar(Decimal(text)).type


VALUES_OF_TYPES = [
    ([1, 2, -3], pyarrow.int64()),
    ([1, 300], pyarrow.int32()),
    (["", "x", "ä€", "yz"], pyarrow.string()),
    (["x", ""], pyarrow.large_string()),
    ([1.5, -0.0], pyarrow.float64()),
    ([True, False, True], pyarrow.bool_()),
    ([Decimal("1.50"), Decimal("-2")], pyarrow.decimal128(5, 2)),
    ([datetime(2020, 1, 2, tzinfo=UTC)], pyarrow.timestamp("ms", "UTC")),
    ([], pyarrow.int64()),
    ([], pyarrow.string()),
]


@pytest.mark.parametrize(("values", "type_"), VALUES_OF_TYPES)
def test_an_array_of_constants_is_that_of_arrow(values: list[Any], type_: Any) -> None:
    found = arrow_array(values, type_)
    found.validate(full=True)
    assert found.equals(pyarrow.array(values, type_))


def test_compiling_constants_and_empty_results_imports_no_pandas() -> None:
    program = (
        "import sys, pyarrow; from decimal import Decimal; from clonos import col, concat_str, lit, when;"
        "from clonos.expressions.stages import Stage;"
        "from clonos.expressions.program import schema_after;"
        "kind = when(col('n') % 3 == 0).then(lit('a')).otherwise(lit('b'));"
        "stages = [Stage('f', 'filter', (('c', (col('n') > 1) & col('t').str.starts_with('x')),)),"
        " Stage('g', 'filter', (('c', col('n').is_in([1, 2, 3]) | col('t').is_in(['x', 'yz'])),)),"
        " Stage('s', 'select', (('kind', kind), ('half', col('n') * 0.5),"
        " ('rated', lit(Decimal('0.908')) * col('n')), ('some', when(col('n') > 1).then(col('n'))),"
        " ('text', concat_str(col('t'), lit(':'), col('t')))))];"
        "print(schema_after(stages, pyarrow.schema({'n': pyarrow.int64(), 't': pyarrow.string()})).names,"
        " 'pandas' in sys.modules)"
    )
    assert printed_by(program) == "['kind', 'half', 'rated', 'some', 'text'] False"


def test_a_negative_zero_is_in_a_list_with_zero() -> None:
    zeros = pyarrow.array([-0.0, 0.0, 1.0, None])
    for wanted in (0.0, -0.0):
        assert computed(col("a").is_in([wanted]), zeros).to_pylist() == [True, True, False, None]


EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "negate": lambda left, _: -left,
    "abs": lambda left, _: abs(left),
    "**": lambda left, _: left**3,
}


@hypothesis.given(
    st.sampled_from([pyarrow.int8(), pyarrow.uint8(), pyarrow.int32(), pyarrow.int64(), pyarrow.uint64()]),
    st.sampled_from(list(EXACT)),
    st.data(),
)
def test_an_integer_is_exact_or_an_error_of_its_record(type_: Any, function: str, data: st.DataObject) -> None:
    bits, is_signed = type_.bit_width, str(type_).startswith("int")
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    numbers = (
        st.sampled_from((low, high, -1 if is_signed else 1)) | st.integers(low, high) | st.integers(max(low, -9), 9)
    )
    left, right = data.draw(numbers), data.draw(numbers)
    assume(function != "//" or right)
    assume(function != "negate" or is_signed)
    arrays = [pyarrow.array([each], type_) for each in (left, right)]
    exact, expression = (EXACT[function](*pair) for pair in ((left, right), (col("a"), col("b"))))
    if low <= exact <= high:
        assert computed(expression, *arrays).to_pylist() == [exact]
    else:
        with pytest.raises(NotComputable, match=f"a result does not fit {type_}; cast a part to a larger type"):
            computed(expression, *arrays)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (col("a") + timedelta(days=1), pyarrow.scalar(2**63 - 1, pyarrow.timestamp("us"))),
        (col("a") * 3, pyarrow.scalar(2**62, pyarrow.duration("us"))),
        (-col("a"), pyarrow.scalar(-(2**63), pyarrow.duration("us"))),
        (col("a").cast(pyarrow.duration("ns")), pyarrow.scalar(2**62, pyarrow.duration("us"))),
        (col("a").dt.epoch("ns"), pyarrow.scalar(2**62, pyarrow.timestamp("us"))),
        (col("a").dt.epoch("ns"), pyarrow.scalar(10**6, pyarrow.date32())),
        (col("a").cast(pyarrow.timestamp("ns")), pyarrow.scalar(2**62, pyarrow.timestamp("us"))),
        (col("a").cast("float32"), pyarrow.scalar(1e300)),
    ],
)
def test_times_and_floats_that_do_not_fit_are_errors_of_their_records(expression: Expr, value: Any) -> None:
    with pytest.raises(NotComputable):
        computed(expression, pyarrow.array([value.as_py() if value.type == "double" else value.value], value.type))


def test_times_of_two_units_that_do_not_fit_the_finer_one_are_errors_of_their_records() -> None:
    coarse, fine = pyarrow.array([2**62], pyarrow.timestamp("us")), pyarrow.array([1], pyarrow.timestamp("ns"))
    with pytest.raises(NotComputable):
        computed(col("a") == col("b"), coarse, fine)


BIG = 1 << 62
GUARDED = {
    "a sum": (when(col("a") < 10).then(col("a") * BIG).otherwise(col("a")), [1, 20, None, 0], [BIG, 20, None, 0]),
    "otherwise": (when(col("a") > 9).then(col("a")).otherwise(col("a") * BIG), [1, 20, 0], [BIG, 20, 0]),
    "both": (when(col("a") > 9).then(col("a") - BIG).otherwise(col("a") * BIG), [1, 20, 0], [BIG, 20 - BIG, 0]),
    "one in another": (
        when(col("a") < 100).then(when(col("a") < 2).then(col("a") * BIG).otherwise(-col("a"))).otherwise(0),
        [1, 20, 100, -BIG * 2],
        None,
    ),
    "two steps before": (when(col("a") < 2).then((col("a") * BIG + 1).abs() - 1).otherwise(7), [1, 2, 3], [BIG, 7, 7]),
    "a number for none": (when(col("a") < 0).then(col("a") * BIG).otherwise(lit(3)), [4, 5], [3, 3]),
    "a constant": (when(lit(False)).then(col("a") * BIG).otherwise(col("a")), [4, 5], [4, 5]),
}


@pytest.mark.parametrize("name", GUARDED)
def test_a_branch_of_when_is_an_error_for_no_record_that_does_not_choose_it(name: str) -> None:
    expression, given, expected = GUARDED[name]
    values = pyarrow.array(given, pyarrow.int64())
    if expected is None:
        with pytest.raises(NotComputable):
            computed(expression, values)
        values, expected = values[:3], [BIG, -20, 0]
    assert computed(expression, values).to_pylist() == expected


def test_a_branch_of_when_is_an_error_for_a_record_that_chooses_it_and_where_it_is_read_besides() -> None:
    values = pyarrow.array([1, 2], pyarrow.int64())
    large = col("a") * BIG
    for step in (
        select(r=when(col("a") < 9).then(large).otherwise(0)),
        select(r=when(col("a") < 2).then(large), s=large),
    ):
        with pytest.raises(NotComputable, match="fit"):
            Program([step], pyarrow.schema({"a": pyarrow.int64()})).run(
                pyarrow.RecordBatch.from_arrays([values], ["a"])
            )


def test_an_unread_column_is_an_error_where_it_cannot_be_computed() -> None:
    stages = [add(r=col("a") * BIG), select(s=when(col("a") < 2).then(col("a")).otherwise(0))]
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.array([1, 2], pyarrow.int64())], ["a"])
    with pytest.raises(NotComputable):
        Program(stages, batch.schema).run(batch)
