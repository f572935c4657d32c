"""Partitioned outputs in an object store: a commit that dies is completed, and the columns of folders are read back."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.connectors import files
from clonos.io.store.bucket import Bucket
from tests.connectors.object_stores.objects import contents
from tests.harnesses.s3_server import S3Server
from tests.unit.connectors.reading import read_all
from tests.unit.connectors.writing import JOB, part_of

pytestmark = [pytest.mark.connectors, pytest.mark.keeps_sockets]

VALUES = ["a b", "ü/=%", 'x"#{}[]^*?:\\', None]


class Dies(Exception):
    """The process ends here."""


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_columns_of_folders_are_read_back(s3: S3Server, kind: str) -> None:
    make: Any = getattr(files, kind)
    sink = make(s3.url(f"values-{kind}"), partition_by="v")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    rows = [{"n": n, "v": value} for n, value in enumerate(VALUES)]
    sink.commit(JOB, 1, [part_of(sink, 1, rows)])
    assert list(files.read_committed(sink.folder())) == rows
    assert sorted(read_all(make(s3.url(f"values-{kind}"), partitioned=True)), key=lambda row: row["n"]) == rows
    assert contents(s3, f".values-{kind}.clonos/parts") == {}


def test_a_rollback_removes_the_later_objects(s3: S3Server) -> None:
    sink = files.jsonl(s3.url("rolled"), partition_by="v")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    for checkpoint in (1, 2):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, [{"n": checkpoint, "v": n} for n in range(3)])])
    assert sink.roll_back(JOB, 1) == [2]
    assert list(contents(s3, "rolled").values()) == [b'{"n":1}\n'] * 3
    sink.prepare_output("another", resume=False, overwrite=True)
    assert contents(s3, "rolled") == {}


@pytest.mark.parametrize("calls", range(1, 12))
def test_a_commit_that_is_cut_off_at_any_request_is_completed(
    s3: S3Server, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = s3.url(f"cut-{calls}")
    sink = files.jsonl(out, partition_by="v")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    part = part_of(sink, 1, [{"n": n, "v": n} for n in range(3)])
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
        try:
            sink.commit(JOB, 1, [part])
        except Dies:
            assert list(files.committed(out)) == []
    assert (left <= 0) is (calls <= 10)
    resumed = files.jsonl(out, partition_by="v")
    resumed.prepare_output(JOB, resume=True, overwrite=False)
    resumed.commit(JOB, 1, [part])
    assert sorted(contents(s3, f"cut-{calls}").values()) == [b'{"n":0}\n', b'{"n":1}\n', b'{"n":2}\n']
    assert contents(s3, f".cut-{calls}.clonos/parts") == {}
