"""Splits and marks of sources that can be read again, as a checkpoint has them, and records with their timestamps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from clonos.connectors.connector_errors import SplitMalformed
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.operators.connector_contract import MalformedRecord
from clonos.operators.event_time.stamped_records import StampedRecords

Split = TypeVar("Split", covariant=True)


class Decoder(Protocol[Split]):
    """Decoder of msgspec."""

    def decode(self, data: bytes, /) -> Split: ...


def decoded_split(decoder: Decoder[Split], what: str, data: bytes) -> Split:
    """Returns what a split or a mark says.

    Raises: SplitMalformed: it is none; ``what`` names it.
    """
    try:
        return decoder.decode(data)
    except DECODE_ERRORS as error:
        raise SplitMalformed(what, data, str(error)) from None


def next_number(mark: bytes | None, start: int, what: str) -> int:
    """Returns the number of the next message: that of the mark, or of the start.

    Raises: SplitMalformed: the mark is not a number.
    """
    if mark is None:
        return start
    if not mark.isdigit():
        raise SplitMalformed(what, mark, "it is not a number")
    return int(mark)


def stamped(records: list[Any], times_ns: Iterable[int]) -> StampedRecords:
    """Returns records with the timestamps of their messages."""
    return StampedRecords(
        record if type(record) is MalformedRecord else (time_ns, record)
        for time_ns, record in zip(times_ns, records, strict=True)
    )
