"""A request ends at its deadline, for every behaviour of the server."""

from __future__ import annotations

import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from clonos.io.http import http_sockets
from clonos.io.http.http_client import HttpClient, HttpLimits, HttpReply, HttpRequest
from clonos.io.http.http_errors import HttpConnectionFailed, HttpTimeout
from tests.speed import scaled
from tests.unit.services.hostile import Conversation, Script, answer, hostile

pytestmark = pytest.mark.slow

LIMITS = HttpLimits(
    timeout_s=0.2,
    connect_timeout_s=60.0,
    retries_max=2,
    redirects_max=1_000,
    body_bytes_max=1 << 20,
    is_repeatable=True,
)
LIMIT_S = scaled(15.0)  # far behind every deadline here
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def outcome_of(call: Callable[[], HttpReply]) -> Future[HttpReply]:
    """Result or exception of a call. Fails if it has not ended within a generous limit."""
    outcome: Future[HttpReply] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except Exception as error:  # noqa: BLE001  it is the outcome
            outcome.set_exception(error)

    threading.Thread(target=run, name="call", daemon=True).start()
    try:
        outcome.exception(LIMIT_S)
    except TimeoutError:
        pytest.fail(f"the call has not ended after {LIMIT_S:g} s", pytrace=False)
    return outcome


def assert_times_out(client: HttpClient, request: HttpRequest, limits: HttpLimits = LIMITS) -> HttpTimeout:
    error = outcome_of(lambda: client.send(request, limits)).exception()
    assert isinstance(error, HttpTimeout), repr(error)
    return error


def after_request(step: Callable[[Conversation], None], *first: bytes) -> Script:
    """Reads a request, sends what comes first, and goes on with the step."""

    def script(conversation: Conversation) -> None:
        conversation.read()
        for piece in first:
            conversation.send(piece)
        step(conversation)

    return script


def dripping(piece: bytes, *first: bytes) -> Script:
    return after_request(lambda conversation: conversation.drip(piece), *first)


def flooding(piece: bytes, *first: bytes) -> Script:
    return after_request(lambda conversation: conversation.flood(piece), *first)


EMPTY_BLOCK = b"\0\0\0\xff\xff"  # of deflate: five bytes that stand for none

SLOW_ANSWERS: dict[str, Script] = {
    "nothing": after_request(Conversation.hold),
    "a status line": dripping(b"1", b"HTTP/1.1 200 "),
    "a header line": dripping(b"x", HEAD + b"X-Long: "),
    "a header's name": dripping(b"x", HEAD),
    "header lines": dripping(b"X-More: x\r\n", HEAD),
    "100 Continue": dripping(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers of 100 Continue": dripping(b"X-More: x\r\n", b"HTTP/1.1 100 Continue\r\n"),
    "a body of known length": dripping(b"x", HEAD + b"Content-Length: 1000000\r\n\r\n"),
    "a body until the end": dripping(b"x", HEAD + b"\r\n"),
    "a chunk's size": dripping(b"0", CHUNKED),
    "a chunk's extension": dripping(b"x", CHUNKED + b"1;"),
    "a chunk": dripping(b"x", CHUNKED + b"fffff\r\n"),
    "the end of a chunk": after_request(Conversation.hold, CHUNKED + b"1\r\nx"),
    "chunks": dripping(b"1\r\nx\r\n", CHUNKED),
    "trailers": dripping(b"X-More: x\r\n", CHUNKED + b"0\r\n"),
    "a trailer": dripping(b"x", CHUNKED + b"0\r\nX-Long: "),
    "a packed body of nothing": dripping(
        EMPTY_BLOCK, HEAD + b"Content-Encoding: deflate\r\n\r\n", zlib.compress(b"")[:2]
    ),
    "the head of a redirect": dripping(b"X-More: x\r\n", b"HTTP/1.1 302 Found\r\nLocation: /\r\n"),
}


@pytest.mark.parametrize("name", SLOW_ANSWERS)
def test_a_slow_answer_ends_at_the_deadline(client: HttpClient, name: str) -> None:
    with hostile(SLOW_ANSWERS[name]) as server:
        error = assert_times_out(client, HttpRequest("GET", server.url + "/x"))
    assert error.timeout_s == LIMITS.timeout_s
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("nothing", "waiting for the reply"),
        ("a header line", "waiting for the reply"),
        ("a body of known length", "reading the body"),
    ],
)
def test_a_timeout_names_what_the_server_was_slow_at(client: HttpClient, name: str, phase: str) -> None:
    def script(conversation: Conversation) -> None:
        if conversation.number == 0:
            conversation.read()
            conversation.send(answer(b"first"))
        SLOW_ANSWERS[name](conversation)

    with hostile(SLOW_ANSWERS[name]) as server:
        assert assert_times_out(client, HttpRequest("GET", server.url)).phase == phase
    with hostile(script) as server:  # on a connection that another request opened
        request = HttpRequest("GET", server.url)
        client.send(request, replace(LIMITS, timeout_s=30.0))
        assert assert_times_out(client, request).phase == phase


def test_a_request_that_is_read_slowly_ends_at_the_deadline(client: HttpClient) -> None:
    with hostile(Conversation.sip, receive_bytes=4_096) as server:
        error = assert_times_out(client, HttpRequest("POST", server.url, body=bytes(64 << 20)))
    assert error.phase == "sending the request"


@pytest.mark.parametrize("name", ["a status line", "a header line", "a chunk's size", "a chunk", "trailers"])
def test_a_slow_answer_on_a_reused_connection_ends_at_the_deadline(client: HttpClient, name: str) -> None:
    def script(conversation: Conversation) -> None:
        conversation.read()
        conversation.send(answer(b"first"))
        SLOW_ANSWERS[name](conversation)

    with hostile(script) as server:
        request = HttpRequest("GET", server.url + "/x")
        assert client.send(request, replace(LIMITS, timeout_s=30.0)).body == b"first"
        assert_times_out(client, request)
        assert len(server.requests) == 2


def test_a_flood_of_100_continue_ends_at_the_deadline(client: HttpClient) -> None:
    with hostile(flooding(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)) as server:
        limits = replace(LIMITS, body_bytes_max=1 << 40)
        assert_times_out(client, HttpRequest("GET", server.url), limits)


def test_endless_redirects_end_at_the_deadline(client: HttpClient) -> None:
    def script(conversation: Conversation) -> None:
        while conversation.read():
            conversation.send(answer(b"", b"302 Found", b"Location: /again\r\n"))

    with hostile(script) as server:
        assert_times_out(client, HttpRequest("GET", server.url), replace(LIMITS, redirects_max=1 << 30))


def test_the_body_of_a_redirect_is_not_read(client: HttpClient) -> None:
    def script(conversation: Conversation) -> None:
        if b" /there " in conversation.read():
            conversation.send(answer(b"arrived"))
            return
        conversation.send(b"HTTP/1.1 302 Found\r\nLocation: /there\r\n\r\n")
        conversation.drip()

    with hostile(script) as server:
        limits = replace(LIMITS, timeout_s=10 * LIMIT_S)
        reply = outcome_of(lambda: client.send(HttpRequest("GET", server.url + "/here"), limits)).result()
    assert (reply.body, reply.url) == (b"arrived", server.url + "/there")


def test_the_connection_of_a_redirect_without_a_body_is_reused(client: HttpClient) -> None:
    def script(conversation: Conversation) -> None:
        assert conversation.number == 0
        while True:
            is_there = b" /there " in conversation.read()
            conversation.send(answer(b"arrived") if is_there else answer(b"", b"302 Found", b"Location: /there\r\n"))

    with hostile(script) as server:
        assert client.send(HttpRequest("GET", server.url), replace(LIMITS, timeout_s=30.0)).body == b"arrived"


def test_a_slow_handshake_ends_at_the_deadline(client: HttpClient) -> None:
    def script(conversation: Conversation) -> None:
        conversation.send(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")  # of a record of 16 KiB
        conversation.drip()

    with hostile(script) as server:
        assert_times_out(client, HttpRequest("GET", server.url.replace("http", "https")))


def test_the_connect_timeout_includes_the_tls_handshake(client: HttpClient) -> None:
    with hostile(lambda conversation: conversation.hold()) as server:
        limits = replace(LIMITS, connect_timeout_s=0.2, timeout_s=10 * LIMIT_S, retries_max=0)
        request = HttpRequest("POST", server.url.replace("http", "https"))
        error = outcome_of(lambda: client.send(request, limits)).exception()
    assert "no connection within 0.2 s; the request was not sent" in str(error)


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port whose queue of connections is full: another one waits to be made."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    waiting = [socket.socket() for _ in range(8)]
    for stranger in waiting:
        stranger.setblocking(False)
        stranger.connect_ex(listener.getsockname())
    yield listener.getsockname()[1]
    for stranger in waiting:
        stranger.close()
    listener.close()


def test_a_connection_that_is_not_made_ends_at_the_deadline(client: HttpClient, full_port: int) -> None:
    assert_times_out(client, HttpRequest("GET", f"http://127.0.0.1:{full_port}/"))


def test_a_name_with_many_silent_addresses_ends_at_the_deadline(
    client: HttpClient, full_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", full_port))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *asked, **options: [address] * 1_000)
    assert_times_out(client, HttpRequest("GET", f"http://many.example:{full_port}/"))


def test_hanging_name_lookups_end_at_the_deadline_and_are_limited(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    looked_up: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: Any, *asked: Any, **options: Any) -> Any:
        if options.get("flags"):  # is it an address?
            return real(host, *asked, **options)
        looked_up.append(host)
        over.wait()
        raise socket.gaierror(socket.EAI_NONAME, "nobody knows it")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(http_sockets, "_lookups", threading.Semaphore(2))
    try:
        for _ in range(3):
            assert_times_out(client, HttpRequest("GET", "http://slow.example/"))
        assert len(looked_up) <= 2
    finally:
        over.set()
    with pytest.raises(HttpConnectionFailed, match=r"nobody knows it.*the request was not sent"):
        client.send(HttpRequest("GET", "http://slow.example/"), replace(LIMITS, timeout_s=30.0, retries_max=0))
