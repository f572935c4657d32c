"""Files at `sftp://` are read as local files are: listed, in blocks, in one version, from a server that is known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import InputChanged, InputMissing, InputUnreadable, InvalidConnector
from clonos.connectors.filesystem.file_splits import decode_split
from clonos.io.system import wall_clock
from tests.harnesses.sftp_server import PASSWORD, USER, SftpServer
from tests.unit.connectors.reading import read_all, read_piecewise

pytestmark = pytest.mark.connectors

LINES = [f"{n:09}" for n in range(60_000)]
CONTENT = "".join(f"{line}\n" for line in LINES).encode()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SftpServer]:
    """A server that this user knows, with a login in the netrc file."""
    monkeypatch.setattr(wall_clock, "sleep_s", lambda seconds: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / "served").mkdir()
    (tmp_path / ".ssh").mkdir()
    server = SftpServer(tmp_path / "served")
    (tmp_path / ".ssh" / "known_hosts").write_text(server.known_host)
    _write_netrc(tmp_path, PASSWORD)
    yield server
    server.close()


def _write_netrc(home: Path, password: str) -> None:
    (home / ".netrc").write_text(f"machine 127.0.0.1 login {USER} password {password}\n")
    (home / ".netrc").chmod(0o600)


def put(server: SftpServer, path: str, content: bytes) -> str:
    file = server.folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return server.url(path)


def _read_to_end(reader: Any) -> None:
    while reader.read(10_000) is not None:
        pass


def test_files_folders_and_patterns_give_each_line_once_also_from_every_mark(server: SftpServer) -> None:
    put(server, "in/large.txt", CONTENT)
    for name in ("1/x.txt", "1/y.txt", "2/x.txt", "2/.x.txt", "2/note.md"):
        put(server, f"in/{name}", f"{name}\n".encode())
    assert read_all(files.lines(server.url("in/*/x.txt"))) == ["1/x.txt", "2/x.txt"]
    assert read_all(files.lines(server.url("in/**/[xy].txt"))) == ["1/x.txt", "1/y.txt", "2/x.txt"]
    source = files.lines([server.url("in/1"), server.url("in/large.txt")], block_bytes=200_001)
    splits = source.splits(2)
    assert len(splits) == 2 + 3
    assert all(PASSWORD.encode() not in split for split in splits)
    pieces = [row for split in splits for piece in read_piecewise(source, split, [30_011]) for row in piece]
    assert pieces == ["1/x.txt", "1/y.txt", *LINES]
    for split in splits:
        source.check_split(split)


def test_files_that_appear_later_are_found_once(server: SftpServer) -> None:
    put(server, "watched/1.txt", b"one\n")
    source = files.lines(server.url("watched/*.txt"), watch="1s")
    known = source.splits(1)
    assert source.discover(known, 0, 1) == []
    put(server, "watched/2.txt", b"two\n")
    (found,) = source.discover(known, 0, 1)
    assert decode_split(found).path == server.url("watched/2.txt")
    before = server.logins
    assert source.discover([*known, found], 0, 1) == []
    assert server.logins == before + 2  # however many files there are
    (server.folder / "watched/1.txt").unlink()
    assert source.discover([*known, found], 0, 1) == []
    put(server, "watched/2.txt", b"two\nthree\n")
    with pytest.raises(InputChanged, match=r"2.txt has changed.*it had 4 bytes"):
        source.discover([*known, found], 0, 1)


def test_a_connection_that_breaks_is_renewed(server: SftpServer) -> None:
    source = files.lines(put(server, "large.txt", CONTENT))
    (split,) = source.in_order().splits(1)
    server.breaks_left, before = 2, server.logins
    assert [line for piece in read_piecewise(source, split, [60_000]) for line in piece] == LINES
    assert server.breaks_left == 0
    assert server.logins >= before + 3


def test_a_file_that_changes_in_between_is_refused(server: SftpServer) -> None:
    source = files.lines(put(server, "large.txt", CONTENT * 5))
    (split,) = source.in_order().splits(1)
    reader, later = source.reader(), source.reader()
    reader.open(split, None)
    assert reader.read(10) is not None
    os.utime(server.folder / "large.txt", (1, 1))
    with pytest.raises(InputChanged, match="another version"):
        _read_to_end(reader)
    with pytest.raises(InputChanged):
        later.open(split, None)
    reader.close()
    later.close()


def test_a_file_that_cannot_be_read_is_an_error_with_its_reason(server: SftpServer, tmp_path: Path) -> None:
    url = put(server, "a.txt", b"one\n")
    with pytest.raises(InputMissing):
        files.lines(server.url("b.txt")).splits(1)
    _write_netrc(tmp_path, "wr0ng-word")
    with pytest.raises(InvalidConnector, match="refuses the login") as raised:
        files.lines(url).splits(1)
    assert "wr0ng-word" not in str(raised.value)
    _write_netrc(tmp_path, PASSWORD)
    logins = server.logins
    (tmp_path / ".ssh" / "known_hosts").write_text("")
    with pytest.raises(InvalidConnector, match="is not in known_hosts"):
        files.lines(url).splits(1)
    assert server.logins == logins  # no password goes to a server that is not known
    server.close_listener()
    with pytest.raises(InputUnreadable, match=str(server.port)):
        files.lines(url).splits(1)
    for wrong, text in [
        ("sftp://me:secret-word@server/a", "has a password"),
        ("sftp:///a", "names no server"),
        ("sftp://server/a?.txt", r"has a \?"),
    ]:
        with pytest.raises(InvalidConnector, match=text) as refused:
            files.lines(wrong).splits(1)
        assert "secret-word" not in str(refused.value)
    with pytest.raises(InvalidConnector, match="can only be read"):
        files.lines("sftp://server/out").prepare_output("job", False, False)
