"""Rows become arrays of Arrow exactly, or the first value that does not fit is named."""

import datetime as dt
import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import files
from clonos.connectors.columns.exact_arrays import Inexact, exact_array, inferred_type
from clonos.connectors.connector_errors import RowNotWritable
from clonos.core.values.column_rows import rows_of_columns
from tests.unit.connectors.writing import JOB, part_of, writer_of

BERLIN = ZoneInfo("Europe/Berlin")
SECOND_HALF_PAST_TWO = dt.datetime(2020, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)

KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(),
    "bool": st.booleans(),
    "str": st.text(),
    "bytes": st.binary(),
    "date": st.dates(),
    "datetime": st.datetimes(),
    "instant": st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29), timezones=st.just(BERLIN)),
    "time": st.times(),
    "timedelta": st.timedeltas(dt.timedelta(days=-(10**8)), dt.timedelta(days=10**8)),
    "decimal": st.decimals(-(10**12), 10**12, places=3),
}


def nested(kind: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(st.none() | kind, max_size=4),
        st.lists(st.none() | st.lists(kind, max_size=3), max_size=4),
        st.lists(
            st.none() | st.fixed_dictionaries({"a": st.none() | kind, "b": st.lists(kind, max_size=2)}), max_size=4
        ),
    )


def is_same(one: Any, other: Any) -> bool:
    """Equal, of one type, and with instants and signs compared."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or bool(
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, dt.datetime) and one.tzinfo is not None and other.tzinfo is not None:
        return bool(one.astimezone(dt.UTC) == other.astimezone(dt.UTC))
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    return bool(one == other)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_values_of_one_kind_come_out_of_their_array_as_they_went_in(kind: str, data: st.DataObject) -> None:
    values = data.draw(nested(KINDS[kind]))
    array = exact_array(values)
    array.validate(full=True)
    assert is_same(array.to_pylist(), values)


TYPES = [
    pyarrow.int8(),
    pyarrow.uint8(),
    pyarrow.int64(),
    pyarrow.uint64(),
    pyarrow.float64(),
    pyarrow.bool_(),
    pyarrow.string(),
    pyarrow.large_string(),
    pyarrow.binary(),
    pyarrow.binary(2),
    pyarrow.date32(),
    pyarrow.date64(),
    pyarrow.timestamp("s"),
    pyarrow.timestamp("ms"),
    pyarrow.timestamp("us"),
    pyarrow.timestamp("us", "UTC"),
    pyarrow.time32("s"),
    pyarrow.time64("us"),
    pyarrow.duration("ms"),
    pyarrow.decimal128(5, 2),
    pyarrow.decimal256(40, 3),
    pyarrow.list_(pyarrow.int8()),
    pyarrow.list_(pyarrow.float32(), 1),
    pyarrow.struct([("a", pyarrow.int8())]),
    pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    pyarrow.null(),
    pyarrow.map_(pyarrow.string(), pyarrow.int8()),
]
ENDS = [
    *(0, 1, -1, 127, 128, 255, 256, -129, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**40),
    *(0.0, -0.0, 1.0, 1.5, 1e300, 5e-324, math.inf, math.nan),
    *(True, False, "", "x", "ß\0\n", "\ud800", b"", b"ab", b"\xff"),
    *(
        Decimal(1),
        Decimal("1.5"),
        Decimal("1.555"),
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("1e60"),
        Decimal("1e-60"),
    ),
    *(dt.date.min, dt.date.max, dt.datetime.min, dt.datetime.max, dt.datetime(2020, 1, 1, 23, 5)),
    *(SECOND_HALF_PAST_TWO, dt.datetime.max.replace(tzinfo=BERLIN), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
    *(
        dt.time.min,
        dt.time.max,
        dt.time(1, 2, tzinfo=dt.UTC),
        dt.timedelta.max,
        dt.timedelta.min,
        dt.timedelta(seconds=1),
    ),
    *([], [1], [1.5], [True], {}, {"a": 1}, {"a": 300}, {"b": 1}),
]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_type_holds_each_value_of_every_kind_exactly_or_refuses_it(type_: Any) -> None:
    taken = 0
    for value in ENDS:
        try:
            (held,) = exact_array([value], type_).to_pylist()
        except Inexact:
            continue
        taken += 1
        held = dict(held) if isinstance(value, dict) and isinstance(held, list) else held
        is_bool = isinstance(value, bool) == isinstance(held, bool)
        is_day = isinstance(value, dt.datetime) == isinstance(held, dt.datetime)
        if isinstance(value, dict):
            value = {field: value.get(field) for field in held}
        assert is_same(held, value) or (is_bool and is_day and held == value), (value, held)
    assert taken or type_ == pyarrow.null()


def test_floats_of_fewer_bits_are_rounded_because_the_schema_asks_for_them_but_never_to_infinity_or_zero() -> None:
    assert exact_array([0.1], pyarrow.float32()).to_pylist() == [pytest.approx(0.1, rel=1e-7)]
    for value in (1e300, 1e-300, 2**24 + 1):
        with pytest.raises(Inexact, match="float does not hold"):
            exact_array([1.5, value], pyarrow.float32())


def test_vectors_of_a_fixed_size_are_held_as_lists_of_any_size_are() -> None:
    vectors = [[0.1, -0.0], None, [math.nan, 3]]
    fixed = exact_array(vectors, pyarrow.list_(pyarrow.float32(), 2))
    fixed.validate(full=True)
    assert is_same(str(fixed.to_pylist()), str(exact_array(vectors, pyarrow.list_(pyarrow.float32())).to_pylist()))
    for vector in ([1.0], [1.0, 2.0, 3.0], [1.0, 1e300], (1.0, 2.0)):
        with pytest.raises(Inexact, match="does not hold") as refused:
            exact_array([None, vectors[0], vector], pyarrow.list_(pyarrow.float32(), 2))
        assert refused.value.index == 2


@pytest.mark.parametrize(
    ("values", "index", "reason"),
    [
        (
            [dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 5)],
            1,
            "the datetime 2020-01-01T05:00:00 does not go with the date",
        ),
        ([2.5, True], 1, "the bool True does not go with the float 2.5"),
        ([1, True], 1, "the bool True does not go with the int 1"),
        ([None, "x", b"\xff"], 2, "the bytes .* does not go with the str 'x'"),
        ([SECOND_HALF_PAST_TWO, dt.datetime(2020, 1, 1)], 1, "a datetime with a zone does not go with one without"),
        ([[1], [2, "x"]], 1, "the str 'x' does not go with the int 1"),
        ([{"a": {"b": 1}}, {"a": {"b": "x"}}], 1, "in the field 'a', in the field 'b', the str 'x' does not go with"),
        ([1.5, 2**53 + 1], 1, "double does not hold the int 9007199254740993"),
        ([dt.time(1, tzinfo=dt.UTC)], 0, "does not hold the time"),
    ],
)
def test_values_that_do_not_go_together_are_refused_by_the_first_that_does_not(
    values: list[Any], index: int, reason: str
) -> None:
    with pytest.raises(Inexact, match=reason) as refused:
        exact_array(values)
    assert refused.value.index == index


def test_local_times_of_one_zone_keep_their_instants_when_clocks_repeat() -> None:
    first = SECOND_HALF_PAST_TWO.replace(fold=0)
    assert [value.fold for value in exact_array([first, SECOND_HALF_PAST_TWO]).to_pylist()] == [0, 1]


@pytest.mark.parametrize("sink", [files.parquet, files.arrow])
def test_later_batches_widen_the_columns_of_a_part_or_are_refused_and_leave_it_as_it_was(
    tmp_path: Path, sink: Any
) -> None:
    out = sink(tmp_path / "out")
    out.prepare_output(JOB, resume=False, overwrite=False)
    writer = writer_of(out)
    writer.write([{"n": 1, "x": None}])
    writer.write([{"n": 2.5, "y": "text"}])
    for bad in ({"n": True}, {"n": 2**53 + 1}, {"n": 1, "x": "\ud800"}, {"n": 1, "z": 1j}):
        with pytest.raises(RowNotWritable):
            writer.write([bad])
    writer.write([{"n": 4, "x": Decimal("1.5")}])
    out.commit(JOB, 1, [writer.prepare(1) or b""])
    assert list(files.read_committed(tmp_path / "out")) == [
        {"n": 1.0, "x": None, "y": None},
        {"n": 2.5, "x": None, "y": "text"},
        {"n": 4.0, "x": Decimal("1.5"), "y": None},
    ]


def test_an_integer_that_waits_is_not_rounded_by_a_float_that_follows(tmp_path: Path) -> None:
    out = files.parquet(tmp_path / "out")
    out.prepare_output(JOB, resume=False, overwrite=False)
    writer = writer_of(out)
    writer.write([{"n": 2**53 + 1}])
    with pytest.raises(RowNotWritable, match=r"its n cannot be written: int64 does not hold the float 1.5"):
        writer.write([{"n": 1.5}])
    out.commit(JOB, 1, [writer.prepare(1) or b""])
    assert list(files.read_committed(tmp_path / "out")) == [{"n": 2**53 + 1}]


def test_a_part_all_of_whose_rows_were_refused_is_not_published(tmp_path: Path) -> None:
    out = files.parquet(tmp_path / "out", schema=pyarrow.schema([("n", pyarrow.int64())]))
    out.prepare_output(JOB, resume=False, overwrite=False)
    writer = writer_of(out)
    with pytest.raises(RowNotWritable):
        writer.write([{"n": 1.5}])
    assert writer.prepare(1) is None


@pytest.mark.parametrize(
    ("column", "type_"),
    [
        (pyarrow.array([1e300]), pyarrow.float32()),
        (pyarrow.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]), pyarrow.timestamp("us")),
        (pyarrow.array([dt.datetime(2020, 1, 1, 5)]), pyarrow.date32()),
        (pyarrow.array([1.5]), pyarrow.int64()),
    ],
    ids=str,
)
def test_columns_are_not_cut_to_a_given_schema(tmp_path: Path, column: Any, type_: Any) -> None:
    out = files.parquet(tmp_path / "out", schema=pyarrow.schema([("a", type_)]))
    out.prepare_output(JOB, resume=False, overwrite=False)
    with pytest.raises(RowNotWritable, match="its a, a "):
        writer_of(out).write_columns(pyarrow.record_batch({"a": column}))


@pytest.mark.slow
def test_rows_are_written_without_importing_pandas(tmp_path: Path) -> None:
    row = {
        "n": 1,
        "f": 0.5,
        "t": "x",
        "b": b"x",
        "l": [1],
        "d": {"a": dt.date(2020, 1, 1)},
        "at": dt.datetime(2020, 1, 1),
    }
    program = (
        "import datetime, sys; from pathlib import Path\n"
        "from clonos.connectors import files; from clonos.connectors.columns.parquet_rows import ParquetRows\n"
        "from clonos.connectors.filesystem.durable_files import DurableFile\n"
        f"part = ParquetRows(DurableFile.create_beside({str(tmp_path / 'p.parquet')!r}), None)\n"
        f"part.rows([{row!r}]); part.finish()\n"
        "print('pandas' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("False\n", "")


def test_the_rows_of_a_part_come_out_with_the_types_that_went_in(tmp_path: Path) -> None:
    rows = [{"at": SECOND_HALF_PAST_TWO, "n": -0.0, "d": dt.date.min, "day": dt.datetime.min, "x": [None, {"a": b""}]}]
    out = files.parquet(tmp_path / "out")
    out.prepare_output(JOB, resume=False, overwrite=False)
    out.commit(JOB, 1, [part_of(out, 1, rows)])
    (found,) = files.read_committed(tmp_path / "out")
    assert is_same(found, rows[0])
    assert rows_of_columns(pyarrow.record_batch([exact_array([1], inferred_type([1]))], names=["n"])) == [{"n": 1}]
