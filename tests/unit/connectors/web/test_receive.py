"""``web.receive``: which requests are taken, when they are answered, and what is refused."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import cloudpickle
import pytest

from clonos import codecs, secrets, web
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.external_system import PayloadMalformed
from clonos.connectors.secrets import SecretMissing
from clonos.connectors.web import PortUnavailable, Request
from clonos.connectors.web.http_server import Rules, WebhookServer
from clonos.connectors.web.receipts import HELD_NS, WAITING_BYTES_MAX, Receipts
from clonos.operators.connector_contract import MalformedRecord, PushSource, Source
from clonos.operators.journal_source import IdentifiedSource, JournalHead
from clonos.operators.operator import Operator, Times
from tests.unit.connectors.web.sending import PATH, free_port, journalling, receiving, send, send_raw

pytestmark = pytest.mark.slow

TOKEN = "t0ken-of-the-shop-4711"
HEAD = b"POST /orders HTTP/1.1\r\nhost: here\r\nidempotency-key: e1\r\n"


class Rows(Operator):
    def __init__(self) -> None:
        self.found: list[Any] = []

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.found += rows


def test_a_request_is_answered_when_it_is_acknowledged_and_not_before() -> None:
    with receiving() as one, ThreadPoolExecutor(2) as senders:
        first = senders.submit(send, one.port, b"1", {"Idempotency-Key": "a"})
        one.take(1)
        held_bytes = len(one.journal)
        second = senders.submit(send, one.port, b"2", {"Idempotency-Key": "b"})
        one.take(2)
        one.feed.acknowledge(held_bytes - 1)
        assert not first.done()
        one.feed.acknowledge(held_bytes)
        assert first.result().status == 200
        assert not second.done()
        one.acknowledge()
        assert second.result() == (200, "", second.result().headers)


@pytest.mark.parametrize(("missing_bytes", "is_held"), [(0, True), (1, False)])
def test_a_request_is_held_when_all_of_it_is_acknowledged(missing_bytes: int, is_held: bool) -> None:
    receipts = Receipts(100)
    with ThreadPoolExecutor(1) as senders:
        sent = senders.submit(receipts.hold, b"record", 10.0)
        assert receipts.take(10.0) == b"record"
        receipts.acknowledge(100 + len(b"record") - missing_bytes)
        receipts.close()
        assert sent.result() is is_held


def test_records_are_requests_with_headers_and_query() -> None:
    with journalling() as one:
        headers = {"Idempotency-Key": "e7", "X-City": "Bern", "Authorization": "Basic x", "Cookie": "c=1"}
        assert send(one.port, b"\x00\x04", headers, f"{PATH}?day=1").status == 200
        [found] = one.records
    assert isinstance(found, Request)
    assert (found.body, found.id, found.path, found.query) == (b"\x00\x04", "e7", PATH, "day=1")
    assert found.headers["x-city"] == "Bern"
    assert not {"authorization", "cookie"} & found.headers.keys()


def test_a_request_that_is_sent_again_counts_once() -> None:
    with journalling(decode=codecs.json()) as one:
        assert isinstance(one.source, PushSource)
        assert isinstance(one.source, IdentifiedSource)
        assert not isinstance(one.source, Source)
        for name in ("a", "b", "a"):
            assert send(one.port, json.dumps(name).encode(), {"Idempotency-Key": name}).status == 200
        assert len(one.records) == 3
    head, rows = JournalHead("source", one.source), Rows()
    head.out = rows
    head.feed(one.journal)
    head.read(0, 3)
    assert rows.found == ["a", "b"]


def test_requests_without_ids_all_count_where_that_was_asked_for() -> None:
    with journalling(identity=None) as one:
        assert [send(one.port, b"x", {}).status for _ in range(2)] == [200, 200]
        assert [one.source.identity(record) for record in one.source.cut(one.journal)] == [None, None]


def test_a_body_that_does_not_decode_is_answered_and_set_aside_with_its_id() -> None:
    with journalling(decode=codecs.json()) as one:
        assert send(one.port, b"{", {"Idempotency-Key": "bad"}).status == 200
        [found] = one.records
    assert isinstance(found, MalformedRecord)
    assert isinstance(found.error, PayloadMalformed)
    assert f"the request bad to http://127.0.0.1:{one.port}/orders: json() cannot decode" in str(found.error)
    assert found.record.body == b"{"


@pytest.mark.parametrize(
    ("changes", "status", "sentence"),
    [
        ({"headers": {}}, 400, "The header Idempotency-Key is missing."),
        ({"headers": {"Idempotency-Key": " "}}, 400, "The header Idempotency-Key is missing."),
        ({"headers": {"Idempotency-Key": "x" * 256}}, 400, "more than 255 characters"),
        ({"headers": {"Idempotency-Key": "e1", "Origin": "http://page"}}, 403, "web pages"),
        ({"path": "/other"}, 404, "Nothing is received at this path."),
        ({"method": "PUT"}, 405, "Send a POST request."),
        ({"body": b"x" * 101}, 413, "The body has 101 bytes; at most 100 are taken."),
    ],
)
def test_a_request_that_is_not_taken_is_answered_with_a_sentence(
    changes: dict[str, Any], status: int, sentence: str
) -> None:
    with journalling(body_bytes_max=100) as one:
        answer = send(one.port, **changes)
        assert send(one.port, b"x" * 100).status == 200  # what is at the limits is taken
        assert len(one.records) == 1
    assert answer.status == status
    assert sentence in answer.text
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("rest", "status"),
    [
        (b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", b"411 "),
        (b"transfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n0\r\n\r\n", b"411 "),
        (b"\r\n", b"411 "),
        (b"content-length: -1\r\n\r\n", b"400 "),
        (b"content-length: 1\r\ncontent-length: 2\r\n\r\nxx", b"400 "),
        (b"idempotency-key: e2\r\ncontent-length: 1\r\n\r\nx", b"400 "),
        (b"expect: 100-continue\r\ncontent-length: 99999999\r\n\r\n", b"413 "),
    ],
)
def test_a_head_without_the_one_length_of_its_body_is_refused(rest: bytes, status: bytes) -> None:
    with journalling() as one:
        assert send_raw(one.port, HEAD + rest).startswith(b"HTTP/1.1 " + status)
        assert one.journal == b""


def test_a_request_cut_off_in_its_body_is_neither_journalled_nor_answered() -> None:
    with journalling() as one:
        assert send_raw(one.port, HEAD + b"content-length: 20\r\n\r\n[1,") == b""
        assert send(one.port).status == 200
        assert len(one.records) == 1


def test_a_sender_that_asks_before_its_body_gets_a_continue_and_then_the_answer() -> None:
    with journalling() as one:
        found = send_raw(one.port, HEAD + b"expect: 100-continue\r\ncontent-length: 1\r\n\r\nx")
    assert found.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


def test_the_sender_of_a_body_that_is_much_too_large_gets_the_answer() -> None:
    with journalling() as one:
        assert send(one.port, bytes(4 << 20)).status == 413


def test_a_request_that_is_not_held_in_time_gets_retry_after_and_is_never_journalled_later() -> None:
    with receiving(answer_within="20ms") as one:
        answer = send(one.port)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert one.feed.receive(1) == b""


def test_a_request_that_waits_gets_503_when_the_port_closes() -> None:
    with receiving() as one, ThreadPoolExecutor(1) as senders:
        waiting = senders.submit(send, one.port)
        one.take(1)
        one.feed.close()
        assert waiting.result().status == 503
        with pytest.raises(ConnectionRefusedError):
            send(one.port)
        one.feed = one.source.connect(len(one.journal))


def test_a_source_that_is_held_back_takes_no_body() -> None:
    now_ns = [0]
    receipts = Receipts(0, lambda: now_ns[0])
    assert receipts.reserve(1)
    now_ns[0] += HELD_NS + 1
    assert not receipts.reserve(1)
    receipts.take(0)
    assert receipts.reserve(WAITING_BYTES_MAX - 1)
    assert not receipts.reserve(1)
    receipts.release(1)
    assert receipts.reserve(1)


def test_a_request_to_a_busy_source_gets_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Receipts, "reserve", lambda *_: False)
    with journalling() as one:
        answer = send(one.port)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert one.journal == b""


@contextmanager
def server_with(**limits: Any) -> Iterator[int]:
    """Opens a port with other limits."""
    port = free_port()
    server = WebhookServer("127.0.0.1", port, Rules(PATH, None, None, "Authorization", 100, 0.0, **limits), Receipts(0))
    try:
        yield port
    finally:
        server.close()


def test_a_connection_beyond_the_limit_gets_503() -> None:
    with server_with(connections_max=0) as port:
        assert send_raw(port, b"").startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize("sent", [b"", b"POST /ord", HEAD + b"content-length: 9\r\n\r\n{"])
def test_senders_that_send_nothing_more_do_not_keep_others_out(sent: bytes) -> None:
    with server_with(connections_max=4) as port, ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)) for _ in range(12)]
        for connection in silent:
            with suppress(OSError):  # the oldest are ended meanwhile
                connection.sendall(sent)
        assert [send(port, path="/elsewhere").status for _ in range(5)] == [404] * 5
        with suppress(ConnectionError):
            assert silent[0].recv(100) == b""


def test_a_sender_that_is_too_slow_is_cut_off() -> None:
    with server_with(request_s=0.05) as port, socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(HEAD)
        assert slow.recv(100) == b""


@pytest.mark.parametrize(
    ("header", "given", "status"),
    [
        ("Authorization", f"Bearer {TOKEN}", 200),
        ("Authorization", f"bearer  {TOKEN}", 200),
        ("Authorization", TOKEN, 401),
        ("Authorization", "Bearer wrong", 401),
        ("Authorization", "Bearer", 401),
        ("X-Shop-Token", TOKEN, 200),
        ("X-Shop-Token", f"{TOKEN}x", 401),
        ("X-Shop-Token", "", 401),
    ],
)
def test_a_request_needs_the_token_which_stays_out_of_records_and_texts(
    monkeypatch: pytest.MonkeyPatch, header: str, given: str, status: int
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    with journalling(token=secrets.env("SHOP_TOKEN"), token_header=header) as one:
        answer = send(one.port, b"x", {"Idempotency-Key": "e1", header: given, "Origin": "http://page"})
        assert answer.status == status
        assert send(one.port, b"x").status == 401
        assert len(one.records) == (status == 200)
        shown = cloudpickle.dumps(one.source) + one.journal + repr(one.source).encode() + answer.text.encode()
    assert TOKEN.encode() not in shown


def test_a_token_that_is_missing_is_named() -> None:
    source = web.receive(free_port(), token=secrets.env("CLONOS_TEST_NO_TOKEN"))
    with pytest.raises(SecretMissing, match="CLONOS_TEST_NO_TOKEN"):
        source.connect(0)


def test_a_port_that_another_program_has_is_an_error_that_may_pass() -> None:
    with receiving() as one:
        with pytest.raises(PortUnavailable, match=rf"127\.0\.0\.1:{one.port}/orders cannot be opened .*in use"):
            web.receive(one.port, PATH).connect(0)
        port = one.port
    with receiving(port=port):
        pass


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"port": 0}, "the port is 0"),
        ({"port": 65_536}, "the port is 65536"),
        ({"path": "orders"}, "the path is 'orders'"),
        ({"path": "/a?b"}, "the path is '/a[?]b'"),
        ({"host": "0.0.0.0"}, "host is '0.0.0.0', where everybody"),
        ({"host": "::"}, "host is '::', where everybody"),
        ({"host": "shop.example"}, "which is no address"),
        ({"token": ""}, "the token is empty"),
        ({"token": "Bearer <secret from $TOKEN>"}, "token contains a secret"),
        ({"token_header": "a b"}, "token_header is 'a b'"),
        ({"identity": ""}, "identity is ''"),
        ({"identity": "authorization"}, "identity and token_header are both"),
        ({"remember": 0}, "remember is 0"),
        ({"body_bytes_max": 1 << 25}, "body_bytes_max is 33554432"),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConnector, match=problem):
        web.receive(**{"port": 8080, **options})


def test_an_address_that_others_reach_is_taken_with_a_token() -> None:
    assert repr(web.receive(8080, "/a", host="::", token="x")) == "web.receive('http://[::]:8080/a')"
    assert "localhost" in repr(web.receive(8080, host="localhost"))
