"""Rows of columns: what Arrow gives, on the native kernels and on their twins."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.core.values.column_rows import NoPythonValue, rows_of_columns, values_of_column
from tests.harnesses.both_kernels import kernels  # noqa: F401

ZONES = [None, "UTC", "+05:30", "-00:30", "Europe/Berlin", "America/St_Johns"]
UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000}
FIRST_S = -62_135_596_800
END_S = 253_402_300_800
DAY_S = 86_400
EDGES = [FIRST_S, END_S - 1, -1, 0, 951_782_400, 951_868_800, 1_719_446_400, 1_729_989_000, 1_729_992_600]
"""Seconds: the first and the last, those around 1970, of 29 February 2000, and around the end of summer time."""

seconds = st.one_of(st.sampled_from(EDGES), st.integers(FIRST_S, END_S - 1))


@st.composite
def instants(draw: st.DrawFn) -> Any:
    """Columns of instants of any unit and zone, some of them slices, some with nulls."""
    unit, zone = draw(st.sampled_from([*UNITS])), draw(st.sampled_from(ZONES))
    margin = 0 if zone in (None, "UTC") else DAY_S
    inner = seconds.map(lambda each: min(max(each, FIRST_S + margin), END_S - 1 - margin))
    numbers = draw(st.lists(st.one_of(st.none(), inner), max_size=20))
    part = draw(st.integers(0, UNITS[unit] - 1))
    scaled = [None if each is None else each * UNITS[unit] + part for each in numbers]
    column = pyarrow.array(scaled, pyarrow.int64()).cast(pyarrow.timestamp(unit, zone))
    return column.slice(draw(st.integers(0, 2)))


@given(instants())
def test_instants_are_those_of_arrow(column: Any) -> None:
    found, wanted = values_of_column(column), column.to_pylist()
    assert found == wanted
    assert [*map(repr, found)] == [*map(repr, wanted)]  # the time zone and the fold too


@given(st.lists(st.one_of(st.none(), st.dates()), max_size=20), st.integers(0, 2))
def test_dates_are_those_of_arrow(dates: list[datetime.date | None], first: int) -> None:
    column = pyarrow.array(dates, pyarrow.date32()).slice(first)
    assert values_of_column(column) == column.to_pylist()


@given(st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", ""])), max_size=20), st.integers(0, 2))
def test_texts_of_a_dictionary_are_those_of_arrow(texts: list[str | None], first: int) -> None:
    column = pyarrow.array(texts, pyarrow.string()).dictionary_encode().slice(first)
    assert values_of_column(column) == column.to_pylist()
    nulls = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 1, None]), pyarrow.array(["a", None]))
    assert values_of_column(nulls) == nulls.to_pylist()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("zone", ZONES)
def test_numbers_of_null_instants_do_not_count(unit: str, zone: str | None) -> None:
    numbers = pyarrow.array([1 << 62, 5], pyarrow.int64())
    valid = pyarrow.py_buffer(bytes([2]))
    column = pyarrow.Array.from_buffers(pyarrow.timestamp(unit, zone), 2, [valid, numbers.buffers()[1]])
    assert values_of_column(column) == column.to_pylist()


@pytest.mark.parametrize("zone", [None, "UTC", "+05:30"])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("second", [FIRST_S - 1, END_S, 1 << 40])
def test_an_instant_outside_the_years_of_python_is_an_error(zone: str | None, unit: str, second: int) -> None:
    column = pyarrow.array([0, second * UNITS[unit]], pyarrow.int64()).cast(pyarrow.timestamp(unit, zone))
    with pytest.raises(NoPythonValue, match="date value out of range"):
        values_of_column(column)


@pytest.mark.parametrize("days", [FIRST_S // DAY_S - 1, END_S // DAY_S])
def test_a_date_outside_the_years_of_python_is_an_error(days: int) -> None:
    with pytest.raises(NoPythonValue, match="date value out of range"):
        values_of_column(pyarrow.array([0, days], pyarrow.int32()).cast(pyarrow.date32()))


def batches() -> list[Any]:
    columns = {
        "n": [1, None, 3],
        "text": ["a", "é", None],
        "at": pyarrow.array([5, None, 7], pyarrow.timestamp("ms", "UTC")),
        "day": pyarrow.array([1, 2, None], pyarrow.int32()).cast(pyarrow.date32()),
        "time": pyarrow.array([1, 2, None], pyarrow.int64()).cast(pyarrow.time64("us")),
        "exact": [Decimal("1.50"), None, Decimal(2)],
        "list": [[1], [], None],
        "struct": [{"at": datetime.datetime(2024, 1, 1)}, None, {"at": None}],
        "kind": pyarrow.array(["x", "y", "x"]).dictionary_encode(),
        "view": pyarrow.array(["x", None, "a longer text than views have"], pyarrow.string_view()),
    }
    whole = pyarrow.record_batch(columns)
    twice = pyarrow.RecordBatch.from_arrays([pyarrow.array([1, 2]), pyarrow.array(["a", "b"])], names=["n", "n"])
    none = pyarrow.RecordBatch.from_struct_array(pyarrow.array([{}, {}], pyarrow.struct([])))
    return [whole, whole.slice(1), whole.slice(3), whole.select(["n"]), twice, none, pyarrow.record_batch({})]


@pytest.mark.parametrize("batch", batches(), ids=lambda batch: f"{batch.num_rows} rows of {batch.num_columns}")
def test_rows_are_those_of_arrow(batch: Any) -> None:
    found = rows_of_columns(batch)
    assert found == batch.to_pylist()
    assert [[*row] for row in found] == [[*row] for row in batch.to_pylist()]
    assert len({*map(id, found)}) == len(found)
