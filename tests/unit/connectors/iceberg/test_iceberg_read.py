"""``iceberg.read``: a snapshot gives its rows, and the same ones after a restart."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from clonos.connectors import iceberg
from clonos.connectors.connector_errors import InputMalformed, InvalidConnector
from clonos.connectors.iceberg.data_rows import DataRows, SnapshotFile, columns_of
from clonos.connectors.iceberg.iceberg_errors import SnapshotGone, TableReplaced
from clonos.core.values.column_rows import rows_of_columns
from clonos.operators.column_contract import Bound
from tests.harnesses.iceberg_tables import NAME, catalog_in, opened
from tests.unit.connectors.iceberg.test_iceberg_sink import AWKWARD, VALUES, started
from tests.unit.connectors.reading import read_all, read_piecewise
from tests.unit.connectors.table_rows import SCHEMA, row
from tests.unit.connectors.writing import JOB, part_of


def filled(catalog: dict[str, str], *checkpoints: list[Any], **options: Any) -> Any:
    """A source of a table of which each checkpoint is a snapshot."""
    sink = started(catalog, **options)
    for number, rows in enumerate(checkpoints, 1):
        sink.commit(JOB, number, [part_of(sink, number, rows)])
    return iceberg.read(NAME, catalog=catalog)


def by_number(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda each: int(each["n"]))


def test_a_snapshot_has_the_rows_of_its_files_and_the_newest_one_is_pinned_by_the_splits(
    catalog: dict[str, str],
) -> None:
    source = filled(catalog, [row(1), row(2)], [row(3)], partition_by="day")
    splits = source.splits(2)
    opened(catalog).append(pyarrow.Table.from_pylist([row(9)], opened(catalog).scan().to_arrow().schema))
    found = [one for split in splits for some in read_piecewise(source, split, [1]) for one in some]
    assert by_number(found) == [row(1), row(2), row(3)]
    first = opened(catalog).snapshots()[0].snapshot_id
    assert by_number(read_all(iceberg.read(NAME, catalog=catalog, snapshot=first))) == [row(1), row(2)]


def test_a_reader_goes_on_at_its_mark(catalog: dict[str, str]) -> None:
    rows = [row(number) for number in range(10)]
    source = filled(catalog, rows)
    (split,) = source.splits(2)
    source.check_split(split)
    assert [one for some in read_piecewise(source, split, [1, 3]) for one in some] == rows


def in_groups(catalog: dict[str, str], rows: list[Any]) -> Any:
    """A source of a table of one file, of which four rows are a row group."""
    source = filled(catalog)
    with opened(catalog).transaction() as changing:
        changing.set_properties({"write.parquet.row-group-limit": "4"})
    opened(catalog).append(pyarrow.Table.from_pylist(rows, SCHEMA))
    return source


def test_a_reader_reads_only_the_row_groups_from_its_mark_on(catalog: dict[str, str], tmp_path: Path) -> None:
    rows = [row(number) for number in range(12)]
    source = in_groups(catalog, rows)
    (split,) = source.splits(2)
    reader = source.reader()
    reader.open(split, None)
    assert [rows_of_columns(reader.read(10)), rows_of_columns(reader.read(1))] == [rows[:4], rows[4:5]]
    mark = reader.mark()
    reader.close()
    (file,) = tmp_path.glob("lake/**/data/*.parquet")
    content = bytearray(file.read_bytes())
    content[4:44] = bytes(40)  # pages of the first group
    file.write_bytes(content)
    reader.open(split, mark)
    assert [rows_of_columns(reader.read(10)), rows_of_columns(reader.read(10))] == [rows[5:8], rows[8:]]
    assert reader.read(10) is None
    reader.open(split, None)
    with pytest.raises(InputMalformed, match="it is not a readable Parquet file"):
        reader.read(10)
    reader.close()


def test_row_groups_without_a_row_within_the_bounds_are_not_read_also_if_a_column_has_another_name(
    catalog: dict[str, str],
) -> None:
    source = in_groups(catalog, [row(number) for number in range(12)])
    with opened(catalog).update_schema() as update:
        update.rename_column("n", "m")
        update.rename_column("tags", "n")
    bounded = source.narrowed(None, [Bound("m", ">=", 5), Bound("n", ">=", 5)])
    assert [one["m"] for one in read_all(bounded)] == list(range(4, 12))


@given(deleted=st.sets(st.integers(0, 11)), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3))
@settings(max_examples=20, deadline=None)
def test_rows_that_are_deleted_by_their_position_are_left_out_wherever_a_reader_goes_on(
    tmp_path_factory: Any, deleted: set[int], sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    catalog = catalog_in(folder)
    rows = [row(number) for number in range(12)]
    source = in_groups(catalog, rows)
    table = opened(catalog)
    (task,) = table.scan().plan_files()
    places = pyarrow.table(
        {"file_path": [task.file.file_path] * len(deleted) + ["another"], "pos": [*sorted(deleted), 1]}
    )
    pyarrow.parquet.write_table(places, folder / "deletes.parquet")
    marks = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=f"{folder}/deletes.parquet", file_format=FileFormat.PARQUET
    )
    given = SnapshotFile("here", table, 1, task.file, (marks,))
    columns = columns_of("iceberg.read", table.schema())
    found, mark = list[Any](), None
    for size in itertools.cycle(sizes):
        reader = DataRows(given, columns, source, mark)
        batch = reader.read(size)
        mark = reader.mark()
        reader.close()
        if batch is None:
            break
        found += rows_of_columns(batch)
    assert found == [one for place, one in enumerate(rows) if place not in deleted]


def test_columns_that_were_renamed_or_added_are_those_of_the_snapshot(catalog: dict[str, str]) -> None:
    source = filled(catalog, [row(1)])
    with opened(catalog).update_schema() as update:
        update.rename_column("name", "title")
    opened(catalog).append(pyarrow.table({"n": pyarrow.array([2], pyarrow.int64()), "title": ["two"]}))
    assert [one["title"] for one in by_number(read_all(source))] == ["name 1", "two"]


def test_only_the_columns_that_steps_use_are_read(catalog: dict[str, str]) -> None:
    source = filled(catalog, [row(1)])
    assert read_all(source.narrowed({"name"}, ())) == [{"name": "name 1"}]
    schema = source.column_schema()
    assert schema == source.sampled_schema(source.splits(1))
    assert schema.names == ["n", "name", "at", "tags", "day"]


def test_rows_that_were_deleted_are_not_read(catalog: dict[str, str]) -> None:
    source = filled(catalog, [row(1), row(2), row(3)])
    opened(catalog).delete("n = 2")
    assert [one["n"] for one in by_number(read_all(source))] == [1, 3]


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(st.fixed_dictionaries({n: st.none() | one for n, (_, one) in VALUES.items()}), max_size=4))
def test_values_that_the_sink_has_written_are_read_as_they_were(tmp_path_factory: Any, rows: list[Any]) -> None:
    source = filled(catalog_in(tmp_path_factory.mktemp("lake")), *([rows] if rows else []), schema=AWKWARD)
    found: list[Any] = []
    for split in source.splits(1):
        reader = source.reader()
        reader.open(split, None)
        while (batch := reader.read(1_000)) is not None:
            found += rows_of_columns(batch)
        reader.close()
    assert found == rows


def test_lists_and_maps_of_structs_that_are_null_do_not_become_empty(catalog: dict[str, str]) -> None:
    place = pyarrow.struct([("x", pyarrow.int32())])
    kinds = {"listed": pyarrow.list_(place), "mapped": pyarrow.map_(pyarrow.string(), place)}
    schema = pyarrow.schema([("n", pyarrow.int64()), *kinds.items(), ("within", pyarrow.struct(list(kinds.items())))])
    values: list[dict[str, Any]] = [
        {"listed": None, "mapped": None},
        {"listed": [], "mapped": {}},
        {"listed": [{"x": 1}, None], "mapped": {"a": {"x": 2}}},
    ]
    rows = [{"n": number, **each, "within": each} for number, each in enumerate(values)]
    source = filled(catalog, rows, schema=schema)
    found = read_all(source)
    assert [(row["listed"], row["within"]["listed"]) for row in found] == [(each["listed"],) * 2 for each in values]
    assert [row["mapped"] for row in found] == [None, [], [("a", {"x": 2})]]
    assert [row["within"]["mapped"] for row in found] == [None, [], [("a", {"x": 2})]]


def test_a_snapshot_that_has_expired_is_an_error(catalog: dict[str, str]) -> None:
    source = filled(catalog, [row(1)], [row(2)])
    first = opened(catalog).snapshots()[0].snapshot_id
    (split,) = iceberg.read(NAME, catalog=catalog, snapshot=first).splits(1)
    opened(catalog).maintenance.expire_snapshots().by_id(first).commit()
    with pytest.raises(SnapshotGone, match="it has expired"):
        source.reader().open(split, None)


def test_a_file_that_is_gone_is_an_error(catalog: dict[str, str], tmp_path: Path) -> None:
    source = filled(catalog, [row(1)])
    (split,) = source.splits(1)
    for file in tmp_path.glob("lake/**/*.parquet"):
        file.unlink()
    with pytest.raises(SnapshotGone, match="was removed"):
        source.reader().open(split, None)


def test_a_split_of_another_table_is_refused(catalog: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (split,) = filled(catalog, [row(1)]).splits(1)
    with pytest.raises(TableReplaced, match="is not that of the first start"):
        filled(catalog_in(tmp_path / "other"), [row(1)]).check_split(split)


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        (NAME, {"snapshot": 5}, "has no snapshot 5"),
        (NAME, {"snapshot": "new"}, "Give its number"),
        ("shop.nothing", {}, r"there is no table shop\.nothing"),
        ("orders", {}, r"namespace\.table"),
    ],
)
def test_a_table_or_a_snapshot_that_does_not_exist_is_refused(
    catalog: dict[str, str], name: str, options: Any, problem: str
) -> None:
    filled(catalog, [row(1)])
    with pytest.raises(InvalidConnector, match=problem):
        iceberg.read(name, catalog=catalog, **options).splits(1)
