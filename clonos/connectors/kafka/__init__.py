"""Kafka: sources that read partitions as splits, and sinks that write each row once ."""

from __future__ import annotations

from clonos.connectors.kafka.kafka_sink import sink
from clonos.connectors.kafka.kafka_source import source
from clonos.connectors.kafka.message import KEY, TIMESTAMP, Message

__all__ = ["source", "sink", "Message", "KEY", "TIMESTAMP"]
