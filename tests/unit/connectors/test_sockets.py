"""``sockets.lines``: whole lines from a server, however its bytes arrive."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import sockets
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.sockets import SocketFailed, SocketFeed, SocketLineMalformed, SocketLines
from clonos.operators.connector_contract import PushSource, Source

WAIT_MS = 5_000
Pair = tuple[socket.socket, SocketFeed]


def connected(listener: socket.socket, offset_bytes: int = 0, **options: Any) -> Pair:
    feed = sockets.lines("127.0.0.1", listener.getsockname()[1], **options).connect(offset_bytes)
    server = listener.accept()[0]
    server.settimeout(WAIT_MS / 1000)
    return server, feed


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def received(feed: SocketFeed, count: int) -> bytes:
    """``count`` lines."""
    lines = b""
    while lines.count(b"\n") < count:
        some = feed.receive(WAIT_MS)
        assert some is not None
        assert some.endswith(b"\n") or not some, some
        lines += some
    return lines


def test_lines_arrive_whole_however_they_were_sent(listener: socket.socket) -> None:
    server, feed = connected(listener)
    server.sendall(b"one\r\ntwo\n\nthr")
    assert received(feed, 3) == b"one\r\ntwo\n\n"
    assert feed.receive(1) == b""
    server.sendall("ee \u20ac\nrest".encode())
    assert received(feed, 1) == "three \u20ac\n".encode()
    server.close()
    assert received(feed, 1) == b"rest\n"
    assert feed.receive(WAIT_MS) is None
    assert feed.receive(WAIT_MS) is None
    feed.close()


def test_a_server_that_asks_for_acknowledgements_receives_its_start_and_each_replicated_offset(
    listener: socket.socket,
) -> None:
    server, feed = connected(listener, 1_234, acknowledge=True)
    assert server.recv(100) == b"1234\n"
    server.sendall(b"one\n")
    assert received(feed, 1) == b"one\n"
    feed.acknowledge(1_238)
    assert server.recv(100) == b"1238\n"
    server.close()
    feed.close()


def test_a_server_that_does_not_ask_receives_nothing(listener: socket.socket) -> None:
    server, feed = connected(listener, 1_234)
    feed.acknowledge(2_000)
    feed.close()
    assert server.recv(100) == b""
    server.close()


def test_a_line_beyond_the_limit_is_refused(listener: socket.socket) -> None:
    server, feed = connected(listener, line_bytes_max=10)
    server.sendall(b"x" * 11)
    with pytest.raises(SocketLineMalformed, match="a line of more than 10 bytes"):
        received(feed, 1)
    server.close()
    feed.close()


def test_a_connection_that_breaks_is_named(listener: socket.socket) -> None:
    server, feed = connected(listener)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close() resets the connection
    server.close()
    with pytest.raises(SocketFailed, match="receiving from"):
        feed.receive(WAIT_MS)
    feed.close()


def test_a_server_that_does_not_listen_is_named(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(SocketFailed, match=f"connecting to 127.0.0.1:{port} failed"):
        sockets.lines("127.0.0.1", port).connect(0)


@given(st.lists(st.binary(max_size=5).map(lambda line: line.replace(b"\n", b"\r"))))
def test_bytes_cut_into_lines_join_to_the_same_bytes(lines: list[bytes]) -> None:
    source = sockets.lines("localhost", 1, errors="replace")
    data = b"".join(line + b"\n" for line in lines)
    cut = source.cut(data)
    assert b"".join(cut) == data
    assert len(source.decode(cut)) == len(lines)


def test_only_line_ends_are_removed() -> None:
    source = sockets.lines("localhost", 1)
    assert source.decode([b"a\r\n", b"\n", b"b\rc\n", "\u2028 \u20ac\r\r\n".encode()]) == [
        "a",
        "",
        "b\rc",
        "\u2028 \u20ac\r",
    ]


@pytest.mark.parametrize("port", [0, 65_536])
def test_an_invalid_port_is_refused(port: int) -> None:
    with pytest.raises(InvalidConnector, match="from 1 to 65535"):
        sockets.lines("localhost", port)


def test_a_line_limit_beyond_the_message_limit_is_refused() -> None:
    with pytest.raises(InvalidConnector, match="from 1 to 16777216"):
        sockets.lines("localhost", 1, line_bytes_max=1 << 30)


def test_the_description_names_host_and_port() -> None:
    description: SocketLines = sockets.lines("localhost", 9_000, encoding="utf-8-sig")
    assert (description.address, description.encoding) == ("localhost:9000", "utf-8")


def test_a_socket_source_is_pushed_and_cannot_be_re_read() -> None:
    description = sockets.lines("localhost", 9_000)
    assert isinstance(description, PushSource)
    assert not isinstance(description, Source)
