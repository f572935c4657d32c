"""Records that a source gives with timestamps, such as those that a broker keeps with each message."""

from __future__ import annotations

from typing import Any

from clonos.operators.connector_contract import PartlyMalformed


class StampedRecords(PartlyMalformed):
    """Records with timestamps: pairs of nanoseconds since the Unix epoch and the record, or a ``MalformedRecord``.

    Their source has ``own_timestamps``, a ``Timestamps`` of ``stamp_of``.
    """


def stamp_of(stamped: tuple[int, Any]) -> int:
    """Returns the timestamp of a record of ``StampedRecords``."""
    return stamped[0]
