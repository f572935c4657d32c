"""``iceberg.table``: each checkpoint is one snapshot of the table, read back by pyiceberg."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import DayTransform, IdentityTransform

from clonos.connectors import iceberg
from clonos.connectors.connector_errors import InvalidConnector, OutputCorrupt, OutputFailed, RowNotWritable
from tests.harnesses.iceberg_tables import NAME, catalog_in, found, opened
from tests.unit.connectors.table_rows import OTHER, SCHEMA, row
from tests.unit.connectors.writing import JOB, part_of, writer_of


def started(catalog: dict[str, str], job_id: str = JOB, **options: Any) -> iceberg.IcebergTableSink:
    sink = iceberg.table(NAME, catalog=catalog, **({"schema": SCHEMA} | options))
    sink.prepare_output(job_id, resume=False, overwrite=False)
    return sink


@pytest.mark.parametrize("partition_by", [None, "day", ["day", "name"]])
def test_the_rows_of_a_checkpoint_are_one_snapshot(catalog: dict[str, str], partition_by: Any) -> None:
    sink = started(catalog, partition_by=partition_by)
    parts = [part_of(sink, 1, [row(1), row(2)]), part_of(sink, 1, [row(3, name="a/b%", tags=None)], index=1)]
    assert found(catalog) == []
    sink.commit(JOB, 1, parts)
    assert found(catalog) == [row(1), row(2), row(3, name="a/b%", tags=None)]
    (snapshot,) = opened(catalog).snapshots()
    assert snapshot.summary["clonos.checkpoint"] == "1"


def test_a_commit_that_is_repeated_adds_nothing_also_when_its_snapshot_has_expired(catalog: dict[str, str]) -> None:
    sink = started(catalog)
    parts = [part_of(sink, 1, [row(1)])]
    for _ in range(2):
        sink.commit(JOB, 1, parts)
    opened(catalog).append(pyarrow.Table.from_pylist([row(9)], SCHEMA))
    first = opened(catalog).snapshots()[0]
    opened(catalog).maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    again = iceberg.table(NAME, catalog=catalog, schema=SCHEMA)
    again.prepare_output(JOB, resume=True, overwrite=False)
    again.commit(JOB, 1, parts)
    assert found(catalog) == [row(1), row(9)]
    with pytest.raises(OutputCorrupt, match="it has expired, so its files are not known"):
        again.roll_back(JOB, 0)


def test_jobs_and_other_writers_share_a_table(catalog: dict[str, str]) -> None:
    one, two = started(catalog), started(catalog, OTHER)
    one.commit(JOB, 1, [part_of(one, 1, [row(1)])])
    opened(catalog).append(pyarrow.Table.from_pylist([row(3)], SCHEMA))
    two.commit(OTHER, 1, [part_of(two, 1, [row(2)], index=1)])
    assert found(catalog) == [row(1), row(2), row(3)]


def test_a_driver_that_another_one_is_ahead_of_looks_again(catalog: dict[str, str]) -> None:
    sink, second = started(catalog), iceberg.table(NAME, catalog=catalog)
    parts = [part_of(sink, 1, [row(1)])]
    real = sink.table.catalog().load_table
    stale: list[Any] = [real(NAME)]
    second.commit(JOB, 1, parts)
    sink.table.catalog().load_table = lambda name: stale.pop() if stale else real(name)
    sink.commit(JOB, 1, parts)
    assert not stale
    assert found(catalog) == [row(1)]
    assert len(opened(catalog).snapshots()) == 1


def test_a_rollback_withdraws_the_files_of_later_checkpoints_and_no_others(catalog: dict[str, str]) -> None:
    sink = started(catalog, partition_by="day")
    for number in (1, 2, 4):
        sink.commit(JOB, number, [part_of(sink, number, [row(number)])])
    opened(catalog).append(pyarrow.Table.from_pylist([row(9)], SCHEMA))
    assert sink.roll_back(JOB, 1) == [4, 2]
    assert sink.roll_back(JOB, 1) == []
    assert found(catalog) == [row(1), row(9)]
    sink.commit(JOB, 2, [part_of(sink, 2, [row(5)], incarnation=2)])
    sink.commit(JOB, 3, [part_of(sink, 3, [row(6)], incarnation=2)])
    assert found(catalog) == [row(1), row(5), row(6), row(9)]
    assert sink.roll_back(JOB, 0) == [3, 2, 1]
    assert found(catalog) == [row(9)]


def test_a_rollback_over_files_that_another_writer_has_replaced_changes_nothing(catalog: dict[str, str]) -> None:
    sink = started(catalog)
    sink.commit(JOB, 1, [part_of(sink, 1, [row(1)])])
    opened(catalog).overwrite(pyarrow.Table.from_pylist([row(7)], SCHEMA))
    with pytest.raises(OutputCorrupt, match="another writer has replaced or deleted it"):
        sink.roll_back(JOB, 0)
    assert found(catalog) == [row(7)]


def test_partitions_are_those_of_the_table(catalog: dict[str, str]) -> None:
    started(catalog)
    with opened(catalog).update_spec() as update:
        update.add_field("at", DayTransform(), "at_day")
    sink = iceberg.table(NAME, catalog=catalog)
    sink.prepare_output(OTHER, resume=False, overwrite=False)
    rows = [row(n, at=datetime(2026, 1, n % 2 + 1, tzinfo=UTC) if n else None) for n in range(5)]
    part = part_of(sink, 1, rows)
    sink.commit(JOB, 1, [part])
    assert found(catalog) == rows
    assert {str(task.file.partition[0]) for task in opened(catalog).scan().plan_files()} == {"None", "20454", "20455"}
    with opened(catalog).update_spec() as update:
        update.remove_field("at_day")
    with pytest.raises(OutputFailed, match="partitioned in another way"):
        sink.commit(JOB, 2, [part])


def test_a_partition_of_an_instant_that_python_has_not_is_refused_with_its_reason(catalog: dict[str, str]) -> None:
    schema = pyarrow.schema({"at": pyarrow.timestamp("us"), "n": pyarrow.int64()})
    writer = writer_of(started(catalog, schema=schema, partition_by="at"))
    times = pyarrow.array([1 << 60, 0, None], pyarrow.timestamp("us"))
    writer.write_columns(pyarrow.RecordBatch.from_arrays([times, pyarrow.array([1, 2, 3])], schema=schema))
    with pytest.raises(InvalidConnector, match="no name for the partition of a record, whose value is of timestamp"):
        writer.prepare(1)


@pytest.mark.parametrize("kind", ["rows", "columns"])
def test_a_row_that_does_not_fit_is_refused_and_those_around_it_are_written(catalog: dict[str, str], kind: str) -> None:
    sink = started(catalog)
    writer = writer_of(sink)
    with pytest.raises(RowNotWritable, match="its n cannot be written as int64"):
        writer.write([row(1), row(2, n="x")])
    refused: list[tuple[Any, int]] = []
    writer.set_aside = lambda _, row, index: refused.append((row, index))  # type: ignore[attr-defined]
    if kind == "rows":
        writer.write([row(1), row(2, n="x"), row(3)])
    else:
        wide = SCHEMA.set(0, pyarrow.field("n", pyarrow.float64()))
        writer.write_columns(pyarrow.RecordBatch.from_pylist([row(1), row(2, n=0.5), row(3)], wide))
    part = writer.prepare(1)
    writer.close()
    assert part is not None
    sink.commit(JOB, 1, [part])
    assert found(catalog) == [row(1), row(3)]
    assert [index for _, index in refused] == [1]


def test_columns_of_the_types_of_the_table_have_the_numbers_of_its_fields(catalog: dict[str, str]) -> None:
    schema = pyarrow.schema([("n", pyarrow.int64()), ("place", pyarrow.struct([("x", pyarrow.float64())]))])
    sink = started(catalog, schema=schema)
    writer = writer_of(sink)
    rows = [{"n": 1, "place": {"x": 0.5}}, {"n": 2, "place": {"x": None}}]
    writer.write_columns(pyarrow.RecordBatch.from_pylist(rows, schema))
    part = writer.prepare(1)
    writer.close()
    assert part is not None
    sink.commit(JOB, 1, [part])
    assert found(catalog) == rows


VALUES = {
    "whole": (pyarrow.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pyarrow.int32(), st.integers(-(2**31), 2**31 - 1)),
    "real": (pyarrow.float64(), st.floats(allow_nan=False)),
    "a b é": (pyarrow.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "data": (pyarrow.binary(), st.binary()),
    "price": (pyarrow.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
    "cents": (pyarrow.decimal128(9, 2), st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2))),
    "day": (pyarrow.date32(), st.dates()),
    "clock": (pyarrow.time64("us"), st.times()),
    "at": (pyarrow.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "local": (pyarrow.timestamp("us"), st.datetimes()),
    "tags": (pyarrow.list_(pyarrow.string()), st.lists(st.none() | st.text("ab", max_size=2), max_size=3)),
    "nested": (
        pyarrow.struct([("x", pyarrow.int32()), ("y", pyarrow.list_(pyarrow.float32()))]),
        st.fixed_dictionaries({"x": st.none() | st.integers(-5, 5), "y": st.lists(st.just(0.5), max_size=2)}),
    ),
}
AWKWARD = pyarrow.schema([(name, kind) for name, (kind, _) in VALUES.items()])


@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(st.fixed_dictionaries({n: st.none() | one for n, (_, one) in VALUES.items()}), min_size=1, max_size=4)
)
def test_awkward_values_are_written_as_they_are(tmp_path_factory: Any, rows: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("lake")
    catalog = catalog_in(folder)
    sink = started(catalog, schema=AWKWARD)
    sink.commit(JOB, 1, [part_of(sink, 1, rows)])
    assert opened(catalog).scan().to_arrow().to_pylist() == rows


def test_a_file_is_read_by_the_numbers_of_its_fields(catalog: dict[str, str]) -> None:
    sink = started(catalog)
    sink.commit(JOB, 1, [part_of(sink, 1, [row(1)])])
    with opened(catalog).update_schema() as update:
        update.rename_column("name", "title")
    (one,) = found(catalog)
    assert one["title"] == "name 1"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"schema": None}, "without schema= its columns are not known"),
        ({"partition_by": "month"}, "partition_by=.*month.* do not fit"),
        ({"schema": pyarrow.schema([("n", pyarrow.month_day_nano_interval())])}, "is not one of an Iceberg table"),
    ],
)
def test_a_table_that_cannot_be_created_is_refused(catalog: dict[str, str], options: Any, problem: str) -> None:
    with pytest.raises(InvalidConnector, match=problem):
        started(catalog, **options)


def test_a_table_with_other_columns_is_refused(catalog: dict[str, str]) -> None:
    started(catalog)
    with pytest.raises(InvalidConnector, match="has no column 'm'; it has n, name"):
        started(catalog, OTHER, schema=pyarrow.schema([("m", pyarrow.string())]))


def test_a_second_sink_of_a_job_into_a_table_is_refused(catalog: dict[str, str]) -> None:
    started(catalog)
    with pytest.raises(InvalidConnector, match="another sink of this job writes to the table"):
        started(catalog)


def test_a_start_that_fails_gives_the_table_back(catalog: dict[str, str]) -> None:
    sink = started(catalog)
    sink.release_output(JOB)
    assert not [key for key in opened(catalog).properties if key.startswith("clonos")]
    sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, [row(1)])])
    sink.release_output(JOB)
    assert sink.table.last_checkpoint(JOB) == 1


def test_a_table_is_partitioned_by_a_column_with_a_dot_and_by_a_field_of_a_struct(catalog: dict[str, str]) -> None:
    schema = pyarrow.schema(
        [("n", pyarrow.int64()), ("a.b", pyarrow.string()), ("a", pyarrow.struct([("c", pyarrow.string())]))]
    )
    started(catalog, schema=schema, partition_by="a.b")
    with opened(catalog).update_spec() as update:
        update.add_field("a.c", IdentityTransform(), "c")
    sink = iceberg.table(NAME, catalog=catalog)
    sink.prepare_output(OTHER, resume=False, overwrite=False)
    rows = [{"n": 1, "a.b": "x", "a": {"c": "y"}}, {"n": 2, "a.b": "x", "a": None}]
    sink.commit(JOB, 1, [part_of(sink, 1, rows)])
    assert found(catalog) == rows
    assert len(list(opened(catalog).scan().plan_files())) == 2


def test_files_of_a_table_that_was_dropped_and_made_again_are_refused(
    catalog: dict[str, str],
) -> None:
    sink = started(catalog)
    part = part_of(sink, 1, [row(1)])
    load_catalog(**catalog).drop_table(NAME)
    started(catalog, OTHER, schema=pyarrow.schema([*reversed(SCHEMA)]))
    with pytest.raises(OutputFailed, match="it was dropped and made again"):
        sink.commit(JOB, 1, [part])
    assert found(catalog) == []


def test_a_data_file_that_is_gone_is_an_error_of_the_commit(catalog: dict[str, str], tmp_path: Path) -> None:
    sink = started(catalog)
    part = part_of(sink, 1, [row(1)])
    for file in tmp_path.glob("lake/**/*.parquet"):
        file.unlink()
    with pytest.raises(OutputFailed, match=r"could not be committed"):
        sink.commit(JOB, 1, [part])
    assert found(catalog) == []


@pytest.mark.parametrize(("name", "options"), [("orders", {}), ("", {}), (NAME, {"part_rows": 0})])
def test_an_option_that_cannot_work_is_refused(catalog: dict[str, str], name: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConnector):
        iceberg.table(name, catalog=catalog, **options)


def test_a_catalog_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidConnector, match=r"the catalog of nowhere\.shop.orders cannot be used"):
        iceberg.table(NAME, catalog="nowhere").prepare_output(JOB, resume=False, overwrite=False)


def test_a_catalog_has_the_name_among_its_properties(tmp_path: Path) -> None:
    catalog = catalog_in(tmp_path)
    started(catalog | {"name": "mine"})
    assert load_catalog("mine", **catalog).table_exists(NAME)
    assert not load_catalog(**catalog).table_exists(NAME)
