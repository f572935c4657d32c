"""Base of sources whose messages are journalled, because nobody can read them again (``PushSource``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from clonos.connectors.codecs import Codec
from clonos.connectors.journal_records import cut_records, data_in, identity_in, record_of
from clonos.connectors.kit.payloads import decoded
from clonos.operators.connector_contract import ProducerConnection

P = TypeVar("P")


class JournalledSource(ABC):
    """Description of a producer; the slot of the reading task connects. Without a codec, records are the messages."""

    routes_malformed = True
    codec: Codec[bytes, Any] | None

    @abstractmethod
    def message(self, record: bytes) -> Any:
        """Returns the message of a journalled record."""

    @abstractmethod
    def payload(self, message: Any) -> bytes:
        """Returns what the codec decodes."""

    @abstractmethod
    def where(self, message: Any) -> str:
        """Returns where a payload that cannot be decoded comes from."""

    def cut(self, data: bytes) -> list[bytes]:
        """Splits bytes of the journal into records."""
        return cut_records(data)

    def decode(self, records: list[bytes]) -> list[Any]:
        """Decodes records. A payload that cannot be decoded is a ``MalformedRecord``."""
        messages = [self.message(record) for record in records]
        if self.codec is None:
            return messages
        payloads = [self.payload(message) for message in messages]
        return decoded(self.codec.decode, payloads, lambda at: (messages[at], self.where(messages[at])))


class IdentifiedJournal(JournalledSource):
    """Source that recognises a message which comes again (``IdentifiedSource``)."""

    identities_retained: int

    def identity(self, record: bytes) -> bytes | None:
        """Returns the digest of what tells a message from others; None for a message without it."""
        return identity_in(record)


class Continued(msgspec.Struct, Generic[P], array_like=True):
    """Journalled form of a message. ``position``: after it, in the last of the messages that came at once."""

    data: bytes
    position: P | None = None


class ContinuedForm(Generic[P]):
    """Journal of a producer that goes on after a position."""

    def __init__(self, position: type[P]) -> None:
        self._first = position
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Continued[position])  # type: ignore[valid-type]
        self._positions: msgspec.msgpack.Decoder[P] = msgspec.msgpack.Decoder(position)
        self._encoder = msgspec.msgpack.Encoder()

    def record(self, data: bytes, identity: object, position: P | None) -> bytes:
        """Returns the journalled form of a message; ``identity`` tells it from others, None if nothing does."""
        return record_of(self._encoder.encode(Continued(data, position)), identity)

    def data(self, record: bytes) -> bytes:
        """Returns the message of a record."""
        found: bytes = self._decoder.decode(data_in(record)).data
        return found

    def cursor(self, record: bytes) -> bytes:
        """Returns the position after a record, encoded."""
        return self._encoder.encode(self._decoder.decode(data_in(record)).position or self._first())

    def position(self, cursor: bytes | None) -> P:
        """Returns the position that ``cursor`` has encoded; the first one for None."""
        return self._first() if cursor is None else self._positions.decode(cursor)


class ContinuedJournal(JournalledSource, Generic[P]):
    """Source of a producer that goes on after a position (``ContinuedSource``)."""

    form: ClassVar[ContinuedForm[Any]]

    @abstractmethod
    def feed(self, position: P) -> ProducerConnection:
        """Connects, after a position."""

    def connect(self, offset_bytes: int) -> ProducerConnection:
        """Connects, from the beginning.

        Raises: as ``feed``.
        """
        return self.connect_at(offset_bytes, None)

    def connect_at(self, _offset_bytes: int, cursor: bytes | None) -> ProducerConnection:
        """Connects, after a cursor.

        Raises: as ``feed``.
        """
        return self.feed(self.form.position(cursor))

    def cursor(self, record: bytes) -> bytes:
        """Returns the position after the last of the messages that came at once."""
        return self.form.cursor(record)

    def message(self, record: bytes) -> bytes:
        """See ``JournalledSource``."""
        return self.form.data(record)

    def payload(self, message: bytes) -> bytes:
        """See ``JournalledSource``."""
        return message
