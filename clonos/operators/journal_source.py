"""Head of a source vertex that cannot be replayed: reads the journal bytes that the slot passes to it.

It gets complete records only. Records that it has and has not read are part of its position, so that a snapshot
contains everything that was acknowledged before it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

from clonos.core.model.errors import InternalError
from clonos.core.ports.operator_chain import NothingToRead
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.operators.connector_contract import PartlyMalformed, PushSource
from clonos.operators.operator import Operator
from clonos.operators.split_source import PositionMalformed

END_OF_JOURNAL: Final = b"\x04"
"""Marker after the last record: the producer has ended. No record of a ``PushSource`` ends with this byte."""


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """Position in a snapshot. ``unread`` holds complete records."""

    unread: bytes
    has_ended: bool


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Position)


class JournalHead(Operator):
    """First step of the only task of a ``PushSource``. Its only split is number 0."""

    def __init__(self, step: str, source: PushSource[Any]) -> None:
        self._step = step
        self._source = source
        self._records: deque[bytes] = deque()
        self._unread_bytes = 0
        self._has_ended = False

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

    def position(self) -> bytes:
        """Returns the records that were received and not read."""
        return _encoder.encode(_Position(b"".join(self._records), self._has_ended))

    def feed(self, data: bytes) -> bool:
        """See ``operator_chain.JournalledChain.feed``."""
        if data.endswith(END_OF_JOURNAL):
            self._has_ended = True
            data = data.removesuffix(END_OF_JOURNAL)
        if data:
            self._records += self._source.cut(data)
            self._unread_bytes += len(data)
        return not self._has_ended

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
        rows = self._source.decode(taken)
        if type(rows) is not PartlyMalformed:
            self.out.rows(list(rows))
        elif decoded := self.guard.decoded(rows):
            self.out.rows(decoded)
