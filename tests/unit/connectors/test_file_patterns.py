"""Patterns of file sources accept exactly the paths that they can find, whether or not the file exists."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import SplitMalformed, UnexpectedInput
from clonos.connectors.filesystem.file_patterns import could_match, find_files
from clonos.connectors.filesystem.file_splits import FileSplit, decode_split, encode_split
from clonos.connectors.filesystem.output_folder import readable_files
from clonos.connectors.in_memory import values
from clonos.core.wire.decoding import FormatUnknown
from tests.unit.connectors.writing import JOB, part_of

TREE = (
    *("a.txt", "b.txt", "b.json", ".hidden.txt", "_started", "sub/c.txt", "sub/deeper/d.txt", ".git/e.txt"),
    *("sub/.f.txt", "sub.d/g.txt", "[x].txt", "other/a.txt"),
)
PATTERNS = (
    *("*.txt", "a.txt", "?.txt", "[ab].txt", "[[]x].txt", "sub", "sub/", "./sub", "sub/../a.txt", "../{here}/b.*", "."),
    *("**/*.txt", "**", "sub/**", "*/*.txt", ".*", ".*/*", "sub/.f.txt", "*/deeper/*", "**/deeper/**/*.txt"),
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("line\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_accepts_exactly_the_paths_that_it_finds_in_a_tree(tree: Path, pattern: str) -> None:
    patterns = [pattern.format(here=tree.name)]
    found = find_files("files.lines", patterns, readable_files)
    assert [name for name in TREE if could_match(patterns, f"{tree}/{name}")] == [
        name for name in TREE if f"{tree}/{name}" in found
    ]
    assert found


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "etc/passwd", "", "/", "{tree}/../x.txt", "{tree}/sub/../../x.txt", "{tree}//a.txt", "{tree}/"],
)
def test_a_pattern_accepts_no_path_elsewhere_or_with_parent_references(tree: Path, pattern: str, path: str) -> None:
    assert not could_match([pattern.format(here=tree.name)], path.format(tree=tree))


def test_the_folder_of_an_output_is_read_as_its_parts(tmp_path: Path) -> None:
    sink = files.jsonl(tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, [{"a": 1}])])
    (path,) = find_files("files.jsonl", [str(tmp_path / "out")], readable_files)
    assert could_match([str(tmp_path / "out")], path)
    assert not could_match([str(tmp_path / "out")], f"{tmp_path}/.out.clonos/parts/../x.jsonl")
    assert not could_match([str(tmp_path / "out")], f"{tmp_path}/.out.clonos/parts/{os.path.basename(path)}.prepared")


SOURCES: dict[str, Any] = {"lines": files.lines, "jsonl": files.jsonl, "parquet": files.parquet}


@pytest.mark.parametrize("kind", SOURCES)
def test_a_source_accepts_only_splits_of_its_own_files(tree: Path, kind: str) -> None:
    source = SOURCES[kind]("*.txt")
    status = os.stat("a.txt")
    own = FileSplit(1, f"{tree}/gone.txt", status.st_size, status.st_mtime_ns, 0, 5)
    source.check_split(encode_split(own))
    with pytest.raises(UnexpectedInput, match="names '/etc/passwd' as an input"):
        source.check_split(encode_split(msgspec.structs.replace(own, path="/etc/passwd")))
    with pytest.raises(UnexpectedInput):
        source.check_split(encode_split(msgspec.structs.replace(own, path=f"{tree}/../{tree.name}/a.txt")))


SPLIT = {"format": 1, "path": "/a.txt", "size_bytes": 1, "mtime_ns": 1, "begin": 0, "end": 1}


def _encoded(**changes: object) -> bytes:
    return msgspec.msgpack.encode(list((SPLIT | changes).values()))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x91" * 5_000,
        _encoded(surprise=msgspec.Raw(b"\x91" * 5_000 + b"\xc0")),
        _encoded(path="a.txt"),
        _encoded(path="/a\0b"),
        _encoded(path=b"/a.txt"),
        _encoded(begin=-1),
        _encoded(end=1 << 63),
    ],
)
def test_a_malformed_file_split_raises_only_the_malformed_error(data: bytes) -> None:
    with pytest.raises(SplitMalformed, match="the checkpoint store has"):
        decode_split(data)


def test_a_file_split_of_another_format_is_refused_by_its_number() -> None:
    with pytest.raises(FormatUnknown, match="has format 2, and this version of clonos reads format 1"):
        decode_split(_encoded(format=2))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        msgspec.msgpack.encode([1, 0, 0, 40]),
        msgspec.msgpack.encode([1, -1, 1, 40]),
        msgspec.msgpack.encode([1, 0, 1, 40, msgspec.Raw(b"\x91" * 5_000 + b"\xc0")]),
    ],
)
def test_a_malformed_list_split_raises_only_the_malformed_error(data: bytes) -> None:
    with pytest.raises(SplitMalformed):
        values(range(40)).reader().open(data, None)


@pytest.mark.parametrize("mark", [b"", b"1234567", b"\xff" * 8])
def test_a_malformed_position_raises_only_the_malformed_error(tree: Path, mark: bytes) -> None:
    source = files.lines("a.txt")
    reader = source.reader()
    with pytest.raises(SplitMalformed):
        reader.open(source.splits(1)[0], mark)
    reader.close()
