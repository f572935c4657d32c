"""Sources of files read objects as they read files: listed, split, decompressed, watched, and never in two versions."""

from __future__ import annotations

import gzip
import io
import json
import os
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from xxhash import xxh3_128_hexdigest

from clonos.connectors import files
from clonos.connectors.connector_errors import InputChanged, InputMissing, InputUnreadable, InvalidConnector
from clonos.connectors.filesystem.file_splits import decode_split
from clonos.connectors.object_stores.urls import name_of
from tests.connectors.object_stores.objects import put, put_raw, store_of
from tests.harnesses.s3_server import S3Server
from tests.speed import scaled
from tests.unit.connectors.reading import as_rows, read_all, read_piecewise

pytestmark = [pytest.mark.connectors, pytest.mark.keeps_sockets]

ROWS = [{"n": n, "text": f"row {n} ü"} for n in range(3_000)]


def _json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    written = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), written, row_group_size=500)
    return written.getvalue()


def _arrow(rows: list[dict[str, Any]]) -> bytes:
    written = io.BytesIO()
    pyarrow.feather.write_feather(pyarrow.Table.from_pylist(rows), written, chunksize=500)
    return written.getvalue()


def _csv(rows: list[dict[str, Any]]) -> bytes:
    return b"n,text\n" + "".join(f"{row['n']},{row['text']}\n" for row in rows).encode()


KINDS: dict[str, tuple[str, Callable[[list[dict[str, Any]]], bytes], Callable[..., Any]]] = {
    "jsonl": ("jsonl", _json_lines, files.jsonl),
    "gzip": ("jsonl.gz", lambda rows: gzip.compress(_json_lines(rows)), files.jsonl),
    "columns": ("jsonl", _json_lines, lambda url: files.jsonl(url, columns=True)),
    "csv": ("csv", _csv, files.csv),
    "parquet": ("parquet", _parquet, files.parquet),
    "arrow": ("arrow", _arrow, files.arrow),
}


def _read_to_end(reader: Any) -> None:
    while reader.read(100) is not None:
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_objects_gives_the_rows_of_its_files_also_from_every_mark(s3: S3Server, kind: str) -> None:
    suffix, encode, source_of = KINDS[kind]
    put(s3, f"{kind}/b.{suffix}", encode(ROWS[2_000:]))
    put(s3, f"{kind}/a.{suffix}", encode(ROWS[:2_000]))
    put(s3, f"{kind}/_hidden.{suffix}", b"not read")
    put(s3, f"{kind}/below/c.{suffix}", encode(ROWS[:1]))
    source = source_of(s3.url(kind))
    assert read_all(source) == ROWS
    pieces = [row for split in source.splits(1) for piece in read_piecewise(source, split, [701, 97]) for row in piece]
    assert pieces == ROWS


def test_patterns_and_single_objects_name_each_object_once_in_order(s3: S3Server) -> None:
    for name in ("p/1/x.txt", "p/1/y.txt", "p/2/x.txt", "p/2/.x.txt", "p/note.md"):
        put(s3, name, f"{name}\n".encode())
    read = [s3.url("p/*/x.txt"), s3.url("p/1/x.txt"), s3.url("p/**/[xy].txt")]
    assert read_all(files.lines(read)) == ["p/1/x.txt", "p/2/x.txt", "p/1/y.txt"]


def test_a_large_object_is_read_in_blocks_that_give_each_line_once(s3: S3Server) -> None:
    lines = [f"{n:09}" for n in range(40_000)]
    put(s3, "large.txt", "\n".join(lines).encode())
    source = files.lines(s3.url("large.txt"), block_bytes=70_001)
    assert len(source.splits(4)) == 6
    assert read_all(source) == lines


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_an_object_that_is_replaced_is_refused_though_size_and_second_are_equal(s3: S3Server, kind: str) -> None:
    suffix, encode, source_of = KINDS[kind]
    many = [{"n": n, "text": xxh3_128_hexdigest(b"%d" % n)} for n in range(20_000)]  # more than one request reads
    put(s3, f"replaced.{suffix}", encode(many))
    source = source_of(s3.url(f"replaced.{suffix}"))
    (split,) = source.in_order().splits(1)
    reader = source.reader()
    reader.open(split, None)
    put(s3, f"replaced.{suffix}", encode([{**row, "text": str(row["text"])[::-1]} for row in many]))
    later = source.reader()
    with pytest.raises(InputChanged):
        later.open(split, None)
    with pytest.raises(InputChanged, match="another version"):
        _read_to_end(reader)
    reader.close()
    later.close()


def test_objects_that_appear_later_are_found_once(s3: S3Server) -> None:
    put(s3, "watched/1.txt", b"one\n")
    source = files.lines(s3.url("watched/*.txt"), watch="1s")
    known = source.splits(1)
    assert source.discover(known, 0, 1) == []
    put(s3, "watched/2.txt", b"two\n")
    (found,) = source.discover(known, 0, 1)
    assert decode_split(found).path == s3.url("watched/2.txt")
    source.check_split(found)
    before = s3.requests.copy()
    assert source.discover([*known, found], 0, 1) == []
    assert s3.requests - before == {"GET": 2}  # lists, however many objects there are
    put(s3, "watched/2.txt", b"owt\n")
    with pytest.raises(InputChanged, match=r"watched/2.txt.* has changed"):
        source.discover([*known, found], 0, 1)


def test_a_watched_object_that_is_removed_once_it_was_read_is_no_error(s3: S3Server) -> None:
    for name in ("removed/1.txt", "removed/deep/2.txt"):
        put(s3, name, b"one\n")
    source = files.lines([s3.url("removed/**"), s3.url("removed/1.txt")], watch="1s")
    known = source.splits(1)
    obstore.delete(store_of(s3), "removed/1.txt")
    assert source.discover(known, 0, 1) == []
    put(s3, "removed/deep/2.txt", b"one\ntwo\n")
    with pytest.raises(InputChanged, match=r"2.txt.*it had 4 bytes.*now it has 8 bytes"):
        source.discover(known, 0, 1)


MARKS = ("in/", "in/sub/", "in/sub/deeper/", "in/old_$folder$", "in/day=1/")


def test_empty_objects_that_mark_folders_are_no_files(s3: S3Server) -> None:
    for name in ("in/a.txt", "in/b.txt", "in/sub/c.txt"):
        put(s3, f"tools/{name}", f"{name}\n".encode())
    for name in MARKS:
        put_raw(s3, f"tools/{name}", b"")
    put(s3, "tools/in/empty.txt", b"")
    put(s3, "tools/in/sub", b"sub\n")  # beside the folder in/sub/
    for key, found in {
        "in": ["in/a.txt", "in/b.txt", "sub"],
        "in/*.txt": ["in/a.txt", "in/b.txt"],
        "in/**": ["in/a.txt", "in/b.txt", "sub", "in/sub/c.txt"],
        "in/sub/*": ["in/sub/c.txt"],
        "**/sub/**": ["sub", "in/sub/c.txt"],
    }.items():
        assert read_all(files.lines(s3.url(f"tools/{key}"))) == found, key
    names = [name for name, _ in read_all(files.whole(s3.url("tools/in")))]
    assert [os.path.basename(name_of(name)) for name in names] == ["a.txt", "b.txt", "empty.txt", "sub"]
    with pytest.raises(InputMissing):
        read_all(files.lines(s3.url("tools/in/sub/deeper")))


def test_objects_whose_names_are_no_paths_are_reported_and_the_others_are_read(
    s3: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    put(s3, "odd/a.txt", b"a\n")
    put(s3, "odd/deep/b.txt", b"b\n")
    for key in ("odd/", "odd//c.txt", "odd/deep//d.txt"):
        put_raw(s3, key, b"" if key == "odd/" else b"odd\n")
    assert read_all(files.lines(s3.url("odd"))) == ["a"]  # as for other folders below it, without a word
    assert caplog.text == ""
    for _ in range(3):
        assert read_all(files.lines(s3.url("odd/**"))) == ["a", "b"]
    assert caplog.text.count("odd/** has objects that no source reads") == 1
    assert "'odd//c.txt', 'odd/deep//d.txt'" in caplog.text
    put_raw(s3, "odd/f\x01.txt", b"odd\n")
    assert read_all(files.lines(s3.url("odd"))) == ["a"]
    assert "'f\\x01.txt'" in caplog.text


def test_a_short_outage_delays_a_read(s3: S3Server) -> None:
    put(s3, "outage.txt", b"line\n")
    (split,) = files.lines(s3.url("outage.txt")).splits(1)
    reader = files.lines(s3.url("outage.txt")).reader()
    with s3.outage(requests=2):
        reader.open(split, None)
        rows = reader.read(10)
    assert rows is not None
    assert as_rows(rows) == ["line"]
    reader.close()


def test_a_url_that_cannot_be_read_is_an_error_that_names_what_is_wrong(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for url, error, text in [
        (s3.url("nowhere/*.txt"), InputMissing, "no file matches 's3://bucket/nowhere"),
        (s3.url("nowhere"), InputMissing, "Correct the URL s3://bucket/nowhere"),
        (s3.url("x").replace("bucket", "nobucket"), InputUnreadable, "there is no such bucket"),
        ("s3://bucket/a?.txt", InvalidConnector, "begins the options of a URL"),
        ("s3://bucket/a?colour=red", InvalidConnector, "its option colour is unknown"),
        ("s3://me:secret-word@bucket/a", InvalidConnector, "credentials in front of the bucket"),
        ("s3://", InvalidConnector, "names no bucket"),
        ("ftp://server/a", InvalidConnector, "not the URL of a store"),
    ]:
        with pytest.raises(error, match=r".*") as raised:
            files.lines(url).splits(1)
        assert text in str(raised.value)
        assert "secret-word" not in str(raised.value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (tmp_path / "x.txt").write_text("a\n")
    assert read_all(files.lines(f"file://{tmp_path}/x.txt")) == ["a"]


def test_the_empty_objects_of_folders_which_consoles_and_sync_tools_make_are_not_files(s3: S3Server) -> None:
    put(s3, "marked/a.txt", b"a\n")
    put(s3, "marked/sub/b.txt", b"b\n")
    put(s3, "marked/empty.txt", b"")
    for marker in ("marked/", "marked/sub/", "marked/none/"):
        request = urllib.request.Request(f"{s3.address}/bucket/{marker}", b"", method="PUT")
        urllib.request.urlopen(request, timeout=scaled(20)).close()
    assert read_all(files.lines(s3.url("marked/**"))) == ["a", "b"]
    assert read_all(files.lines(s3.url("marked"))) == ["a"]
