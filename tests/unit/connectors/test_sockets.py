"""``sockets.lines``: whole lines from a server, however its bytes are cut on their way."""

import socket
from collections.abc import Iterator

import pytest

from clonos.connectors import sockets
from clonos.connectors.faults import ConnectorMisused
from clonos.connectors.sockets import SocketFailed, SocketFeed, SocketLineMalformed, SocketLines

WAIT_MS = 5_000
Pair = tuple[socket.socket, SocketFeed]


def connected(listener: socket.socket, **options: int) -> Pair:
    feed = sockets.lines("127.0.0.1", listener.getsockname()[1], **options).connect()  # type: ignore[arg-type]
    return listener.accept()[0], feed


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def received(feed: SocketFeed, count: int) -> list[str]:
    lines: list[str] = []
    while len(lines) < count:
        some = feed.receive(WAIT_MS)
        assert some is not None
        lines += some
    return lines


def test_lines_come_whole_and_without_their_ends(listener: socket.socket) -> None:
    server, feed = connected(listener)
    server.sendall(b"one\r\ntwo\n\nthr")
    assert received(feed, 3) == ["one", "two", ""]
    assert feed.receive(1) == []
    server.sendall("ee \u20ac\nrest".encode())
    assert received(feed, 1) == ["three \u20ac"]
    server.close()
    assert received(feed, 1) == ["rest"]
    assert feed.receive(WAIT_MS) is None
    assert feed.receive(WAIT_MS) is None
    feed.close()


def test_a_line_beyond_the_limit_is_refused(listener: socket.socket) -> None:
    server, feed = connected(listener, line_bytes_max=10)
    server.sendall(b"x" * 11)
    with pytest.raises(SocketLineMalformed, match="a line of more than 10 bytes"):
        received(feed, 1)
    server.close()
    feed.close()


def test_bytes_that_are_no_text_are_refused(listener: socket.socket) -> None:
    server, feed = connected(listener)
    server.sendall(b"\xff\n")
    with pytest.raises(SocketLineMalformed, match="encoding="):
        received(feed, 1)
    server.close()
    feed.close()


def test_a_server_that_is_not_there_is_named(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(SocketFailed, match=f"connecting to 127.0.0.1:{port} failed"):
        sockets.lines("127.0.0.1", port).connect()


@pytest.mark.parametrize("port", [0, 65_536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(ConnectorMisused, match="from 1 to 65535"):
        sockets.lines("localhost", port)


def test_the_description_says_where_it_leads() -> None:
    description: SocketLines = sockets.lines("localhost", 9_000, encoding="utf-8-sig")
    assert (description.address, description.encoding) == ("localhost:9000", "utf-8")
