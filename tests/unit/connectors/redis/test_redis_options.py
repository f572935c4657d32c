"""Options of ``redis.source`` and ``redis.sink``, and the splits of a source; no server is asked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import redis, secrets
from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed
from clonos.connectors.kit.broker_sink import Outgoing
from clonos.connectors.kit.external_system import MessagesLost, SystemUnreachable
from clonos.connectors.redis.entry_sink import FIELDS_MAX, SCRIPT_BYTES, script_parts
from clonos.connectors.redis.entry_source import EntryPlace, StreamState, check_lost, number_of, place_of_split
from clonos.operators.connector_contract import WriterIdentity
from clonos.operators.row_errors import RowNotWritable

URL = "redis://shop:s3cret@localhost:6379/2"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"keys": ""}, "the keys are ''"),
        ({"keys": []}, "the keys are \\[\\]"),
        ({"keys": ["a", "a"]}, "the keys are \\['a', 'a'\\]"),
        ({"keys": ["a", 7]}, "the keys are"),
        ({"start": "first"}, "start is 'first'"),
        ({"field": ""}, "field is ''"),
        ({"until": "empty"}, "until is 'empty'"),
        ({"idle_after": "5s"}, "idle_after without out_of_order"),
        ({"url": "http://localhost"}, "url is no URL of Redis"),
        ({"ca": "ca.pem"}, "ca= is given, but the url is not for TLS"),
    ],
)
def test_an_option_of_a_source_that_cannot_work_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConnector, match=problem):
        redis.source(**{"keys": "orders", "url": URL, **options})


@pytest.mark.parametrize("options", [{"key": ""}, {"key": 7}, {"entries_max": 0}, {"entries_max": True}])
def test_an_option_of_a_sink_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConnector, match=f"{next(iter(options)).removeprefix('the ')}.* is"):
        redis.sink(**{"key": "totals", "url": URL, **options})


def test_no_text_shows_the_password_of_a_url() -> None:
    source, sink = redis.source("orders", url=URL), redis.sink("totals", url=URL)
    shown = repr(source) + repr(sink) + str(sink.describe_output())
    assert "s3cret" not in shown
    assert "redis://localhost:6379/2" in shown
    assert "REDIS_URL" in repr(redis.source("orders", url=secrets.env("REDIS_URL")))


@pytest.mark.parametrize(
    "url", ["redis://a:s3cret@h:port", "redis://:s3cret@h/x", "redis://:s3cret@h?db=s3cret", "redis://"]
)
def test_a_url_that_cannot_be_parsed_is_not_shown(url: str) -> None:
    with pytest.raises(InvalidConnector, match="the url cannot be parsed") as refused:
        redis.source("orders", url=url).splits(1)
    assert "s3cret" not in str(refused.value)


def test_a_split_of_another_stream_is_refused() -> None:
    source = redis.source(["a", "b"], url=URL)
    source.check_split(msgspec.json.encode(EntryPlace("b", "1-0", 1, "0-0")))
    with pytest.raises(SplitMalformed, match="does not read it"):
        source.check_split(msgspec.json.encode(EntryPlace("c", "1-0", 1, "0-0")))
    with pytest.raises(SplitMalformed, match="stream of Redis"):
        place_of_split(b"{}")


@given(st.text(max_size=9), st.integers(0, 1 << 63), st.integers(0, 1 << 63), st.integers(0, 1 << 60))
def test_a_place_read_back_equals_what_was_stored(key: str, time: int, number: int, count: int) -> None:
    place = EntryPlace(key, f"{time}-{number}", count, "0-0", "9-9")
    assert place_of_split(msgspec.json.encode(place)) == place
    assert number_of(place.last) == (time, number)


class Stream:
    """Stream of Redis in memory, as its source code counts."""

    def __init__(self, length: int) -> None:
        self.there, self.added, self.deleted = list(range(1, length + 1)), length, 0

    def delete(self, number: int) -> None:
        if number in self.there:
            self.there.remove(number)
            self.deleted = max(self.deleted, number)

    def trim(self, length: int) -> None:
        self.there = self.there[len(self.there) - min(length, len(self.there)) :]

    def state(self) -> StreamState:
        return StreamState(len(self.there), self.added, f"{self.added}-0", f"{self.deleted}-0")


CHANGES = st.lists(st.tuples(st.sampled_from(["delete", "trim"]), st.integers(0, 9)), max_size=4)


@given(st.integers(0, 9), st.integers(0, 9), CHANGES)
def test_a_loss_is_seen_if_and_only_if_an_entry_that_was_not_read_is_gone(length: int, read: int, changes: Any) -> None:
    stream, read = Stream(length), min(read, length)
    for kind, number in changes:
        getattr(stream, kind)(number)
    place, is_lost = EntryPlace("orders", f"{read}-0", read, "0-0"), False
    try:
        check_lost(place, stream.state(), None)
    except MessagesLost:
        is_lost = True
    assert is_lost == (
        stream.there[-(length - read) :] != list(range(read + 1, length + 1)) if length > read else False
    )


def test_the_loss_of_a_recreated_stream_names_what_was_read_and_what_follows() -> None:
    place = EntryPlace("orders", "9-0", 3, "0-0")
    with pytest.raises(
        MessagesLost, match="5 entries were ever added, and the job has read 3 and finds 5 more: it was"
    ):
        check_lost(place, StreamState(5, 5, "14-0", "0-0"), 8)
    with pytest.raises(MessagesLost, match="2 entries were ever added, and the job has read 3: it was"):
        check_lost(place, StreamState(2, 2, "5-0", "0-0"), None)


def test_the_headers_of_rows_count_in_the_bytes_of_a_script() -> None:
    batch = [Outgoing(n, "totals", b"", [b"name", bytes(SCRIPT_BYTES // 2)], None) for n in range(3)]
    assert [[each.number for each in part] for part in script_parts(batch)] == [[0, 1], [2]]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"key": lambda row: row["to"]}, "its key: '' is not the key"),
        ({"key": lambda row: row["from"]}, "its key: 'from'"),
        ({"key": lambda _: "\ud800"}, "its key: .*surrogates"),
        ({"headers": lambda row: {"h": 7}}, "its headers: 7 is neither a str nor bytes"),
        ({"headers": {"data": "a"}}, "its headers: 'data' is not the name of a further field"),
        ({"headers": {"clonos-id": "a"}}, "its headers: 'clonos-id' is not"),
        ({"headers": {"h": "\ud800"}}, "its headers: .*surrogates"),
        ({"headers": dict.fromkeys(map(str, range(FIELDS_MAX + 1)), "a")}, "its headers: 1001 .* at most 1000"),
    ],
)
def test_a_row_that_cannot_be_an_entry_is_named(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(RowNotWritable, match=reason):
        redis.sink(**{"key": "totals", "url": URL, **options}).check_row({"n": 1, "to": ""})


def test_a_server_that_does_not_run_is_named() -> None:
    with pytest.raises(SystemUnreachable, match=r"Redis at redis://127\.0\.0\.1:9 failed at looking up"):
        redis.source("orders", url="redis://127.0.0.1:9").splits(1)
    writer = redis.sink("totals", url="redis://127.0.0.1:9", timeout="1ms").immediate_writer()
    with pytest.raises(SystemUnreachable):
        writer.register(WriterIdentity("job-1", "out/0", 0, 0), 0)
