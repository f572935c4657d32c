"""`files.whole`: a record is a file, read whole, and written under its own name when its checkpoint is complete."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import (
    InputChanged,
    InputMalformed,
    InvalidConnector,
    OutputFailed,
    OutputInUse,
    OutputNameTaken,
    RowNotWritable,
)
from clonos.connectors.filesystem.output_folder import OutputFolder
from tests.unit.connectors.reading import read_all, read_piecewise
from tests.unit.connectors.writing import JOB, part_of, writer_of


def shown(folder: Path) -> dict[str, bytes]:
    """What others see in an output."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def committing(folder: Path, *checkpoints: list[tuple[str, Any]]) -> Any:
    """A sink that has committed these rows, a checkpoint each."""
    sink = files.whole(folder)
    sink.prepare_output(JOB, False, False)
    for number, rows in enumerate(checkpoints, 1):
        sink.commit(JOB, number, [part_of(sink, number, rows)])
    return sink


def test_a_source_gives_each_file_whole_also_empty_and_compressed_ones(tmp_path: Path) -> None:
    contents = {"a.xml": b"<a>\r\n</a>", "b.gz": gzip.compress(b"x"), "c.txt": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    source = files.whole(tmp_path)
    expected = [(str(tmp_path / name), content) for name, content in contents.items()]
    assert read_all(source) == expected
    pieces = [row for split in source.splits(1) for piece in read_piecewise(source, split, [1]) for row in piece]
    assert pieces == expected
    assert read_all(files.whole(tmp_path / "a.xml", encoding="utf-8")) == [(str(tmp_path / "a.xml"), "<a>\r\n</a>")]


def test_a_file_that_is_too_long_or_no_text_or_changed_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"12345\xff")
    with pytest.raises(InputMalformed, match=r"a\.txt at byte 5: it has 6 bytes, and file_bytes_max=5"):
        read_all(files.whole(file, file_bytes_max=5))
    with pytest.raises(InputMalformed, match=r"a\.txt at byte 5: b'\\xff' is not utf-8"):
        read_all(files.whole(file, encoding="utf-8"))
    source = files.whole(file, file_bytes_max=6)
    (split,) = source.splits(1)
    reader = source.reader()
    reader.open(split, None)
    file.write_bytes(b"123456")
    os.utime(file, (1, 1))
    with pytest.raises(InputChanged):
        reader.read(1)
    reader.close()


def test_each_row_is_a_file_of_its_name_once_its_checkpoint_is_committed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = files.whole(out)
    sink.prepare_output(JOB, False, False)
    writer = writer_of(sink)
    writer.write([("a.xml", b"<a/>"), ("of/ann/b.txt", "ü"), ("empty", b"")])
    first = writer.prepare(1)
    writer.write([("c.bin", bytes(5 << 20))])
    assert first is not None
    assert shown(out) == {}
    sink.commit(JOB, 1, [first])
    sink.commit(JOB, 1, [first])
    expected = {"a.xml": b"<a/>", "empty": b"", "of/ann/b.txt": "ü".encode()}
    assert shown(out) == expected
    second = writer.prepare(2)
    assert second is not None
    sink.commit(JOB, 2, [second])
    assert shown(out) == expected | {"c.bin": bytes(5 << 20)}
    assert writer.prepare(3) is None
    writer.close()
    assert sink.rows_written() == 4
    assert os.listdir(tmp_path / ".out.clonos" / "parts") == []
    named = dict(read_all(files.whole(out)))
    assert {str(Path(path).relative_to(out)): content for path, content in named.items()} == shown(out)


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "a//b", "", ".", "a/", ".x", "_x", "a\0", "n" * 256])
def test_a_name_that_leaves_the_output_or_cannot_be_one_is_refused(tmp_path: Path, name: str) -> None:
    writer = writer_of(committing(tmp_path / "out"))
    with pytest.raises(RowNotWritable, match="name"):
        writer.write([("good", b""), (name, b"x")])
    assert writer.prepare(1) is None  # nothing of the batch is kept
    writer.close()


def test_a_row_that_is_no_file_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    writer = writer_of(files.whole(out, encoding="ascii", file_bytes_max=3))
    for row, reason in [
        ("a", "it is not"),
        (("a", b"x", 1), "it is not"),
        (("a", 5), "its content is int"),
        (("a", "ü"), "ascii has no 'ü'"),
        (("a", b"1234"), "its content has 4 bytes"),
        (("part-0000000001-a-0-0-1.jsonl", b""), "part files of other sinks"),
    ]:
        with pytest.raises(RowNotWritable, match=reason):
            writer.write([row])
    writer.write([("a", b"1")])
    with pytest.raises(RowNotWritable, match="already in this checkpoint"):
        writer.write([("a", b"2")])
    writer.close()
    for path in ("out/*.xml", ["a", "b"]):
        with pytest.raises(InvalidConnector):
            files.whole(path).folder()


def test_a_name_that_is_taken_is_an_error_that_changes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = committing(out, [("a", b"1"), ("d/x", b"2")])
    before = shown(out)
    for rows in ([("b", b""), ("a", b"9")], [("d", b"")], [("a/b", b"")], [("b", b""), ("b/c", b"")]):
        part = part_of(sink, 2, rows)
        with pytest.raises(OutputNameTaken, match="Nothing is replaced"):
            sink.commit(JOB, 2, [part])
        assert shown(out) == before
    both = [part_of(sink, 2, [("c", b"1")], index=0), part_of(sink, 2, [("c", b"2")], index=1)]
    with pytest.raises(OutputNameTaken, match="two records"):
        sink.commit(JOB, 2, both)
    assert shown(out) == before


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_commit_that_was_cut_off_is_repeated_by_the_resume(
    tmp_path: Path, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    sink = committing(out)
    part = part_of(sink, 1, [("a", b"1"), ("d/b", b"2"), ("e/f/c", b"3")])
    left = moves

    def break_off(path: str, target: str, move: Any = os.rename) -> None:
        nonlocal left
        if "/out/" in target:
            if not left:
                raise OSError(5, "cut off")
            left -= 1
        move(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", break_off)
        with pytest.raises(OutputFailed, match="cut off"):
            sink.commit(JOB, 1, [part])
    assert len(shown(out)) == moves
    if moves == 1:
        shutil.copytree(tmp_path, tmp_path / "copy")
        other = files.whole(tmp_path / "copy" / "out")
        other.commit(JOB, 1, [part])  # a driver that lives repeats it without a resume
        assert len(shown(tmp_path / "copy" / "out")) == 3
    again = files.whole(out)
    again.prepare_output(JOB, True, False)
    assert shown(out) == {"a": b"1", "d/b": b"2", "e/f/c": b"3"}
    again.commit(JOB, 1, [part])
    assert shown(out) == {"a": b"1", "d/b": b"2", "e/f/c": b"3"}


def test_a_rollback_removes_what_later_checkpoints_have_shown_and_their_empty_folders(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = committing(out, [("a", b"1"), ("d/x", b"2")], [("d/y", b"3"), ("e/f/z", b"4")], [("g", b"5")])
    pending = part_of(sink, 4, [("h", b"6")])
    (out / "e" / "of-another").write_bytes(b"kept")
    assert sink.roll_back(JOB, 1) == [3, 2]
    assert shown(out) == {"a": b"1", "d/x": b"2", "e/of-another": b"kept"}
    assert not (out / "e" / "f").exists()
    assert os.listdir(tmp_path / ".out.clonos" / "parts") == []
    sink.commit(JOB, 2, [part_of(sink, 2, [("g", b"7")])])
    assert shown(out)["g"] == b"7"
    with pytest.raises(OutputFailed):
        sink.commit(JOB, 4, [pending])


def test_a_fresh_start_is_refused_or_removes_the_files_of_the_earlier_one_only(tmp_path: Path) -> None:
    out = tmp_path / "out"
    committing(out, [("a", b"1"), ("d/x", b"2")])
    (out / "of-another").write_bytes(b"kept")
    with pytest.raises(OutputInUse):
        files.whole(out).prepare_output("other-job", False, False)
    files.whole(out).prepare_output("other-job", False, True)
    assert shown(out) == {"of-another": b"kept"}


def test_files_that_users_remove_are_named_and_do_not_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    sink = committing(out, [("a", b"1"), ("d/x", b"2")])
    sink.prepare_output(JOB, True, False)
    assert caplog.text == ""
    (out / "d" / "x").unlink()
    sink.prepare_output(JOB, True, False)
    assert "1 committed part files of" in caplog.text
    assert shown(out) == {"a": b"1"}


def test_files_of_writers_that_died_are_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = committing(out)
    part_of(sink, 1, [("a", b"dead")])
    living = part_of(sink, 1, [("a", b"1")], incarnation=2)
    sink.commit(JOB, 1, [living])
    assert OutputFolder(str(out)).sweep() == 1
    assert shown(out) == {"a": b"1"}


def test_committed_output_is_read_back_as_names_and_contents(tmp_path: Path) -> None:
    out = tmp_path / "out"
    committing(out, [("a.csv", b"x"), ("d/x", b"2")])
    assert list(files.read_committed(out)) == [("a.csv", b"x"), ("d/x", b"2")]
