"""Commits that two drivers repeat at the same time."""

import os
from pathlib import Path

import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import OutputFailed
from clonos.connectors.filesystem.json_files import JsonFiles
from tests.unit.connectors.writing import JOB, part_of


@pytest.fixture
def sink(tmp_path: Path) -> JsonFiles:
    started = files.jsonl(tmp_path / "out")
    started.prepare_output(JOB, resume=False, overwrite=False)
    return started


def test_a_commit_tolerates_a_part_that_another_driver_renames_first(
    sink: JsonFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [part_of(sink, 1, [{"a": index}], index) for index in (0, 1)]
    rename = os.rename

    def beaten(source: str, target: str) -> None:
        rename(source, target)  # the other driver
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", beaten)
        sink.commit(JOB, 1, parts)
    sink.commit(JOB, 1, parts)
    assert list(files.read_committed(sink.folder())) == [{"a": 0}, {"a": 1}]


def test_a_part_that_is_nowhere_fails_its_commit(sink: JsonFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [part_of(sink, 1, [{"a": 0}])]
    rename = os.rename

    def removed(source: str, target: str) -> None:
        os.unlink(source)
        rename(source, target)

    monkeypatch.setattr(os, "rename", removed)
    with pytest.raises(OutputFailed, match="could not be created: No such file"):
        sink.commit(JOB, 1, parts)
