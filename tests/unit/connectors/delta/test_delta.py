"""``delta.table``: each checkpoint is one transaction of the table, read back by the library of Delta Lake."""

import resource
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from clonos.connectors import delta
from clonos.connectors.connector_errors import (
    InvalidConnector,
    OutputCorrupt,
    OutputFailed,
    RowNotWritable,
    UnexpectedOutput,
)
from clonos.connectors.delta.table_log import TableLog
from clonos.operators.connector_contract import WriterContext
from tests.unit.connectors.table_rows import OTHER, SCHEMA, row
from tests.unit.connectors.writing import JOB, part_of, writer_of

pytestmark = pytest.mark.keeps_sockets  # of the runtime of the library


def started(path: Path, job_id: str = JOB, **options: Any) -> delta.DeltaTableSink:
    sink = delta.table(path, **({"schema": SCHEMA} | options))
    sink.prepare_output(job_id, resume=False, overwrite=False)
    return sink


def found(path: Path) -> list[Any]:
    """The rows of the table, by their number."""
    return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda each: int(each["n"]))


@pytest.mark.parametrize("partition_by", [None, "day", ["day", "name"]])
def test_the_rows_of_a_checkpoint_are_one_transaction(tmp_path: Path, partition_by: Any) -> None:
    sink = started(tmp_path / "t", partition_by=partition_by)
    parts = [part_of(sink, 1, [row(1), row(2)]), part_of(sink, 1, [row(3, name="a/b%", tags=None)], index=1)]
    assert found(tmp_path / "t") == []
    sink.commit(JOB, 1, parts)
    table = DeltaTable(tmp_path / "t")
    assert (table.version(), table.transaction_version(JOB)) == (1, 1)
    assert found(tmp_path / "t") == [row(1), row(2), row(3, name="a/b%", tags=None)]


def test_a_commit_that_is_repeated_adds_nothing(tmp_path: Path) -> None:
    sink = started(tmp_path / "t")
    parts = [part_of(sink, 1, [row(1)])]
    for _ in range(2):
        sink.commit(JOB, 1, parts)
    again = delta.table(tmp_path / "t", schema=SCHEMA)
    again.prepare_output(JOB, resume=True, overwrite=False)
    again.commit(JOB, 1, parts)
    assert found(tmp_path / "t") == [row(1)]
    assert DeltaTable(tmp_path / "t").version() == 1


def test_a_commit_that_is_cut_off_before_its_transaction_is_completed(tmp_path: Path) -> None:
    sink = started(tmp_path / "t", partition_by="day")
    parts = [part_of(sink, 1, [row(1), row(2)])]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))  # less than a transaction has
    try:
        with pytest.raises(OutputFailed, match=r"nothing is\s+lost"):
            sink.commit(JOB, 1, parts)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert found(tmp_path / "t") == []
    assert len(list((tmp_path / "t").glob("day=*/*.parquet"))) == 2
    sink.commit(JOB, 1, parts)
    assert found(tmp_path / "t") == [row(1), row(2)]


def test_a_second_transaction_for_a_checkpoint_is_refused_by_the_log(tmp_path: Path) -> None:
    sink = started(tmp_path / "t")
    sink.commit(JOB, 1, [part_of(sink, 1, [row(1)])])
    assert not TableLog(str(tmp_path / "t")).add(JOB, 1, [])
    assert DeltaTable(tmp_path / "t").version() == 1


def test_jobs_and_other_writers_share_a_table(tmp_path: Path) -> None:
    one, two = started(tmp_path / "t"), started(tmp_path / "t", OTHER)
    one.commit(JOB, 1, [part_of(one, 1, [row(1)])])
    write_deltalake(tmp_path / "t", pyarrow.Table.from_pylist([row(3)], SCHEMA), mode="append")
    writer = two.writer()
    writer.open(WriterContext(OTHER, "out/0", 0, 0, 1))
    writer.write([row(2)])
    part = writer.prepare(1)
    assert part is not None
    two.commit(OTHER, 1, [part])
    assert found(tmp_path / "t") == [row(1), row(2), row(3)]


def test_a_rollback_withdraws_the_files_of_later_checkpoints_and_no_others(tmp_path: Path) -> None:
    sink = started(tmp_path / "t", partition_by="day")
    for number in (1, 2, 3):
        sink.commit(JOB, number, [part_of(sink, number, [row(number)])])
    write_deltalake(tmp_path / "t", pyarrow.Table.from_pylist([row(9)], SCHEMA), mode="append")
    assert sink.roll_back(JOB, 1) == [3, 2]
    assert sink.roll_back(JOB, 1) == []
    assert found(tmp_path / "t") == [row(1), row(9)]
    sink.commit(JOB, 2, [part_of(sink, 2, [row(4)], incarnation=2)])
    assert found(tmp_path / "t") == [row(1), row(4), row(9)]


def test_a_rollback_over_a_compacted_table_is_an_error_that_changes_nothing(tmp_path: Path) -> None:
    sink = started(tmp_path / "t")
    for number in (1, 2):
        sink.commit(JOB, number, [part_of(sink, number, [row(number)])])
    DeltaTable(tmp_path / "t").optimize.compact()
    with pytest.raises(OutputCorrupt, match="another writer has replaced or deleted it"):
        sink.roll_back(JOB, 1)
    assert found(tmp_path / "t") == [row(1), row(2)]


def test_columns_are_written_as_columns(tmp_path: Path) -> None:
    sink = started(tmp_path / "t", partition_by="day")
    writer = writer_of(sink)
    writer.write_columns(pyarrow.RecordBatch.from_pylist([row(1), row(2)], SCHEMA))
    part = writer.prepare(1)
    assert part is not None
    sink.commit(JOB, 1, [part])
    assert found(tmp_path / "t") == [row(1), row(2)]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"n": "x"}, "its n cannot be written as int64"),
        ({"extra": 1}, "extra"),
        ({"day": "2026-01-02"}, "its day is not date32"),
        ({"day": datetime(2026, 1, 2, tzinfo=UTC)}, "its day is not date32"),
    ],
)
def test_a_row_that_does_not_fit_the_table_is_refused(tmp_path: Path, wrong: dict[str, Any], reason: str) -> None:
    sink = started(tmp_path / "t", partition_by="day")
    with pytest.raises(RowNotWritable, match=reason):
        part_of(sink, 1, [row(1), row(2) | wrong])
    assert found(tmp_path / "t") == []


def test_a_batch_that_does_not_fit_the_partition_is_refused(tmp_path: Path) -> None:
    writer = writer_of(started(tmp_path / "t", partition_by="day"))
    with pytest.raises(RowNotWritable, match="its day is not date32"):
        writer.write_columns(pyarrow.record_batch({"n": [1], "day": ["never"]}))
    writer.close()


@pytest.mark.parametrize(
    ("schema", "options", "problem"),
    [
        (None, {}, "without schema= its columns are not known"),
        (pyarrow.schema({"id": "int64", "n": "int64", "ID": "string"}), {}, "'id' and 'ID' of schema= are one column"),
        (SCHEMA, {"partition_by": "month"}, "partition_by=.*month.* do not fit"),
        (pyarrow.schema([("n", pyarrow.int64())]), {"partition_by": "n"}, "do not fit"),
        (pyarrow.schema([("n", pyarrow.month_day_nano_interval())]), {}, "Delta tables do not have"),
    ],
)
def test_a_table_that_cannot_be_created_is_refused(
    tmp_path: Path, schema: Any, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidConnector, match=problem):
        started(tmp_path / "t", schema=schema, **options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"schema": pyarrow.schema([("n", pyarrow.string())])},
            "the column 'n' is int64 in the table .* string in schema=",
        ),
        ({"schema": pyarrow.schema([("m", pyarrow.int64())])}, "has no column 'm'; it has n, name"),
        ({"partition_by": "name"}, "is partitioned by day"),
    ],
)
def test_a_table_of_another_shape_is_refused(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    DeltaTable.create(tmp_path / "t", Schema.from_arrow(SCHEMA), partition_by=["day"])
    with pytest.raises(InvalidConnector, match=problem):
        started(tmp_path / "t", **options)


def test_a_table_with_constraints_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "t", Schema.from_arrow(SCHEMA)).alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(InvalidConnector, match=r"has delta\.constraints\.positive, which this sink would not keep"):
        started(tmp_path / "t")


def test_rows_get_the_columns_of_a_table_that_exists(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "t", Schema.from_arrow(SCHEMA), partition_by=["day"])
    sink = started(tmp_path / "t", schema=None)
    sink.commit(JOB, 1, [part_of(sink, 1, [row(1)])])
    assert found(tmp_path / "t") == [row(1)]


def test_a_second_sink_of_a_job_into_a_table_is_refused(tmp_path: Path) -> None:
    started(tmp_path / "t")
    with pytest.raises(InvalidConnector, match="another sink of this job writes to the table"):
        started(tmp_path / "t")


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("mine")
    with pytest.raises(UnexpectedOutput, match="no Delta table"):
        started(tmp_path)


def test_a_start_that_fails_leaves_only_the_table(tmp_path: Path) -> None:
    sink = started(tmp_path / "t")
    sink.release_output(JOB)
    assert list((tmp_path / ".t.clonos").iterdir()) == []


@pytest.mark.parametrize(("path", "options"), [("hdfs://b/t", {}), ("", {}), ("t", {"part_rows": 0})])
def test_an_option_that_cannot_work_is_refused(path: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConnector):
        delta.table(path, **options)
