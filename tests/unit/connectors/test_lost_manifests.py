"""A manifest that is lost from an output folder is noticed by every reader, and costs no committed part."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import OutputCorrupt
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.connectors.filesystem.json_files import JsonFiles
from clonos.connectors.filesystem.output_parts import state_folder
from tests.unit.connectors.reading import read_all
from tests.unit.connectors.writing import JOB, part_of


@pytest.fixture
def sink(tmp_path: Path) -> JsonFiles:
    started = files.jsonl(tmp_path / "out")
    started.prepare_output(JOB, resume=False, overwrite=False)
    return started


def commit(sink: FileSink, *checkpoints: int) -> dict[int, bytes]:
    parts = {checkpoint: part_of(sink, checkpoint, [checkpoint]) for checkpoint in checkpoints}
    for checkpoint, part in parts.items():
        sink.commit(JOB, checkpoint, [part])
    return parts


def lose(sink: FileSink, checkpoint: int) -> None:
    Path(state_folder(sink.folder()), "manifests", f"{checkpoint:020}.manifest").unlink()


def shown(sink: FileSink) -> list[Any]:
    return list(files.read_committed(sink.folder()))


def resume(sink: FileSink, checkpoint: int) -> JsonFiles:
    again = files.jsonl(sink.folder())
    again.prepare_output(JOB, resume=True, overwrite=False)
    again.roll_back(JOB, checkpoint)
    return again


READERS: dict[str, Callable[[FileSink], Any]] = {
    "read_committed": shown,
    "committed": lambda sink: files.committed(sink.folder()),
    "a source": lambda sink: read_all(files.jsonl(sink.folder())),
    "the count of a job's end": lambda sink: sink.rows_written(),
    "a resume": lambda sink: resume(sink, 5),
}


@pytest.mark.parametrize("lost", [1, 2, 4])
@pytest.mark.parametrize("reader", READERS)
def test_a_lost_manifest_is_an_error_that_names_it_and_no_part_is_removed(
    sink: JsonFiles, reader: str, lost: int
) -> None:
    commit(sink, 1, 2, 4)
    there = sorted(os.listdir(sink.folder()))
    lose(sink, lost)
    with pytest.raises(OutputCorrupt, match=rf"0000{lost}\.manifest .* expected the manifest of checkpoint {lost}"):
        READERS[reader](sink)
    assert sorted(os.listdir(sink.folder())) == there


def test_nothing_is_committed_after_a_manifest_that_is_lost(sink: JsonFiles) -> None:
    commit(sink, 1, 2)
    part = part_of(sink, 3, [3])
    lose(sink, 2)
    with pytest.raises(OutputCorrupt, match="the manifest of checkpoint 2"):
        sink.commit(JOB, 3, [part])


def test_the_last_manifest_is_written_again_when_the_resume_repeats_its_commit(
    sink: JsonFiles, caplog: pytest.LogCaptureFixture
) -> None:
    parts = commit(sink, 1, 2, 3)
    lose(sink, 3)
    again = resume(sink, 3)
    with caplog.at_level(logging.WARNING):
        again.commit(JOB, 3, [parts[3]])
    assert "the manifest of checkpoint 3" in caplog.text
    assert shown(again) == [1, 2, 3]
    commit(again, 4)
    assert shown(again) == [1, 2, 3, 4]


@pytest.mark.parametrize("lost", [2, 3])
def test_a_resume_from_before_the_lost_manifest_goes_on(sink: JsonFiles, lost: int) -> None:
    commit(sink, 1, 2, 3)
    lose(sink, lost)
    again = resume(sink, 1)
    assert shown(again) == [1]
    commit(again, 5)
    assert shown(again) == [1, 5]
    assert len(os.listdir(sink.folder())) == 2


def test_a_rollback_to_after_a_lost_manifest_does_not_hide_it(sink: JsonFiles) -> None:
    commit(sink, 1, 2, 5)
    lose(sink, 2)
    with pytest.raises(OutputCorrupt, match="the manifest of checkpoint 2"):
        resume(sink, 3)
    with pytest.raises(OutputCorrupt, match="the manifest of checkpoint 2"):
        shown(sink)


def test_a_manifest_between_two_that_name_each_other_is_an_error(sink: JsonFiles) -> None:
    commit(sink, 1, 3)
    folder = Path(state_folder(sink.folder()), "manifests")
    third = (folder / f"{3:020}.manifest").read_text()
    (folder / f"{2:020}.manifest").write_text(third.replace('"checkpoint": 3', '"checkpoint": 2', 1))
    with pytest.raises(OutputCorrupt, match="expected a manifest that names that of 2, found 1"):
        shown(sink)


def test_a_driver_that_dies_before_it_notes_the_last_manifest_loses_nothing(sink: JsonFiles) -> None:
    commit(sink, 1)
    note = Path(state_folder(sink.folder()), "manifests", "last")
    before = note.read_bytes()
    parts = commit(sink, 2)
    note.write_bytes(before)  # as if the driver had died between the two
    again = resume(sink, 2)
    again.commit(JOB, 2, [parts[2]])
    commit(again, 3)
    assert shown(again) == [1, 2, 3]


def test_a_visible_part_that_no_manifest_names_is_removed_with_a_warning(
    sink: JsonFiles, caplog: pytest.LogCaptureFixture
) -> None:
    commit(sink, 1)
    stray = "part-0000000001-count_words-0-0-9.jsonl"
    Path(sink.folder(), stray).write_text("9\n")
    with caplog.at_level(logging.WARNING):
        resume(sink, 1)
    assert f"such as {stray}" in caplog.text
    assert shown(sink) == [1]


def lose_last(sink: FileSink) -> Path:
    note = Path(state_folder(sink.folder()), "manifests", "last")
    note.unlink()
    return note


@pytest.mark.parametrize("checkpoints", [(1,), (1, 2, 4)])
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_warns_when_the_file_that_names_the_last_manifest_is_lost(
    sink: JsonFiles, reader: str, checkpoints: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    commit(sink, *checkpoints)
    note = lose_last(sink)
    with caplog.at_level(logging.WARNING):
        READERS[reader](sink)
    assert f"the file {note} is missing" in caplog.text
    assert f"There is none after checkpoint {checkpoints[-1]}" in caplog.text


@pytest.mark.parametrize("is_resumed", [True, False])
def test_the_file_that_names_the_last_manifest_is_written_again_with_a_warning(
    sink: JsonFiles, is_resumed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    commit(sink, 1, 2)
    lose_last(sink)
    with caplog.at_level(logging.WARNING):
        if is_resumed:
            resume(sink, 2)
        else:
            commit(sink, 3)
    assert caplog.text.count("is missing, which names the last manifest") == 1
    caplog.clear()
    assert shown(sink) == ([1, 2] if is_resumed else [1, 2, 3])
    assert not caplog.text


def test_a_rollback_to_before_the_first_manifest_warns_of_nothing(
    sink: JsonFiles, caplog: pytest.LogCaptureFixture
) -> None:
    commit(sink, 2, 3)
    again = resume(sink, 1)
    commit(again, 4)
    assert shown(again) == [4]
    assert not caplog.text


def test_a_repeated_commit_writes_the_last_number_that_a_dead_driver_did_not_write(sink: JsonFiles) -> None:
    commit(sink, 1)
    note = Path(state_folder(sink.folder()), "manifests", "last")
    before = note.read_bytes()
    parts = commit(sink, 2)
    note.write_bytes(before)
    sink.commit(JOB, 2, [parts[2]])
    lose(sink, 2)
    with pytest.raises(OutputCorrupt, match="the manifest of checkpoint 2"):
        shown(sink)
