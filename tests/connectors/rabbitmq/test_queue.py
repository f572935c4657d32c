"""``rabbitmq.queue`` on a real broker: order, acknowledgements, repetitions, and what is refused."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import cloudpickle
import pika
import pytest

from clonos.connectors import rabbitmq
from clonos.connectors.kit.external_system import PayloadMalformed, SystemRefused, SystemUnreachable
from clonos.operators.connector_contract import MalformedRecord, PendingInput, PushSource, Source
from clonos.operators.journal_source import IdentifiedSource, JournalHead
from tests.connectors.rabbitmq.messages import await_end, count, declare, publish, taken
from tests.connectors.servers.rabbitmq import RabbitServer

pytestmark = pytest.mark.connectors

TURNS = 500
WAIT_MS = 100


def received(feed: Any, records: int) -> bytes:
    """The journal of at least that many messages."""
    data = b""
    for _ in range(TURNS):
        data += bytes(feed.receive(WAIT_MS))
        if len(rabbitmq.queue("any", url="amqp://any").cut(data)) >= records:
            return data
    raise AssertionError(f"{records} messages have not arrived")


def test_messages_arrive_in_order_with_their_properties(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "in-order")
    publish(rabbit, name, range(50))
    source = rabbitmq.queue(name, url=rabbit.full_url)
    assert isinstance(source, PushSource)
    assert isinstance(source, IdentifiedSource)
    assert not isinstance(source, Source)
    with closing(source.connect(0)) as feed:
        data = received(feed, 50)
        feed.acknowledge(len(data))
    records = source.cut(data)
    assert b"".join(records) == data
    messages = source.decode(records)
    assert [message.body for message in messages] == [b"%d" % n for n in range(50)]
    assert messages[7].message_id == "m-7"
    assert (messages[0].routing_key, messages[0].exchange, messages[0].redelivered) == (name, "", False)
    assert taken(rabbit, name) == []


def test_the_messages_that_wait_in_the_queue_are_known_with_those_that_were_not_read(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "pending")
    publish(rabbit, name, range(50))
    # A job is pickled as a whole, so that the connection and the task have one source.
    source, head = cloudpickle.loads(
        cloudpickle.dumps((given := rabbitmq.queue(name, url=rabbit.full_url, prefetch=10), JournalHead("read", given)))
    )
    assert head.pending() is None
    with closing(source.connect(0)) as feed:
        data = received(feed, 10)
        for _ in range(TURNS):
            if source.pending_records() == 40:
                break
            feed.receive(WAIT_MS)
        head.feed(data)
        assert head.pending() == PendingInput(50)
    assert head.pending() is None


def test_headers_of_all_types_travel(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "headers")
    headers = {"n": 1, "text": "x", "flag": True, "bytes": b"\xff", "list": [1, "a"], "table": {"k": None}}
    with rabbit.channel() as channel:
        properties = pika.BasicProperties(headers=headers, type="order", timestamp=1_700_000_000, priority=3)
        channel.basic_publish("", name, b"body", properties)
    source = rabbitmq.queue(name, url=rabbit.full_url)
    with closing(source.connect(0)) as feed:
        [message] = source.decode(source.cut(received(feed, 1)))
    assert message.headers == headers
    assert (message.type, message.timestamp, message.priority) == ("order", 1_700_000_000, 3)


def test_a_message_that_was_not_acknowledged_is_delivered_again_and_counts_once(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "again")
    publish(rabbit, name, range(10))
    source = rabbitmq.queue(name, url=rabbit.full_url, decode=json.loads)
    with closing(source.connect(0)) as feed:
        first = received(feed, 10)
        feed.acknowledge(sum(map(len, source.cut(first)[:4])))
    with closing(source.connect(len(first))) as feed:
        second = received(feed, 6)
        feed.acknowledge(len(first) + len(second))
    assert source.decode(source.cut(second)) == [4, 5, 6, 7, 8, 9]
    head, rows = JournalHead("source", source), Rows()
    head.out = rows  # type: ignore[assignment]
    head.feed(first + second)
    head.read(0, 16)
    assert rows.all == list(range(10))
    assert count(rabbit, name) == 0


class Rows:
    def __init__(self) -> None:
        self.all: list[Any] = []

    def rows(self, rows: list[Any], times: Any = None) -> None:
        self.all += rows


def test_no_more_messages_than_the_credit_are_sent_ahead(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "credit")
    publish(rabbit, name, range(10))
    source = rabbitmq.queue(name, url=rabbit.full_url, prefetch=3, decode=json.loads)
    with closing(source.connect(0)) as feed:
        data = received(feed, 3)
        assert feed.receive(WAIT_MS) == b""
        assert count(rabbit, name) == 7
        feed.acknowledge(len(source.cut(data)[0]))
        more = received(feed, 1)
        assert source.decode(source.cut(more)) == [3]


def test_until_empty_ends_after_the_last_message(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "ends")
    publish(rabbit, name, range(5))
    source = rabbitmq.queue(name, url=rabbit.full_url, until="empty", prefetch=2, decode=json.loads)
    data = b""
    with closing(source.connect(0)) as feed:
        for _ in range(TURNS):
            found = feed.receive(1)
            if found is None:
                break
            data += found
            feed.acknowledge(len(data))
    assert source.decode(source.cut(data)) == [0, 1, 2, 3, 4]


def test_a_second_reader_waits_for_the_first(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "exclusive")
    source = rabbitmq.queue(name, url=rabbit.full_url)
    with closing(source.connect(0)), pytest.raises(SystemUnreachable, match="in exclusive use"):
        source.connect(0)
    source.connect(0).close()


@pytest.mark.parametrize(
    ("url", "name", "reason"),
    [
        ("amqp://shop:wr0ng-7731@{place}", "there", "ACCESS_REFUSED"),
        ("amqp://shop:{password}@{place}", "missing", "NOT_FOUND - no queue 'missing'"),
        ("amqp://shop:{password}@127.0.0.1:{port}/nowhere", "there", "nowhere"),
    ],
    ids=["password", "queue", "vhost"],
)
def test_a_queue_with_a_wrong_name_or_password_is_an_error_of_the_job(
    rabbit: RabbitServer, url: str, name: str, reason: str
) -> None:
    declare(rabbit, "there")
    filled = url.format(place=rabbit.place, port=rabbit.port, password="p4ss-of-the-broker")
    with pytest.raises(SystemRefused) as refused:
        rabbitmq.queue(name, url=filled).connect(0)
    assert reason in str(refused.value)
    assert "wr0ng" not in str(refused.value)
    assert "p4ss" not in str(refused.value)


def test_a_deleted_queue_ends_the_connection(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "deleted")
    with closing(rabbitmq.queue(name, url=rabbit.full_url).connect(0)) as feed:
        with rabbit.channel() as channel:
            channel.queue_delete(name)
        await_end(feed, "cancelled the consumer")


def test_a_body_that_does_not_decode_is_set_aside_with_its_id(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "poison")
    publish(rabbit, name, ["1", "x", "3"])
    source = rabbitmq.queue(name, url=rabbit.full_url, decode=json.loads)
    with closing(source.connect(0)) as feed:
        rows = source.decode(source.cut(received(feed, 3)))
    assert (rows[0], rows[2]) == (1, 3)
    assert isinstance(rows[1], MalformedRecord)
    assert isinstance(rows[1].error, PayloadMalformed)
    assert "the message m-1 of the queue poison" in str(rows[1].error)
    assert rows[1].record.body == b"x"


def test_a_quorum_queue_is_read_too(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "quorum", x_queue_type="quorum")
    publish(rabbit, name, range(5))
    source = rabbitmq.queue(name, url=rabbit.full_url, decode=json.loads)
    with closing(source.connect(0)) as feed:
        data = received(feed, 5)
        feed.acknowledge(len(data))
    assert source.decode(source.cut(data)) == [0, 1, 2, 3, 4]
