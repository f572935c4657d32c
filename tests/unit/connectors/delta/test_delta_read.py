"""``delta.read``: a version of a table gives its rows, whatever its files lack, and the same ones after a restart."""

from __future__ import annotations

import base64
import json
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.connectors import delta
from clonos.connectors.connector_errors import InputMalformed, InvalidConnector
from clonos.connectors.delta.delta_errors import DataFileGone
from clonos.core.values.column_rows import rows_of_columns
from tests.unit.connectors.reading import read_all, read_piecewise
from tests.unit.connectors.writing import JOB, part_of

pytestmark = pytest.mark.keeps_sockets  # of the runtime of the library

B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
NUMBERS = pyarrow.schema([("n", pyarrow.int64()), ("day", pyarrow.string())])


def table_of(path: Path, *versions: list[dict[str, Any]], **options: Any) -> str:
    """A table of which each version appends rows."""
    for rows in versions:
        write_deltalake(path, pyarrow.Table.from_pylist(rows, NUMBERS), mode="append", **options)
    return str(path)


def numbers(source: Any) -> list[int]:
    return sorted(row["n"] for row in read_all(source))


def test_a_version_has_the_rows_of_its_files_and_the_newest_one_is_pinned_by_the_splits(tmp_path: Path) -> None:
    path = table_of(tmp_path / "t", [{"n": 1, "day": "a"}], [{"n": 2, "day": "b"}], partition_by=["day"])
    assert numbers(delta.read(path, version=0)) == [1]
    source = delta.read(path)
    splits = source.splits(2)
    table_of(tmp_path / "t", [{"n": 3, "day": "c"}])
    assert sorted(row["n"] for split in splits for some in read_piecewise(source, split, [1]) for row in some) == [1, 2]
    first = datetime.fromtimestamp(DeltaTable(path).history()[-1]["timestamp"] / 1000, UTC)
    assert numbers(delta.read(path, timestamp=first + timedelta(milliseconds=1))) in ([1], [1, 2])
    assert numbers(delta.read(path)) == [1, 2, 3]


def set_commit_time(commit: Path, time: datetime | None) -> None:
    """Writes a commit again, with another time or with none."""
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    information = {} if time is None else {"commitInfo": {"timestamp": round(time.timestamp() * 1_000)}}
    actions = [action | information if "commitInfo" in action else action for action in actions]
    rewritten = [action for action in actions if time is not None or "commitInfo" not in action]
    commit.write_text("\n".join(map(json.dumps, rewritten)))


def test_the_time_of_a_version_is_that_of_its_commit_also_in_a_copy_of_the_table(tmp_path: Path) -> None:
    path = table_of(tmp_path / "t", [{"n": 1, "day": "a"}], [{"n": 2, "day": "a"}])
    begin = datetime(2026, 1, 1, tzinfo=UTC)  # before the files of the log were written
    log = tmp_path / "t" / "_delta_log"
    first, second = (log / f"{number:020}.json" for number in (0, 1))
    set_commit_time(first, begin)
    set_commit_time(second, begin + timedelta(milliseconds=1))
    assert numbers(delta.read(path, timestamp=begin)) == [1]
    assert numbers(delta.read(path, timestamp=begin + timedelta(milliseconds=1))) == [1, 2]
    with pytest.raises(InvalidConnector, match=r"or before in its log\. .* is of 2026-01-01T00:00:00\+00:00"):
        delta.read(path, timestamp=begin - timedelta(milliseconds=1)).splits(1)
    set_commit_time(second, None)
    with pytest.raises(InvalidConnector, match=r"version 1 of .* has no time in its commit"):
        delta.read(path, timestamp=begin).splits(1)


def test_a_reader_goes_on_at_its_mark_in_row_groups_and_in_whole_files(tmp_path: Path) -> None:
    rows = [{"n": n, "day": "a"} for n in range(10)]
    table_of(tmp_path / "t", [])
    name = "part-1.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, NUMBERS), tmp_path / "t" / name, row_group_size=4)
    added = {"path": name, "partitionValues": {}, "size": (tmp_path / "t" / name).stat().st_size}
    added |= {"modificationTime": 1, "dataChange": True}
    (tmp_path / "t/_delta_log/00000000000000000001.json").write_text(json.dumps({"add": added}))
    for ordered, count in ((False, 3), (True, 1)):
        source = delta.read(tmp_path / "t", ordered=ordered)
        splits = source.splits(2)
        assert len(splits) == count
        found = [row["n"] for split in splits for some in read_piecewise(source, split, [1, 3]) for row in some]
        assert found == list(range(10))


def test_files_without_a_later_column_have_null_in_it(tmp_path: Path) -> None:
    inner = pyarrow.struct([("x", pyarrow.int32())])
    wider = pyarrow.struct([("x", pyarrow.int32()), ("y", pyarrow.string())])
    write_deltalake(tmp_path / "t", pyarrow.table({"n": [1], "in": pyarrow.array([{"x": 1}], inner)}))
    later = pyarrow.table({"n": [2], "in": pyarrow.array([{"x": 2, "y": "b"}], wider), "more": ["c"]})
    write_deltalake(tmp_path / "t", later, mode="append", schema_mode="merge")
    found = sorted(read_all(delta.read(tmp_path / "t")), key=lambda row: int(row["n"]))
    assert found == [
        {"n": 1, "in": {"x": 1, "y": None}, "more": None},
        {"n": 2, "in": {"x": 2, "y": "b"}, "more": "c"},
    ]


def test_only_the_columns_that_steps_use_are_read(tmp_path: Path) -> None:
    path = table_of(tmp_path / "t", [{"n": 1, "day": "a"}], partition_by=["day"])
    for used, expected in (({"n"}, {"n": 1}), ({"day"}, {"day": "a"})):
        assert read_all(delta.read(path).narrowed(used, ())) == [expected]
    schema = delta.read(path).column_schema()
    assert schema is not None
    assert schema.names == ["n", "day"]
    assert read_all(delta.read(path).planned(schema)) == [{"n": 1, "day": "a"}]


PARTITION = pyarrow.schema(
    [
        ("n", pyarrow.int64()),
        ("text", pyarrow.string()),
        ("day", pyarrow.date32()),
        ("at", pyarrow.timestamp("us", "UTC")),
        ("local", pyarrow.timestamp("us")),
        ("price", pyarrow.decimal128(38, 10)),
        ("ratio", pyarrow.float64()),
        ("is_new", pyarrow.bool_()),
    ]
)


def test_partitions_have_the_types_of_the_table(tmp_path: Path) -> None:
    at = datetime(1901, 2, 3, 4, 5, 6, 789012)
    full = dict(zip(PARTITION.names[1:], ("a/b%é x=y", at.date(), at.replace(tzinfo=UTC), at), strict=False))
    rows = [
        {"n": 1, **full, "price": Decimal("12345.6789"), "ratio": 1e-30, "is_new": True},
        dict.fromkeys(PARTITION.names) | {"n": 2},
    ]
    write_deltalake(tmp_path / "t", pyarrow.Table.from_pylist(rows, PARTITION), partition_by=PARTITION.names[1:])
    found = sorted(read_all(delta.read(tmp_path / "t")), key=lambda row: int(row["n"]))
    assert found == rows


def test_texts_of_partitions_by_other_writers_are_read(tmp_path: Path) -> None:
    kinds = {"n": pyarrow.int64(), "at": pyarrow.timestamp("us", "UTC"), "price": pyarrow.decimal128(10, 2)}
    write_deltalake(tmp_path / "t", pyarrow.schema(kinds).empty_table(), partition_by=["at", "price"])
    log = tmp_path / "t/_delta_log"
    (tmp_path / "t/x y").mkdir()
    texts = ["2026-01-02 03:04:05", "2026-01-02T03:04:05.000000Z", "2026-01-02T04:04:05+01:00"]
    for version, text in enumerate(texts, 1):
        pyarrow.parquet.write_table(pyarrow.table({"n": [version]}), tmp_path / f"t/x y/{version}.parquet")
        added = {"path": f"x%20y/{version}.parquet", "partitionValues": {"at": text, "price": "-1.50"}, "size": 1}
        action = {"add": added | {"modificationTime": 1, "dataChange": True}}
        (log / f"{version:020}.json").write_text(json.dumps(action))
    rows = read_all(delta.read(tmp_path / "t", version=2))
    assert [row["at"] for row in rows] == [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)] * 2
    assert {row["price"] for row in rows} == {Decimal("-1.50")}


VALUES = {
    "whole": (pyarrow.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pyarrow.int8(), st.integers(-128, 127)),
    "real": (pyarrow.float64(), st.floats(allow_nan=False)),
    "text": (pyarrow.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "data": (pyarrow.binary(), st.binary()),
    "price": (
        pyarrow.decimal128(38, 9),
        st.decimals(Decimal(-(10**28)), Decimal(10**28), places=9, allow_nan=False).map(
            lambda value: value.quantize(Decimal("1e-9")) if abs(value) < 10**18 else value
        ),
    ),
    "day": (pyarrow.date32(), st.dates()),
    "at": (pyarrow.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "local": (pyarrow.timestamp("us"), st.datetimes()),
    "tags": (pyarrow.list_(pyarrow.string()), st.lists(st.none() | st.text("ab", max_size=2), max_size=3)),
    "nested": (
        pyarrow.struct([("x", pyarrow.int32()), ("y", pyarrow.list_(pyarrow.float32()))]),
        st.fixed_dictionaries({"x": st.none() | st.integers(-5, 5), "y": st.lists(st.just(0.5), max_size=2)}),
    ),
}
AWKWARD = pyarrow.schema([(name, kind) for name, (kind, _) in VALUES.items()])


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(st.fixed_dictionaries({name: st.none() | one for name, (_, one) in VALUES.items()}), max_size=6))
def test_values_that_the_sink_has_written_are_read_as_they_were(tmp_path_factory: Any, rows: list[Any]) -> None:
    path = tmp_path_factory.mktemp("lake") / "t"
    sink = delta.table(path, schema=AWKWARD)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    if rows:
        sink.commit(JOB, 1, [part_of(sink, 1, rows)])
    source = delta.read(path, ordered=True)
    found: list[Any] = []
    for split in source.splits(1):
        reader = source.reader()
        reader.open(split, None)
        while (batch := reader.read(1_000)) is not None:
            found += rows_of_columns(batch)
        reader.close()
    assert found == rows


def test_a_file_that_is_gone_names_its_version_and_what_helps(tmp_path: Path) -> None:
    path = table_of(tmp_path / "t", [{"n": 1, "day": "a"}])
    source = delta.read(path)
    (split,) = source.splits(1)
    for file in (tmp_path / "t").glob("*.parquet"):
        file.unlink()
    with pytest.raises(DataFileGone, match=r"which version 0 of its Delta table needs.*VACUUM removes files"):
        source.reader().open(split, None)
    with pytest.raises(DataFileGone):
        delta.read(path).splits(1)


def refused_table(path: Path, features: list[str], settings: dict[str, str], column: dict[str, Any]) -> Path:
    """An empty table with features that deltalake does not write."""
    (path / "_delta_log").mkdir(parents=True)
    fields = [{"name": "n", "type": "long", "nullable": True, "metadata": column}]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    data = {"id": "1", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "createdTime": 1}
    data |= {"schemaString": json.dumps({"type": "struct", "fields": fields}), "configuration": settings}
    entries = [{"protocol": protocol}, {"metaData": data}]
    (path / "_delta_log/00000000000000000000.json").write_text("\n".join(map(json.dumps, entries)))
    return path


def test_a_table_whose_columns_have_other_names_in_its_files_is_refused(tmp_path: Path) -> None:
    column = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1"}
    mapped = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    path = refused_table(tmp_path / "t", ["columnMapping"], mapped, column)
    with pytest.raises(InvalidConnector, match="uses columnMapping, which is not supported"):
        delta.read(path).splits(1)


def test_rows_that_are_marked_as_deleted_are_refused_and_a_table_that_only_could_have_some_is_read(
    tmp_path: Path,
) -> None:
    path = refused_table(tmp_path / "t", ["deletionVectors"], {}, {})
    assert delta.read(path).splits(1) == []
    pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2]}), path / "a.parquet")
    added: dict[str, Any] = {"path": "a.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1}
    added |= {"dataChange": True, "stats": '{"numRecords": 2}'}
    log = path / "_delta_log"
    (log / f"{1:020}.json").write_text(json.dumps({"add": added}))
    assert numbers(delta.read(path)) == [1, 2]
    bitmap = struct.pack("<IQI", 1681511377, 1, 0) + struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 1)
    text = base64.b85encode(bitmap + bytes(2)).translate(bytes.maketrans(B85, Z85)).decode()
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(bitmap), "cardinality": 1}
    (log / f"{2:020}.json").write_text(json.dumps({"add": added | {"deletionVector": vector}}))
    with pytest.raises(InvalidConnector, match=r"marked as deleted by a deletion vector.*REORG TABLE"):
        delta.read(path).splits(1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"version": 9}, r"has no version 9\. Its newest version is 0"),
        ({"version": -1}, "version is -1"),
        ({"version": 0, "timestamp": datetime(2026, 1, 1, tzinfo=UTC)}, "Leave out one"),
        ({"timestamp": datetime(2026, 1, 1)}, "with a time zone"),
        ({"timestamp": date(2026, 1, 1)}, "with a time zone"),
        (
            {"timestamp": datetime(2001, 1, 1, tzinfo=UTC)},
            r"has no version of 2001-01-01T00:00:00\+00:00 or before in its log\. Give a later timestamp=",
        ),
    ],
)
def test_a_version_that_is_not_there_is_refused(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    path = table_of(tmp_path / "t", [{"n": 1, "day": "a"}])
    with pytest.raises(InvalidConnector, match=problem):
        delta.read(path, **options).splits(1)


def test_a_place_without_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConnector, match="there is no Delta table at"):
        delta.read(tmp_path / "nothing").splits(1)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = table_of(tmp_path / "t", [{"n": 1, "day": "a"}])
    (file,) = (tmp_path / "t").glob("*.parquet")
    file.write_bytes(b"PAR1" + bytes(file.stat().st_size - 4))
    with pytest.raises(InputMalformed, match=file.name):
        delta.read(path, ordered=True).splits(1) and read_all(delta.read(path, ordered=True))
