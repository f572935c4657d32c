"""A server's reply is never a job error, uses bounded memory, and cannot redirect secrets."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from clonos.core.model.errors import JobError
from clonos.core.ports.recorder import running
from clonos.io.http.http_client import HttpClient, HttpLimits, HttpReply, HttpRequest
from clonos.io.http.http_errors import (
    HttpBodyTooLarge,
    HttpConnectionFailed,
    HttpError,
    HttpRedirectRefused,
    HttpRequestInvalid,
)
from clonos_services import http
from tests.harnesses.fake_recorder import FakeRecorder
from tests.unit.services.hostile import Conversation, Hostile, answer, hostile

LIMITS = HttpLimits(
    timeout_s=30.0, connect_timeout_s=30.0, retries_max=0, redirects_max=5, body_bytes_max=1_000, is_repeatable=True
)
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True)
def _the_process_client_is_closed() -> Iterator[None]:
    yield
    http.close()


def redirecting(location: str, status: bytes = b"302 Found") -> AbstractContextManager[Hostile]:
    """A server that sends every request elsewhere."""
    line = b"Location: %s\r\n" % location.encode("latin-1")
    return hostile(lambda conversation: _answered(conversation, answer(b"", status, line)))


def _answered(conversation: Conversation, *pieces: bytes) -> None:
    while True:
        conversation.read()
        for piece in pieces:
            conversation.send(piece)


NOWHERE = [
    "ftp://x/",
    "file:///etc/passwd",
    "mailto:me@example.com",
    "http://127.0.0.1:99999/",
    "http://127.0.0.1:-1/",
    "http://127.0.0.1:eighty/",
    "http://[::1/",
    "http://[not-an-address]/",
    "http://a..b/",
    "http://a b/",
    "http://a%00b/",
    f"http://{'a' * 64}.example/",
    f"http://{'a.' * 200}example/",
    "http://" + "\xfc" * 300 + "/",
    "//:80/",
    "/" + "x" * 60_000,
]


@pytest.mark.parametrize("location", NOWHERE, ids=lambda location: location[:30])
def test_a_malformed_redirect_is_a_server_error_and_the_same_in_a_replay(location: str) -> None:
    with redirecting(location) as server:
        errors = []
        recorder = FakeRecorder()
        for life in (recorder, None):
            with running(life or recorder.successor()), pytest.raises(HttpError) as raised:
                http.get(server.url, timeout=30)
            errors.append(raised.value)
        assert len(server.requests) == 1
    assert type(errors[0]) is HttpRedirectRefused
    assert not isinstance(errors[0], JobError)
    assert (type(errors[1]), errors[1].args, str(errors[1])) == (type(errors[0]), errors[0].args, str(errors[0]))
    assert len(str(errors[0])) < 2_000
    assert str(errors[0]).isprintable()


def test_a_redirect_that_is_not_followed_is_an_answer() -> None:
    with redirecting("ftp://x/") as server:
        response = http.get(server.url, redirects=0)
    assert (response.status_code, response.headers["location"]) == (302, "ftp://x/")


WRONG_REPLIES = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "nothing": b"",
    "a status of letters": b"HTTP/1.1 abc OK\r\n\r\n",
    "a status below zero": b"HTTP/1.1 -200 OK\r\n\r\n",
    "a status of many digits": b"HTTP/1.1 " + b"9" * 10_000 + b" OK\r\n\r\n",
    "HTTP of another number": b"HTTP/9.9 200 OK\r\n\r\n",
    "a long status line": b"HTTP/1.1 200 " + b"x" * 70_000 + b"\r\n\r\n",
    "a long header": HEAD + b"X-Long: " + b"x" * 70_000 + b"\r\n\r\n",
    "too many headers": HEAD + b"X-More: x\r\n" * 200 + b"\r\n",
    "two lengths": HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "a body that ends early": HEAD + b"Content-Length: 10\r\n\r\nx",
    "a chunk size of letters": CHUNKED + b"zz\r\n",
    "a chunk size below zero": CHUNKED + b"-5\r\nxxxxx\r\n0\r\n\r\n",
    "a chunk that ends early": CHUNKED + b"5\r\nxx",
    "a body that is not packed": HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    "a body packed twice": HEAD + b"Content-Encoding: gzip, gzip\r\nContent-Length: 3\r\n\r\nabc",
    "a body packed as nobody asked": HEAD + b"Content-Encoding: br\r\nContent-Length: 3\r\n\r\nabc",
}


@pytest.mark.parametrize("name", WRONG_REPLIES)
def test_a_malformed_reply_is_a_server_error(client: HttpClient, name: str) -> None:
    def script(conversation: Conversation) -> None:
        conversation.read()
        conversation.send(WRONG_REPLIES[name])

    with hostile(script) as server, pytest.raises(HttpConnectionFailed) as raised:
        client.send(HttpRequest("GET", server.url), LIMITS)
    assert raised.value.was_sent
    assert len(str(raised.value)) < 2_000


EMPTY_MEMBER = gzip.compress(b"")
KERNEL_BYTES_MAX = 32 << 20  # of a connection, in buffers of the kernel: sent, and never read

TOO_MUCH = {
    "100 Continue": (b"HTTP/1.1 100 Continue\r\n\r\n" * 100, b""),
    "headers of 100 Continue": (b"HTTP/1.1 100 Continue\r\n" + b"X-Long: %s\r\n" % (b"x" * 60_000) + b"\r\n", b""),
    "headers": (b"X-Long: %s\r\n" % (b"x" * 60_000), HEAD),
    "extensions of chunks": (b"1;" + b"x" * 60_000 + b"\r\nx\r\n", CHUNKED),
    "trailers": (b"X-Long: %s\r\n" % (b"x" * 60_000), CHUNKED + b"0\r\n"),
    "a body": (b"x" * 1_000, HEAD + b"\r\n"),
    "a packed body of nothing": (EMPTY_MEMBER * 1_000, HEAD + b"Content-Encoding: gzip\r\n\r\n"),
    "a packed body": (gzip.compress(bytes(1 << 20)), HEAD + b"Content-Encoding: gzip\r\n\r\n"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_truncated_reply_is_an_error_at_every_byte(client: HttpClient, name: str) -> None:
    piece, first = TOO_MUCH[name]

    def script(conversation: Conversation) -> None:
        conversation.read()
        conversation.send(first)
        conversation.flood(piece)

    with hostile(script) as server:
        with pytest.raises(HttpBodyTooLarge):
            client.send(HttpRequest("GET", server.url), LIMITS)
        assert server.flooded_bytes < KERNEL_BYTES_MAX


def test_a_decompression_bomb_is_refused_within_the_limit(client: HttpClient) -> None:
    bomb = gzip.compress(bytes(128 << 20))

    def script(conversation: Conversation) -> None:
        conversation.read()
        conversation.send(answer(bomb, headers=b"Content-Encoding: gzip\r\n"))

    with hostile(script) as server:
        request = HttpRequest("GET", server.url)
        tracemalloc.start()
        with pytest.raises(HttpBodyTooLarge):
            client.send(request, replace(LIMITS, body_bytes_max=1 << 20))
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak_bytes < 8 << 20


def test_a_reply_with_nested_compression_is_refused(client: HttpClient) -> None:
    nothing = gzip.compress(EMPTY_MEMBER * (1 << 16))  # unpacks to 1.3 MB, which unpack to none
    bomb = gzip.compress(nothing * (1 << 13))

    def script(conversation: Conversation) -> None:
        conversation.read()
        conversation.send(answer(bomb, headers=b"Content-Encoding: gzip, gzip, gzip\r\n"))

    with hostile(script) as server, pytest.raises(HttpConnectionFailed, match="encoded as 'gzip, gzip, gzip'"):
        client.send(HttpRequest("GET", server.url, (("accept-encoding", "gzip"),)), LIMITS)


def test_the_encoding_of_an_empty_body_is_ignored(client: HttpClient) -> None:
    with hostile(lambda conversation: _answered(conversation, HEAD + b"Content-Encoding: br\r\n\r\n")) as server:
        assert client.send(HttpRequest("HEAD", server.url), LIMITS).status_code == 200


def test_a_reply_within_its_limit_is_accepted_in_any_fragmentation(client: HttpClient) -> None:
    body = bytes(range(250)) * 4
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    packed = gzip.compress(body)
    replies = [
        answer(body),
        CHUNKED + chunks,
        answer(packed, headers=b"Content-Encoding: gzip\r\n"),
        answer(zlib.compress(body), headers=b"Content-Encoding: deflate\r\n"),
        b"HTTP/1.1 100 Continue\r\n\r\n" + answer(body),
    ]

    def script(conversation: Conversation) -> None:
        for reply in replies:
            conversation.read()
            conversation.send(reply)

    with hostile(script) as server:
        for _ in replies:
            assert client.send(HttpRequest("GET", server.url), LIMITS).body == body


SECRETS = (
    ("authorization", "Basic secret"),
    ("cookie", "secret"),
    ("x-api-key", "secret"),
    ("idempotency-key", "secret"),
    ("content-type", "text/secret"),
)
OWN = (*SECRETS, ("user-agent", "clonos"), ("accept", "*/*"), ("accept-encoding", "gzip"))


def two_servers(client: HttpClient, request: HttpRequest, status: bytes) -> tuple[HttpReply | HttpError, list[bytes]]:
    """Outcome of a request that is redirected to another server, and the bytes that this one received."""
    with hostile(lambda conversation: _answered(conversation, answer(b"arrived"))) as there:
        with redirecting(there.url + "/there", status) as here:
            try:
                outcome: HttpReply | HttpError = client.send(replace(request, url=here.url + "/here"), LIMITS)
            except HttpError as error:
                outcome = error
        return outcome, there.requests


@pytest.mark.parametrize("status", [b"301 Moved", b"302 Found", b"303 See Other", b"307 Temporary", b"308 Permanent"])
def test_secrets_of_one_origin_are_not_sent_to_another(client: HttpClient, status: bytes) -> None:
    outcome, (seen,) = two_servers(client, HttpRequest("GET", "", OWN), status)
    assert isinstance(outcome, HttpReply)
    assert outcome.body == b"arrived"
    assert b"secret" not in seen
    assert b"accept-encoding: gzip" in seen
    assert b"user-agent: clonos" in seen


@pytest.mark.parametrize("status", [b"301 Moved", b"302 Found", b"307 Temporary", b"308 Permanent"])
@pytest.mark.parametrize(
    ("method", "body"), [("POST", b"secret"), ("POST", None), ("DELETE", None), ("GET", b"secret")]
)
def test_a_redirect_to_another_origin_carries_neither_body_nor_effect(
    client: HttpClient, status: bytes, method: str, body: bytes | None
) -> None:
    outcome, seen = two_servers(client, HttpRequest(method, "", OWN, body), status)
    assert isinstance(outcome, HttpRedirectRefused)
    assert "another origin" in str(outcome)
    assert not seen


def test_a_see_other_redirect_to_another_origin_is_followed_without_secrets(client: HttpClient) -> None:
    outcome, (seen,) = two_servers(client, HttpRequest("POST", "", OWN, b"secret"), b"303 See Other")
    assert isinstance(outcome, HttpReply)
    assert seen.startswith(b"GET /there ")
    assert b"secret" not in seen


def test_another_scheme_host_or_port_is_another_origin() -> None:
    with hostile(lambda conversation: _answered(conversation, answer())) as server:
        for there in (f"http://localhost:{server.port}/", f"https://127.0.0.1:{server.port}/"):
            with redirecting(there, b"307 Temporary") as here, pytest.raises(HttpRedirectRefused, match="origin"):
                http.post(here.url)
        assert not server.requests


def test_a_redirect_within_an_origin_keeps_headers_and_body(client: HttpClient) -> None:
    def script(conversation: Conversation) -> None:
        conversation.read()
        conversation.send(answer(b"", b"307 Temporary", b"Location: %s/there\r\n" % server.url.encode()))
        conversation.read()
        conversation.send(answer(b"arrived"))

    with hostile(script) as server:
        reply = client.send(HttpRequest("POST", server.url, OWN, b"body"), LIMITS)
    assert (reply.body, reply.url) == (b"arrived", server.url + "/there")
    assert server.requests[1].startswith(b"POST /there ")
    assert b"x-api-key: secret" in server.requests[1]
    assert server.requests[1].endswith(b"\r\n\r\nbody")


def test_a_redirected_request_counts_as_sent(client: HttpClient) -> None:
    with hostile(lambda conversation: None) as gone:
        pass
    with redirecting(gone.url, b"303 See Other") as server:
        limits = replace(LIMITS, is_repeatable=False, retries_max=3)
        with pytest.raises(HttpConnectionFailed, match="the server may have received the request"):
            client.send(HttpRequest("POST", server.url, body=b"pay"), limits)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "request_",
    [
        HttpRequest("GET", "http://127.0.0.1:99999/"),
        HttpRequest("GET", "http://a..b/"),
        HttpRequest("GET SECRET", "http://127.0.0.1:9/"),
        HttpRequest("GET", "http://127.0.0.1:9/", (("x y", "1"),)),
        HttpRequest("GET", "http://127.0.0.1:9/", (("x", "\u20ac"),)),
        HttpRequest("GET", "http://127.0.0.1:9/", (("x", "1\r\n 2"),)),
    ],
    ids=lambda request: repr(request)[12:70],
)
def test_a_malformed_request_is_a_job_error(client: HttpClient, request_: HttpRequest) -> None:
    with pytest.raises(HttpRequestInvalid):
        client.send(request_, LIMITS)


def test_an_invalid_connect_timeout_is_a_job_error(client: HttpClient) -> None:
    with pytest.raises(HttpRequestInvalid, match="connect_timeout="):
        client.send(HttpRequest("GET", "http://127.0.0.1:9/"), replace(LIMITS, connect_timeout_s=0.0))
