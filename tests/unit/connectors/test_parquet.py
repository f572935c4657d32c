"""``files.parquet``: row groups as splits, marks within them; rows and columns under one schema."""

import math
import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import numpy
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import files
from clonos.connectors.columns.batch_files import BATCH_ROWS
from clonos.connectors.columns.parquet_batches import metadata_of
from clonos.connectors.columns.parquet_files import NARROW_ROWS_MAX, ParquetReader
from clonos.connectors.columns.parquet_rows import ParquetRows
from clonos.connectors.connector_errors import (
    InputChanged,
    InputMalformed,
    InputUnreadable,
    InvalidConnector,
    RowNotWritable,
    SplitMalformed,
)
from clonos.connectors.filesystem.durable_files import DurableFile
from clonos.connectors.filesystem.file_splits import decode_split, encode_split
from tests.unit.connectors.reading import read_all, read_piecewise, read_split
from tests.unit.connectors.writing import JOB, part_of, writer_of

ROWS = [{"n": number, "word": f"w{number}"} for number in range(100)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 rows in row groups of 30."""
    found = tmp_path_factory.mktemp("parquet") / "in.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), found, row_group_size=30)
    return found


class Window(NamedTuple):
    key: str
    value: Any


def written(folder: Path, rows: list[Any], schema: Any = None) -> list[Any]:
    sink = files.parquet(folder, schema=schema)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, rows)])
    return list(files.read_committed(folder))


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_each_row_is_read_once_from_every_starting_point(path: Path, sizes: list[int]) -> None:
    source = files.parquet(path)
    splits = source.splits(2)
    assert len(splits) == 4
    assert [row for split in splits for piece in read_piecewise(source, split, sizes) for row in piece] == ROWS


def test_a_mark_beyond_the_first_batch_is_restored(path: Path) -> None:
    split = files.parquet(path).splits(1)[0]
    for rows in (0, 6, 7, 13, 14, 29, 30):
        assert read_split(ParquetReader(None, batch_rows=7), split, rows.to_bytes(8, "big")) == ROWS[rows:30]


def test_a_reader_of_many_row_groups_has_few_of_them_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "many.parquet"
    numbers = numpy.random.default_rng(1).integers(0, 1 << 60, 1 << 19)
    pyarrow.parquet.write_table(pyarrow.table({"number": numbers}), path, row_group_size=1 << 14, use_dictionary=False)
    (split,) = files.parquet(path, ordered=True).splits(1)
    reader = ParquetReader(None, batch_rows=1 << 14)
    reader.open(split, None)
    before = pyarrow.total_allocated_bytes()
    first = reader.read(1 << 14)
    assert first is not None
    assert pyarrow.total_allocated_bytes() - before < path.stat().st_size / 4
    reader.close()


def test_a_batch_of_few_bytes_has_the_rows_of_several_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "groups.parquet"
    count, group = 1 << 19, 1 << 16
    numbers = numpy.arange(count)
    wide = pyarrow.array(["x" * 100 + str(number) for number in range(1 << 10)] * (count >> 10))
    table = pyarrow.table({"narrow": numbers % 5, "wide": wide, "number": numbers})
    pyarrow.parquet.write_table(table, path, row_group_size=group, use_dictionary=["narrow"])
    for columns, least, most in ((["narrow"], 2 * group, NARROW_ROWS_MAX), (["narrow", "wide"], 1, BATCH_ROWS)):
        source = files.parquet(path, columns=columns, ordered=True)
        (split,) = source.splits(1)
        reader: Any = source.reader()
        reader.open(split, None)
        rows = 0
        while (batch := reader.read(count)) is not None:
            assert least <= batch.num_rows <= most
            assert batch.column(0).to_numpy().tolist() == (numbers[rows : rows + batch.num_rows] % 5).tolist()
            rows += batch.num_rows
        assert rows == count
        reader.close()


def test_the_metadata_of_a_file_is_parsed_once_for_all_row_groups_of_one_version(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    for rows in (ROWS, ROWS[:50] * 2):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=30)
        os.utime(path, ns=(len(str(rows)), 1))
        before = metadata_of.cache_info().misses
        assert read_all(files.parquet(path)) == rows
        assert metadata_of.cache_info().misses == before + 1


def test_only_the_columns_asked_for_are_read(path: Path) -> None:
    assert read_all(files.parquet(path, columns=["n"])) == [{"n": row["n"]} for row in ROWS]
    with pytest.raises(InvalidConnector, match=r"has no column 'm'\. It has n, word"):
        files.parquet(path, columns=["m"]).splits(1)


def test_a_file_without_rows_has_no_split(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"a": pyarrow.array([], pyarrow.int64())}), tmp_path / "empty.parquet")
    assert files.parquet(tmp_path / "empty.parquet").splits(1) == []


def test_a_file_that_changed_or_is_not_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    path.write_bytes(b"no Parquet at all")
    with pytest.raises(InputMalformed, match="not a readable Parquet file"):
        files.parquet(path).splits(1)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    source = files.parquet(path)
    (split,) = source.splits(1)
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputChanged):
        source.reader().open(split, None)
    path.unlink()
    with pytest.raises(InputUnreadable):
        source.reader().open(split, None)


def test_a_text_that_is_not_utf_8_is_reported_where_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(
        pyarrow.table({"word": ["first", "second"]}), path, use_dictionary=False, compression="none"
    )
    data = path.read_bytes()
    assert data.count(b"second") > 0
    path.write_bytes(data.replace(b"second", b"s\xffcond"))
    source = files.parquet(path)
    (split,) = source.splits(1)
    reader = source.reader()
    reader.open(split, None)
    with pytest.raises(InputMalformed, match="UTF8"):
        reader.read(10)
    reader.close()


@pytest.mark.parametrize("group", [4, 1 << 40, (1 << 62) - 1])
def test_a_split_with_a_row_group_that_the_file_lacks_is_refused(path: Path, group: int) -> None:
    source = files.parquet(path)
    split = msgspec.structs.replace(decode_split(source.splits(1)[0]), begin=group, end=group)
    reader = source.reader()
    with pytest.raises(SplitMalformed, match="has 4 row groups"):
        reader.open(encode_split(split), None)
    reader.close()


def test_values_keep_their_types(tmp_path: Path) -> None:
    instant = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [{"at": instant, "price": Decimal("1.10"), "id": UUID(int=1), "tags": {"b", "a"}, "inner": Window("k", 1)}]
    assert written(tmp_path / "out", rows) == [
        {
            "at": instant,
            "price": Decimal("1.10"),
            "id": str(UUID(int=1)),
            "tags": ["a", "b"],
            "inner": {"key": "k", "value": 1},
        }
    ]


def test_columns_are_those_of_all_rows(tmp_path: Path) -> None:
    assert written(tmp_path / "out", [{"a": 1}, {"b": "x"}]) == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


def test_a_schema_makes_parts_alike(tmp_path: Path) -> None:
    schema = pyarrow.schema({"key": pyarrow.string(), "value": pyarrow.float64()})
    assert written(tmp_path / "out", [Window("a", 1), ("b", None)], schema) == [
        {"key": "a", "value": 1.0},
        {"key": "b", "value": None},
    ]
    (part,) = files.committed(tmp_path / "out")
    assert pyarrow.parquet.read_schema(part.path).equals(schema)


def test_large_parts_have_several_row_groups(tmp_path: Path) -> None:
    path = str(tmp_path / "large.parquet")
    file = DurableFile.create_beside(path)
    part = ParquetRows(file, None, group_rows=10)
    for row in ROWS:
        part.rows([row])
    part.finish()
    file.publish(path)
    assert read_all(files.parquet(path)) == ROWS
    assert len(files.parquet(path).splits(1)) == 10


@pytest.mark.parametrize(
    ("rows", "index", "reason"),
    [
        ([{"a": 1}, {"a": 2}, {"a": "x"}, {"a": 3}], 2, "its a cannot be written together with the rows before"),
        ([{"a": 1}, {"a": 2**70}], 1, "schema="),
        ([("a", 1)], 0, "columns="),
        ([{"a": 1j}], 0, r"its a cannot be written: .*; give its type with schema=, or other values with select"),
        ([{"a": [{}]}], 0, r"its a cannot be written: Parquet has no type for list<.*: struct<>>, objects without"),
    ],
)
def test_a_row_that_does_not_match_the_columns_is_named(
    tmp_path: Path, rows: list[Any], index: int, reason: str
) -> None:
    with pytest.raises(RowNotWritable, match=reason) as raised:
        written(tmp_path / "out", rows)
    assert raised.value.index == index


def refusal_of_batch(folder: Path, first: Any, second: Any, schema: Any = None) -> RowNotWritable:
    sink = files.parquet(folder, schema=schema)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    writer = writer_of(sink)
    writer.write_columns(pyarrow.record_batch(first))
    with pytest.raises(RowNotWritable) as raised:
        writer.write_columns(pyarrow.record_batch(second))
    writer.close()
    return raised.value


def test_a_batch_without_a_column_of_the_schema_is_refused_by_the_name_of_the_column(tmp_path: Path) -> None:
    schema = pyarrow.schema({"a": pyarrow.int64()})
    error = refusal_of_batch(tmp_path / "out", {"a": pyarrow.array([1], pyarrow.int32())}, {"b": [1]}, schema)
    assert str(error) == (
        "files.parquet cannot write the row {'b': 1}: its batch has no column a, which schema= has; it has b."
    )


@pytest.mark.parametrize("schema", [None, pyarrow.schema({"a": pyarrow.int64()})])
def test_a_batch_with_a_column_that_the_file_does_not_have_is_refused(tmp_path: Path, schema: Any) -> None:
    """As a row with such a field is; the values of the column would be lost."""
    error = refusal_of_batch(tmp_path / "out", {"a": [1]}, {"a": [1], "b": [2]}, schema)
    assert "cannot write the row {'a': 1, 'b': 2}: there is no column for its b; the columns are a" in str(error)


@pytest.mark.parametrize(
    ("first", "second", "row", "problem"),
    [
        ([1, 2], [3.0, 2.5], "{'a': 2.5}", "its a, a double, cannot be written as int64"),
        ([Decimal("1.23")], [Decimal("4.56"), Decimal("123.456")], "{'a': Decimal('123.456')}", "decimal128(3, 2)"),
        (["x"], [{"b": 1}], "{'a': {'b': 1}}", "cannot be written as string"),
    ],
)
def test_a_batch_of_another_type_is_refused_by_the_row_and_the_column_and_names_schema(
    tmp_path: Path, first: list[Any], second: list[Any], row: str, problem: str
) -> None:
    error = refusal_of_batch(tmp_path / "out", {"a": first}, {"a": second})
    assert f"cannot write the row {row}: " in str(error)
    assert problem in str(error)
    assert "the type of the first rows of the part file" in str(error)
    assert str(error).endswith("; give the sink its type with schema=.")
    assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize(
    ("first", "second", "is_exact"),
    [
        (pyarrow.array([1.5], pyarrow.float32()), pyarrow.array([0.1]), False),
        (pyarrow.array([1.5], pyarrow.float32()), pyarrow.array([0.5, math.nan, None, -math.inf, -0.0]), True),
        (pyarrow.array([1.5]), pyarrow.array([Decimal("0.1"), Decimal("123456789012345678.9")]), False),
        (pyarrow.array([True]), pyarrow.array([1, 2]), False),
        (pyarrow.array([True]), pyarrow.array([0.5]), False),
        (pyarrow.array([date(2026, 1, 1)]), pyarrow.array([datetime(2026, 1, 1, 2, tzinfo=UTC)]), False),
        (pyarrow.array([1]), pyarrow.array([2], pyarrow.int32()), True),
        (pyarrow.array(["a"]), pyarrow.array(["b"], pyarrow.large_string()), True),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_a_batch_of_another_type_is_not_rounded_silently(
    tmp_path: Path, first: Any, second: Any, is_exact: bool
) -> None:
    part = ParquetRows(DurableFile.create_beside(str(tmp_path / "part.parquet")), None)
    part.columns(pyarrow.record_batch({"a": first}))
    if is_exact:
        part.columns(pyarrow.record_batch({"a": second}))
        return
    with pytest.raises(RowNotWritable, match=r"cannot be written as .*does not hold the value exactly; give the sink"):
        part.columns(pyarrow.record_batch({"a": second}))


def test_a_null_after_columns_without_nulls_is_written(tmp_path: Path) -> None:
    path = str(tmp_path / "part.parquet")
    part = ParquetRows(file := DurableFile.create_beside(path), None)
    part.columns(
        pyarrow.record_batch([[1]], schema=pyarrow.schema([pyarrow.field("a", pyarrow.int64(), nullable=False)]))
    )
    part.columns(pyarrow.record_batch({"a": pyarrow.array([2, None])}))
    part.finish()
    file.publish(path)
    assert read_all(files.parquet(path)) == [{"a": 1}, {"a": 2}, {"a": None}]


def test_a_null_that_the_schema_excludes_is_refused_with_its_row(tmp_path: Path) -> None:
    schema = pyarrow.schema([pyarrow.field("a", pyarrow.int64(), nullable=False)])
    part = ParquetRows(DurableFile.create_beside(str(tmp_path / "part.parquet")), schema)
    with pytest.raises(RowNotWritable, match=r"{'a': None}: its a, a int64, cannot be written as int64 without nulls"):
        part.columns(pyarrow.record_batch({"a": pyarrow.array([2, None])}))


def warnings_of(folder: Path, caplog: pytest.LogCaptureFixture, *parts: list[Any], **options: Any) -> list[str]:
    sink = files.parquet(folder, **options)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    for checkpoint, rows in enumerate(parts, 1):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, rows)])
    return [record.getMessage() for record in caplog.records]


def test_a_column_without_a_value_in_a_whole_part_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    empty: dict[str, Any] = {"n": 1, "note": None, "tags": []}
    full = {"n": 2, "note": 0.5, "tags": ["a"]}
    assert warnings_of(tmp_path / "out", caplog, [full], [empty], [empty]) == [
        f"files.parquet: in a part file of {tmp_path}/out all values of note, tags are None or empty,"
        " so the part has no type for them, and pandas and other readers of the folder may fail: give the sink schema="
    ]


@pytest.mark.parametrize(
    "options", [{"schema": pyarrow.schema({"n": pyarrow.int64(), "note": pyarrow.float64()})}, {"single": True}]
)
def test_a_column_without_a_value_in_a_whole_part_is_not_warned_of_where_its_type_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    assert warnings_of(tmp_path / "out.d", caplog, [{"n": 1, "note": None}], **options) == []


def test_a_source_refuses_options_of_sinks_and_a_sink_those_of_sources(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidConnector, match="a source takes no schema="):
        files.parquet(path, schema=pyarrow.schema({})).splits(1)
    with pytest.raises(InvalidConnector, match="a sink takes no columns="):
        files.parquet(tmp_path / "out", columns=["a"]).prepare_output(JOB, resume=False, overwrite=False)
