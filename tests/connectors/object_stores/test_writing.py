"""Sinks of files write objects as they write files: committed rows only, whole objects, repaired after every crash."""

from __future__ import annotations

import errno
from typing import Any

import duckdb
import pyarrow.parquet
import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import (
    InputMissing,
    InvalidConnector,
    NotOutputOwner,
    OutputConflict,
    OutputFailed,
    OutputInUse,
    UnexpectedOutput,
)
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.io.store.bucket import Bucket
from tests.connectors.object_stores.objects import contents, put, put_raw
from tests.harnesses.s3_server import S3Server
from tests.unit.connectors.reading import read_all
from tests.unit.connectors.writing import JOB, part_of, writer_of

pytestmark = [pytest.mark.connectors, pytest.mark.keeps_sockets]

KINDS: dict[str, Any] = {"jsonl": files.jsonl, "csv": files.csv, "parquet": files.parquet, "arrow": files.arrow}


class Dies(Exception):
    """The process ends here."""


@pytest.fixture
def out(s3: S3Server, request: pytest.FixtureRequest) -> str:
    """A folder of its own for each test."""
    return str(request.node.name).replace("[", "-").replace("]", "")


def started(s3: S3Server, out: str, kind: str = "jsonl", **options: Any) -> FileSink:
    sink: FileSink = KINDS[kind](s3.url(out), **options)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    return sink


def hidden(s3: S3Server, out: str) -> list[str]:
    return [name for name in contents(s3, f".{out}.clonos") if name.startswith("parts/")]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_rows_become_visible_once_with_their_commit(s3: S3Server, out: str, kind: str) -> None:
    sink = started(s3, out, kind)
    first = [part_of(sink, 1, [{"word": "a"}, {"word": "b"}]), part_of(sink, 1, [{"word": "c"}], index=1)]
    assert contents(s3, out) == {}
    sink.commit(JOB, 1, first)
    sink.commit(JOB, 1, first[::-1])
    sink.commit(JOB, 2, [part_of(sink, 2, [{"word": "d"}])])
    rows = [{"word": word} for word in "abcd"]
    assert sorted(contents(s3, out)) == [
        f"part-0000000001-count_words-0-0-1.{kind}",
        f"part-0000000001-count_words-1-0-1.{kind}",
        f"part-0000000002-count_words-0-0-1.{kind}",
    ]
    assert list(files.read_committed(s3.url(out))) == rows
    assert read_all(KINDS[kind](s3.url(out))) == rows
    assert hidden(s3, out) == []
    assert sink.rows_written() == 4


def test_empty_objects_that_mark_the_folders_of_an_output_are_no_files_of_it(s3: S3Server, out: str) -> None:
    places = (f".{out}.clonos", f".{out}.clonos/manifests", f".{out}.clonos/parts")
    put_raw(s3, f"{out}/", b"")  # a folder that was made in a console may become an output
    sink = started(s3, out)
    for place in places:
        put_raw(s3, f"{place}/", b"")
        put_raw(s3, f"{place}//x", b"x")
    put_raw(s3, f"{out}//x", b"x")
    sink.commit(JOB, 1, [part_of(sink, 1, [{"word": "a"}])])
    resumed = files.jsonl(s3.url(out))
    resumed.prepare_output(JOB, resume=True, overwrite=False)
    resumed.commit(JOB, 2, [part_of(resumed, 2, [{"word": "b"}])])
    assert (
        list(files.read_committed(s3.url(out))) == read_all(files.jsonl(s3.url(out))) == [{"word": "a"}, {"word": "b"}]
    )
    files.jsonl(s3.url(out)).prepare_output("other", resume=False, overwrite=True)
    assert list(files.read_committed(s3.url(out))) == []


def test_other_programs_read_the_committed_objects(s3: S3Server, out: str) -> None:
    sink = started(s3, out, "parquet")
    sink.commit(JOB, 1, [part_of(sink, 1, [{"word": "a", "n": 1}, {"word": "b", "n": 2}])])
    (content,) = contents(s3, out).values()
    table = pyarrow.parquet.read_table(pyarrow.BufferReader(content))
    assert duckdb.from_arrow(table).sum("n").fetchall() == [(3,)]


@pytest.mark.parametrize("calls", range(1, 8))
def test_a_commit_that_is_cut_off_at_any_request_is_completed_by_its_repetition(
    s3: S3Server, out: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = started(s3, out)
    parts = [part_of(sink, 1, [{"a": index}], index) for index in (0, 1)]
    left = calls

    def dying(call: Any) -> Any:
        def run(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise Dies
            return call(*arguments)

        return run

    with monkeypatch.context() as patched:
        for name in ("copy", "delete", "create", "status"):
            patched.setattr(Bucket, name, dying(getattr(Bucket, name)))
        with pytest.raises(Dies):
            sink.commit(JOB, 1, parts)
    assert set(contents(s3, out).values()) <= {b'{"a":0}\n', b'{"a":1}\n'}
    assert list(files.committed(s3.url(out))) == []
    resumed = files.jsonl(s3.url(out))
    resumed.prepare_output(JOB, resume=True, overwrite=False)
    resumed.commit(JOB, 1, parts)
    assert sorted(contents(s3, out).values()) == [b'{"a":0}\n', b'{"a":1}\n']
    assert [row["a"] for row in files.read_committed(s3.url(out))] == [0, 1]
    assert hidden(s3, out) == []


def test_a_commit_tolerates_a_part_that_another_driver_moves_first(
    s3: S3Server, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = started(s3, out)
    parts = [part_of(sink, 1, [{"a": 0}])]
    copy = Bucket.copy

    def beaten(bucket: Bucket, key: str, target: str) -> None:
        copy(bucket, key, target)  # the other driver
        bucket.delete(key)
        copy(bucket, key, target)

    with monkeypatch.context() as patched:
        patched.setattr(Bucket, "copy", beaten)
        sink.commit(JOB, 1, parts)
    assert list(contents(s3, out).values()) == [b'{"a":0}\n']


def test_a_writer_that_dies_or_is_closed_leaves_no_object(s3: S3Server, out: str) -> None:
    sink = started(s3, out)
    writer = writer_of(sink)
    writer.write([{"a": 1}] * 1_000)
    assert hidden(s3, out) == []
    writer.close()
    assert hidden(s3, out) == []


def test_a_resume_removes_parts_that_can_never_be_committed_and_a_rollback_the_later_ones(
    s3: S3Server, out: str
) -> None:
    sink = started(s3, out)
    part_of(sink, 1, [{"a": "never named"}], incarnation=9)
    for checkpoint in (1, 2, 3):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, [{"a": checkpoint}])])
    part_of(sink, 4, [{"a": "not yet"}])
    assert len(hidden(s3, out)) == 2
    sink.prepare_output(JOB, resume=True, overwrite=False)
    assert len(hidden(s3, out)) == 1
    assert files.roll_back(s3.url(out), JOB, 1) == [3, 2]
    assert hidden(s3, out) == []
    assert [row["a"] for row in files.read_committed(s3.url(out))] == [1]
    assert len(contents(s3, out)) == 1


def test_a_folder_in_use_is_refused_and_overwritten_on_demand(s3: S3Server, out: str) -> None:
    sink = started(s3, out)
    sink.commit(JOB, 1, [part_of(sink, 1, [{"a": 1}])])
    other = files.jsonl(s3.url(out))
    with pytest.raises(OutputInUse):
        other.prepare_output("other-1", resume=False, overwrite=False)
    with pytest.raises(NotOutputOwner):
        other.prepare_output("other-1", resume=True, overwrite=False)
    with pytest.raises(OutputConflict):
        sink.commit(JOB, 1, [part_of(sink, 1, [{"a": 2}], incarnation=2)])
    other.prepare_output("other-1", resume=False, overwrite=True)
    assert contents(s3, out) == {}
    put(s3, f"{out}-foreign/data.csv", b"a\n1\n")
    with pytest.raises(UnexpectedOutput, match=r"such as 'data\.csv'"):
        started(s3, f"{out}-foreign")


@pytest.mark.parametrize("kind", ["csv", "arrow"])
def test_a_single_object_appears_when_the_job_has_ended(s3: S3Server, out: str, kind: str) -> None:
    sink = started(s3, f"{out}/one.{kind}", kind, single=True)
    for checkpoint in (1, 2):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, [{"n": checkpoint}])])
    assert list(contents(s3, out)) == [name for name in contents(s3, out) if name.startswith(".")]
    sink.finish_output(JOB)
    sink.finish_output(JOB)
    assert [int(row["n"]) for row in read_all(KINDS[kind](s3.url(f"{out}/one.{kind}")))] == [1, 2]


def test_a_store_that_fails_is_an_error_that_loses_nothing(
    s3: S3Server, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = started(s3, out)
    writer = writer_of(sink)
    writer.write([{"a": 1}])

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "the store is down")

    with monkeypatch.context() as patched:
        patched.setattr(Bucket, "upload", failing)
        with pytest.raises(OutputFailed, match=r"could not be uploaded: the store is down.*nothing is\s+lost"):
            writer.prepare(1)
    with s3.outage(requests=2):
        part = writer.prepare(2)
    assert part is not None
    sink.commit(JOB, 2, [part])
    assert list(contents(s3, out).values()) == [b'{"a":1}\n']
    with pytest.raises(InvalidConnector, match="whole bucket"):
        started(s3, "")
    with pytest.raises(OutputFailed, match="no such bucket"):
        files.jsonl(s3.url("x").replace("bucket", "nobucket")).prepare_output(JOB, resume=False, overwrite=False)
    with pytest.raises(InputMissing):
        files.committed(s3.url("nothing"))
