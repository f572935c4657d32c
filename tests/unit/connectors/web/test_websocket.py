"""``web.websocket``: messages, cursors, connections that break and errors, on a server on loopback."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clonos import codecs, secrets, web
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.web import websocket_feed
from clonos.connectors.web.websocket_feed import WebSocketFeed
from clonos.core.model.errors import Blame
from clonos.operators.connector_contract import MalformedRecord, PushSource, Source
from clonos.operators.journal_source import ContinuedSource, IdentifiedSource, JournalHead
from tests.unit.connectors.web.feed_server import Feeds
from tests.unit.connectors.web.test_receive import Rows
from tests.unit.services.test_http_tls import certified

pytestmark = pytest.mark.slow

ROUNDS_MAX = 500
LIVE: dict[str, Any] = {"send": '"live"'}


def behind(cursor: str | None) -> dict[str, int]:
    return {"after": int(cursor or 0)}


OF_NUMBERS: dict[str, Any] = {"send": behind, "cursor": "n"}


def numbered(*numbers: int) -> list[dict[str, int]]:
    return [{"n": number} for number in numbers]


@pytest.fixture
def server() -> Iterator[Feeds]:
    with Feeds() as running:
        running.add(numbered(1, 2, 3))
        yield running


class Receiving:
    """Source with a connection, and what it has journalled."""

    def __init__(self, source: Any, cursor: bytes | None = None) -> None:
        self.source = source
        self.feed: WebSocketFeed = source.connect_at(0, cursor)
        self.journal = b""
        self.has_ended = False

    def __enter__(self) -> Receiving:
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.close()

    def take(self, count: int) -> list[Any]:
        """Receives until there are that many messages, or the source ends; returns all messages."""
        for _ in range(ROUNDS_MAX):
            if len(self.source.cut(self.journal)) >= count or self.has_ended:
                break
            data = self.feed.receive(100)
            self.has_ended = data is None
            self.journal += data or b""
        return list(self.source.decode(self.source.cut(self.journal)))

    @property
    def cursor(self) -> bytes:
        return bytes(self.source.cursor(self.source.cut(self.journal)[-1]))


def received(server: Feeds, count: int, **options: Any) -> list[Any]:
    with Receiving(web.websocket(server.url(), **(OF_NUMBERS | options))) as one:
        return one.take(count)


def test_messages_come_in_order_after_the_subscription(server: Feeds) -> None:
    assert received(server, 3) == numbered(1, 2, 3)
    assert server.greeted == [{"after": 0}]


def test_the_description_is_that_of_a_push_source_with_a_cursor(server: Feeds) -> None:
    source = web.websocket(server.url(), **OF_NUMBERS)
    assert isinstance(source, PushSource)
    assert isinstance(source, ContinuedSource)
    assert not isinstance(source, (Source, IdentifiedSource))


def test_a_successor_continues_after_the_last_journalled_message(server: Feeds) -> None:
    source = web.websocket(server.url(), **OF_NUMBERS)
    with Receiving(source) as one:
        one.take(3)
        cursor = one.cursor
    server.add(numbered(4))
    with Receiving(source, cursor) as another:
        assert another.take(1) == numbered(4)
    assert server.greeted == [{"after": 0}, {"after": 3}]


def test_a_message_without_a_cursor_keeps_the_one_before_it(server: Feeds) -> None:
    server.add(['"heartbeat"', b"\xff"])
    with Receiving(web.websocket(server.url(), **OF_NUMBERS, decode=bytes.hex)) as one:
        one.take(5)
        assert one.cursor == msgspec.msgpack.encode(["3"])


@pytest.mark.parametrize("outage", [Feeds.cut, Feeds.restart], ids=["connection cut", "server restarted"])
def test_a_connection_that_breaks_is_made_again_after_the_cursor(server: Feeds, outage: Any) -> None:
    with Receiving(web.websocket(server.url(), **OF_NUMBERS)) as one:
        one.take(3)
        outage(server)
        server.add(numbered(4, 5))
        assert one.take(5) == numbered(1, 2, 3, 4, 5)


def test_a_server_without_a_cursor_gives_new_messages_only(server: Feeds) -> None:
    with Receiving(web.websocket(server.url(), **LIVE)) as one:
        for turn in (1, 2):
            while len(server.greeted) < turn:
                one.feed.receive(100)
            server.add(numbered(9 + turn))
            assert len(one.take(turn)) == turn
            server.cut()
            server.add(numbered(0))  # nobody is connected
        assert one.take(2) == numbered(10, 11)


def test_the_cursor_may_be_a_parameter_of_the_url(server: Feeds) -> None:
    with Receiving(web.websocket(f"{server.url()}?key=7", cursor="n", parameter="after", start="1")) as one:
        assert one.take(2) == numbered(2, 3)
        server.cut()
        server.add(numbered(4))
        assert one.take(3)[2:] == numbered(4)
    assert [target for target, _ in server.asked] == ["/feed?key=7&after=1", "/feed?key=7&after=3"]


def test_a_bounded_source_ends_when_the_server_closes_normally(server: Feeds) -> None:
    server.closes.extend([(1011, "oh"), (1000, "that was all")])
    with Receiving(web.websocket(server.url(), until="close", **OF_NUMBERS)) as one:
        assert one.take(99) == numbered(1, 2, 3)
        assert one.has_ended
    assert server.greeted == [{"after": 0}, {"after": 3}]


def test_messages_that_are_sent_again_count_once(server: Feeds) -> None:
    server.add([*numbered(3), "{}", "{}"])
    source: Any = web.websocket(server.url(), identity="n", **OF_NUMBERS)
    with Receiving(source) as one:
        one.take(6)
        journal = one.journal
    head, rows = JournalHead("source", source), Rows()
    head.out = rows
    head.feed(journal)
    head.read(0, 6)
    assert rows.found == [*numbered(1, 2, 3), {}, {}]


def test_headers_the_token_and_the_subprotocol_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_TOKEN", "t0ken-8811")
    options: dict[str, Any] = {
        "headers": {"X-City": "Bern"},
        "token": secrets.env("FEED_TOKEN"),
        "subprotocols": ["v9", "v2"],
    }
    with Feeds(speaks="v2") as server:
        server.add(numbered(1))
        source = web.websocket(server.url(), **OF_NUMBERS, **options)
        with Receiving(source) as one:
            one.take(1)
        [(_, headers)] = server.asked
    assert (headers["authorization"], headers["x-city"]) == ("Bearer t0ken-8811", "Bern")
    assert headers["sec-websocket-protocol"] == "v9, v2"
    assert "t0ken-8811" not in repr(source) + repr(source.endpoint)


def test_a_message_that_does_not_decode_is_set_aside(server: Feeds) -> None:
    server.add(["{"])
    [*_, found] = received(server, 4)
    assert isinstance(found, MalformedRecord)
    assert found.record == b"{"
    assert f"a record of {server.url()}: json" in str(found.error)


def test_binary_messages_and_other_codecs_are_taken(server: Feeds) -> None:
    server.add([b"\x93\x01\x02\x03"], "packed")
    with Receiving(web.websocket(server.url("packed"), send=behind(None), decode=codecs.msgpack())) as one:
        assert one.take(1) == [[1, 2, 3]]


class Clock:
    """Clock that a test or a sleep advances."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.slept_s = 0.0

    def sleep(self, pause_s: float) -> None:
        self.slept_s += pause_s
        self.now_ns += round(pause_s * 1e9)


def timed(clock: Clock, url: str, **options: Any) -> WebSocketFeed:
    source = web.websocket(url, **(OF_NUMBERS | options))
    position = websocket_feed.WebSocketCursor()
    return WebSocketFeed(source.endpoint, position, lambda data, *_: data, lambda: clock.now_ns, clock.sleep)


def slept(url: str, **options: Any) -> float:
    """Seconds in which the source slept until it had the first message."""
    clock = Clock()
    feed = timed(clock, url, **options)
    try:
        while not feed.receive(100):
            pass
    finally:
        feed.close()
    return clock.slept_s


def test_pauses_grow_and_retry_after_is_observed(server: Feeds) -> None:
    server.answers.extend([(503, {}, b"busy"), (429, {"Retry-After": "7"}, b""), (500, {}, b"")])
    assert slept(server.url()) == pytest.approx(0.1 + 7 + 0.4)


def test_connections_that_end_at_once_make_the_pauses_grow_too(server: Feeds) -> None:
    server.add([], "none")
    server.closes.extend([(1008, "slow down")] * 3)
    clock = Clock()
    feed = timed(clock, server.url("none"))
    while len(server.greeted) < 4:
        feed.receive(100)
    feed.close()
    assert clock.slept_s == pytest.approx(0.1 + 0.2 + 0.4)


def test_a_server_that_is_away_for_too_long_ends_the_job(server: Feeds) -> None:
    server.answers.extend([(503, {}, b"busy")] * 20)
    with pytest.raises(web.WebSocketFailed, match=r"for 5s: it answered 503 Told: busy\. Resume the job") as failed:
        slept(server.url(), patience="5s")
    assert failed.value.blame is Blame.ENVIRONMENT  # another start may succeed
    with pytest.raises(web.WebSocketFailed, match=r"connecting failed: .*refused"):
        slept("ws://127.0.0.1:9/", patience="5s")


def test_a_server_that_closes_each_connection_ends_the_job_with_its_reason(server: Feeds) -> None:
    server.closes.extend([(1008, "no such channel")] * 20)
    with pytest.raises(web.WebSocketFailed, match=r"received 1008 \(policy violation\) no such channel"):
        slept(server.url("none"), patience="5s")


def test_a_silent_server_is_pinged_and_given_up_without_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, Feeds() as server:
        frozen, clock = threading.Event(), Clock()
        proxy = threading.Thread(target=_forward_until, args=(listening, server, frozen))
        proxy.start()
        feed = timed(clock, f"ws://127.0.0.1:{listening.getsockname()[1]}/feed", ping="20s")
        try:
            while not server.greeted:
                feed.receive(10)
            frozen.set()
            for _ in range(2):
                assert not caplog.records
                clock.now_ns += 20 * 10**9
                feed.receive(10)
            assert "tries again: it has not answered a ping for 20s" in caplog.text
        finally:
            feed.close()
            frozen.set()
            proxy.join()


def _forward_until(listening: socket.socket, server: Feeds, frozen: threading.Event) -> None:
    """Forwards one connection until ``frozen``, then neither forwards nor closes until the client does."""
    client, _ = listening.accept()
    host, _, port = server.address.partition(":")
    with client, socket.create_connection((host, int(port))) as upstream:
        for side in (client, upstream):
            side.settimeout(0.01)
        while data := _step(client, upstream, frozen):
            assert data


def _step(client: socket.socket, upstream: socket.socket, frozen: threading.Event) -> bool:
    for source, target in ((client, upstream), (upstream, client)):
        if source is upstream and frozen.is_set():
            continue
        try:
            data = source.recv(4096)
        except TimeoutError:
            continue
        except OSError:
            return False
        if not data:
            return False
        if not frozen.is_set():
            target.sendall(data)
    return True


def test_a_silent_server_that_answers_pings_stays_connected(server: Feeds) -> None:
    clock = Clock()
    feed = timed(clock, server.url(), ping="20s", send='"live"', cursor=None)
    while not server.greeted:
        feed.receive(10)
    for _ in range(6):
        clock.now_ns += 20 * 10**9
        feed.receive(10)  # sends a ping
        pong = feed.pong
        assert pong is not None
        assert pong.wait(10)
        feed.receive(10)
    assert len(server.asked) == 1
    feed.close()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((401, {}, b"who?"), "it answered 401 Told: who?. Correct token= or headers="),
        ((404, {}, b""), "it answered 404 Told. Correct the URL"),
        ((302, {"Location": "ws://evil.example/"}, b""), "it answered 302 Told. Correct the URL"),
        ((200, {}, b"<html>"), "it answered 200 Told: <html>. Correct the URL"),
    ],
)
def test_a_handshake_that_is_refused_ends_the_job_with_a_sentence(server: Feeds, answer: Any, sentence: str) -> None:
    server.answers = deque([answer])
    with pytest.raises(web.WebSocketRefused) as caught:
        received(server, 1)
    assert sentence in str(caught.value)
    assert server.url() in str(caught.value)


def test_a_message_beyond_the_limit_ends_the_job_and_those_before_it_are_received(server: Feeds) -> None:
    server.add(["x" * 101, *numbered(5)])
    with Receiving(web.websocket(server.url(), message_bytes_max=100, **OF_NUMBERS)) as one:
        with pytest.raises(web.WebSocketRefused, match=r"a message of more than 100 bytes\. Raise message_bytes_max="):
            one.take(5)
        assert one.take(3) == numbered(1, 2, 3)


def test_a_server_that_speaks_no_wanted_subprotocol_is_refused(server: Feeds) -> None:
    with pytest.raises(web.WebSocketRefused, match=r"it speaks none of the subprotocols v1\. Correct subprotocols="):
        received(server, 1, subprotocols=["v1"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"until": "end"}, "until is 'end'"),
        ({"cursor": "a..b"}, "cursor is 'a..b'"),
        ({"identity": ""}, "identity is ''"),
        ({"cursor": "n", "send": "hello"}, "the server is never told the cursor"),
        ({"token": "x", "headers": {"authorization": "y"}}, "both give Authorization"),
        ({"remember": 0}, "remember is 0"),
        ({"message_bytes_max": 17 << 20}, "message_bytes_max is"),
        ({"headers": {"a b": "c"}}, "'a b' is not a header name"),
        ({"subprotocols": "v1"}, "subprotocols is 'v1'"),
        ({"send": 7}, "send= gives a message of the type int"),
        ({"url": "http://127.0.0.1/"}, "the URL is none of a WebSocket"),
        ({"url": "ws://ann:secret@127.0.0.1/"}, "the URL is none of a WebSocket"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidConnector) as caught:
        web.websocket(**({"url": "ws://127.0.0.1/"} | options))
    assert sentence in str(caught.value)


def test_a_server_with_a_certificate_of_its_own_is_trusted_by_its_file_only(tmp_path: Path) -> None:
    with Feeds(tls=certified(tmp_path, "127.0.0.1")) as server:
        server.add(numbered(1))
        assert received(server, 1, ca=tmp_path / "certificate.pem") == numbered(1)
        with pytest.raises(web.WebSocketFailed, match="certificate verify failed"):
            received(server, 1, patience="1ms")
        with pytest.raises(InvalidConnector, match=r"ca='/none\.pem' cannot be used"):
            received(server, 1, ca="/none.pem")
