"""``iceberg.changes``: the snapshots of a table are followed one by one, each file once, from any mark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.types import LongType

from clonos import LateCut
from clonos.connectors import iceberg
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.iceberg.iceberg_errors import AppendsUnknown, SnapshotGone, TableReplaced
from tests.harnesses.iceberg_tables import NAME, opened
from tests.unit.connectors.iceberg.test_iceberg_sink import started
from tests.unit.connectors.reading import begun, read_all, taken
from tests.unit.connectors.writing import JOB, part_of

COLUMNS = pyarrow.schema([("n", pyarrow.int32()), ("kind", pyarrow.string())])


def made(catalog: dict[str, str], *numbers: int, **options: Any) -> None:
    """A table, and a snapshot of each number."""
    made_in = load_catalog(**catalog)
    made_in.create_namespace_if_not_exists("shop")
    made_in.create_table(NAME, COLUMNS, **options)
    for number in numbers:
        append(catalog, number)


def append(catalog: dict[str, str], *numbers: int, branch: str | None = None) -> int:
    """Adds a snapshot with a row per number; returns its number."""
    rows = pyarrow.table({"n": pyarrow.array(numbers, pyarrow.int32()), "kind": [f"kind {n}" for n in numbers]})
    opened(catalog).append(rows, **({} if branch is None else {"branch": branch}))
    return snapshot(catalog)


def snapshot(catalog: dict[str, str]) -> int:
    current = opened(catalog).current_snapshot()
    return 0 if current is None else int(current.snapshot_id)


def source_of(catalog: dict[str, str], after: Any = 0, **options: Any) -> Any:
    return iceberg.changes(NAME, catalog=catalog, after_snapshot=after, **({"watch": "1ms"} | options))


def numbers(rows: list[Any]) -> list[int]:
    return [row["n"] for row in rows]


@pytest.mark.parametrize("sizes", [(1,), (2, 1), (1_000,)])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_row_is_read_once_from_any_mark(catalog: dict[str, str], sizes: tuple[int, ...], parallelism: int) -> None:
    made(catalog)
    source = source_of(catalog)
    marks = begun(source, parallelism)
    assert taken(source, marks, sizes) == []
    append(catalog, 1, 2, 3)
    append(catalog, 4)
    assert sorted(numbers(taken(source, marks, sizes))) == [1, 2, 3, 4]
    append(catalog, 5, 6)
    assert sorted(numbers(taken(source, marks, sizes))) == [5, 6]
    assert taken(source, marks, sizes) == []


def test_one_task_reads_the_snapshots_in_their_order_and_the_end_is_pinned_by_the_splits(
    catalog: dict[str, str],
) -> None:
    made(catalog, 5, 1, 4)
    source = source_of(catalog, until="latest").in_order()
    (split,) = source.splits(3)
    source.check_split(split)
    append(catalog, 9)
    marks: Any = {split: None}
    assert numbers(taken(source, marks)) == [5, 1, 4]
    reader = source.reader()
    reader.open(split, marks[split])
    assert reader.read(1) is None


def test_a_source_begins_after_the_snapshot_that_is_given_or_the_newest_one(catalog: dict[str, str]) -> None:
    made(catalog, 1)
    first = snapshot(catalog)
    append(catalog, 2)
    newest, given = source_of(catalog, None), source_of(catalog, first)
    marks, from_first = begun(newest), begun(given)
    append(catalog, 3)
    assert numbers(taken(newest, marks)) == [3]
    assert numbers(taken(given, from_first)) == [2, 3]
    assert numbers(read_all(iceberg.read(NAME, catalog=catalog, snapshot=first))) == [1]


def test_rows_of_the_sink_are_followed_with_their_partitions(catalog: dict[str, str]) -> None:
    sink = started(catalog, schema=COLUMNS, partition_by="kind")
    source = source_of(catalog)
    marks = begun(source)
    for number in (1, 2):
        rows = [{"n": n, "kind": f"kind {n % 2}"} for n in range(number * 10, number * 10 + 4)]
        sink.commit(JOB, number, [part_of(sink, number, rows)])
    assert sorted(numbers(taken(source, marks))) == [10, 11, 12, 13, 20, 21, 22, 23]


def test_files_that_are_written_again_are_not_read_again(catalog: dict[str, str]) -> None:
    made(catalog, 1, 2)
    source = source_of(catalog)
    marks = begun(source)
    assert numbers(taken(source, marks)) == [1, 2]
    with opened(catalog).transaction() as changing:
        changing.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    append(catalog, 3)
    assert numbers(taken(source, marks)) == [3]


@pytest.mark.parametrize("change", ["delete", "delete a file", "overwrite", "roll back"])
def test_a_snapshot_that_removes_rows_is_refused_and_the_next_job_goes_on_after_it(
    catalog: dict[str, str], change: str
) -> None:
    made(catalog)
    source = source_of(catalog)
    marks = begun(source)
    append(catalog, 1, 2)
    if change == "roll back":
        sink = started(catalog, schema=COLUMNS)
        sink.commit(JOB, 1, [part_of(sink, 1, [{"n": 3, "kind": "c"}])])
        sink.roll_back(JOB, 0)
    elif change == "overwrite":
        opened(catalog).overwrite(opened(catalog).scan().to_arrow().slice(0, 1))
    else:
        opened(catalog).delete("n = 2" if change == "delete" else "n > 0")
    with pytest.raises(AppendsUnknown, match=r"removes rows \(its operation is '(delete|overwrite)'\).*after_snapshot"):
        taken(source, marks)
    again = source_of(catalog, snapshot(catalog))
    marks = begun(again)
    append(catalog, 7)
    assert numbers(taken(again, marks)) == [7]


@pytest.mark.filterwarnings("ignore:Delete operation did not match")
def test_an_overwrite_that_removes_nothing_is_an_append(catalog: dict[str, str]) -> None:
    made(catalog)
    source = source_of(catalog)
    marks = begun(source)
    opened(catalog).overwrite(pyarrow.table({"n": pyarrow.array([1], pyarrow.int32()), "kind": ["a"]}))
    assert numbers(taken(source, marks)) == [1]


def test_commits_to_another_branch_are_not_read(catalog: dict[str, str]) -> None:
    made(catalog, 1)
    opened(catalog).manage_snapshots().create_branch(snapshot(catalog), "trial").commit()
    source = source_of(catalog)
    marks = begun(source)
    append(catalog, 2, branch="trial")
    append(catalog, 3)
    assert numbers(taken(source, marks)) == [1, 3]
    assert sorted(numbers(read_all(iceberg.read(NAME, catalog=catalog)))) == [1, 3]


def test_a_table_that_was_set_back_is_followed_if_nothing_was_read_of_what_it_lost(catalog: dict[str, str]) -> None:
    made(catalog, 1)
    first = snapshot(catalog)
    source = source_of(catalog)
    marks = begun(source)
    append(catalog, 2)
    opened(catalog).manage_snapshots().rollback_to_snapshot(first).commit()
    append(catalog, 3)
    assert numbers(taken(source, marks)) == [1, 3]
    opened(catalog).manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(AppendsUnknown, match="the table was set back"):
        taken(source, marks)


def test_a_snapshot_that_was_read_in_part_and_is_replaced_is_an_error(catalog: dict[str, str]) -> None:
    made(catalog, 1)
    first = snapshot(catalog)
    source = source_of(catalog, first)
    (split,) = source.splits(1)
    append(catalog, 2, 3)
    reader = source.reader()
    reader.open(split, None)
    assert reader.read(1).num_rows == 1
    mark = reader.mark()
    reader.close()
    opened(catalog).manage_snapshots().rollback_to_snapshot(first).commit()
    append(catalog, 4)
    with pytest.raises(AppendsUnknown, match="was read in part"):
        taken(source, {split: mark})


def test_snapshots_that_have_expired_before_they_were_read_are_an_error(catalog: dict[str, str]) -> None:
    made(catalog, 1)
    first = snapshot(catalog)
    source = source_of(catalog)
    marks = begun(source)
    assert numbers(taken(source, marks)) == [1]
    second = append(catalog, 2)
    append(catalog, 3)
    expire = opened(catalog).maintenance.expire_snapshots
    expire().by_id(first).commit()  # that was read
    behind = dict(marks)
    assert numbers(taken(source, marks)) == [2, 3]
    expire().by_id(second).commit()
    with pytest.raises(SnapshotGone, match="a snapshot before it, which was not read, has expired"):
        taken(source, behind)
    with pytest.raises(SnapshotGone, match="has expired"):
        source_of(catalog).splits(1)


def test_a_file_or_a_manifest_that_is_gone_is_an_error(catalog: dict[str, str], tmp_path: Path) -> None:
    made(catalog, 1)
    source = source_of(catalog)
    for pattern in ("lake/**/*.parquet", "lake/**/*.avro"):
        for file in tmp_path.glob(pattern):
            file.unlink()
        with pytest.raises(SnapshotGone, match="removed"):
            taken(source)


def test_a_table_that_was_dropped_and_made_again_is_refused(catalog: dict[str, str], tmp_path: Path) -> None:
    made(catalog, 1)
    source = source_of(catalog)
    marks = begun(source)
    load_catalog(**catalog).drop_table(NAME)
    made(catalog, 2)
    with pytest.raises(TableReplaced, match="was dropped and made again"):
        taken(source, marks)
    with pytest.raises(TableReplaced):
        source.check_split(next(iter(marks)))


def test_columns_are_those_of_the_first_start_by_their_numbers(catalog: dict[str, str]) -> None:
    made(catalog, 1)
    source = source_of(catalog)
    marks = begun(source)
    with opened(catalog).update_schema() as update:
        update.rename_column("kind", "sort")
        update.add_column("more", LongType())
    rows = pyarrow.table({"n": pyarrow.array([2], pyarrow.int32()), "sort": ["b"], "more": [5]})
    opened(catalog).append(rows)
    assert taken(source, marks) == [{"n": 1, "kind": "kind 1"}, {"n": 2, "kind": "b"}]
    assert source.sampled_schema(list(marks)).names == COLUMNS.names
    assert source.column_schema().names == ["n", "sort", "more"]
    assert [row["more"] for row in taken(source_of(catalog))] == [None, 5]


def test_a_column_whose_type_has_grown_since_the_start_is_an_error(catalog: dict[str, str]) -> None:
    made(catalog, 1)
    source = source_of(catalog)
    marks = begun(source)
    with opened(catalog).update_schema() as update:
        update.update_column("n", LongType())
    opened(catalog).append(pyarrow.table({"n": pyarrow.array([1 << 40], pyarrow.int64()), "kind": ["b"]}))
    with pytest.raises(AppendsUnknown, match="has the column n as long, which was int when the job first started"):
        taken(source, marks)
    assert numbers(taken(source_of(catalog))) == [1, 1 << 40]


def test_only_the_columns_that_steps_use_are_read(catalog: dict[str, str]) -> None:
    made(catalog, 1)
    assert taken(source_of(catalog).narrowed({"kind"}, ())) == [{"kind": "kind 1"}]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"after": 5}, "has no snapshot 5"),
        ({"after": -1}, "or 0 for all"),
        ({"after": "new"}, "or 0 for all"),
        ({"until": "never"}, "until"),
    ],
)
def test_a_snapshot_that_does_not_exist_is_refused(catalog: dict[str, str], options: Any, problem: str) -> None:
    made(catalog, 1)
    with pytest.raises(InvalidConnector, match=problem):
        source_of(catalog, **options).splits(1)
    with pytest.raises(InvalidConnector, match="there is no table"):
        iceberg.changes("shop.nothing", catalog=catalog).splits(1)


def test_a_job_reads_a_snapshot_and_then_what_follows(catalog: dict[str, str]) -> None:
    made(catalog, 1, 2)
    at = snapshot(catalog)
    append(catalog, 3)
    both = iceberg.read(NAME, catalog=catalog, snapshot=at).then(source_of(catalog, at, until="latest"))
    assert sorted(row["n"] for row in read_all(both)) == [1, 2, 3]


def test_a_snapshot_of_an_iceberg_table_is_followed_by_its_appends_in_columns(catalog: dict[str, str]) -> None:
    made(catalog, 1, 2)
    last = append(catalog, 3)
    append(catalog, 4)
    history = iceberg.read(NAME, catalog=catalog, snapshot=last)
    both = history.then(source_of(catalog, last, until="latest"))
    columns = both.sampled_schema(both.splits(1))
    assert columns == both.column_schema() == history.column_schema()
    assert columns is not None
    assert columns.names == COLUMNS.names
    assert sorted(numbers(read_all(both))) == [1, 2, 3, 4]
    with pytest.raises(LateCut, match="without after_snapshot= it begins after the newest snapshot"):
        history.then(source_of(catalog, None)).splits(1)
