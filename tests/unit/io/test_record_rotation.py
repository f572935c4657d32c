"""Rotation of records: the last ones of a task stay, and the notes about those that were given up."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from clonos.io.epochs.record_parts import RecordedWay
from clonos.io.epochs.record_writer import GIVEN_UP, RecordWriter, note_given_up, rotate
from tests.unit.io.test_epoch_records import HEAD_OF_TOTAL


def record(folder: Path, number: int, written_ns: int, way: RecordedWay = RecordedWay.RUNNING) -> None:
    with RecordWriter(folder / str(number)) as writer:
        writer.finish(replace(HEAD_OF_TOTAL, way=way, written_ns=written_ns))


def test_the_oldest_records_are_removed_and_those_of_another_way_stay(tmp_path: Path) -> None:
    folder = tmp_path / "total-0"
    record(folder, 90, 1)  # of an earlier run, whose checkpoints had higher numbers
    record(folder, 1, 2, RecordedWay.CAPTURED)
    record(folder, 2, 3)
    record(folder, 3, 4)
    (folder / "notes").write_text("of the user")
    rotate(folder, 2)
    assert sorted(entry.name for entry in folder.iterdir()) == ["1", "2", "3", "notes"]


def test_the_last_notes_about_missing_records_stay_for_the_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "total-0"
    for number in range(1, 6):
        note_given_up(folder, number, "too slow", 3)
    lines = [msgspec.json.decode(line) for line in (folder / GIVEN_UP).read_bytes().splitlines()]
    assert [(line["epoch"], line["reason"]) for line in lines] == [(n, "too slow") for n in (3, 4, 5)]
    assert (folder / GIVEN_UP).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
