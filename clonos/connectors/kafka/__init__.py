"""Kafka: sources that read partitions as splits, and sinks that write each row once ."""

from __future__ import annotations

from clonos.connectors.kafka.kafka_sink import sink
from clonos.connectors.kafka.kafka_source import source
from clonos.connectors.kafka.message import KEY, TIMESTAMP, Message
from clonos.core.model.missing_names import explains_names

__all__ = ["source", "sink", "Message", "KEY", "TIMESTAMP"]

explains_names(
    __name__,
    {
        "consumer": "Use source.",
        "read": "Use source.",
        "Consumer": "Use source.",
        "producer": "Use sink.",
        "write": "Use sink.",
        "Producer": "Use sink.",
    },
)
