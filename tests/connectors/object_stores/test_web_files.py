"""Files at `https://` and `http://` are read as local files are, by ranges or whole, in one version, or not at all."""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import InputChanged, InputMissing, InputUnreadable, InvalidConnector
from clonos.connectors.filesystem.file_splits import decode_split
from clonos.connectors.object_stores.object_input import ObjectInput
from clonos.io.system import wall_clock
from tests.connectors.servers.certificates import Authority
from tests.harnesses.file_server import FileServer
from tests.unit.connectors.reading import read_all, read_piecewise, read_split

pytestmark = pytest.mark.connectors

LINES = [f"{n:09}" for n in range(60_000)]
CONTENT = "".join(f"{line}\n" for line in LINES).encode()
ROWS = [{"n": n, "text": f"row {n}"} for n in range(3_000)]


def _read_to_end(reader: Any) -> None:
    while reader.read(10_000) is not None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A server of a folder; nobody waits between attempts, and there is no netrc file."""
    monkeypatch.setattr(wall_clock, "sleep_s", lambda seconds: None)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    folder = tmp_path / "served"
    folder.mkdir()
    server = FileServer(folder)
    yield server
    server.close()


def put(server: FileServer, name: str, content: bytes) -> str:
    (server.folder / name).write_bytes(content)
    return server.url(name)


def parquet_of(rows: list[dict[str, object]]) -> bytes:
    written = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), written, row_group_size=500)
    return written.getvalue()


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_list_of_urls_gives_each_line_once_also_from_every_mark(server: FileServer, has_ranges: bool) -> None:
    server.has_ranges = has_ranges
    urls = [put(server, "large.txt", CONTENT), put(server, "a b.txt.gz", gzip.compress(b"x\ny\n")).replace(" ", "%20")]
    urls.append(put(server, "empty.txt", b""))
    source = files.lines(urls, block_bytes=100_001)
    splits = [decode_split(split) for split in source.splits(2)]
    assert [split.path for split in splits] == [urls[0]] * (6 if has_ranges else 1) + [urls[1]]
    assert read_all(source) == [*LINES, "x", "y"]
    pieces = [
        row for split in source.splits(1) for piece in read_piecewise(source, split, [30_011, 77]) for row in piece
    ]
    assert pieces == [*LINES, "x", "y"]
    for split in source.splits(2):
        source.check_split(split)


def test_a_parquet_file_is_read_by_row_groups_or_transferred_once(server: FileServer) -> None:
    source = files.parquet(put(server, "rows.parquet", parquet_of(ROWS)))
    assert len(source.splits(2)) == 6
    assert read_all(source) == ROWS
    server.has_ranges = False
    (split,) = source.splits(2)
    server.seen.clear()
    with ObjectInput(server.url("rows.parquet")) as opened:  # which has read ahead after its end when it goes back
        for begin in (len(parquet_of(ROWS)) - 8, 0, 1_000):
            opened.seek(begin)
            assert opened.read(4) == parquet_of(ROWS)[begin : begin + 4]
    assert server.requests_for("rows.parquet") == 2  # for the status and for the bytes
    assert read_split(source.reader(), split) == ROWS


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_reply_that_breaks_goes_on_where_it_broke(server: FileServer, has_ranges: bool) -> None:
    server.has_ranges = has_ranges
    source = files.lines(put(server, "large.txt", CONTENT))
    splits = source.in_order().splits(1)
    server.bytes_until_break, server.breaks_left = 200_000 if has_ranges else 550_000, 3
    assert [line for split in splits for piece in read_piecewise(source, split, [60_000]) for line in piece] == LINES
    assert server.breaks_left < 3


def test_a_server_that_breaks_every_reply_at_once_is_an_error_after_some_attempts(server: FileServer) -> None:
    source = files.lines(put(server, "large.txt", CONTENT))
    (split,) = source.in_order().splits(1)
    reader = source.reader()
    reader.open(split, None)
    server.is_silent = True
    with pytest.raises(InputUnreadable, match="the reply broke 6 times at byte 0 of 600000"):
        reader.read(10)
    reader.close()


def test_errors_that_pass_are_repeated_after_the_time_that_the_server_asks_for(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", waited.append)
    url = put(server, "a.txt", b"one\n")
    server.refusals = [(503, {"Retry-After": "7"}), (429, {"Retry-After": "3600"}), (500, {})]
    assert read_all(files.lines(url)) == ["one"]
    assert waited[:2] == [7, 20]
    server.refuses_always = 503
    with pytest.raises(InputUnreadable, match="answers with the status 503"):
        files.lines(url).splits(1)


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_file_that_changes_in_between_is_refused_though_size_and_second_are_equal(
    server: FileServer, has_ranges: bool
) -> None:
    server.has_ranges = has_ranges
    source = files.lines(put(server, "large.txt", CONTENT * 5))
    (split,) = source.in_order().splits(1)
    reader, later = source.reader(), source.reader()
    reader.open(split, None)
    assert reader.read(10) is not None
    put(server, "large.txt", CONTENT[::-1] * 5)
    if has_ranges:
        with pytest.raises(InputChanged, match="another version"):
            _read_to_end(reader)
    with pytest.raises(InputChanged):
        later.open(split, None)
    reader.close()
    later.close()


def test_a_file_that_appears_later_is_found_by_its_url(server: FileServer) -> None:
    source = files.lines([server.url("1.txt"), server.url("2.txt")], watch="1s")
    put(server, "1.txt", b"one\n")
    known = source.splits(1)
    assert source.discover(known, 0, 1) == []
    put(server, "2.txt", b"two\n")
    (found,) = source.discover(known, 0, 1)
    assert decode_split(found).path == server.url("2.txt")
    assert source.discover([*known, found], 0, 1) == []
    put(server, "1.txt", b"one\ntwo\n")
    with pytest.raises(InputChanged, match=r"1.txt has changed.*it had 4 bytes"):
        source.discover([*known, found], 0, 1)
    with pytest.raises(InputMissing):
        files.lines(str(server.folder / "3.txt")).splits(1)


def test_a_file_that_cannot_be_read_is_an_error_with_its_reason(server: FileServer) -> None:
    url = put(server, "a.txt", b"one\n")
    with pytest.raises(InputUnreadable, match=r"b.txt cannot be read here: the server has no such file \(status 404\)"):
        files.lines(server.url("b.txt")).splits(1)
    for status in (401, 403):
        server.refuses_always = status
        with pytest.raises(InputUnreadable, match=rf"refuses access \(status {status}\).*netrc file, which has none"):
            files.lines(url).splits(1)
    server.refuses_always, server.has_versions = 0, False
    with pytest.raises(InputUnreadable, match="neither ETag nor Last-Modified"):
        files.lines(url).splits(1)
    server.has_versions, server.has_ranges, server.has_lengths = True, False, False
    with pytest.raises(InputUnreadable, match="does not say how long it is"):
        files.lines(url).splits(1)
    for wrong, text in [
        ("https://me:secret-word@server/a", "netrc file"),
        ("https://server/a?X-Amz-Signature=secret-word", "has a credential, X-Amz-Signature="),
        ("https://server/*.txt", "a web server lists no files"),
        ("https:///a.txt", "not the URL of a file"),
        ("https://server/a b.txt", "not the URL of a file"),
        ("https://server:x/a.txt", "not the URL of a file"),
    ]:
        with pytest.raises(InvalidConnector, match=text) as raised:
            files.lines(wrong).splits(1)
        assert "secret-word" not in str(raised.value)
    with pytest.raises(InvalidConnector, match="can only be read"):
        files.lines("https://server/out").prepare_output("job", False, False)


def test_a_login_of_the_netrc_file_is_sent_to_its_server_only(server: FileServer, tmp_path: Path) -> None:
    url = put(server, "a.txt", b"one\n")
    server.login = "Basic " + base64.b64encode(b"ann:secret-word").decode()
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ann password secret-word\n")
    source = files.lines(url)
    assert read_all(source) == ["one"]
    assert b"secret-word" not in b"".join(source.splits(1))
    other = FileServer(server.folder)
    try:
        server.moved_to = other.address.replace("127.0.0.1", "localhost")
        assert read_all(source) == ["one"]
        assert set(other.logins) == {None}
    finally:
        other.close()
    server.moved_to = ""
    for text, reason in [
        ("machine 127.0.0.1 login ann password secret-wrong\n", "refuses the user and password of the netrc file"),
        ("machine 127.0.0.1 secret-wrong\n", "cannot be understood near line"),
    ]:
        netrc.write_text(text)
        with pytest.raises(InputUnreadable, match=reason) as raised:
            source.splits(1)
        assert "secret-wrong" not in str(raised.value)


def test_a_server_is_known_by_its_certificate(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "authority")
    secure = FileServer(server.folder, authority.server())
    try:
        put(server, "a.txt", b"one\n")
        monkeypatch.setattr("urllib3.util.retry.time.sleep", lambda seconds: None)
        with pytest.raises(InputUnreadable, match="certificate"):
            files.lines(secure.url("a.txt")).splits(1)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        assert read_all(files.lines(secure.url("a.txt"))) == ["one"]
    finally:
        secure.close()


def test_a_server_that_is_away_is_an_error(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib3.util.retry.time.sleep", lambda seconds: None)
    away = FileServer(server.folder)
    away.close()
    with pytest.raises(InputUnreadable, match="cannot be reached"):
        files.lines(away.url("a.txt")).splits(1)
