"""``nats.source`` on a real server: order, replay from a sequence, splits, timestamps, and what is refused or lost."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import nats as library
import pytest

from clonos.connectors import nats
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.external_system import MessagesLost, PayloadMalformed, SystemRefused, SystemUnreachable
from clonos.connectors.nats.loop_thread import LoopThread
from clonos.connectors.nats.pump import Pump
from clonos.connectors.nats.stream_splits import split_of
from clonos.operators.connector_contract import MalformedRecord, Source
from clonos.operators.event_time.stamped_records import StampedRecords
from tests.connectors.nats.streams import add_stream, publish
from tests.connectors.servers.nats import PASSWORD, READER, NatsServer
from tests.unit.connectors.reading import read_raw

pytestmark = pytest.mark.connectors

TURNS = 3_000


def read(reader: Any, count: int) -> list[Any]:
    """At least that many records."""
    records: list[Any] = []
    for _ in range(TURNS):
        records += reader.read(1_024) or []
        if len(records) >= count:
            return records
    raise AssertionError(f"{count} messages have not come, but {len(records)}")


def test_messages_come_in_order_and_again_from_each_mark(server: NatsServer) -> None:
    add_stream(server, "ORDERED")
    publish(server, "ordered", range(2_500))
    source = nats.source("ORDERED", url=server.full_url, decode=json.loads)
    assert isinstance(source, Source)
    [split] = source.splits(4)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        first = read(reader, 2_500)
        mark = reader.mark()
        publish(server, "ordered", range(2_500, 2_600))
        while len(first) < 2_600:
            first += reader.read(1_024) or []
    assert first == list(range(2_600))
    assert mark == b"2501"
    for mark, expected in ((b"2501", range(2_500, 2_600)), (b"18", range(17, 2_600))):
        with closing(source.reader()) as reader:
            reader.open(split, mark)
            assert read(reader, len(expected)) == list(expected)


def test_a_message_has_its_subject_sequence_time_and_headers(server: NatsServer) -> None:
    add_stream(server, "WHOLE", "whole.*")
    before = datetime.now(UTC).timestamp()
    publish(server, "whole.a", ["x"], city="Bonn")
    source = nats.source("WHOLE", url=server.full_url, until="latest", out_of_order="1s")
    [split] = source.splits(1)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        records = reader.read(10)
    assert isinstance(records, StampedRecords)
    [(stamp, message)] = records
    assert (message.subject, message.sequence, message.data) == ("whole.a", 1, b"x")
    assert message.headers == {"city": "Bonn"}
    assert stamp == message.timestamp
    assert before <= stamp / 1e9 <= datetime.now(UTC).timestamp()


def test_each_subject_is_a_split_and_other_messages_are_left_out(server: NatsServer) -> None:
    add_stream(server, "PARTS", "parts.>")
    for turn in range(3):
        for subject in ("parts.eu.a", "parts.us", "parts.other"):
            publish(server, subject, [f"{subject} {turn}"])
    source = nats.source(
        "PARTS", url=server.full_url, subjects=["parts.eu.*", "parts.us"], until="latest", decode=bytes.decode
    )
    eu, us = source.splits(1)
    assert read_raw(source, eu) == [f"parts.eu.a {turn}" for turn in range(3)]
    assert read_raw(source, us) == [f"parts.us {turn}" for turn in range(3)]


def test_until_latest_ends_where_the_stream_ended(server: NatsServer) -> None:
    add_stream(server, "BOUNDED", "bounded.*")
    source = nats.source("BOUNDED", url=server.full_url, until="latest", decode=json.loads)
    [empty] = source.splits(1)
    publish(server, "bounded.a", range(5))
    publish(server, "bounded.b", range(5))
    [split] = source.splits(1)
    filtered = nats.source("BOUNDED", url=server.full_url, until="latest", subjects="bounded.a", decode=json.loads)
    [of_a] = filtered.splits(1)
    publish(server, "bounded.a", [99])
    assert read_raw(source, empty) == []
    assert read_raw(source, split) == [*range(5), *range(5)]
    assert read_raw(filtered, of_a) == list(range(5))


def test_a_reader_reports_how_many_messages_of_its_subjects_it_has_not_read(server: NatsServer) -> None:
    add_stream(server, "PENDING", "pending.*")
    publish(server, "pending.a", range(2_500))
    publish(server, "pending.b", range(9))
    source = nats.source("PENDING", url=server.full_url, subjects="pending.a", decode=json.loads)
    bounded = nats.source("PENDING", url=server.full_url, until="latest")
    with closing(source.reader()) as reader, closing(bounded.reader()) as until_latest:
        assert reader.pending() is None
        reader.open(source.splits(1)[0], None)
        until_latest.open(bounded.splits(1)[0], None)
        assert len(read(until_latest, 1)) > 0
        assert until_latest.pending() is None
        taken = len(reader.read(100) or [])
        assert reader.pending() == (2_500 - taken, None, 0)
        taken += len(read(reader, 2_500 - taken))
        assert (taken, reader.pending()) == (2_500, (0, None, 0))


def test_the_start_may_be_a_sequence_a_time_or_the_end(server: NatsServer) -> None:
    add_stream(server, "STARTS")
    publish(server, "starts", range(10))
    whole = nats.source("STARTS", url=server.full_url, until="latest")
    [fifth] = [each for each in read_raw(whole, whole.splits(1)[0]) if each.sequence == 5]
    at_time = datetime.fromtimestamp(fifth.timestamp / 1e9, UTC)
    starts: list[tuple[Any, int]] = [(4, 4), (at_time, 5), ("latest", 11), ("earliest", 1)]
    for start, first in starts:
        source = nats.source("STARTS", url=server.full_url, start=start)
        [split] = source.splits(1)
        assert abs(json.loads(split)[2] - first) <= isinstance(start, datetime)  # the client cuts times to microseconds
    with pytest.raises(InvalidConnector, match="the stream STARTS has the sequences from 1 up to 10"):
        nats.source("STARTS", url=server.full_url, start=12).splits(1)


def test_messages_that_are_larger_than_a_request_allows_come_in_order(server: NatsServer) -> None:
    add_stream(server, "LARGE")
    bodies = ["a" * 5_000, "b", "c" * 500_000, "d" * 1_500, "e" * 1_500]
    publish(server, "large", bodies)
    source = nats.source("LARGE", url=server.full_url)
    pump = Pump(source.server, split_of(source.splits(1)[0]), 1, batch_bytes=2_000)
    thread = LoopThread("test")
    taken: list[str] = []
    thread.start(pump.run())
    while len(taken) < len(bodies):
        messages, _, _ = pump.take(1, 30.0)
        taken += [message.data.decode() for message in messages]
        thread.soon(pump.wake)
    thread.close()
    assert taken == bodies


def test_a_payload_that_does_not_decode_is_set_aside_with_its_sequence(server: NatsServer) -> None:
    add_stream(server, "POISON")
    publish(server, "poison", ["1", "x", "3"])
    source = nats.source("POISON", url=server.full_url, until="latest", decode=json.loads)
    rows = read_raw(source, source.splits(1)[0])
    assert (rows[0], rows[2]) == (1, 3)
    assert isinstance(rows[1], MalformedRecord)
    assert isinstance(rows[1].error, PayloadMalformed)
    assert "sequence 2 of the stream POISON, subject poison" in str(rows[1].error)
    assert rows[1].record.data == b"x"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"retention": "workqueue"}, "its retention is workqueue"),
        ({"retention": "interest"}, "its retention is interest"),
        ({"max_msgs_per_subject": 1}, "it has max_msgs_per_subject"),
        ({"allow_rollup_hdrs": True}, "it allows roll-ups"),
    ],
    ids=["workqueue", "interest", "per-subject", "roll-ups"],
)
def test_a_stream_that_cannot_be_read_again_is_refused(
    server: NatsServer, options: dict[str, Any], reason: str
) -> None:
    add_stream(server, "VANISHING", **options)
    with pytest.raises(SystemRefused, match=reason):
        nats.source("VANISHING", url=server.full_url).splits(1)


@pytest.mark.parametrize(
    ("url", "stream", "reason"),
    [
        ("nats://shop:wr0ng-7731@{place}", "THERE", "uthorization "),
        ("nats://wr0ng-t0ken@{place}", "THERE", "uthorization "),
        ("nats://shop:{password}@{place}", "MISSING", "stream not found"),
    ],
    ids=["password", "token", "stream"],
)
def test_a_stream_with_a_wrong_name_or_password_is_an_error_of_the_job(
    server: NatsServer, url: str, stream: str, reason: str
) -> None:
    add_stream(server, "THERE")
    with pytest.raises(SystemRefused) as refused:
        nats.source(stream, url=url.format(place=server.place, password=PASSWORD)).splits(1)
    assert reason in str(refused.value)
    assert "wr0ng" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_a_subject_that_the_stream_does_not_have_is_an_error_of_the_job(server: NatsServer) -> None:
    add_stream(server, "NARROW", "narrow.*")
    source = nats.source("NARROW", url=server.full_url, subjects="wide")
    [split] = source.splits(1)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        with pytest.raises(SystemRefused, match="filter subject is not a valid subset"):
            reader.read(1)


def test_a_user_who_may_only_read_reads(server: NatsServer) -> None:
    add_stream(server, "READABLE")
    publish(server, "readable", range(3))
    url = f"nats://{READER}:{PASSWORD}@{server.place}"
    source = nats.source("READABLE", url=url, until="latest", decode=json.loads)
    assert read_raw(source, source.splits(1)[0]) == [0, 1, 2]


def test_messages_that_the_stream_has_removed_before_they_were_read_are_an_error(server: NatsServer) -> None:
    add_stream(server, "LIMITED", max_msgs=5)
    publish(server, "limited", range(3))
    source = nats.source("LIMITED", url=server.full_url, decode=json.loads)
    [split] = source.splits(1)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        assert read(reader, 3) == [0, 1, 2]
        mark = reader.mark()
    publish(server, "limited", range(20))
    with closing(source.reader()) as reader:
        reader.open(split, mark)
        with pytest.raises(MessagesLost, match="the stream begins at 19"):
            reader.read(1)


def test_the_messages_of_a_stream_that_was_created_again_are_lost(server: NatsServer) -> None:
    add_stream(server, "ANEW")
    publish(server, "anew", range(3))
    source = nats.source("ANEW", url=server.full_url)
    [split] = source.splits(1)
    add_stream(server, "ANEW")
    publish(server, "anew", range(3))
    with closing(source.reader()) as reader:
        reader.open(split, b"3")
        with pytest.raises(MessagesLost, match="was created anew"):
            reader.read(1)


def test_the_mark_passes_messages_of_other_subjects(server: NatsServer) -> None:
    add_stream(server, "PASSING", "passing.*")
    publish(server, "passing.a", range(2))
    publish(server, "passing.b", range(20))
    source = nats.source("PASSING", url=server.full_url, subjects="passing.a")
    [split] = source.splits(1)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        assert len(read(reader, 2)) == 2
        deadline = 0
        while reader.mark() != b"23":
            assert reader.read(1) == []
            deadline += 1
            assert deadline < 10_000_000, reader.mark()


def test_a_server_that_restarts_gives_the_rest(server: NatsServer) -> None:
    add_stream(server, "RESTARTS")
    publish(server, "restarts", range(100))
    source = nats.source("RESTARTS", url=server.full_url, decode=json.loads)
    [split] = source.splits(1)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        records = read(reader, 100)
        server.kill()
        assert reader.read(10) == []
        server.start()
        publish(server, "restarts", range(100, 200))
        while len(records) < 200:
            records += reader.read(1_000) or []
    assert records == list(range(200))


def test_a_reader_whose_consumers_vanish_again_and_again_fails_with_the_reason(server: NatsServer) -> None:
    add_stream(server, "VANISHING")
    created = "$JS.EVENT.ADVISORY.CONSUMER.CREATED.VANISHING.>"
    source = nats.source("VANISHING", url=server.full_url)
    [split] = source.splits(1)

    async def delete_all(jetstream: Any) -> None:
        async def delete(event: Any) -> None:
            await jetstream.delete_consumer("VANISHING", json.loads(event.data)["consumer"])

        watcher = await library.connect(server.full_url)
        await watcher.subscribe(created, cb=delete)
        await watcher.flush()
        pump = Pump(source.server, split_of(split), 1, down_s=0.2)
        thread = LoopThread("test")
        try:
            await asyncio.wrap_future(thread.start(pump.run()))
        finally:
            await asyncio.to_thread(thread.close)
            await watcher.close()
        with pytest.raises(SystemUnreachable, match="each of its consumers vanishes"):
            pump.take(1, 0.0)

    server.ask(delete_all)
