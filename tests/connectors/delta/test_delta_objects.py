"""``delta.table`` in an object store: each checkpoint is one transaction, read back by the library of Delta Lake."""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable

from clonos.connectors import delta
from clonos.connectors.connector_errors import InvalidConnector, OutputFailed, UnexpectedOutput
from tests.connectors.object_stores.objects import contents, put
from tests.harnesses.s3_server import CREDENTIALS, S3Server
from tests.unit.connectors.reading import read_all
from tests.unit.connectors.writing import JOB, part_of, writer_of

pytestmark = [pytest.mark.connectors, pytest.mark.keeps_sockets]

SCHEMA = pyarrow.schema([("n", pyarrow.int64()), ("day", pyarrow.string())])


def delta_options(s3: S3Server) -> dict[str, str]:
    """Options of the library for tables in the store."""
    options = {name.lower(): value for name, value in CREDENTIALS.items()}
    return options | {"aws_endpoint": s3.address, "aws_region": "us-east-1", "allow_http": "true"}


def found(s3: S3Server, path: str) -> list[Any]:
    """The rows of the table, as another program reads them."""
    rows = DeltaTable(f"s3://bucket/{path}", storage_options=delta_options(s3)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: int(row["n"]))


def started(s3: S3Server, path: str, **options: Any) -> delta.DeltaTableSink:
    sink = delta.table(s3.url(path), **({"schema": SCHEMA} | options))
    sink.prepare_output(JOB, resume=False, overwrite=False)
    return sink


@pytest.mark.parametrize("partition_by", [None, "day"])
def test_checkpoints_are_transactions_that_may_be_repeated_and_withdrawn(s3: S3Server, partition_by: Any) -> None:
    path = f"lake/{partition_by}"
    sink = started(s3, path, partition_by=partition_by)
    rows = [{"n": n, "day": f"2026-11-{n:02}"} for n in range(1, 5)]
    parts = [part_of(sink, 1, rows[:2]), part_of(sink, 1, rows[2:3], index=1)]
    assert found(s3, path) == []
    sink.commit(JOB, 1, parts)
    sink.commit(JOB, 1, parts)
    assert found(s3, path) == rows[:3]
    again = delta.table(s3.url(path))
    again.prepare_output(JOB, resume=True, overwrite=False)
    again.commit(JOB, 1, parts)
    again.commit(JOB, 2, [part_of(again, 2, rows[3:])])
    assert found(s3, path) == rows
    assert again.roll_back(JOB, 1) == [2]
    assert found(s3, path) == rows[:3]
    state = contents(s3, f"lake/.{partition_by}.clonos/{JOB}")
    assert [name for name in state if name.endswith(".prepared")] == []


def test_a_version_in_a_store_is_read_with_the_texts_of_its_folders(s3: S3Server) -> None:
    sink = started(s3, "lake/read", partition_by="day")
    rows = [{"n": n, "day": day} for n, day in enumerate(["a b", "ü/%20", "", "x=y?z#"])]
    sink.commit(JOB, 1, [part_of(sink, 1, rows)])
    rows[2]["day"] = None  # an empty text is null in a partition of Delta
    for ordered in (True, False):
        source = delta.read(s3.url("lake/read"), ordered=ordered)
        for split in source.splits(2):
            source.check_split(split)
        assert sorted(read_all(source), key=lambda row: int(row["n"])) == rows


def test_a_writer_that_is_closed_leaves_no_object_and_the_start_that_fails_gives_the_place_back(s3: S3Server) -> None:
    sink = started(s3, "lake/left")
    writer = writer_of(sink)
    writer.write([{"n": 1, "day": "a"}])
    writer.close()
    sink.release_output(JOB)
    assert contents(s3, "lake/.left.clonos") == {}


def test_a_folder_of_other_objects_and_a_store_without_the_bucket_are_refused(s3: S3Server) -> None:
    put(s3, "lake/foreign/a.txt", b"a")
    with pytest.raises(UnexpectedOutput, match="is a folder with files, and no Delta table"):
        started(s3, "lake/foreign")
    with pytest.raises(OutputFailed, match=r"s3://missing/t.*there is no such bucket"):
        delta.table(s3.url("t").replace("bucket", "missing"), schema=SCHEMA).prepare_output(JOB, False, False)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("hdfs://namenode:8020/lake/t", "tables at hdfs:// are not supported"),
        ("hdfs://nowhere/lake/t", "No NameNode hosts"),
        ("https://shop.example/t", "files at https:// can only be read"),
        ("s3://bucket/t?secret=1", "its option secret is unknown"),
        ("az://container/t", "it names no account"),
    ],
)
def test_other_urls_are_refused(url: str, problem: str) -> None:
    with pytest.raises(InvalidConnector, match=problem):
        delta.table(url, schema=SCHEMA)
