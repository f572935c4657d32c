"""``rabbitmq.exchange`` on a real broker: ids, routing, confirmations, full queues, and what is refused."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from typing import Any

import pytest

from clonos.connectors import rabbitmq
from clonos.connectors.connector_errors import RowNotWritable
from clonos.connectors.kit.external_system import MessageRefused, SystemRefused, SystemUnreachable
from clonos.connectors.rabbitmq.exchange_sink import ExchangeSink
from clonos.operators.connector_contract import ImmediateSink
from tests.connectors.rabbitmq.messages import count, declare, publish, taken
from tests.connectors.registered_writers import registered
from tests.connectors.servers.rabbitmq import RabbitServer

pytestmark = pytest.mark.connectors

ROWS = [{"n": n} for n in range(10)]


def to_queue(server: RabbitServer, name: str, **options: Any) -> ExchangeSink:
    return rabbitmq.exchange("", url=server.full_url, routing_key=name, **options)


def test_rows_are_persistent_messages_with_an_id_and_a_header_for_deduplication(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "rows")
    sink = to_queue(rabbit, name, headers=lambda row: {"first": str(row)[0], "source": "test"})
    assert isinstance(sink, ImmediateSink)
    with closing(registered(sink, 3, generation=2)) as writer:
        assert writer.write(3, ROWS) == 13
        assert writer.write(13, ["text", b"\xff"]) == 15
    found = taken(rabbit, name)
    assert [json.loads(body) for _, body in found[:10]] == ROWS
    assert [body for _, body in found[10:]] == [b"text", b"\xff"]
    properties = found[1][0]
    assert properties.message_id == "job-1/out/0/2/4"
    assert properties.headers == {"x-deduplication-header": properties.message_id, "first": "{", "source": "test"}
    assert (properties.delivery_mode, properties.content_type) == (2, "application/json")


def test_a_successor_publishes_rows_again_under_the_same_ids_and_a_queue_counts_them_once(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "successor")
    sink = to_queue(rabbit, name)
    for _ in range(2):
        with closing(registered(sink)) as writer:
            writer.write(0, ROWS)
            assert writer.write(5, ROWS[5:]) == 10  # none of them again by the same writer
    ids = [properties.message_id for properties, _ in taken(rabbit, name)]
    assert ids[:10] == ids[10:]
    assert len(set(ids)) == 10


def test_a_function_of_the_row_chooses_the_queue(rabbit: RabbitServer) -> None:
    names = [declare(rabbit, "route-0"), declare(rabbit, "route-1")]
    with rabbit.channel() as channel:
        channel.exchange_declare("routes", "topic", durable=True)
        for index, name in enumerate(names):
            channel.queue_bind(name, "routes", f"row.{index}")
    sink = rabbitmq.exchange("routes", url=rabbit.full_url, routing_key=lambda row: f"row.{row['n'] % 2}")
    sink.check_start()
    with closing(registered(sink)) as writer:
        writer.write(0, ROWS)
    assert [json.loads(body)["n"] for _, body in taken(rabbit, names[1])] == [1, 3, 5, 7, 9]


def test_a_row_without_a_queue_ends_the_job_unless_it_may_be_dropped(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "routable")
    keys: dict[str, Any] = {"url": rabbit.full_url, "routing_key": lambda row: name if row["n"] != 4 else "nowhere"}
    with (
        closing(registered(rabbitmq.exchange("", **keys))) as writer,
        pytest.raises(MessageRefused, match=r"refused the row \{'n': 4\}: it has no queue .* 'nowhere': 312 NO_ROUTE"),
    ):
        writer.write(0, ROWS)
    assert len(taken(rabbit, name)) == 9
    with closing(registered(rabbitmq.exchange("", mandatory=False, **keys))) as writer:
        assert writer.write(0, ROWS) == 10


def test_a_full_queue_holds_rows_back_until_there_is_space(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "full", x_max_length=4, x_overflow="reject-publish")
    found: list[int] = []

    def drain() -> None:
        while len(found) < 10:
            found.extend(json.loads(body)["n"] for _, body in taken(rabbit, name))

    with closing(registered(to_queue(rabbit, name))) as writer:
        reader = threading.Thread(target=drain)
        reader.start()
        assert writer.write(0, ROWS) == 10
        reader.join()
    assert sorted(found) == list(range(10))


def test_a_queue_that_stays_full_is_a_fault_after_the_time_limit(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "stays-full", x_max_length=4, x_overflow="reject-publish")
    with (
        closing(registered(to_queue(rabbit, name, timeout="200ms"))) as writer,
        pytest.raises(SystemUnreachable, match="a queue is full"),
    ):
        writer.write(0, ROWS)
    assert count(rabbit, name) == 4


def test_a_row_that_is_larger_than_the_broker_allows_is_named_and_the_others_arrive(rabbit: RabbitServer) -> None:
    name = declare(rabbit, "limited")
    with (
        closing(registered(to_queue(rabbit, name))) as writer,
        pytest.raises(MessageRefused, match=r"refused the row 'xxx.*larger than configured max size"),
    ):
        writer.write(0, ["a", "x" * (17 << 20), "b"])
    with closing(registered(to_queue(rabbit, name), 1)) as successor:
        assert successor.write(1, ["b"]) == 2
    assert count(rabbit, name) == 2


def test_a_sink_with_a_wrong_name_or_password_is_refused_at_the_start(rabbit: RabbitServer) -> None:
    publish(rabbit, declare(rabbit, "there"), [])
    to_queue(rabbit, "there").check_start()
    with pytest.raises(SystemRefused, match="no queue 'missing'"):
        to_queue(rabbit, "missing").check_start()
    with pytest.raises(SystemRefused, match="no exchange 'missing'"):
        rabbitmq.exchange("missing", url=rabbit.full_url).check_start()
    wrong = rabbitmq.exchange("amq.topic", url=rabbit.url, password="wr0ng-7731")
    with pytest.raises(SystemRefused, match="ACCESS_REFUSED") as refused:
        wrong.check_start()
    assert "wr0ng" not in str(refused.value) + repr(wrong) + str(wrong.describe_output())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"routing_key": lambda _: 7}, "its routing key: 7 is not a str"),
        ({"routing_key": lambda _: "x" * 256}, "at most 255 bytes"),
        ({"routing_key": lambda row: row["missing"]}, "its routing key: 'missing'"),
        ({"routing_key": "q", "headers": lambda _: {"n": object()}}, "its headers: "),
        ({"routing_key": "q", "encode": lambda row: row["missing"]}, "its body: "),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(rabbit: RabbitServer, options: Any, reason: str) -> None:
    with (
        closing(registered(rabbitmq.exchange("", url=rabbit.full_url, **options))) as writer,
        pytest.raises(RowNotWritable, match=reason),
    ):
        writer.write(0, [{"n": 1}])
