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
from tests.speed import scaled

WAIT_MS = int(scaled(5_000))
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


def test_lines_before_a_line_beyond_the_limit_are_received(listener: socket.socket) -> None:
    server, feed = connected(listener, line_bytes_max=10, delimiter="||")
    server.sendall(b"a||" + b"x" * 10 + b"||" + b"y" * 11 + b"||b||")
    assert taken(feed, 15) == b"a||xxxxxxxxxx||"
    with pytest.raises(
        SocketLineMalformed, match=r"a line of more than 10 bytes before the delimiter b'\|\|'\. .*delim"
    ):
        feed.receive(WAIT_MS)
    server.close()
    feed.close()


def test_a_line_of_the_limit_whose_delimiter_is_incomplete_is_not_too_long(listener: socket.socket) -> None:
    server, feed = connected(listener, line_bytes_max=10, delimiter=b"||")
    server.sendall(b"x" * 10 + b"|")
    assert feed.receive(WAIT_MS) == b""
    assert feed.receive(1) == b""
    server.sendall(b"|")
    assert taken(feed, 12) == b"x" * 10 + b"||"
    server.close()
    feed.close()


def taken(feed: SocketFeed, count: int) -> bytes:
    """All bytes until there are that many, or the stream ends."""
    found = b""
    while len(found) < count:
        some = feed.receive(WAIT_MS)
        if some is None:
            break
        found += some
    return found


DELIMITERS = st.sampled_from([b"\n", b"|", b"\r\n", b"\r\n\r\n", b"aa", b"aba", b"\0"])


@given(st.lists(st.binary(max_size=12) | st.sampled_from([b"a", b"aa", b"ab", b"\r\n", b"\r"])), DELIMITERS)
def test_lines_with_any_delimiter_are_those_of_a_split_however_they_were_sent(
    pieces: list[bytes], delimiter: bytes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server, feed = connected(listener, delimiter=delimiter, errors="replace", encoding="latin-1")
        source = sockets.lines("localhost", 1, delimiter=delimiter, encoding="latin-1")
        journal = b""
        for piece in filter(None, pieces):
            server.sendall(piece)
            whole = feed.receive(WAIT_MS) or b""
            assert b"".join(source.cut(whole)) == whole
            journal += whole
        server.close()
        journal += taken(feed, 1 << 20)
        feed.close()
    cut = source.cut(journal)
    assert b"".join(cut) == journal
    lines = b"".join(pieces).decode("latin-1").split(delimiter.decode())
    expected = lines if lines[-1] else lines[:-1]
    if delimiter == b"\n":
        expected = [line.removesuffix("\r") for line in expected]
    decoded = source.decode(cut)
    assert decoded[:-1] == expected[:-1]
    assert not expected or expected[-1].startswith(decoded[-1])  # without an incomplete delimiter at its end
    assert not expected or delimiter.decode().startswith(expected[-1].removeprefix(decoded[-1]))


def test_a_delimiter_is_text_in_the_encoding_or_bytes() -> None:
    assert sockets.lines("localhost", 1, delimiter="\u20ac").delimiter == "\u20ac".encode()
    source = sockets.lines("localhost", 1, delimiter=b"\xff")
    assert source.decode(source.cut(b"a\r\n\xffb\xff")) == ["a\r\n", "b"]
    assert sockets.lines("localhost", 1, delimiter="\t", encoding="shift_jis").delimiter == b"\t"


@pytest.mark.parametrize(
    ("delimiter", "encoding", "sentence"),
    [
        ("", "utf-8", "delimiter has 0 bytes"),
        (b"x" * 256, "utf-8", "delimiter has 256 bytes"),
        (b"\n\x04", "utf-8", "ends with the byte 4"),
        ("\u20ac", "ascii", "which is no text in ascii"),
        (None, "utf-8", "which is no text in utf-8"),
        ("|", "shift_jis", "are parts of other characters in shift_jis"),
    ],
)
def test_a_delimiter_that_cannot_end_a_line_is_refused(delimiter: Any, encoding: str, sentence: str) -> None:
    with pytest.raises(InvalidConnector) as caught:
        sockets.lines("localhost", 1, delimiter=delimiter, encoding=encoding)
    assert sentence in str(caught.value)


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
