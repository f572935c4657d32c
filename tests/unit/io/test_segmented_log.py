"""Logs of events in a store: rotation, several writers, and a store that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos.io.store.object_files import LocalFiles, StoreFailed
from clonos.io.store.segmented_log import PENDING_MAX, SegmentedLog, lines_of, names_of

FOLDER = "history/events"


class Failing(LocalFiles):
    """A folder whose next writes fail: before anything is written, or after it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.failures: list[str] = []

    def create_if_absent(self, name: str, data: bytes) -> bool:
        return self._failing(name, super().create_if_absent, data)

    def write(self, name: str, data: bytes) -> None:
        self._failing(name, super().write, data)

    def _failing(self, name: str, write: object, data: bytes) -> bool:
        assert callable(write)
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "before":
            raise StoreFailed(self.url, f"write {name}", "it is away")
        done = bool(write(name, data))
        if failure == "after":
            raise StoreFailed(self.url, f"write {name}", "the answer is lost")
        return done


@pytest.fixture
def files(tmp_path: Path) -> Failing:
    return Failing(tmp_path)


def _lines(count: int, first: int = 0) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(first, first + count)]


def test_lines_are_read_in_the_order_in_which_they_were_written(files: Failing) -> None:
    log = SegmentedLog(files, FOLDER, segment_bytes_max=40)
    for number in range(20):
        log.write(_lines(1, number))
    assert lines_of(files, FOLDER) == _lines(20)
    assert all(len(files.read(name)) <= 40 for name in names_of(files, FOLDER))


def test_the_oldest_objects_are_removed_when_the_limit_is_reached(files: Failing) -> None:
    log = SegmentedLog(files, FOLDER, segment_bytes_max=40, segments_max=3)
    for number in range(100):
        log.write(_lines(1, number))
    assert len(names_of(files, FOLDER)) == 3
    found = lines_of(files, FOLDER)
    assert found == _lines(len(found), 100 - len(found))


class Overtaken(LocalFiles):
    """A folder in which another driver creates the next object as soon as the list was read."""

    def list(self, folder: str) -> list[str]:
        found = super().list(folder)
        super().create_if_absent(f"{folder}/{len(found) + 1:08}.jsonl", b"of another driver\n")
        return found


def test_an_object_that_another_driver_has_just_created_stays(tmp_path: Path) -> None:
    SegmentedLog(Overtaken(tmp_path), FOLDER).write([b"own"])
    assert lines_of(LocalFiles(tmp_path), FOLDER) == [b"of another driver", b"own"]


def test_a_line_longer_than_an_object_gets_an_object_of_its_own(files: Failing) -> None:
    log = SegmentedLog(files, FOLDER, segment_bytes_max=10)
    log.write([b"a" * 50, b"b", b"c" * 50])
    assert lines_of(files, FOLDER) == [b"a" * 50, b"b", b"c" * 50]


def test_a_writer_that_was_paused_leaves_the_lines_of_its_successor(files: Failing) -> None:
    paused, successor = SegmentedLog(files, FOLDER), SegmentedLog(files, FOLDER)
    paused.write([b"first"])
    successor.write([b"second"])
    paused.write([b"third"])
    successor.write([b"fourth"])
    assert lines_of(files, FOLDER) == [b"first", b"third", b"second", b"fourth"]


@pytest.mark.parametrize("failure", ["before", "after"])
@pytest.mark.parametrize("is_first", [True, False])
def test_lines_that_a_store_did_not_confirm_are_there_once_after_the_next_write(
    files: Failing, failure: str, is_first: bool
) -> None:
    log = SegmentedLog(files, FOLDER)
    if not is_first:
        log.write([b"zeroth"])
    files.failures = [failure]
    with pytest.raises(StoreFailed):
        log.write([b"first"])
    log.write([b"second"])
    assert lines_of(files, FOLDER) == [b"zeroth"] * (not is_first) + [b"first", b"second"]


def test_a_store_that_stays_away_fills_no_memory(files: Failing) -> None:
    log = SegmentedLog(files, FOLDER)
    files.failures = ["before", "before"]
    for first in (0, PENDING_MAX):
        with pytest.raises(StoreFailed):
            log.write(_lines(PENDING_MAX, first))
    log.write([])
    assert lines_of(files, FOLDER) == _lines(PENDING_MAX, PENDING_MAX)


def test_files_of_others_are_no_part_of_a_log(files: Failing, tmp_path: Path) -> None:
    SegmentedLog(files, FOLDER).write([b"first"])
    (tmp_path / FOLDER / "notes.txt").write_text("mine")
    (tmp_path / FOLDER / "notes.jsonl").write_text("mine")
    SegmentedLog(files, FOLDER).write([b"second"])
    assert lines_of(files, FOLDER) == [b"first", b"second"]
