"""Writers of the immediate Kafka sink on a real broker: messages, fencing, lost numbers, rows that are refused."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from clonos.connectors import kafka
from clonos.connectors.connector_errors import InvalidConnector, RowNotWritable
from clonos.connectors.kafka.immediate import TopicWriter, group_of
from clonos.connectors.kafka.kafka_errors import GroupForeign, UnknownTopic
from clonos.connectors.kit.external_system import MessageRefused, NumberLost, SystemRefused
from clonos.operators.connector_contract import Registration, WriterFenced, WriterIdentity
from tests.connectors.kafka.producing import committed, produce
from tests.connectors.servers.kafka import USER, KafkaServer

pytestmark = pytest.mark.connectors


def identity(job: str, generation: int = 1, incarnation: int = 1) -> WriterIdentity:
    return WriterIdentity(job, "out/0", generation, incarnation)


def writer_of(broker: KafkaServer, topic: str, **options: Any) -> TopicWriter:
    sink: Any = kafka.sink(topic, servers=broker.servers, **options)
    return cast(TopicWriter, sink.immediate_writer())


def write(broker: KafkaServer, topic: str, rows: list[Any], **options: Any) -> list[Any]:
    """Writes rows to a new topic of three partitions; returns the messages in order of their numbers."""
    broker.create_topic(topic, 3)
    writer = writer_of(broker, topic, **options)
    try:
        assert writer.register(identity(topic), 0) == Registration(0, None)
        assert writer.write(0, rows) == len(rows)
    finally:
        writer.close()
    return sorted(committed(broker, topic), key=lambda message: int(dict(message.headers())["clonos-number"]))


def test_a_row_has_the_value_key_headers_timestamp_and_partition_that_its_sink_names(broker: KafkaServer) -> None:
    rows = [
        {"id": 7, "at": datetime(2026, 1, 2, tzinfo=UTC), "text": "a"},
        {"id": "x", "at": 1_700_000_000_000, "text": None},
    ]
    found = write(
        broker,
        "parts",
        rows,
        key="id",
        value="text",
        timestamp="at",
        headers=lambda row: {"id": row["id"], "empty": None},
        partition=lambda row: 2 if row["id"] == 7 else 1,
    )
    assert [(message.key(), message.value(), message.partition()) for message in found] == [
        (b"7", b"a", 2),
        (b"x", None, 1),
    ]
    assert [message.timestamp()[1] for message in found] == [1_767_312_000_000, 1_700_000_000_000]
    own = [("clonos-task", b"out/0"), ("clonos-number", b"0"), ("clonos-generation", b"1")]
    assert found[0].headers() == [*own, ("id", b"7"), ("empty", None)]


def test_values_without_an_encoder_are_bytes_text_or_json(broker: KafkaServer) -> None:
    found = write(broker, "plain", [b"\xff", "ä", {"a": 1}, 7])
    assert [message.value() for message in found] == [b"\xff", "ä".encode(), b'{"a":1}', b"7"]


def test_a_key_goes_to_the_partition_that_clients_in_java_choose(broker: KafkaServer) -> None:
    """Partitions of `DefaultPartitioner` for three partitions: murmur2 of the key, without its sign, modulo 3."""
    found = write(broker, "murmur", [{"k": key} for key in ("a", "b", "21", "foobar")], key="k")
    assert [(message.key(), message.partition()) for message in found] == [
        (key, (murmur2(key) & 0x7FFFFFFF) % 3) for key in (b"a", b"b", b"21", b"foobar")
    ]


def murmur2(data: bytes) -> int:
    """As `org.apache.kafka.common.utils.Utils.murmur2` computes it."""
    mask, factor, length = 0xFFFFFFFF, 0x5BD1E995, len(data)
    value = (0x9747B28C ^ length) & mask
    for start in range(0, length - length % 4, 4):
        k = int.from_bytes(data[start : start + 4], "little") * factor & mask
        value = (value * factor & mask) ^ ((k ^ (k >> 24)) * factor & mask)
    rest = data[length - length % 4 :]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * factor & mask
    value = (value ^ (value >> 13)) * factor & mask
    return value ^ (value >> 15)


def test_a_successor_drops_repeated_rows_and_its_predecessor_stands_down(broker: KafkaServer) -> None:
    topic = broker.create_topic("fencing")
    first, second = writer_of(broker, topic), writer_of(broker, topic)
    try:
        first.register(identity(topic), 0)
        assert first.write(0, ["a", "b"]) == 2
        assert second.register(identity(topic, incarnation=2), 0) == Registration(2, None)
        with pytest.raises(WriterFenced) as fenced:
            first.write(2, ["zombie"])
        assert fenced.value.by == (1, 2)
        assert second.write(1, ["b", "c"]) == 3
    finally:
        first.close()
        second.close()
    assert [message.value() for message in committed(broker, topic)] == [b"a", b"b", b"c"]


def test_a_later_writer_that_an_earlier_one_has_fenced_registers_again_and_writes(broker: KafkaServer) -> None:
    topic = broker.create_topic("fenced-back")
    later, earlier = writer_of(broker, topic), writer_of(broker, topic)
    try:
        later.register(identity(topic, incarnation=2), 0)
        with pytest.raises(WriterFenced):
            earlier.register(identity(topic), 0)
        assert later.write(0, ["a"]) == 1
    finally:
        later.close()
        earlier.close()
    assert [message.value() for message in committed(broker, topic)] == [b"a"]


def test_a_rollback_reports_the_rows_that_come_again(broker: KafkaServer) -> None:
    topic = broker.create_topic("again")
    first, second = writer_of(broker, topic), writer_of(broker, topic)
    try:
        first.register(identity(topic), 0)
        first.write(0, list("abcd"))
        assert second.register(identity(topic, 2, 2), 1) == Registration(1, 4)
        assert second.write(1, ["B"]) == 2
    finally:
        first.close()
        second.close()
    assert [message.value() for message in committed(broker, topic)] == [b"a", b"b", b"c", b"d", b"B"]


def test_a_number_that_has_expired_is_an_error_and_nothing_is_written(broker: KafkaServer) -> None:
    topic = broker.create_topic("expired")
    writer = writer_of(broker, topic)
    try:
        writer.register(identity(topic), 0)
        writer.write(0, ["a", "b"])
    finally:
        writer.close()
    group = group_of(topic, "out/0")
    admin = broker.admin()
    admin.delete_consumer_groups([group])[group].result()
    successor = writer_of(broker, topic)
    try:
        with pytest.raises(NumberLost, match=r"at least 2 rows.*offsets\.retention\.minutes"):
            successor.register(identity(topic, incarnation=2), 2)
    finally:
        successor.close()


def test_an_offset_of_another_consumer_in_the_group_is_refused(broker: KafkaServer) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = broker.create_topic("foreign")
    produce(broker, topic, range(3))
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": group_of(topic, "out/0")})
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    consumer.close()
    writer = writer_of(broker, topic)
    try:
        with pytest.raises(GroupForeign, match="keep other consumers out of it"):
            writer.register(identity(topic), 0)
    finally:
        writer.close()


def test_the_number_is_committed_again_when_checkpoints_complete_without_rows(broker: KafkaServer) -> None:
    topic = broker.create_topic("refreshed")
    sink = kafka.sink(topic, servers=broker.servers)
    writer = TopicWriter(sink.cluster, topic, sink.form, repeat_s=-1.0)
    group, admin = group_of(topic, "out/0"), broker.admin()
    try:
        writer.register(identity(topic), 0)
        writer.write(0, ["a"])
        admin.delete_consumer_groups([group])[group].result()
        writer.forget(0)
        assert writer.write(1, ["b"]) == 2
        successor = writer_of(broker, topic)
        assert successor.register(identity(topic, incarnation=2), 1) == Registration(2, None)
        successor.close()
    finally:
        writer.close()


@pytest.mark.parametrize("limit", ["of the client", "of the topic"])
def test_a_row_that_is_too_large_is_named_and_writes_nothing(broker: KafkaServer, limit: str) -> None:
    topic = broker.create_topic(
        f"large-{limit.replace(' ', '-')}", max_message_bytes="1000" if "topic" in limit else "9999999"
    )
    writer = writer_of(broker, topic)
    try:
        writer.register(identity(topic), 0)
        with pytest.raises(
            MessageRefused, match=rf"the topic {topic} refused the row b'LLL.*[Mm]essage size too large"
        ):
            writer.write(0, ["small", "L" * (2_000 if "topic" in limit else 2_000_000)])
    finally:
        writer.close()
    assert committed(broker, topic) == []


@pytest.mark.parametrize(
    ("options", "row", "reason"),
    [
        (
            {"key": "k"},
            {"v": 1},
            r"its key: the record has no field 'k'; it has v\. Correct the name, or give a function of the record\.$",
        ),
        ({"encode": lambda value: value}, 7, "its value: encode has returned int, not bytes"),
        ({"timestamp": "at"}, {"at": "noon"}, "its timestamp: 'noon' is neither"),
        ({"partition": "p"}, {"p": -1}, "its partition: -1 is not the number of a partition"),
        ({"headers": "h"}, {"h": 7}, "its headers: 'int' object is not iterable"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named_with_the_part_that_is_wrong(
    options: Any, row: Any, reason: str
) -> None:
    form = kafka.sink("out", servers="127.0.0.1:9", **options).form
    with pytest.raises(RowNotWritable, match=reason):
        form.outgoing(row, 0, [])


def test_a_partition_that_does_not_exist_is_refused_with_the_row(broker: KafkaServer) -> None:
    topic = broker.create_topic("two", 2)
    writer = writer_of(broker, topic, partition=lambda row: row)
    try:
        writer.register(identity(topic), 0)
        with pytest.raises(MessageRefused, match=r"the row b'5'.*[Uu]nknown partition.*Correct partition="):
            writer.write(0, [1, 5])
    finally:
        writer.close()
    assert committed(broker, topic) == []


def test_a_missing_topic_and_a_wrong_password_are_refused_before_the_job_begins(broker: KafkaServer) -> None:
    broker.create_topic("invoices")
    with pytest.raises(UnknownTopic, match=r"Did you mean invoices\?"):
        kafka.sink("invoice", servers=broker.servers).check_start()
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    sink = kafka.sink("invoices", servers=broker.sasl_servers, options={**options, "sasl.password": "wr0ng"})
    began = time.monotonic()
    with pytest.raises(SystemRefused, match="Invalid username or password") as refused:
        sink.check_start()
    assert time.monotonic() - began < 10
    assert "wr0ng" not in f"{refused.value} {refused.value!r} {sink!r} {sink.describe_output()}"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mode": "later"}, "mode is 'later'"),
        ({"key": 7}, "key is 7"),
        ({"options": {"transactional.id": "x"}}, r"transactional\.id, which the connector sets itself"),
        ({"topic": ""}, "the topic is ''"),
    ],
)
def test_an_option_of_the_sink_that_cannot_work_is_refused(options: Any, sentence: str) -> None:
    with pytest.raises(InvalidConnector, match=sentence):
        kafka.sink(**{"topic": "out", "servers": "127.0.0.1:9", **options})
