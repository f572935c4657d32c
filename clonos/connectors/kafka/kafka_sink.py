"""``kafka.sink``: rows as messages of a topic, written at once or with the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kafka.client import Cluster
from clonos.connectors.kafka.immediate import TopicWriter
from clonos.connectors.kafka.kafka_sink_base import CONNECTOR, KafkaSink
from clonos.connectors.kafka.message import OfStream, RowForm
from clonos.connectors.kafka.transactional import TransactionalKafkaSink
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.event_time.durations import Duration, duration_ns


class ImmediateKafkaSink(KafkaSink):
    """Sink that writes each row as soon as its causes are replicated (``ImmediateSink``)."""

    mode = "immediate"

    def __init__(self, cluster: Cluster, topic: str, form: RowForm, linger_ms: float) -> None:
        super().__init__(cluster, topic, form)
        self.linger_ms = linger_ms

    def check_row(self, row: Any) -> None:
        """Raises: RowNotWritable: the row cannot be a message."""
        self.form.outgoing(row, 0, [], is_trial=True)

    def immediate_writer(self) -> TopicWriter:
        """Creates a connection, in the slot of the sink task."""
        return TopicWriter(self.cluster, self.topic, self.form)


@explains_calls
def sink(
    topic: str,
    *,
    servers: str,
    key: str | Callable[[Any], Any] | OfStream | None = None,
    value: str | Callable[[Any], Any] | None = None,
    encode: Any = None,
    headers: str | Callable[[Any], Any] | None = None,
    timestamp: str | Callable[[Any], Any] | OfStream | None = None,
    partition: str | Callable[[Any], int] | None = None,
    mode: Literal["immediate", "transactional"] = "immediate",
    linger: Duration = "20ms",
    options: Mapping[str, Any] | None = None,
) -> ImmediateKafkaSink | TransactionalKafkaSink:
    """Sink that writes each row as a message of a topic, exactly once for readers with ``read_committed``.

    ``key``, ``value``, ``headers``, ``timestamp`` and ``partition`` take the name of a field or a function of the row.

    Args:
        topic: the topic, which must exist.
        servers: addresses of some brokers: "host:port", several with commas.
        key: the key of the message: bytes, a str, or a value that becomes JSON. ``kafka.KEY``: the key of the
            stream. None: no key.
        value: the part of the row that is the message's value. None: the whole row.
        encode: a codec, a type, or a function from the value to bytes. None: bytes as they are, a str in UTF-8, all
            else as JSON. A value of None becomes a message without a value (a tombstone).
        headers: a dict, or pairs of a name and a value. The immediate mode adds ``clonos-task``, ``clonos-number`` and
            ``clonos-generation``.
        timestamp: an aware datetime, or milliseconds since the Unix epoch. ``kafka.TIMESTAMP``: that of the row in
            event time. None: the time of the write.
        partition: the number of the partition. None: by the key, as the clients in Java choose it.
        mode: "immediate": rows are readable within tens of milliseconds; after a rollback or a resume rows after the
            checkpoint come again, and an alarm gives their numbers. "transactional": rows are readable with the
            checkpoint, and never come again.
        linger: least time from one transaction of a task to the next, in the immediate mode.
        options: options of librdkafka, such as ``{"compression.type": "lz4"}``. A value may be a secret.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        stream.sink(kafka.sink("orders", servers="localhost:9092", key="customer"))
    """
    if type(topic) is not str or not topic:
        raise InvalidConnector(CONNECTOR, f"the topic is {topic!r:.80}", "Give the name of a topic.")
    form = RowForm(value=value, encode=encode, key=key, headers=headers, timestamp=timestamp, partition=partition)
    cluster = Cluster(CONNECTOR, servers, dict(options or {}))
    if mode == "transactional":
        return TransactionalKafkaSink(cluster, topic, form)
    if mode != "immediate":
        raise InvalidConnector(CONNECTOR, f"mode is {mode!r:.80}", 'Give "immediate" or "transactional".')
    return ImmediateKafkaSink(cluster, topic, form, duration_ns(linger) / 1_000_000)
