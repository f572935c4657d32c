"""Messages of Kafka as the source gives them, and rows as the sinks write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec

from clonos.connectors.codecs import for_encoding
from clonos.connectors.connector_errors import InvalidConnector, part_not_writable
from clonos.connectors.kafka.transactions import ProducedRecord
from clonos.connectors.kit.broker_sink import encoded_row
from clonos.core.model.errors import EnvironmentFault
from clonos.core.values import register
from clonos.operators.event_time.durations import NANOSECONDS
from clonos.operators.row_errors import RowNotWritable, field_missing
from clonos.operators.transforms.sink_rows import SinkRow, bare

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class OfStream(Enum):
    """Property that a row has from its stream: the key, or the timestamp in event time."""

    KEY = "kafka.KEY"
    TIMESTAMP = "kafka.TIMESTAMP"


KEY: Final = OfStream.KEY
TIMESTAMP: Final = OfStream.TIMESTAMP
Part: TypeAlias = "str | Callable[[Any], Any] | OfStream | None"
"""A field by its name, a function of the row, or what it has from its stream."""

ROW_HEADERS: Final = ("clonos-task", "clonos-number", "clonos-generation")


@register(name="clonos.kafka.Message")
class Message(msgspec.Struct, frozen=True):
    """Message of a topic.

    ``timestamp`` is in milliseconds since the Unix epoch, as Kafka has it: of the producer, or of the broker if the
    topic is configured so.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RowForm:
    """How a row becomes a message: its value, key, headers, timestamp and partition."""

    def __init__(self, *, value: Part, encode: Any, key: Part, headers: Part, timestamp: Part, partition: Part) -> None:
        for name, given in (("value", value), ("key", key), ("headers", headers), ("timestamp", timestamp)):
            _check_part(name, given)
        _check_part("partition", partition)
        self.takes_keys_and_times = isinstance(key, OfStream) or isinstance(timestamp, OfStream)
        codec = None if encode is None else for_encoding("kafka.sink", encode)
        self._encode: Callable[[Any], Any] = plain_bytes if codec is None else codec.encode
        self._trial: Callable[[Any], Any] = plain_bytes if codec is None else codec.trial
        self._value, self._key, self._headers = value, key, headers
        self._timestamp, self._partition = timestamp, partition

    def outgoing(
        self, row: Any, index: int, headers: list[tuple[str, bytes | None]], is_trial: bool = False
    ) -> ProducedRecord:
        """Returns the message of a row, with these headers before those of the row.

        ``is_trial``: it is not sent, so no other system is asked.

        Raises: RowNotWritable: a part of the row cannot be part of a message.
        """
        given, row = row, bare(row)
        part = ""
        try:
            part = "value"
            found = row if self._value is None else _part_of(row, self._value)
            value = found if found is None else (self._trial if is_trial else self._encode)(found)
            _check_bytes(value)
            part = "key"
            key = None if self._key is None else key_bytes(_part_of(given, self._key))
            part = "headers"
            if self._headers is not None:
                headers = [*headers, *header_list(_part_of(row, self._headers))]
            part = "timestamp"
            timestamp_ms = 0 if self._timestamp is None else _milliseconds(_part_of(given, self._timestamp))
            part = "partition"
            partition = -1 if self._partition is None else _number(_part_of(row, self._partition))
        except (RowNotWritable, EnvironmentFault):
            raise
        except Exception as error:
            raise part_not_writable("kafka.sink", index, row, part, error) from error
        return ProducedRecord(value, key, headers, timestamp_ms, partition)


def _check_bytes(value: Any) -> None:
    if value is not None and not isinstance(value, bytes):
        raise TypeError(f"encode has returned {type(value).__name__}, not bytes")


def _check_part(name: str, given: Part) -> None:
    if isinstance(given, OfStream) and name == given.name.lower():
        return
    if given is not None and not isinstance(given, str) and not callable(given):
        raise InvalidConnector("kafka.sink", f"{name} is {given!r:.80}", "Give the name of a field, or a function.")


def _part_of(row: Any, part: str | Callable[[Any], Any] | OfStream) -> Any:
    if isinstance(part, OfStream):
        return _of_stream(row, part)
    row = bare(row)
    if not isinstance(part, str):
        return part(row)
    if isinstance(row, Mapping):
        if part in row:
            return row[part]
    elif hasattr(row, part):
        return getattr(row, part)
    raise field_missing(part, row)


def _of_stream(row: Any, part: OfStream) -> Any:
    found = row if isinstance(row, SinkRow) else SinkRow(row, None, None)
    if part is OfStream.KEY:
        if found.key is None:
            raise TypeError("the stream has none: put key_by() in front of the sink, or give key= a field")
        return found.key
    if found.timestamp is None:
        raise TypeError("the stream has none: give its source timestamps=, or give timestamp= a field")
    return found.timestamp // NANOSECONDS["ms"]


def plain_bytes(value: Any) -> bytes:
    """Encodes bytes as they are, a str in UTF-8, everything else as JSON."""
    return encoded_row("kafka.sink", None, value)[0]


def key_bytes(key: Any) -> bytes | None:
    """Encodes a key in the same way; None stays None."""
    return None if key is None else plain_bytes(key)


def header_list(headers: Mapping[str, Any] | Iterable[tuple[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    """Encodes headers: a dict, or pairs of a name and a value."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    return [(str(name), key_bytes(value)) for name, value in pairs]


def _milliseconds(given: Any) -> int:
    if type(given) is int:
        return given
    if isinstance(given, datetime) and given.tzinfo is not None:
        return round(given.timestamp() * 1_000)
    raise TypeError(f"{given!r:.80} is neither an aware datetime nor an int of milliseconds since the Unix epoch")


def _number(given: Any) -> int:
    if type(given) is int and given >= 0:
        return given
    raise TypeError(f"{given!r:.80} is not the number of a partition")
