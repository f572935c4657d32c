"""``delta.changes``: the log of a table is followed version by version, each file once, from any mark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from clonos.connectors import delta
from clonos.connectors.connector_errors import InvalidConnector, UnexpectedInput
from clonos.connectors.delta.delta_errors import ChangesUnknown, DataFileGone, VersionsGone
from clonos.core.values.column_rows import rows_of_columns
from tests.unit.connectors.reading import begun, taken

pytestmark = pytest.mark.keeps_sockets  # of the runtime of the library

FEED = {"delta.enableChangeDataFeed": "true"}


def append(path: Path, *numbers: int, **options: Any) -> None:
    rows = pyarrow.table(
        {"n": pyarrow.array(numbers, pyarrow.int64()), "kind": ["a" if n % 2 else "b" for n in numbers]}
    )
    write_deltalake(path, rows, mode="append", **options)


def changes(rows: list[Any]) -> list[tuple[int, str, int]]:
    return [(row["_commit_version"], row["_change_type"], row["n"]) for row in rows]


@pytest.mark.parametrize("sizes", [(1,), (2, 1), (1_000,)])
def test_appends_are_read_version_by_version_from_any_mark(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    for numbers in ((1, 2, 3), (4,), (5, 6)):
        append(tmp_path / "t", *numbers, partition_by=["kind"])
    source = delta.changes(tmp_path / "t", from_version=1, ordered=True)
    marks = begun(source, 2)
    expected = [(1, "insert", 4), (2, "insert", 5), (2, "insert", 6)]
    assert sorted(changes(taken(source, marks, sizes))) == expected
    append(tmp_path / "t", 7)
    found = taken(source, marks, sizes)
    assert changes(found) == [(3, "insert", 7)]
    assert found[0]["kind"] == "a"
    assert found[0]["_commit_timestamp"].year > 2000


def test_shares_have_each_file_once_and_end_with_the_newest_version(tmp_path: Path) -> None:
    for number in range(12):
        append(tmp_path / "t", number)
    source = delta.changes(tmp_path / "t", from_version=0, until="latest")
    splits = source.splits(3)
    append(tmp_path / "t", 99)
    found = []
    for split in splits:
        reader = source.reader()
        reader.open(split, None)
        share = []
        while (batch := reader.read(5)) is not None:
            share += rows_of_columns(batch)
        assert len(share) < 12
        found += share
    assert sorted(row["n"] for row in found) == list(range(12))


def test_without_a_version_the_changes_after_the_first_start_are_read(tmp_path: Path) -> None:
    append(tmp_path / "t", 1)
    source = delta.changes(tmp_path / "t")
    marks = begun(source)
    assert taken(source, marks) == []
    append(tmp_path / "t", 2)
    assert changes(taken(source, marks)) == [(1, "insert", 2)]


def test_a_change_data_feed_has_updates_and_deletes_and_a_compaction_changes_nothing(tmp_path: Path) -> None:
    append(tmp_path / "t", 1, 2, 3, configuration=FEED, partition_by=["kind"])
    table = DeltaTable(tmp_path / "t")
    table.update(predicate="n = 2", new_values={"n": 20})
    table.delete("n = 3")
    append(tmp_path / "t", 5)
    DeltaTable(tmp_path / "t").optimize.compact()
    DeltaTable(tmp_path / "t").delete()
    found = taken(delta.changes(tmp_path / "t", from_version=0), sizes=(1,))
    by_version = [sorted(each[1:] for each in changes(found) if each[0] == version) for version in range(6)]
    assert by_version == [
        [("insert", 1), ("insert", 2), ("insert", 3)],
        [("update_postimage", 20), ("update_preimage", 2)],
        [("delete", 3)],
        [("insert", 5)],
        [],
        [("delete", 1), ("delete", 5), ("delete", 20)],
    ]
    assert {row["n"]: row["kind"] for row in found} == {1: "a", 2: "b", 3: "a", 5: "a", 20: "b"}


def test_a_version_that_removes_rows_is_refused_without_a_feed(tmp_path: Path) -> None:
    append(tmp_path / "t", 1, 2)
    DeltaTable(tmp_path / "t").delete("n = 1")
    source = delta.changes(tmp_path / "t", from_version=0)
    marks = begun(source)
    with pytest.raises(
        ChangesUnknown, match=r"version 1 .* removes rows \(DELETE\).*from_version=2 after a delta.read"
    ):
        taken(source, marks)
    DeltaTable(tmp_path / "t").alter.set_table_properties(FEED)
    DeltaTable(tmp_path / "t").delete("n = 2")
    assert changes(taken(delta.changes(tmp_path / "t", from_version=2))) == [(3, "delete", 2)]


def test_a_removed_file_without_its_partition_is_refused(tmp_path: Path) -> None:
    append(tmp_path / "t", 1, 2, partition_by=["kind"], configuration=FEED)
    DeltaTable(tmp_path / "t").delete("kind = 'a'")
    source = delta.changes(tmp_path / "t", from_version=1)
    assert taken(source)[0]["kind"] == "a"
    commit = tmp_path / "t" / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        action.get("remove", {}).pop("partitionValues", None)  # which the format lets a writer leave out
    commit.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(ChangesUnknown, match=r"version 1 .* does not say of which partition"):
        taken(source)


def test_a_column_that_is_added_is_known_to_a_fresh_start_alone(tmp_path: Path) -> None:
    append(tmp_path / "t", 1)
    source = delta.changes(tmp_path / "t", from_version=0)
    marks = begun(source)
    assert len(taken(source, marks)) == 1
    more = pyarrow.table({"n": [2], "kind": ["b"], "more": ["m"]})
    write_deltalake(tmp_path / "t", more, mode="append", schema_mode="merge")
    (row,) = taken(source, marks)
    assert (row["n"], "more" in row) == (2, False)
    rows = taken(delta.changes(tmp_path / "t", from_version=0))
    assert [row["more"] for row in rows] == [None, "m"]


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    append(tmp_path / "t", 1, configuration=FEED)
    source = delta.changes(tmp_path / "t")
    marks = begun(source)
    assert taken(source, marks) == []
    other = pyarrow.table({"n": ["x"], "kind": ["b"]})
    write_deltalake(tmp_path / "t", other, mode="overwrite", schema_mode="overwrite", configuration=FEED)
    with pytest.raises(ChangesUnknown, match="has the column n as string, which was int64"):
        taken(source, marks)


def test_a_version_that_the_log_has_lost_is_an_error(tmp_path: Path) -> None:
    for number in range(4):
        append(tmp_path / "t", number)
    source = delta.changes(tmp_path / "t", from_version=1)
    marks = begun(source)
    DeltaTable(tmp_path / "t").create_checkpoint()
    for version in (0, 1):
        (tmp_path / f"t/_delta_log/{version:020}.json").unlink()
    with pytest.raises(VersionsGone, match=r"does not have version 1.*it was removed, and the oldest one is 2"):
        taken(source, marks)
    with pytest.raises(VersionsGone, match="does not have version 1"):
        delta.changes(tmp_path / "t", from_version=1).splits(1)


def test_a_table_that_was_replaced_is_an_error(tmp_path: Path) -> None:
    for number in range(4):
        append(tmp_path / "t", number)
    source = delta.changes(tmp_path / "t", from_version=0)
    marks = begun(source)
    assert len(taken(source, marks)) == 4
    for version in (1, 2, 3):
        (tmp_path / f"t/_delta_log/{version:020}.json").unlink()
    with pytest.raises(VersionsGone, match="the table was replaced"):
        taken(source, marks)


def test_a_file_that_vacuum_has_removed_is_an_error(tmp_path: Path) -> None:
    append(tmp_path / "t", 1, configuration=FEED)
    DeltaTable(tmp_path / "t").delete()
    DeltaTable(tmp_path / "t").vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(DataFileGone, match="which version 0 of its Delta table needs"):
        taken(delta.changes(tmp_path / "t", from_version=0))


def test_only_the_columns_that_steps_use_are_read(tmp_path: Path) -> None:
    append(tmp_path / "t", 1, configuration=FEED)
    DeltaTable(tmp_path / "t").delete()
    source = delta.changes(tmp_path / "t", from_version=0)
    assert taken(source.narrowed({"_change_type"}, ())) == [{"_change_type": "insert"}, {"_change_type": "delete"}]
    schema = source.column_schema()
    assert schema is not None
    assert schema.names == ["n", "kind", "_change_type", "_commit_version", "_commit_timestamp"]
    assert schema == source.sampled_schema(source.splits(1))
    assert changes(taken(source.planned(schema))) == [(0, "insert", 1), (1, "delete", 1)]


def test_a_split_of_another_table_is_refused(tmp_path: Path) -> None:
    append(tmp_path / "t", 1)
    append(tmp_path / "u", 1)
    (split,) = delta.changes(tmp_path / "t", ordered=True).splits(4)
    with pytest.raises(UnexpectedInput):
        delta.changes(tmp_path / "u").check_split(split)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"from_version": 3}, r"from_version is 3\. The newest version of .* is 0"),
        ({"from_version": -1}, "from_version is -1"),
        ({"until": "now"}, "until is 'now'"),
    ],
)
def test_an_option_that_cannot_work_is_refused(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    append(tmp_path / "t", 1)
    with pytest.raises(InvalidConnector, match=problem):
        delta.changes(tmp_path / "t", **options).splits(1)


def test_a_table_with_a_column_of_changes_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pyarrow.table({"_commit_version": [1]}))
    with pytest.raises(InvalidConnector, match="has a column '_commit_version'"):
        delta.changes(tmp_path / "t").splits(1)
