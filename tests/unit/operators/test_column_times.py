"""Timestamps of columns: those of their rows, with the same errors, for every type, null, unit and slice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy
import pandas
import pyarrow
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clonos.core.ports.operator_chain import StepFailed
from clonos.core.values.column_rows import NoPythonValue, rows_of_columns
from clonos.operators.event_time.column_times import time_array
from clonos.operators.event_time.local_times import Ambiguous, LocalTimes, NonExistent
from clonos.operators.event_time.timestamp_assigner import TimestampAssigner
from clonos.operators.event_time.timestamps import (
    NANOSECONDS_PER,
    NoTimestampColumn,
    TimestampColumn,
    TimestampError,
    Unit,
    event_time_ns,
)
from clonos.operators.event_time.watermark_strategies import (
    BoundedOutOfOrderness,
    PunctuatedWatermarks,
    WatermarkStrategy,
)
from clonos.operators.operator import Operator
from clonos.operators.user_errors import Guard, RoutedError
from tests.unit.operators.driver import START_NS, Clock
from tests.unit.values.samples import printed_by

NOW = START_NS // 1_000_000_000
UNITS = list(Unit)
BERLIN = LocalTimes("Europe/Berlin")

NUMBERS = [0, 1, -1, 7, 100, NOW, 999_999_999, 1_000_000_000, 4_102_444_799, 4_102_444_800]
EDGES = [number * factor + shift for number in NUMBERS for factor in NANOSECONDS_PER.values() for shift in (-1, 0, 1)]
INTS = st.sampled_from([*EDGES, (1 << 63) - 1, -(1 << 63), (1 << 63) // 1_000, 1 << 62]) | st.integers(
    -(1 << 63), (1 << 63) - 1
)
CHANGES = [1_774_746_000, 1_792_890_000]  # clocks of Berlin are set forward and back
INSTANTS = (
    st.sampled_from([0, NOW, -1, (1 << 63) // 1_000_000_000])
    | st.integers(-(1 << 33), 1 << 33)
    | st.builds(lambda change, shift: change + shift, st.sampled_from(CHANGES), st.integers(-7_300, 7_300))
)
LOCAL = st.none() | st.builds(
    LocalTimes,
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]),
    st.sampled_from(Ambiguous),
    st.sampled_from(NonExistent),
)
TEXTS = st.one_of(
    st.datetimes(datetime(1600, 1, 1), datetime(2300, 1, 1)).map(lambda time: time.replace(tzinfo=UTC).isoformat()),
    st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(lambda time: f"{time.isoformat(' ')}Z"),
    st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(lambda time: f"{time.isoformat()}-11:30"),
    st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(datetime.isoformat),
    st.datetimes(datetime(2026, 10, 25, 1), datetime(2026, 10, 25, 4)).map(datetime.isoformat),
    st.datetimes(datetime(2026, 3, 29, 1), datetime(2026, 3, 29, 4)).map(str),
    st.from_regex(
        r"20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?Z", fullmatch=True
    ),
    st.from_regex(
        r"[12][0-9]{3}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]:[0-5][0-9][+-][0-2][0-9]:[0-5][0-9]",
        fullmatch=True,
    ),
    st.sampled_from(
        [
            "",
            "1700000000",
            "2026-02-30T00:00:00Z",
            "2024-02-29T23:59:59.1Z",
            "20260101T000000Z",
            "2026-W01-1T00:00Z",
            "2026-01-01T00:00:00Z\n",
            "2026-01-01t00:00:00Z",
            "0000-01-01T00:00:00Z",
            "2026-01-01",
            "\uff12026-01-01T00:00:00Z",
        ]
    ),
)
FLOATS = st.one_of(
    st.floats(),
    st.floats(0.0, 5e9),
    st.sampled_from(EDGES).map(float),
    st.integers(0, 5_000_000_000_000).map(lambda milliseconds: milliseconds / 1_000),
)


def _instants(unit: str, zone: str | None) -> st.SearchStrategy[Any]:
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    numbers = INSTANTS.map(lambda seconds: seconds * per_second + seconds % per_second)
    kind = pyarrow.timestamp(unit, zone)
    return _arrays(numbers.filter(lambda number: abs(number) < 1 << 62), pyarrow.int64()).map(
        lambda column: column.cast(kind)
    )


def _arrays(values: st.SearchStrategy[Any], kind: Any) -> st.SearchStrategy[Any]:
    return st.lists(st.none() | values, max_size=8).map(lambda some: pyarrow.array(some, kind))


def _within(low: int, end: int) -> Callable[[int], bool]:
    return lambda number: low <= number < end


SIGNED = {pyarrow.int8(): 7, pyarrow.int16(): 15, pyarrow.int32(): 31, pyarrow.int64(): 63}
UNSIGNED = {pyarrow.uint8(): 8, pyarrow.uint16(): 16, pyarrow.uint32(): 32, pyarrow.uint64(): 64}

COLUMNS = st.one_of(
    *[_instants(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in ("UTC", "Europe/Berlin", "+02:00", None)],
    *[
        _arrays((INTS | st.integers(-(1 << bits), (1 << bits) - 1)).filter(_within(-(1 << bits), 1 << bits)), kind)
        for kind, bits in SIGNED.items()
    ],
    *[
        _arrays((INTS | st.integers(0, (1 << bits) - 1)).filter(_within(0, 1 << bits)), kind)
        for kind, bits in UNSIGNED.items()
    ],
    _arrays(FLOATS, pyarrow.float64()),
    _arrays(st.floats(width=32), pyarrow.float32()),
    _arrays(st.floats(width=16).map(numpy.float16), pyarrow.float16()),
    _arrays(TEXTS, pyarrow.string()),
    _arrays(TEXTS, pyarrow.large_string()),
    _arrays(TEXTS, pyarrow.string()).map(lambda column: column.dictionary_encode()),
    _arrays(INTS, pyarrow.int64()).map(lambda column: column.dictionary_encode()),
    _arrays(st.booleans(), pyarrow.bool_()),
    _arrays(st.dates(), pyarrow.date32()),
    _arrays(st.dates(date(1970, 1, 1)), pyarrow.date64()),
    _arrays(st.decimals(0, 10**10, places=2), pyarrow.decimal128(20, 2)),
    _arrays(st.timedeltas(timedelta(0), timedelta(days=1)), pyarrow.duration("us")),
    _arrays(st.nothing(), pyarrow.null()),
    _arrays(st.lists(st.integers(0, 9)), pyarrow.list_(pyarrow.int64())),
)


class Routed:
    """Collector of the error output."""

    def __init__(self) -> None:
        self.records: list[RoutedError] = []

    def routed_error(self, text: bytes) -> bool:
        return True

    def rows(self, port: int, rows: list[Any], keys: Any = None) -> None:
        self.records += rows


def assigner(
    unit: Unit, future_max_ns: int | None = None, strategy: Any = None, local: LocalTimes | None = None
) -> TimestampAssigner:
    return TimestampAssigner("at", unit, strategy or BoundedOutOfOrderness(0), 1, 0, future_max_ns, local)


def batch_of(column: Any) -> Any:
    return pyarrow.record_batch({"n": pyarrow.array(range(len(column))), "at": column})


def of_rows(batch: Any, found: TimestampAssigner) -> tuple[list[Any], list[int], list[RoutedError]]:
    """The row path: a dict per record."""
    collector: Any = Routed()
    guard = Guard("step", True, collector, 0)
    rows, times = found.assign(python_rows(batch), guard, Clock(), ", in split 3")
    return rows, times, collector.records


def python_rows(batch: Any) -> list[Any]:
    """Rows of a batch; with instants of pandas where Python has none."""
    try:
        return rows_of_columns(batch)
    except NoPythonValue:
        return batch.to_pylist()  # type: ignore[no-any-return]


def of_columns(batch: Any, found: TimestampAssigner) -> tuple[list[Any], list[int], list[RoutedError]]:
    collector: Any = Routed()
    guard = Guard("step", True, collector, 0)
    left, times = found.assign_columns(batch, guard, Clock(), ", in split 3")
    assert times.dtype == numpy.int64
    assert len(times) == left.num_rows
    return python_rows(left), times.tolist(), collector.records


@given(
    column=COLUMNS,
    unit=st.sampled_from(UNITS),
    cut=st.tuples(st.integers(0, 3), st.integers(0, 8)),
    future_max_ns=st.none() | st.sampled_from([0, 86_400_000_000_000]),
    local=LOCAL,
)
@example(pyarrow.array(["2026-02-30T00:00:00Z", "2026-02-28T00:00:00Z"]), Unit.SECONDS, (0, 8), None, None)
@example(pyarrow.array(["2026-02-30T00:00:00", "2026-02-28T00:00:00"]), Unit.SECONDS, (0, 8), None, BERLIN)
def test_columns_get_the_timestamps_and_errors_of_their_rows(
    column: Any, unit: Unit, cut: tuple[int, int], future_max_ns: int | None, local: LocalTimes | None
) -> None:
    batch, found = batch_of(column).slice(*cut), assigner(unit, future_max_ns, local=local)
    columns: Any
    rows: Any
    columns, rows = of_columns(batch, found), of_rows(batch, found)
    if any(isinstance(cell, pandas.Timestamp) for row in python_rows(batch) for cell in row.values()):
        columns, rows = without_records(columns), without_records(rows)  # the error of a row has a text
    assert repr(columns) == repr(rows)


def without_records(found: tuple[list[Any], list[int], list[RoutedError]]) -> object:
    """What an assigner gives, without the records of errors."""
    rows, times, errors = found
    return [row["n"] for row in rows], times, [each.error for each in errors]


def test_usual_timestamps_become_no_python_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object) -> int:
        raise AssertionError(f"{args} was a Python object")

    monkeypatch.setattr("clonos.operators.event_time.column_times.event_time_ns", refused)
    second = pyarrow.array([NOW, NOW + 1, NOW])
    text, local = "2026-01-01T12:00:00.25+02:00", "2026-01-01T12:00:00.25"
    columns = [
        second,
        pyarrow.array([0, 7, -5]),  # made-up times of tests
        second.cast(pyarrow.float64()),
        second.cast(pyarrow.timestamp("s", "Europe/Berlin")),
        pyarrow.array([text, text.replace("T", " "), "2026-01-01T12:00:00Z"]),
        pyarrow.array([local, text, local.replace("T", " ")]),
        second.cast(pyarrow.timestamp("ms")),
    ]
    for column in columns:
        times = time_array("step", batch_of(column), TimestampColumn("at", Unit.SECONDS, BERLIN))
        assert times.tolist() == [event_time_ns(cell, Unit.SECONDS, BERLIN) for cell in column.to_pylist()]


def test_only_the_record_with_a_bad_timestamp_becomes_python(monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[object] = []

    def deciding(given: object, unit: Unit, local: LocalTimes | None) -> int:
        decided.append(given)
        return event_time_ns(given, unit, local)

    monkeypatch.setattr("clonos.operators.event_time.column_times.event_time_ns", deciding)
    batch = batch_of(pyarrow.array([NOW, None, NOW + 1, NOW * 1_000]))
    rows, times, routed = of_columns(batch, assigner(Unit.SECONDS))
    assert decided == [None, NOW * 1_000]
    assert [row["n"] for row in rows] == [0, 2]
    assert [each.record for each in routed] == [{"n": 1, "at": None}, {"n": 3, "at": NOW * 1_000}]
    assert 'give unit="ms"' in routed[1].error
    assert times == [START_NS, START_NS + 1_000_000_000]


def test_without_an_error_output_the_first_bad_timestamp_fails_the_step() -> None:
    collector: Any = Routed()
    batch = batch_of(pyarrow.array([NOW, NOW * 1_000, None]))
    with pytest.raises(StepFailed) as failed:
        assigner(Unit.SECONDS).assign_columns(batch, Guard("step", True, collector, None), Clock(), "")
    assert failed.value.at.index == 1


def test_an_instant_that_python_cannot_represent_is_an_error_of_its_record() -> None:
    """The year 60000 has no datetime, so that all records of the batch failed."""
    column = pyarrow.array([NOW, 1_830_000_000_000]).cast(pyarrow.timestamp("s", "UTC"))
    rows, _, (routed,) = of_columns(batch_of(column), assigner(Unit.SECONDS))
    assert [row["n"] for row in rows] == [0]
    assert routed.error == (
        "TimestampError: the timestamp 1830000000000 of timestamp[s, tz=UTC] lies outside the years 1678 to 2261,"
        " which clonos can represent, in split 3"
    )


def test_nanoseconds_below_a_microsecond_are_left_out_as_for_rows() -> None:
    column = pyarrow.array([START_NS + 1_999, -1]).cast(pyarrow.timestamp("ns", "UTC"))
    assert time_array("step", batch_of(column), TimestampColumn("at")).tolist() == [START_NS + 1_000, -1_000]


WITHOUT_PANDAS = """
import sys

class NoPandas:
    def find_spec(self, name, *arguments):
        if name == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoPandas())
import pyarrow
from clonos.operators.event_time.column_times import time_array
from clonos.operators.event_time.local_times import Ambiguous, LocalTimes
from clonos.operators.event_time.timestamps import TimestampColumn, Unit
at = pyarrow.array([1_792_895_400_123_456_789], pyarrow.timestamp("ns"))
berlin = LocalTimes("Europe/Berlin", Ambiguous.EARLIEST)
print(time_array("step", pyarrow.record_batch({"at": at}), TimestampColumn("at", Unit.SECONDS, berlin)).tolist())
"""


@pytest.mark.slow
def test_nanoseconds_of_an_hour_that_comes_twice_are_read_without_pandas() -> None:
    assert printed_by(WITHOUT_PANDAS) == "[1792888200123456000]"


class Stepping(Operator):
    """An operator of columns with timestamps."""

    def __init__(self) -> None:
        collector: Any = Routed()
        self.guard = Guard("step", True, collector, None)
        self.timestamp_column = TimestampColumn("at")


def test_an_operator_has_the_timestamps_as_an_array_and_for_rows_as_a_list() -> None:
    batch = batch_of(pyarrow.array([NOW, NOW + 1]))
    times = Stepping().time_array(batch)
    assert times is not None
    assert times.tolist() == Stepping().times_of(batch) == [START_NS, START_NS + 1_000_000_000]
    assert Operator.time_array(Operator(), batch) is None
    assert Operator().times_of(batch) is None


def test_a_batch_without_the_column_or_with_a_wrong_timestamp_is_refused() -> None:
    with pytest.raises(NoTimestampColumn, match="keep that column"):
        Stepping().time_array(batch_of(pyarrow.array([1])).select(["n"]))
    with pytest.raises(TimestampError, match="it is None"):
        Stepping().time_array(batch_of(pyarrow.array([NOW, None, NOW * 1_000])))


class Own(WatermarkStrategy):
    """A strategy of the user."""

    given: Any = None

    def watermark(self, before_ns: int | None, records: Any, timestamps_ns: Any) -> int | None:
        Own.given = timestamps_ns
        return timestamps_ns[0]  # type: ignore[no-any-return]


def test_a_built_in_strategy_takes_an_array_and_one_of_the_user_a_list() -> None:
    times = numpy.array([5, 9, 7])
    clock: Any = Clock()
    bounded = assigner(Unit.SECONDS, None, BoundedOutOfOrderness(3)).watermark(None, None, times, clock, "")
    assert (bounded, type(bounded)) == (6, int)
    assert assigner(Unit.SECONDS, None, Own()).watermark(None, None, times, clock, "") == 5
    assert type(Own.given) is list
    marks = PunctuatedWatermarks(lambda record, at: at if record else None)
    assert assigner(Unit.SECONDS, None, marks).watermark(None, [0, 1, 0], times * 1_000, clock, "") == 9_000


def test_decimals_are_no_timestamps_in_rows_or_columns() -> None:
    column = pyarrow.array([Decimal("1.5")])
    _, _, (routed,) = of_columns(batch_of(column), assigner(Unit.SECONDS))
    assert "is a Decimal" in routed.error
