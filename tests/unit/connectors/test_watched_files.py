"""A watched source reads each file once: a file that has changed since is an error, and a new name is a new file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import InputChanged
from clonos.connectors.filesystem.file_splits import decode_split
from tests.unit.connectors.writing import JOB, part_of

ROWS = b'{"n":1}\n{"n":2}\n'
SOURCES: dict[str, Any] = {
    "lines": files.lines,
    "jsonl": files.jsonl,
    "columns": lambda path, watch: files.jsonl(path, columns=True, watch=watch),
    "csv": files.csv,
    "avro": files.avro,
    "whole": files.whole,
    "parquet": files.parquet,
}


def _write(kind: str, path: Path, rows: int) -> None:
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.table({"n": list(range(rows))}), path)
    elif kind == "csv":
        path.write_text("n\n" + "1\n" * rows)
    else:
        path.write_bytes(ROWS * rows)


def _changed(known: Any, source: Any) -> list[int]:
    """The tasks of three to which a file belongs that has changed."""
    found = []
    for index in range(3):
        try:
            assert source.discover(known, index, 3) == []
        except InputChanged:
            found.append(index)
    return found


@pytest.mark.parametrize("kind", SOURCES)
def test_a_file_that_grows_after_it_was_read_is_reported_by_one_task(tmp_path: Path, kind: str) -> None:
    for name in "ab":
        _write(kind, tmp_path / name, 1)
    source = SOURCES[kind](str(tmp_path / "[ab]"), watch="1s")
    known = _splits(kind, source)
    assert _changed(known, source) == []
    _write(kind, tmp_path / "b", 5)
    assert len(_changed(known, source)) == 1
    with pytest.raises(InputChanged, match=r"b has changed since .*it had \d+ bytes.*now it has \d+ bytes.*append"):
        source.discover(known, 0, 1)


def _splits(kind: str, source: Any) -> Any:
    if kind != "avro":
        return source.splits(2)
    from clonos.connectors.filesystem.file_splits import block_splits  # splits of Avro need a header

    return block_splits(sorted(str(path) for path in Path(source.paths[0]).parent.iterdir()), 2, None)


@pytest.mark.parametrize("change", ["shrinks", "is replaced", "is touched", "is emptied"])
def test_a_file_that_becomes_another_one_is_reported(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(ROWS)
    source = files.lines(str(tmp_path / "*.txt"), watch="1s")
    known = source.splits(1)
    if change == "is replaced":
        (tmp_path / "new").write_bytes(ROWS[::-1])
        os.utime(tmp_path / "new", ns=(1, 1))
        os.rename(tmp_path / "new", path)
    elif change == "is touched":
        os.utime(path, ns=(1, 1))
    else:
        path.write_bytes(ROWS[:8] if change == "shrinks" else b"")
    with pytest.raises(InputChanged):
        source.discover(known, 0, 1)


def test_a_file_that_moves_in_with_a_new_name_is_read_and_a_removed_one_is_no_error(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_bytes(ROWS)
    source = files.lines(str(tmp_path), watch="1s")
    known = source.splits(1)
    (tmp_path / "a.txt").unlink()
    os.rename(tmp_path / "b.txt", tmp_path / "c.txt")
    (found,) = source.discover(known, 0, 1)
    assert decode_split(found).path == str(tmp_path / "c.txt")
    assert source.discover([*known, found], 0, 1) == []


def test_a_file_that_was_empty_is_read_when_it_has_lines_and_reported_when_it_has_more(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.touch()
    source = files.lines(str(path), watch="1s")
    assert source.splits(1) == source.discover([], 0, 1) == []
    path.write_bytes(ROWS)
    known = source.discover([], 0, 1)
    assert len(known) == 1
    path.write_bytes(ROWS * 2)
    with pytest.raises(InputChanged):
        source.discover(known, 0, 1)


def test_a_part_of_an_output_that_has_changed_is_reported(tmp_path: Path) -> None:
    sink = files.jsonl(tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, [{"a": 1}])])
    source = files.jsonl(tmp_path / "out", watch="1s")
    known = source.splits(1)
    sink.commit(JOB, 2, [part_of(sink, 2, [{"a": 2}])])
    (found,) = source.discover(known, 0, 1)
    with open(decode_split(found).path, "ab") as part:
        part.write(b'{"a":3}\n')
    with pytest.raises(InputChanged):
        source.discover([*known, found], 0, 1)
