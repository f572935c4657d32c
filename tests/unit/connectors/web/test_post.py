"""Rows that are posted to a server: their bodies and keys, refusals, retries, and what is sent again."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import cloudpickle
import msgspec
import pytest

from clonos import codecs, secrets, web
from clonos.connectors.codecs.codec import InvalidCodec
from clonos.connectors.connector_errors import InvalidConnector, RowNotWritable
from clonos.connectors.web.posts import PostFailed, PostRefused, PostSink, PostWriter
from clonos.io.http.http_client import close_shared_client
from clonos.operators.connector_contract import Registration, WriterIdentity
from tests.unit.connectors.web.receiving_server import Receiver, receiver


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiver() as running:
        yield running
    close_shared_client()


def writer_of(sink: PostSink, incarnation: int = 1, generation: int = 0, restored: int = 0) -> PostWriter:
    writer = cloudpickle.loads(cloudpickle.dumps(sink)).immediate_writer()
    assert writer.register(WriterIdentity("job-1", "out/0", generation, incarnation), restored) == Registration(
        restored, None, knows_output=False
    )
    return writer  # type: ignore[no-any-return]


def test_each_row_is_a_request_with_its_key(server: Receiver) -> None:
    writer = writer_of(web.post(server.url, headers={"X-Shop": "7"}))
    assert writer.write(0, [{"a": 1}, "text"]) == 2
    assert [(one.key, one.value) for one in server.accepted] == [
        ("job-1/out/0/0/0", {"a": 1}),
        ("job-1/out/0/0/1", "text"),
    ]
    assert {one.headers["content-type"] for one in server.accepted} == {"application/json"}
    assert {one.headers["x-shop"] for one in server.accepted} == {"7"}


def test_a_batch_is_an_array_whose_rows_have_their_keys(server: Receiver) -> None:
    writer = writer_of(web.post(server.url, batch=2, key_field="key"))
    assert writer.write(5, [{"a": 1}, {"a": 2}, {"a": 3}]) == 8
    assert [(one.key, one.value) for one in server.accepted] == [
        ("job-1/out/0/0/5-6", [{"a": 1, "key": "job-1/out/0/0/5"}, {"a": 2, "key": "job-1/out/0/0/6"}]),
        ("job-1/out/0/0/7", [{"a": 3, "key": "job-1/out/0/0/7"}]),
    ]


def test_a_successor_sends_again_under_the_same_keys_and_a_rolled_back_job_under_others(server: Receiver) -> None:
    sink = web.post(server.url)
    writer_of(sink).write(0, ["a", "b", "c"])
    writer_of(sink, incarnation=2, restored=1).write(1, ["b", "c", "d"])
    writer_of(sink, incarnation=3, generation=1, restored=2).write(2, ["C"])
    keys: dict[str, set[bytes]] = {}
    for one in server.accepted:
        keys.setdefault(one.key, set()).add(one.body)
    assert sorted(body for bodies in keys.values() for body in bodies) == [b'"C"', b'"a"', b'"b"', b'"c"', b'"d"']
    assert all(len(bodies) == 1 for bodies in keys.values())


def test_rows_below_the_next_number_are_dropped(server: Receiver) -> None:
    writer = writer_of(web.post(server.url))
    writer.write(0, ["a", "b"])
    assert writer.write(1, ["b", "c"]) == 3
    assert [one.value for one in server.accepted] == ["a", "b", "c"]


@dataclass
class Order:
    id: int


class Bid(msgspec.Struct):
    id: int


@pytest.mark.parametrize("row", [{"id": 1}, Order(1), Bid(1)], ids=["dict", "dataclass", "struct"])
def test_rows_with_fields_get_their_key_as_a_field(server: Receiver, row: Any) -> None:
    writer_of(web.post(server.url, key_field="key")).write(0, [row])
    assert server.accepted[0].value == {"id": 1, "key": "job-1/out/0/0/0"}


def test_a_row_without_fields_has_no_place_for_a_key(server: Receiver) -> None:
    with pytest.raises(RowNotWritable, match="needs rows with fields"):
        writer_of(web.post(server.url, key_field="key")).write(0, [7])


def test_a_codec_makes_the_body(server: Receiver) -> None:
    writer_of(web.post(server.url, encode=codecs.gzip() | codecs.json())).write(0, [{"a": 1}])
    assert codecs.gzip().decode(server.accepted[0].body) == b'{"a":1}'
    with pytest.raises(RowNotWritable, match=r"its body: .* cannot encode {'a': 1}: it is not a str"):
        writer_of(web.post(server.url, encode=str)).write(0, [{"a": 1}])


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_server_that_is_busy_is_asked_again(server: Receiver, status: int) -> None:
    server.answers.append((status, {"Retry-After": "0"}))
    assert writer_of(web.post(server.url)).write(0, ["a"]) == 1
    assert [one.status for one in server.received] == [status, 204]


@pytest.mark.parametrize("status", [408, 500])
def test_a_server_that_fails_ends_the_attempt_not_the_job(server: Receiver, status: int) -> None:
    server.answers.append((status, {}))
    with pytest.raises(PostFailed, match=f"it answered {status}"):
        writer_of(web.post(server.url)).write(0, ["a"])


def test_a_server_that_is_away_ends_the_attempt_not_the_job() -> None:
    with pytest.raises(PostFailed, match=r"sending rows to http://127\.0\.0\.1:9/ failed"):
        writer_of(web.post("http://127.0.0.1:9/", timeout="50ms")).write(0, ["a"])
    close_shared_client()


def test_a_refused_row_of_a_batch_is_set_aside_and_the_others_arrive(server: Receiver, tmp_path: Path) -> None:
    server.refused = (b"bad",)
    writer = writer_of(web.post(server.url, batch=10, dead_letters=str(tmp_path / "dead")), generation=2)
    assert writer.write(0, ["a", "bad", "c"]) == 3
    assert [row for one in server.accepted for row in one.value] == ["a", "c"]
    letters = (tmp_path / "dead" / "out-0-2-1.jsonl").read_text("utf-8")
    assert json.loads(letters) == {"key": "job-1/out/0/2/1", "status": 422, "body": "status 422", "row": "bad"}


def test_a_refused_row_ends_the_job_without_a_place_for_it(server: Receiver) -> None:
    server.refused = (b"bad",)
    with pytest.raises(PostRefused, match=r"answered 422 .* with 'status 422' to the row 'bad'\. .*dead_letters="):
        writer_of(web.post(server.url)).write(0, ["bad"])


@pytest.mark.parametrize("status", [401, 403, 404, 405, 301])
def test_a_refusal_that_is_not_about_the_row_sets_no_row_aside(server: Receiver, tmp_path: Path, status: int) -> None:
    server.answers.append((status, {}))
    with pytest.raises(PostRefused, match="Correct the address"):
        writer_of(web.post(server.url, batch=2, dead_letters=str(tmp_path))).write(0, ["a", "b"])
    assert list(tmp_path.iterdir()) == []


def test_a_secret_in_a_header_is_sent_and_shown_nowhere(server: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = web.post(server.url.replace("//", "//ada:pa55@") + "?key=k3y", headers={"X-Token": secrets.env("TOKEN")})
    assert b"t0ken" not in cloudpickle.dumps(sink)
    monkeypatch.setenv("TOKEN", "t0ken")
    server.answers.append((401, {}))
    with pytest.raises(PostRefused) as caught:
        writer_of(sink).write(0, ["a"])
    assert server.received[0].headers["x-token"] == "t0ken"
    for text in (str(caught.value), repr(sink), str(sink.describe_output())):
        assert not any(secret in text for secret in ("t0ken", "pa55", "k3y"))


@pytest.mark.parametrize("status", [401, 422, 500])
def test_a_secret_that_a_server_repeats_is_neither_in_an_error_nor_among_dead_letters(
    server: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    monkeypatch.setenv("TOKEN", "Bearer t0ken-6173")
    server.echoed = "x-token"
    server.answers.extend([(status, {"Retry-After": "0"})] * 9)
    sink = web.post(server.url, headers={"X-Token": secrets.env("TOKEN")}, dead_letters=str(tmp_path))
    shown = ""
    try:
        writer_of(sink).write(0, ["a"])
    except (PostFailed, PostRefused) as error:
        shown = str(error)
    shown += "".join(path.read_text() for path in tmp_path.iterdir())
    assert f"status {status}***" in shown
    assert "t0ken" not in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch is 0. Give a number of rows, from 1 to 5000"),
        ({"batch": 9_999}, "batch is 9999"),
        ({"batch": 2, "encode": str}, "exclude each other"),
        ({"method": "PO ST"}, "method"),
        ({"headers": {"a b": "c"}}, "header"),
        ({"headers": ["a"]}, "headers is no dict"),
        ({"headers": {"a": 7}}, "the header 'a' is no text, or has a value that is neither"),
        ({"headers": {"a": f"Bearer {secrets.env('TOKEN')}"}}, "headers contains a secret"),
        ({"key_field": 7}, "key_field is 7"),
        ({"dead_letters": 7}, "dead_letters is 7"),
        ({"url": "ftp://shop"}, "ftp"),
        ({"url": "http://shop/<secret from $TOKEN>"}, "contains a secret"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConnector, match=message):
        web.post(options.pop("url", "http://shop"), **options)


def test_a_type_without_codec_is_refused_at_once() -> None:
    with pytest.raises(InvalidCodec, match="there is none"):
        web.post("http://shop", encode=set)


def test_request_cut_off_in_its_body_does_not_count_as_arrived(server: Receiver) -> None:
    port = urlsplit(server.url).port
    with socket.create_connection(("127.0.0.1", port)) as dying:
        dying.sendall(b"POST /rows HTTP/1.1\r\nhost: here\r\nidempotency-key: k\r\ncontent-length: 20\r\n\r\n[1,")
        dying.shutdown(socket.SHUT_WR)
        assert dying.recv(100) == b"", "the server closes without an answer"
    assert server.received == []
