"""Rows that cannot be messages: each goes to the error output before it has a number, and those around it leave."""

from __future__ import annotations

from typing import Any

import pytest

from clonos import codecs, kafka, mqtt, nats, rabbitmq, redis, web
from tests.unit.connectors.refusing import numbered

NAN = float("nan")


def only_numbers(row: Any) -> bytes:
    return b"%d" % row["n"]


def registered() -> Any:
    """Returns a codec whose registry is away."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    return codecs.confluent_avro("http://127.0.0.1:9", subject="t", schema=schema)


SINKS: dict[str, Any] = {
    "kafka.sink": kafka.sink("t", servers="localhost:1"),
    "mqtt.sink": mqtt.sink("t", url="mqtt://localhost:1"),
    "nats.sink": nats.sink("t", url="nats://localhost:1"),
    "rabbitmq": rabbitmq.exchange("t", url="amqp://localhost:1"),
    "redis.sink": redis.sink("t", url="redis://localhost:1"),
    "web.post": web.post("http://localhost:1/"),
    "web.post, batches": web.post("http://localhost:1/", batch=5),
    "kafka.sink, registry": kafka.sink("t", servers="localhost:1", encode=registered()),
    "nats.sink, registry": nats.sink("t", url="nats://localhost:1", encode=registered()),
    "rabbitmq, registry": rabbitmq.exchange("t", url="amqp://localhost:1", encode=registered()),
    "redis.sink, registry": redis.sink("t", url="redis://localhost:1", encode=registered()),
    "web.post, registry": web.post("http://localhost:1/", encode=registered()),
    "web.post, encoded": web.post("http://localhost:1/", encode=only_numbers),
}


@pytest.mark.parametrize("name", SINKS)
def test_a_row_that_cannot_be_a_message_is_an_error_of_its_own(name: str) -> None:
    good, errors = numbered(SINKS[name], [{"n": 1}, {"n": NAN}, {"n": 2}])
    assert good == [{"n": 1}, {"n": 2}]
    (error,) = errors
    assert error.step == "out"
    assert error.error.startswith(f"RowNotWritable: {name.split(',')[0]}")
    assert "nan" in error.error
