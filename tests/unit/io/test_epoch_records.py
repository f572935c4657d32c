"""Records of epochs: a folder is whole or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.wire.capture_messages import Elements, digest_of
from clonos.core.wire.decoding import FormatUnknown
from clonos.io.epochs.record_parts import (
    HEAD,
    RECORD_FORMAT,
    EmittedOutput,
    JournalBytes,
    RecordDamaged,
    RecordedWay,
    RecordHead,
    RecordPart,
    SourceFile,
    SourceRecords,
    StatePiece,
)
from clonos.io.epochs.record_reader import EpochRecord, lacking
from clonos.io.epochs.record_writer import RecordWriter

HEAD_OF_TOTAL = RecordHead(
    RECORD_FORMAT,
    RecordedWay.CAPTURED,
    job="prices",
    job_id="1f",
    task="total/0",
    task_id=TaskId(2),
    epoch=CheckpointId(17),
    generation=1 << 32,
    incarnation=Incarnation(1 << 32),
    widths=(),
    log_offset_bytes=40,
    unfinished_bytes=0,
    is_whole=True,
    written_ns=1,
    versions={"python": "3.11"},
    failure=None,
    missing=(),
    redacted=(),
    parts={},
)

INPUT = (
    Elements(ChannelId(3), 5, ElementKind.ROWS, 2, CheckpointId(0), b"two rows"),
    SourceRecords(1, 3, b"a pickle"),
    JournalBytes(b"lines"),
)
EMITTED = EmittedOutput(ChannelId(4), 9, ElementKind.ROWS, 1, CheckpointId(0), digest_of(b"a row"))
SOURCE = SourceFile("/jobs/prices.py", "rates = {}\n")


def write(folder: Path, head: RecordHead = HEAD_OF_TOTAL) -> None:
    with RecordWriter(folder) as writer:
        writer.job(b"image")
        writer.source(SOURCE)
        for piece in (StatePiece("a", b"1"), StatePiece("a", b"2"), StatePiece("b", b"3")):
            writer.state(piece)
        writer.log(b"log")
        for each in INPUT:
            writer.input(each)
        writer.expected(EMITTED)
        writer.finish(head)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "prices.epochs" / "total-0" / "17"
    write(found)
    return found


def test_a_record_is_read_as_it_was_written(folder: Path) -> None:
    record = EpochRecord(folder)
    assert (record.head.task, record.head.epoch, record.head.log_offset_bytes) == ("total/0", 17, 40)
    assert (record.job(), record.log()) == (b"image", b"log")
    assert record.state() == [("a", [b"1", b"2"]), ("b", [b"3"])]
    assert tuple(record.inputs()) == INPUT
    assert list(record.expected()) == [EMITTED]
    assert list(record.sources()) == [SOURCE]


def test_a_record_that_cannot_be_read_lacks_nothing_that_is_known(folder: Path) -> None:
    write(folder.with_name("18"), replace(HEAD_OF_TOTAL, missing=("records of the source",)))
    assert lacking(folder.with_name("18")) == ("records of the source",)
    assert lacking(folder) == lacking(folder.with_name("19")) == ()


def test_a_record_is_for_its_user_alone(folder: Path) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, folder.parent, folder.parent.parent)}
    assert modes == {"17": 0o700, "total-0": 0o700, "prices.epochs": 0o700}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_later_record_of_an_epoch_replaces_the_earlier_one(folder: Path) -> None:
    (folder / "stray").touch()
    write(folder)
    assert not (folder / "stray").exists()
    assert EpochRecord(folder).log() == b"log"


def test_a_record_that_is_not_finished_leaves_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "17"
    with RecordWriter(folder) as writer:
        writer.log(b"log")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RecordDamaged, match="there is no such folder"):
        EpochRecord(folder)


@pytest.mark.parametrize("part", list(RecordPart))
def test_a_torn_part_is_named(folder: Path, part: RecordPart) -> None:
    content = (folder / part).read_bytes()
    (folder / part).write_bytes(content[:-1])
    with pytest.raises(RecordDamaged, match=f"its part {part} is not what was written"):
        EpochRecord(folder)


def test_a_missing_part_is_named(folder: Path) -> None:
    (folder / RecordPart.LOG).unlink()
    with pytest.raises(RecordDamaged, match="its part log cannot be read: No such file"):
        EpochRecord(folder)


def test_a_record_of_another_format_is_refused_with_both_numbers(folder: Path) -> None:
    head = json.loads((folder / HEAD).read_text())
    (folder / HEAD).write_text(json.dumps({"format": RECORD_FORMAT + 1, "other": head["job"]}))
    with pytest.raises(FormatUnknown, match=f"has format {RECORD_FORMAT + 1}, and this version of clonos reads format"):
        EpochRecord(folder)


def test_a_head_that_is_torn_is_refused(folder: Path) -> None:
    content = (folder / HEAD).read_bytes()
    (folder / HEAD).write_bytes(content[: len(content) // 2])
    with pytest.raises(RecordDamaged, match="malformed"):
        EpochRecord(folder)
