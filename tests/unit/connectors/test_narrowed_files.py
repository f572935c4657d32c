"""Parquet and Arrow files from which only what the steps use is read: columns, and row groups by their statistics."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from itertools import cycle
from math import nan
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import files
from clonos.connectors.columns.parquet_files import ParquetReader
from clonos.operators.column_contract import Bound, NarrowableSource
from tests.unit.connectors.reading import read_all, read_split

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COMPARE: dict[str, Any] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

CELLS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": (pyarrow.int64(), st.integers(-5, 5)),
    "text": (pyarrow.string(), st.text("aé\uffffz", max_size=3)),
    "at": (pyarrow.timestamp("us", "UTC"), st.integers(0, 9).map(lambda hours: NOON + timedelta(hours=hours))),
    "is": (pyarrow.bool_(), st.booleans()),
    "x": (pyarrow.float64(), st.floats(-3, 3, width=16) | st.just(nan)),
}


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Any, list[Bound]]:
    """A table of rows that tend to be sorted, and bounds."""
    count = draw(st.integers(1, 30))
    columns = {}
    for name, (kind, cells) in CELLS.items():
        column = draw(st.lists(st.none() | cells, min_size=count, max_size=count))
        if draw(st.booleans()):
            column.sort(key=lambda cell: (cell is None, cell != cell, 0 if cell is None else cell))
        columns[name] = pyarrow.array(column, kind)
    names = draw(st.lists(st.sampled_from(sorted(CELLS)), max_size=2))
    bounds = [Bound(name, draw(st.sampled_from(["==", "<", "<=", ">", ">="])), draw(CELLS[name][1])) for name in names]
    return pyarrow.table(columns), bounds


def meets(row: dict[str, Any], bounds: list[Bound]) -> bool:
    """As steps would compare, also where NaN is greater than all numbers and equals itself."""
    for column, comparison, value in bounds:
        cell = row[column]
        if cell is None:
            return False
        key = (cell != cell, 0.0 if cell != cell else cell), (value != value, 0.0 if value != value else value)
        if not COMPARE[comparison](*key) and not COMPARE[comparison](cell, value):
            return False
    return True


@pytest.mark.slow
@given(
    table_and_bounds=inputs(),
    group_rows=st.integers(1, 7),
    ordered=st.booleans(),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    changes=st.booleans(),
)
def test_no_row_within_the_bounds_is_left_out_wherever_reading_begins_again(
    tmp_path_factory: pytest.TempPathFactory,
    table_and_bounds: tuple[Any, list[Bound]],
    group_rows: int,
    ordered: bool,
    sizes: list[int],
    changes: bool,
) -> None:
    """Marks also hold for a reader with other bounds."""
    table, bounds = table_and_bounds
    path = tmp_path_factory.mktemp("parquet") / "in.parquet"
    pyarrow.parquet.write_table(table, path, row_group_size=group_rows)
    source = files.parquet(path, ordered=ordered)
    narrowed = source.narrowed(None, bounds)
    found: list[Any] = []
    turns = cycle([narrowed, source] if changes else [narrowed])
    for split in source.splits(1):
        mark: bytes | None = None
        for size in cycle(sizes):
            reader: Any = next(turns).reader()
            reader.open(split, mark)
            some = reader.read(size)
            mark = reader.mark()
            reader.close()
            if some is None:
                break
            found += some.to_pylist()
    expected = [row for row in table.to_pylist() if meets(row, bounds)]
    assert repr([row for row in found if meets(row, bounds)]) == repr(expected)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 rows in row groups of 10."""
    found = tmp_path_factory.mktemp("parquet") / "in.parquet"
    rows = [{"n": number, "word": f"w{number}", "x": number / 2} for number in range(100)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), found, row_group_size=10)
    return found


@pytest.mark.parametrize(
    ("bounds", "first", "end"),
    [
        ([Bound("n", "==", 35)], 30, 40),
        ([Bound("n", "<", 20)], 0, 20),
        ([Bound("n", "<=", 20)], 0, 30),
        ([Bound("n", ">", 79)], 80, 100),
        ([Bound("n", ">=", 79), Bound("n", "<", 90)], 70, 90),
        ([Bound("n", "==", 1_000)], 0, 0),
        ([Bound("x", "<", 5.0)], 0, 10),
        ([Bound("x", ">", 40.0)], 0, 100),  # a row with NaN would be in no statistics
        ([Bound("n", "==", "text")], 0, 100),
        ([Bound("missing", "==", 1)], 0, 100),
    ],
)
def test_row_groups_without_a_wanted_row_are_skipped(path: Path, bounds: list[Bound], first: int, end: int) -> None:
    source = files.parquet(path, ordered=True).narrowed(None, bounds)
    assert [row["n"] for row in read_all(source)] == list(range(first, end))


def test_a_row_group_is_read_where_kernels_round(tmp_path: Path) -> None:
    """2 ** 53 + 1 becomes the float 2 ** 53; a constant may become a float of 32 bits."""
    path = tmp_path / "in.parquet"
    third = pyarrow.array([0.1], pyarrow.float32())
    pyarrow.parquet.write_table(pyarrow.table({"x": [2.0**53], "y": third}), path)
    for bound in (Bound("x", "==", (1 << 53) + 1), Bound("y", "==", 0.1)):
        assert len(read_all(files.parquet(path).narrowed(None, [bound]))) == 1


def test_only_columns_that_are_used_are_read(path: Path) -> None:
    source = files.parquet(path)
    assert isinstance(source, NarrowableSource)
    split = source.splits(1)[0]
    for narrowed, names in [
        (source.narrowed({"word", "n"}, ()), ["n", "word"]),
        (source.narrowed({"word", "missing"}, ()), ["n", "word", "x"]),
        (source.narrowed(set(), ()), ["n"]),
        (files.parquet(path, columns=["word", "x"]).narrowed({"x"}, ()), ["x"]),
        (source.narrowed(None, ()), ["n", "word", "x"]),
    ]:
        (row, *_), count = read_split(narrowed.reader(), split), len(read_split(narrowed.reader(), split))
        assert (list(row), count) == (names, 10)
    assert source.used is None, "the source that was given is unchanged"


def test_an_arrow_file_gives_only_columns_that_are_used(tmp_path: Path) -> None:
    table = pyarrow.table({"a": [1], "b": [2]})
    with pyarrow.ipc.new_file(tmp_path / "in.arrow", table.schema) as writer:
        writer.write_table(table)
    assert read_all(files.arrow(tmp_path / "in.arrow").narrowed({"b"}, ())) == [{"b": 2}]


def test_small_row_groups_that_follow_each_other_become_one_batch(path: Path) -> None:
    split = files.parquet(path, ordered=True).splits(1)[0]
    reader = ParquetReader(None)
    reader.open(split, None)
    batch: Any = reader.read(1_000)
    assert batch.num_rows == 100
