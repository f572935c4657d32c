"""``files.lines``: every line once, for every way of splitting the file and every starting point."""

import bz2
import gzip
import lzma
import os
from itertools import chain
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import files
from clonos.connectors.connector_errors import (
    InputChanged,
    InputMalformed,
    InputMissing,
    InputUnreadable,
    InvalidConnector,
)
from clonos.connectors.filesystem.line_files import LineReader
from clonos.operators.connector_contract import Source
from tests.unit.connectors.reading import read_all, read_piecewise, read_split

CONTENT = st.text(st.sampled_from("ab\r\u2028\x85\x0b\x0c\xe9\u20ac\U0001f600"), max_size=12)
TEXTS = st.builds(
    lambda lines, rest: "".join(chain.from_iterable(lines)) + rest,
    st.lists(st.tuples(CONTENT, st.sampled_from(["\n", "\r\n"])), max_size=20),
    CONTENT,
)


def lines_read_simply(data: bytes) -> list[tuple[int, str]]:
    """The dumb twin: one line at a time, with the offset of its first byte."""
    lines, offset = [], 0
    while offset < len(data):
        end = data.find(b"\n", offset)
        line = data[offset:] if end < 0 else data[offset:end].removesuffix(b"\r")
        lines.append((offset, line.decode()))
        offset = len(data) if end < 0 else end + 1
    return lines


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file to be written anew by each example."""
    return tmp_path_factory.mktemp("lines") / "text.txt"


@given(text=TEXTS, block_bytes=st.integers(1, 60), read_bytes=st.integers(1, 30), records_max=st.integers(1, 9))
def test_each_line_is_read_once_for_every_way_of_splitting_the_file(
    path: Path, text: str, block_bytes: int, read_bytes: int, records_max: int
) -> None:
    path.write_bytes(text.encode())
    found = []
    for split in files.lines(path, block_bytes=block_bytes).splits(1):
        reader = LineReader("utf-8", "strict", 1_000, with_position=True, read_bytes=read_bytes)
        found += read_split(reader, split, records_max=records_max)
    assert found == [(str(path), offset, line) for offset, line in lines_read_simply(text.encode())]


@given(text=TEXTS, block_bytes=st.integers(1, 200), sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_a_reader_opened_at_a_mark_continues_where_the_mark_was_taken(
    path: Path, text: str, block_bytes: int, sizes: list[int]
) -> None:
    path.write_bytes(text.encode())
    source = files.lines(path, block_bytes=block_bytes)
    found = [line for split in source.splits(1) for piece in read_piecewise(source, split, sizes) for line in piece]
    assert found == [line for _, line in lines_read_simply(text.encode())]


@given(data=st.binary(max_size=200), block_bytes=st.integers(1, 60), sizes=st.lists(st.integers(1, 5), min_size=1))
def test_marks_stay_exact_when_undecodable_bytes_are_replaced(
    path: Path, data: bytes, block_bytes: int, sizes: list[int]
) -> None:
    path.write_bytes(data)
    source = files.lines(path, block_bytes=block_bytes, errors="replace")
    found = [line for split in source.splits(1) for piece in read_piecewise(source, split, sizes) for line in piece]
    whole = data.decode(errors="replace").replace("\r\n", "\n").split("\n")
    assert found == whole[: len(whole) - (data.endswith(b"\n") or not data)]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "shift_jis", "gbk", "euc_kr"])
def test_lines_in_other_encodings_are_found_by_their_bytes(tmp_path: Path, encoding: str) -> None:
    lines = ["one", "", "three \xb1 four"] * 9
    path = tmp_path / "text.txt"
    path.write_bytes("\r\n".join(lines).encode(encoding))
    assert read_all(files.lines(path, encoding=encoding, block_bytes=5)) == lines


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_compressed_file_is_one_split_with_marks(tmp_path: Path, suffix: str) -> None:
    lines = [f"line {number} \u20ac" for number in range(500)]
    data = "\n".join(lines).encode()
    path = tmp_path / f"text.txt{suffix}"
    if suffix == ".zst":
        path.write_bytes(pyarrow.compress(data, codec="zstd", asbytes=True))
    else:
        path.write_bytes({".gz": gzip, ".bz2": bz2, ".xz": lzma}[suffix].compress(data))
    source = files.lines(path, block_bytes=10, with_position=True)
    (split,) = source.splits(4)
    found = list(chain.from_iterable(read_piecewise(source, split, [1, 130, 7])))
    assert found == [(str(path), offset, line) for offset, line in lines_read_simply(data)]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_damaged_compressed_file_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(b"this is not compressed at all, whatever its name says")
    with pytest.raises(InputMalformed, match="cannot be decompressed"):
        read_all(files.lines(path))


def test_a_truncated_compressed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"line\n" * 1_000)[:-9])
    with pytest.raises(InputMalformed, match=str(path)):
        read_all(files.lines(path))


def test_small_files_give_every_task_a_split(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"0123456789abcde\n" * 65_536)
    assert len(files.lines(path).splits(4)) == 16
    assert len(files.lines(path, block_bytes=1 << 20).splits(4)) == 1


@pytest.mark.parametrize("what", ["size", "time", "replaced"])
def test_a_file_that_changed_since_the_start_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"one\ntwo\n")
    source = files.lines(path)
    (split,) = source.splits(1)
    if what == "size":
        path.write_bytes(b"one\ntwo\nthree\n")
    elif what == "time":
        os.utime(path, ns=(1, 1))
    else:
        (tmp_path / "other").write_bytes(b"uno\ndue\n")
        os.utime(tmp_path / "other", ns=(1, 1))
        os.replace(tmp_path / "other", path)
    with pytest.raises(InputChanged, match="has changed since the job first started"):
        source.reader().open(split, None)


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"one\n" * 10)
    reader = LineReader("utf-8", "strict", 1_000, with_position=False, read_bytes=8)
    reader.open(files.lines(path).splits(1)[0], None)
    assert reader.read(2) == ["one", "one"]
    with path.open("ab") as file:
        file.write(b"more\n")
    with pytest.raises(InputChanged, match="40 bytes"):
        reader.read(2)
    reader.close()


def test_a_missing_file_is_reported_with_where_it_must_be_readable(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"one\n")
    source = files.lines(path)
    (split,) = source.splits(1)
    path.unlink()
    with pytest.raises(InputUnreadable, match="shared file system"):
        source.reader().open(split, None)


def test_an_undecodable_byte_is_reported_with_file_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"one\ntw\xff\n")
    with pytest.raises(InputMalformed, match=f"{path} at byte 6.*latin-1") as raised:
        read_all(files.lines(path))
    assert raised.value.offset_bytes == 6


def test_a_line_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"short\n" + b"x" * 3_000_000)
    with pytest.raises(InputMalformed, match=r"longer than 1000000 bytes.*line_bytes_max="):
        read_all(files.lines(path, line_bytes_max=1_000_000))


def test_a_byte_order_mark_is_dropped_where_it_is_expected(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("\ufeffone\n\ufefftwo\n".encode())
    assert read_all(files.lines(path, encoding="utf-8-sig", block_bytes=2)) == ["one", "\ufefftwo"]
    assert read_all(files.lines(path)) == ["\ufeffone", "\ufefftwo"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "no such encoding", "hex"])
def test_an_encoding_whose_line_ends_are_not_single_bytes_is_refused_at_once(encoding: str) -> None:
    with pytest.raises(InvalidConnector, match=encoding):
        files.lines("any.txt", encoding=encoding)


def test_patterns_name_each_file_once_in_order(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("b.txt", "a.txt", "deep/c.txt", ".hidden.txt", "[1].txt"):
        (tmp_path / name).write_text(f"{name}\n")
    several = [f"{tmp_path}/[[]1[]].txt", f"{tmp_path}/**/*.txt", f"{tmp_path}/a.txt"]
    assert read_all(files.lines(several)) == ["[1].txt", "a.txt", "b.txt", "deep/c.txt"]
    assert read_all(files.lines(tmp_path / "[1].txt")) == ["[1].txt"]
    assert read_all(files.lines(tmp_path)) == ["[1].txt", "a.txt", "b.txt"]


def test_an_empty_file_has_no_line(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    assert files.lines(tmp_path / "empty.txt").splits(3) == []


def test_a_pattern_without_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputMissing, match="no file matches"):
        files.lines(tmp_path / "*.txt").splits(1)


def test_a_path_that_is_not_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConnector, match="is not the URL of a store"):
        files.lines("nfs://server/*.txt").splits(1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputUnreadable, match="not a regular file"):
        files.lines(tmp_path / "pipe").splits(1)
    with pytest.raises(InvalidConnector, match="no path"):
        files.lines([])


def test_every_file_source_meets_the_source_protocol() -> None:
    sources: list[Source] = [files.lines("a"), files.jsonl("a"), files.parquet("a"), files.csv("a"), files.arrow("a")]
    assert all(isinstance(source, Source) for source in sources)
