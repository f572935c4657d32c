"""``redis.source`` on a real server: order, replay from a place, several streams, and what is refused or lost."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clonos import codecs
from clonos.connectors import redis
from clonos.connectors.kit.external_system import MessagesLost, PayloadMalformed, SystemRefused
from clonos.connectors.redis import Entry
from clonos.operators.connector_contract import MalformedRecord, PendingInput, Source
from clonos.operators.event_time.stamped_records import StampedRecords
from tests.connectors.redis.streams import add_stream, publish
from tests.connectors.servers.redis import PASSWORD, READER, RedisProcess
from tests.unit.connectors.reading import read_raw

pytestmark = pytest.mark.connectors


def at(source: Any, reads: int = 0) -> tuple[bytes, bytes]:
    """The only split, and the mark after that many reads of one record."""
    [split] = source.splits(1)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        for _ in range(reads):
            assert len(reader.read(1)) == 1
        return split, reader.mark()


def test_entries_come_in_order_and_again_from_each_mark(server: RedisProcess) -> None:
    publish(server, add_stream(server, "ordered"), range(1_200))
    source = redis.source("ordered", url=server.full_url, decode=json.loads)
    assert isinstance(source, Source)
    [split] = source.splits(4)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        marks, records = [reader.mark()], []
        while read := reader.read(500):
            records += read
            marks.append(reader.mark())
        publish(server, "ordered", [1_200])
        assert reader.read(500) == [1_200]
    assert records == list(range(1_200))
    for number, mark in enumerate(marks):
        with closing(source.reader()) as reader:
            reader.open(split, mark)
            assert reader.read(1) == [min(500 * number, 1_200)]


def test_a_reader_knows_how_many_entries_it_has_not_read(server: RedisProcess) -> None:
    publish(server, add_stream(server, "waiting"), range(120))
    source = redis.source("waiting", url=server.full_url, decode=json.loads)
    [split] = source.splits(1)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        assert reader.pending() is None
        assert len(reader.read(50) or ()) == 50
        assert reader.pending() == PendingInput(70)
        publish(server, "waiting", range(30))
        assert len(reader.read(50) or ()) == 50
        assert reader.pending() == PendingInput(50)


def test_an_entry_has_its_key_id_time_and_fields(server: RedisProcess) -> None:
    server.ask_all([("DEL", "whole"), ("XADD", "whole", "1700000000123-7", "city", "Bonn", "n", b"\xff")])
    source = redis.source("whole", url=server.full_url, until="latest", out_of_order="1s")
    records = read_raw(source, source.splits(1)[0])
    assert records == [
        (
            1_700_000_000_123_000_000,
            Entry("whole", "1700000000123-7", 1_700_000_000_123, {"city": b"Bonn", "n": b"\xff"}),
        )
    ]
    with closing(source.reader()) as reader:
        reader.open(source.splits(1)[0], None)
        assert isinstance(reader.read(1), StampedRecords)


def test_each_stream_is_a_split(server: RedisProcess) -> None:
    for key in ("one", "two"):
        publish(server, add_stream(server, key), [key])
    source = redis.source(["one", "two"], url=server.full_url, until="latest", decode=bytes.decode)
    assert [read_raw(source, split) for split in source.splits(1)] == [["one"], ["two"]]


def test_until_latest_ends_where_the_stream_ended(server: RedisProcess) -> None:
    source = redis.source(add_stream(server, "bounded"), url=server.full_url, until="latest", decode=json.loads)
    [empty] = source.splits(1)
    publish(server, "bounded", range(5))
    [split] = source.splits(1)
    publish(server, "bounded", [99])
    assert read_raw(source, empty) == []
    assert read_raw(source, split) == list(range(5))


def test_until_latest_ends_although_the_last_entry_was_deleted_before(server: RedisProcess) -> None:
    publish(server, add_stream(server, "shortened"), range(2))
    server.ask("XDEL", "shortened", server.ask("XREVRANGE", "shortened", "+", "-", "COUNT", 1)[0][0])
    source = redis.source("shortened", url=server.full_url, until="latest", decode=json.loads)
    assert read_raw(source, source.splits(1)[0]) == [0]


def test_the_start_may_be_the_end(server: RedisProcess) -> None:
    publish(server, add_stream(server, "late"), range(5))
    source = redis.source("late", url=server.full_url, start="latest", decode=json.loads)
    split, _ = at(source)
    publish(server, "late", [5])
    with closing(source.reader()) as reader:
        reader.open(split, None)
        assert reader.read(10) == [5]


TRIMS: dict[str, list[Any]] = {
    "trimmed": [("XTRIM", "gone", "MAXLEN", 2)],
    "emptied": [("XTRIM", "gone", "MAXLEN", 0)],
    "made anew": [("DEL", "gone"), ("XADD", "gone", "*", "data", "9")],
    "made anew and longer": [("DEL", "gone"), *[("XADD", "gone", "*", "data", "9")] * 9],
}


@pytest.mark.parametrize("trim", TRIMS)
def test_entries_that_are_gone_before_they_were_read_are_an_error(server: RedisProcess, trim: str) -> None:
    publish(server, add_stream(server, "gone"), range(6))
    source = redis.source("gone", url=server.full_url, decode=json.loads)
    split, mark = at(source, reads=3)
    server.ask_all(TRIMS[trim])
    with closing(source.reader()) as reader:
        reader.open(split, mark)
        with pytest.raises(MessagesLost, match="the stream gone has lost messages"):
            reader.read(100)


@pytest.mark.parametrize("deleted", range(6))
def test_an_entry_that_is_deleted_is_an_error_if_it_was_not_read(server: RedisProcess, deleted: int) -> None:
    publish(server, add_stream(server, "holes"), range(6))
    ids = [name for name, _ in server.ask("XRANGE", "holes", "-", "+")]
    source = redis.source("holes", url=server.full_url, decode=json.loads)
    split, mark = at(source, reads=3)
    server.ask("XDEL", "holes", ids[deleted])
    with closing(source.reader()) as reader:
        reader.open(split, mark)
        if deleted < 3:
            assert reader.read(100) == [3, 4, 5]
        else:
            with pytest.raises(MessagesLost, match=f"entries up to {ids[deleted].decode()} have been deleted"):
                reader.read(1)


def test_a_stream_with_holes_and_a_trimmed_begin_is_read_while_old_entries_are_trimmed(server: RedisProcess) -> None:
    publish(server, add_stream(server, "old"), range(8))
    ids = [name for name, _ in server.ask("XRANGE", "old", "-", "+")]
    server.ask_all([("XTRIM", "old", "MAXLEN", 6), ("XDEL", "old", ids[4])])
    source = redis.source("old", url=server.full_url, decode=json.loads)
    split, _ = at(source)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        assert reader.read(2) == [2, 3]
        server.ask("XTRIM", "old", "MAXLEN", 3)
        assert reader.read(10) == [5, 6, 7]
        assert reader.read(10) == []


def test_a_payload_that_does_not_decode_is_set_aside_with_its_id(server: RedisProcess) -> None:
    server.ask("DEL", "poison")
    entries = [("data", "1"), ("data", "x"), ("other", "3"), ("data", "4", "data", "5"), ("data", "6")]
    server.ask_all([("XADD", "poison", f"{number}-0", *fields) for number, fields in enumerate(entries, 1)])
    source = redis.source("poison", url=server.full_url, until="latest", decode=json.loads)
    one, *bad, six = read_raw(source, source.splits(1)[0])
    assert (one, six) == (1, 6)
    assert all(isinstance(each, MalformedRecord) and isinstance(each.error, PayloadMalformed) for each in bad)
    assert [str(each.error).split(": ", 1)[0] for each in bad] == [
        f"entry {n}-0 of the stream poison" for n in (2, 3, 4)
    ]
    assert "it has 0 fields 'data'" in str(bad[1].error)
    assert bad[0].record.fields == {"data": b"x"}


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.tuples(st.binary(min_size=0, max_size=9), st.binary(max_size=20)), min_size=1, max_size=4)))
def test_fields_come_out_as_they_went_in_or_their_entry_is_an_error(
    server: RedisProcess, entries: list[list[tuple[bytes, bytes]]]
) -> None:
    add_stream(server, "any")
    server.ask_all(
        [("XADD", "any", "*", *[part for pair in fields for part in pair]) for fields in entries] or [("PING",)]
    )
    source = redis.source("any", url=server.full_url, until="latest")
    records = read_raw(source, source.splits(1)[0])
    assert len(records) == len(entries)
    for record, fields in zip(records, entries, strict=True):
        names = [name for name, _ in fields]
        if isinstance(record, MalformedRecord):
            assert len(set(names)) < len(names) or any(
                name.decode("utf-8", "replace").encode() != name for name in names
            )
        else:
            assert [(name.encode(), value) for name, value in record.fields.items()] == fields


@pytest.mark.parametrize(
    ("url", "key", "reason"),
    [
        ("redis://shop:wr0ng-7731@{place}", "there", "invalid username-password pair"),
        ("redis://nobody:wr0ng-7731@{place}", "there", "invalid username-password pair"),
        ("redis://{place}", "there", "Authentication required"),
        ("redis://shop:{password}@{place}", "missing", "no such key"),
        ("redis://shop:{password}@{place}", "text", "WRONGTYPE"),
    ],
    ids=["password", "user", "nobody", "key", "type"],
)
def test_a_stream_with_a_wrong_key_or_password_is_an_error_of_the_job(
    server: RedisProcess, url: str, key: str, reason: str
) -> None:
    add_stream(server, "there")
    server.ask_all([("DEL", "missing"), ("SET", "text", "a")])
    with pytest.raises(SystemRefused, match=reason) as refused:
        redis.source(key, url=url.format(place=server.place, password=PASSWORD)).splits(1)
    assert "wr0ng" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_a_user_who_may_only_read_reads(server: RedisProcess) -> None:
    publish(server, add_stream(server, "readable"), range(3))
    url = f"redis://{READER}:{PASSWORD}@{server.place}"
    source = redis.source("readable", url=url, until="latest", decode=codecs.json())
    assert read_raw(source, source.splits(1)[0]) == [0, 1, 2]


def test_a_server_that_restarts_gives_the_rest(server: RedisProcess) -> None:
    publish(server, add_stream(server, "restarts"), range(100))
    source = redis.source("restarts", url=server.full_url, decode=json.loads)
    [split] = source.splits(1)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        records = reader.read(50) or []
        server.kill()
        server.launch()
        records += reader.read(100) or []  # begun before the server answers
        server.wait()
    assert records == list(range(100))
