"""``web.poll``: records of pages, cursors, pauses and errors, on a server on loopback."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clonos import codecs, secrets, web
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.web import poll_feed
from clonos.connectors.web.paging import Paging, page_of
from clonos.connectors.web.poll_feed import PollFeed
from clonos.core.model.errors import Blame
from clonos.io.system import wall_clock
from clonos.operators.connector_contract import MalformedRecord, PushSource, Source
from clonos.operators.journal_source import ContinuedSource, IdentifiedSource, JournalHead
from tests.unit.connectors.web.polled_server import Answer, Pages, pages
from tests.unit.connectors.web.test_receive import Rows
from tests.unit.services.test_http_tls import certified

OF_PAGES: dict[str, Any] = {"records": "data.items", "cursor": "next", "every": "1ms"}
ROUNDS_MAX = 500


@pytest.fixture
def server() -> Iterator[Pages]:
    with pages([1, 2, 3, 4, 5]) as running:
        yield running


class Numbered(msgspec.Struct):
    n: int


class Polling:
    """Source with a connection, and what it has journalled."""

    def __init__(self, source: Any, cursor: bytes | None = None) -> None:
        self.source = source
        self.feed = source.connect_at(0, cursor)
        self.journal = b""

    def take(self, count: int) -> list[Any]:
        """Asks until there are that many records, or the source ends; returns all records."""
        for _ in range(ROUNDS_MAX):
            data = self.feed.receive(20)
            self.journal += data or b""
            if data is None or len(self.source.cut(self.journal)) >= count:
                break
        return list(self.source.decode(self.source.cut(self.journal)))

    @property
    def cursor(self) -> bytes:
        return bytes(self.source.cursor(self.source.cut(self.journal)[-1]))


def polled(server: Pages, count: int, **options: Any) -> list[Any]:
    return Polling(web.poll(server.url, **options)).take(count)


def test_records_of_all_pages_come_in_order_and_the_cursor_is_sent(server: Pages) -> None:
    assert polled(server, 5, **OF_PAGES) == [1, 2, 3, 4, 5]
    assert [one.target for one in server.asked] == ["/records", "/records?cursor=2", "/records?cursor=4"]


def test_new_records_come_after_the_last_cursor(server: Pages) -> None:
    one = Polling(web.poll(server.url, **OF_PAGES))
    one.take(5)
    server.records.append(6)
    assert one.take(6) == [1, 2, 3, 4, 5, 6]


def test_a_successor_continues_after_the_last_journalled_answer(server: Pages) -> None:
    source = web.poll(server.url, **OF_PAGES)
    assert isinstance(source, PushSource)
    assert isinstance(source, ContinuedSource)
    assert not isinstance(source, (Source, IdentifiedSource))
    one = Polling(source)
    assert one.take(2) == [1, 2]
    assert Polling(source, one.cursor).take(3) == [3, 4, 5]


def test_the_link_header_names_the_next_page_and_a_bounded_source_ends_after_the_last(server: Pages) -> None:
    source = web.poll(server.url, records="data.items", cursor=web.NEXT_LINK, until="end")
    one = Polling(source)
    assert one.take(99) == [1, 2, 3, 4, 5]
    assert Polling(source, one.cursor).feed.receive(20) is None


@pytest.mark.parametrize(
    ("header", "url"),
    [
        ('<https://a/?p=2>; rel="next"', "https://a/?p=2"),
        ('<https://a/?p=1,2>; rel="prev", <https://a/?p=3>; title="next"; rel=next', "https://a/?p=3"),
        ('<https://a/?p=2>; rel="last next"', "https://a/?p=2"),
        ('<https://a/?p=2>; rel="nextish"', None),
        ('<https://a/?p=2>; title="rel=next"', None),
        ("", None),
    ],
)
def test_the_next_link_is_found_among_others(header: str, url: str | None) -> None:
    assert (
        page_of(
            web.Reply(200, "", {"link": header}, b"[]"), Paging(None, web.NEXT_LINK, None, None, False, None)
        ).cursor
        == url
    )


def test_a_function_may_find_records_and_cursor(server: Pages) -> None:
    def page(reply: web.Reply) -> tuple[list[Any], str | None]:
        found = reply.json()
        return [{"n": n} for n in found["data"]["items"]], f"?cursor={found['next']}"

    assert polled(server, 5, cursor=page, parameter=None, every="1ms") == [{"n": n} for n in range(1, 6)]


def test_without_a_cursor_each_answer_counts(server: Pages) -> None:
    server.answers = deque([Answer(200, b"[1]"), Answer(204), Answer(200, b"[1]")])
    assert polled(server, 2, every="1ms") == [1, 1]


def test_records_with_an_identity_count_once() -> None:
    with pages([{"id": n} for n in (1, 2)]) as server:
        one = Polling(web.poll(server.url, records="data.items", identity="id", every="1ms"))
        one.take(4)
        assert isinstance(one.source, IdentifiedSource)
    source: Any = one.source
    head, rows = JournalHead("source", source), Rows()
    head.out = rows
    head.feed(one.journal)
    head.read(0, 4)
    assert rows.found == [{"id": 1}, {"id": 2}]


def test_headers_and_the_token_are_sent_and_secrets_stay_out_of_the_description(
    server: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "t0ken-6173")
    source = web.poll(server.url, headers={"X-City": "Bern"}, token=secrets.env("SHOP_TOKEN"), **OF_PAGES)
    Polling(source).take(1)
    [asked, *_] = server.asked
    assert (asked.headers["authorization"], asked.headers["x-city"]) == ("Bearer t0ken-6173", "Bern")
    assert "t0ken-6173" not in repr(source) + repr(source.endpoint)


class Clock:
    """Clock that sleeps at once."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.slept_s = 0.0

    def sleep(self, pause_s: float) -> None:
        self.slept_s += pause_s
        self.now_ns += round(pause_s * 1e9)


def slept(server: Pages, **options: Any) -> float:
    """Seconds in which the source slept until it had the first record."""
    clock = Clock()
    source = web.poll(server.url, **(OF_PAGES | options))
    feed = PollFeed(source.endpoint, poll_feed.PollCursor(), lambda data, *_: data, lambda: clock.now_ns, clock.sleep)
    while not feed.receive(100):
        pass
    return clock.slept_s


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [({}, 0.5), ({"Retry-After": "7"}, 7), ({"Retry-After": "Fri, 01 Jan 2021 00:00:00 GMT"}, 0.5)],
)
def test_retry_after_and_growing_pauses_are_observed(server: Pages, headers: dict[str, str], pause_s: float) -> None:
    server.answers = deque([Answer(503, b"busy", headers), Answer(429)])
    assert slept(server) == pytest.approx(pause_s + 1.0)


def test_a_long_retry_after_is_obeyed_with_a_warning(server: Pages, caplog: pytest.LogCaptureFixture) -> None:
    server.answers = deque([Answer(429, b"slow down", {"Retry-After": "3600"})])
    assert slept(server) == pytest.approx(3600)
    assert f"{server.url} asks to be left alone for 1h: it answered 429 Too Many Requests: slow down" in caplog.text


@pytest.mark.parametrize("seconds", ["86401", "9" * 5000])
def test_a_retry_after_of_more_than_a_day_ends_the_job(server: Pages, seconds: str) -> None:
    server.answers = deque([Answer(503, b"", {"Retry-After": seconds})])
    with pytest.raises(web.PollFailed, match="its Retry-After asks for"):
        slept(server)


@pytest.mark.parametrize("answer", [401, 500])
def test_a_token_that_the_endpoint_repeats_is_not_in_the_error(
    server: Pages, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "t0ken-6173")
    for token in ("t0ken-6173", secrets.env("SHOP_TOKEN")):
        server.answers = deque([Answer(answer, b"no such token: Bearer t0ken-6173")] * 9)
        with pytest.raises((web.PollRefused, web.PollFailed), match=r"no such token: Bearer \*\*\*"):
            slept(server, token=token, patience="1s")


def test_retry_after_may_be_a_date(server: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall_clock, "wall_ns", lambda: 1_000_000_000)
    server.answers = deque([Answer(503, b"", {"Retry-After": "Thu, 01 Jan 1970 00:00:09 GMT"})])
    assert slept(server) == pytest.approx(8)


def test_the_source_sleeps_after_an_answer_without_records() -> None:
    with pages([1]) as server:
        server.answers = deque([Answer(200, b'{"data": {"items": []}, "next": "0"}')])
        assert slept(server, every="3s") == pytest.approx(3)


def test_an_endpoint_that_fails_for_too_long_ends_the_job(server: Pages) -> None:
    server.answers = deque([Answer(500, b"oh")] * 99)
    with pytest.raises(web.PollFailed, match=r"has failed for 5s: it answered 500 .*: oh\. Resume") as failed:
        slept(server, patience="5s")
    assert failed.value.blame is Blame.ENVIRONMENT  # another start may succeed


def test_a_server_that_is_not_there_is_asked_again(server: Pages) -> None:
    source = web.poll("http://127.0.0.1:9/", patience="1ms")
    with pytest.raises(web.PollFailed, match=r"127\.0\.0\.1:9/ has failed for 1ms: .*refused"):
        Polling(source).take(1)


@pytest.mark.parametrize(
    ("answer", "options", "sentence"),
    [
        (Answer(401, b"who?"), {}, "it answered 401 Unauthorized: who?. Correct token= or headers="),
        (Answer(404), {}, "it answered 404 Not Found. Correct the URL"),
        (Answer(200, b"x" * 101), {"body_bytes_max": 100}, "Ask for smaller pages, or raise body_bytes_max="),
        (
            Answer(200, b"{}", {"Link": '<https://evil.example/>; rel="next"'}),
            {"cursor": web.NEXT_LINK, "records": "none"},
            "no array in the field none",
        ),
        (Answer(200, b"<html>"), {}, "is no object of JSON: '<html>'"),
        (Answer(200, b"<html>"), {"records": None, "cursor": None}, "is no array of JSON, so name its field: '<html>'"),
        (Answer(200, b'{"data": {}}'), {}, "has no array in the field data.items of records="),
        (Answer(200, b'{"data": {"items": []}, "next": []}'), {}, "no text or integer in the field next of cursor="),
        (Answer(200, b'{"data": {"items": [1]}}'), {}, "has records, but no cursor: they would come again"),
        (Answer(200, b'{"data": {"items": [1]}, "next": "a"}'), {"start": "a"}, "has records, but the same cursor"),
        (
            Answer(200, b'{"data": {"items": [1]}, "next": "a"}'),
            {"identity": "id"},
            "without the field id of identity=",
        ),
    ],
)
def test_an_answer_that_cannot_be_used_ends_the_job_with_a_sentence(
    server: Pages, answer: Answer, options: dict[str, Any], sentence: str
) -> None:
    server.answers = deque([answer])
    with pytest.raises((web.PollRefused, web.AnswerMalformed)) as caught:
        polled(server, 1, **(OF_PAGES | options))
    assert sentence in str(caught.value)
    assert server.url in str(caught.value)


def test_a_next_page_at_another_server_is_refused(server: Pages) -> None:
    server.answers = deque([Answer(200, b"[1]", {"Link": '<https://evil.example/?t=1>; rel="next"'})])
    with pytest.raises(web.PollRefused, match=r"its next page is at another server, https://evil\.example/"):
        polled(server, 2, cursor=web.NEXT_LINK, every="1ms")


def test_a_record_that_does_not_decode_is_set_aside(server: Pages) -> None:
    server.answers = deque([Answer(200, b'[{"n":"1"}, {"n":2}]')])
    found = polled(server, 2, decode=codecs.json(Numbered), every="1ms")
    assert found[1] == Numbered(2)
    assert isinstance(found[0], MalformedRecord)
    assert found[0].record == b'{"n":"1"}'
    assert f"a record of {server.url}: json" in str(found[0].error)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"until": "never"}, "until is 'never'"),
        ({"records": "a..b"}, "records is 'a..b'"),
        ({"cursor": ""}, "cursor is ''"),
        ({"cursor": str, "records": "a"}, "exclude each other"),
        ({"token": "x", "headers": {"authorization": "y"}}, "both give Authorization"),
        ({"remember": 0}, "remember is 0"),
        ({"body_bytes_max": 17 << 20}, "body_bytes_max is"),
        ({"headers": {"a b": "c"}}, "'a b' is not a header name"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidConnector) as caught:
        web.poll("http://127.0.0.1/", **options)
    assert sentence in str(caught.value)


def test_a_file_of_authorities_that_is_not_there_is_an_error(server: Pages) -> None:
    with pytest.raises(InvalidConnector, match=r"ca='/none\.pem' cannot be used"):
        Polling(web.poll(server.url, ca="/none.pem"))


def test_a_server_with_a_certificate_of_its_own_is_trusted_by_its_file_only(tmp_path: Path) -> None:
    with pages([1, 2], tls=certified(tmp_path, "127.0.0.1")) as server:
        assert polled(server, 2, ca=tmp_path / "certificate.pem", **OF_PAGES) == [1, 2]
        with pytest.raises(web.PollFailed, match="certificate verify failed"):
            polled(server, 2, patience="1ms", **OF_PAGES)


@pytest.mark.parametrize(
    ("encoding", "content_type"),
    [
        ("utf-8-sig", "application/json"),
        ("utf-8-sig", "application/json; charset=utf-8"),
        ("latin-1", 'application/json; charset="ISO-8859-1"'),
        ("utf-16", "application/json"),
        ("utf-16-le", "application/json;charset=utf-16le"),
    ],
)
@pytest.mark.parametrize("path", ["", "data.items"])
def test_an_answer_may_begin_with_a_mark_or_name_its_encoding(
    server: Pages, encoding: str, content_type: str, path: str
) -> None:
    body = '{"data": {"items": ["Zoë"]}, "next": "7"}' if path else '["Zoë"]'
    answer = Answer(200, body.encode(encoding), {"Content-Type": content_type})
    server.answers.append(answer)
    assert polled(server, 1, records=path or None, every="1ms") == ["Zoë"]
    reply = web.Reply(200, "", {"content-type": content_type}, answer.body)
    assert (
        page_of(reply, Paging("data.items", "next", "cursor", None, False, None)).cursor == "7"
        if path
        else reply.json()
    )


def test_an_answer_that_is_not_in_its_encoding_gives_malformed_records(server: Pages) -> None:
    for charset in ("utf-8", "no-such"):
        body = '["a", "Zoë"]'.encode("latin-1")
        server.answers.append(Answer(200, body, {"Content-Type": f"application/json; charset={charset}"}))
        first, second = polled(server, 2, every="1ms")
        assert first == "a"
        assert type(second) is MalformedRecord


def test_a_record_that_is_deeper_than_a_value_may_be_is_malformed(server: Pages) -> None:
    server.answers.append(Answer(200, b"[1, " + b"[" * 100 + b"]" * 100 + b", 2]"))
    one, deep, two = polled(server, 3, every="1ms")
    assert (one, two) == (1, 2)
    assert "nested in more than 64 containers" in str(deep.error)
