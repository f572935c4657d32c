"""Head of a source vertex that cannot be replayed: reads the journal bytes that the slot passes to it.

It gets complete records only. Records that it has and has not read are part of its position, so that a snapshot
contains everything that was acknowledged before it. So are the identities of the records that it has read last, where
the producer may send a record again.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from clonos.core.model.errors import InternalError
from clonos.core.ports.operator_chain import NothingToRead
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.operators.connector_contract import PartlyMalformed, PendingInput, ProducerConnection, PushSource
from clonos.operators.operator import Operator
from clonos.operators.split_source import PositionMalformed
from clonos.operators.state.state_spec import StateKind, StateScope, StateSpec

POSITION: Final = StateSpec(
    "position",
    StateKind.POSITION,
    StateScope.FIXED,
    reason="its records come from a producer that one task is connected to",
)

END_OF_JOURNAL: Final = b"\x04"
"""Marker after the last record: the producer has ended. No record of a ``PushSource`` ends with this byte."""


@runtime_checkable
class IdentifiedSource(Protocol):
    """``PushSource`` whose producer sends a record again that it does not know to be journalled.

    A record counts once: it is dropped if its identity is that of one of the last ``identities_retained`` records with
    different identities.
    """

    identities_retained: int

    def identity(self, record: bytes) -> bytes | None:
        """Returns what a repetition of the record has in common with it, in at most 16 bytes.

        None if nothing tells it from others. Depends on the record alone, because a replay asks again.
        """


@runtime_checkable
class ContinuedSource(Protocol):
    """``PushSource`` whose producer is asked to continue after the last journalled record.

    ``connect_at`` is called in place of ``connect``.
    """

    def connect_at(self, offset_bytes: int, cursor: bytes | None) -> ProducerConnection:
        """Connects to the producer as ``connect`` does. ``cursor``: of the last journalled record; None before it.

        Raises:
            EnvironmentFault: the connection fails; the runtime tries again.
        """

    def cursor(self, record: bytes) -> bytes:
        """Returns where the producer continues after a record, the last one of a ``receive``."""


@runtime_checkable
class PendingProducer(Protocol):
    """``PushSource`` that knows how much its producer has not sent yet, from the connection in this process."""

    def pending_records(self) -> int | None:
        """Returns how many records wait at the producer; None while that is not known. Any thread may call this. It
        must not wait: the connection notes what it learns while it receives.
        """


def connected(source: PushSource[Any], offset_bytes: int, cursor: bytes | None) -> ProducerConnection:
    """Connects a source to its producer.

    Raises:
        EnvironmentFault: the connection fails.
    """
    if isinstance(source, ContinuedSource):
        return source.connect_at(offset_bytes, cursor)
    return source.connect(offset_bytes)


def cursor_after(source: PushSource[Any], data: bytes, before: bytes | None) -> bytes | None:
    """Returns the cursor after whole records; ``before``: that in front of them."""
    return source.cursor(source.cut(data)[-1]) if isinstance(source, ContinuedSource) else before


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """Position in a snapshot. ``unread`` holds complete records, ``seen`` the identities that were read last.

    ``end_bytes`` is the offset in the journal after ``unread``, ``cursor`` that of the last record before it.
    """

    unread: bytes
    has_ended: bool
    seen: tuple[bytes, ...]
    end_bytes: int
    cursor: bytes | None


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Position)


def end_in(position: bytes) -> int:
    """Returns the number of bytes of the producer's stream that are in the state of a position."""
    return _decoder.decode(position).end_bytes


class JournalHead(Operator):
    """First step of the only task of a ``PushSource``. Its only split is number 0."""

    def __init__(self, step: str, source: PushSource[Any]) -> None:
        self._step = step
        self._source = source
        self._identified = source if isinstance(source, IdentifiedSource) else None
        self._seen: dict[bytes, None] = {}  # the identity that was read last is at the end
        self._records: deque[bytes] = deque()
        self._unread_bytes = self._end_bytes = 0
        self._has_ended = False
        self._cursor: bytes | None = None

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (POSITION,)

    @property
    def cursor(self) -> bytes | None:
        """Cursor of the last record that was fed, for a ``ContinuedSource``; None if there is none."""
        return self._cursor

    def restore(self, position: bytes) -> None:
        """Restores the unread records of a snapshot.

        Raises: PositionMalformed: the position cannot be decoded.
        """
        try:
            found = _decoder.decode(position)
        except DECODE_ERRORS as error:
            raise PositionMalformed(self._step, str(error)) from error
        self.feed(found.unread)
        self._has_ended = found.has_ended
        self._seen = dict.fromkeys(found.seen)
        self._end_bytes, self._cursor = found.end_bytes, found.cursor

    def position(self) -> bytes:
        """Returns the records that were received and not read, and the identities of those read last."""
        unread = b"".join(self._records)
        return _encoder.encode(_Position(unread, self._has_ended, tuple(self._seen), self._end_bytes, self._cursor))

    def feed(self, data: bytes) -> bool:
        """See ``operator_chain.JournalledChain.feed``."""
        if data.endswith(END_OF_JOURNAL):
            self._has_ended = True
            data = data.removesuffix(END_OF_JOURNAL)
        if data:
            self._records += self._source.cut(data)
            self._unread_bytes += len(data)
            self._end_bytes += len(data)
            self._cursor = cursor_after(self._source, data, self._cursor)
        return not self._has_ended

    def pending(self) -> PendingInput | None:
        """Returns how many records wait, those too that were received and not read; None if it is not known. Any thread
        may call this."""
        found = self._source.pending_records() if isinstance(self._source, PendingProducer) else None
        return None if found is None else PendingInput(found + len(self._records))

    def unread_bytes(self) -> int:
        """See ``operator_chain.JournalledChain.unread_bytes``."""
        return self._unread_bytes

    def poll(self, records_max: int) -> tuple[int, int] | NothingToRead:
        """See ``operator_chain.Chain.poll``."""
        if self._records:
            return 0, min(records_max, len(self._records))
        return NothingToRead.ALL_READ if self._has_ended else NothingToRead.NOW

    def read(self, number: int, count: int) -> None:
        """See ``operator_chain.Chain.read``.

        Raises what ``decode`` of the source raises, and StepFailed for a malformed record without an error output.
        """
        if number != 0 or count > len(self._records):
            raise InternalError(f"{self._step} is asked for {count} records of split {number}, but has fewer")
        taken = [self._records.popleft() for _ in range(count)]
        self._unread_bytes -= sum(map(len, taken))
        if self._identified is not None:
            taken = [record for record in taken if self._is_new(self._identified, record)]
        rows = self._source.decode(taken)
        if type(rows) is not PartlyMalformed:
            self.out.rows(list(rows))
        elif decoded := self.guard.decoded(rows):
            self.out.rows(decoded)

    def _is_new(self, source: IdentifiedSource, record: bytes) -> bool:
        """Returns whether no record with this identity is among the last ones, and notes the identity."""
        identity = source.identity(record)
        if identity is None:
            return True
        is_new = identity not in self._seen
        if not is_new:
            del self._seen[identity]
        self._seen[identity] = None
        if len(self._seen) > source.identities_retained:
            del self._seen[next(iter(self._seen))]
        return is_new
