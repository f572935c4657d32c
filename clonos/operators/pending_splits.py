"""Amount of input of a source task that waits in the external system, from what its readers know of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from clonos.operators.connector_contract import PendingInput, PendingSource, pending_of

logger = logging.getLogger("clonos.slot")


class ReadSplit(Protocol):
    """Split as it is counted here. ``records_read``: by the open reader, of which ``records_ahead`` were not taken."""

    split: bytes
    is_done: bool
    records_read: int

    @property
    def reader(self) -> Any: ...

    @property
    def mark(self) -> bytes | None: ...

    @property
    def records_ahead(self) -> int: ...


class PendingSplits:
    """Sum over the splits of one task. One thread calls it, while another one reads the splits."""

    def __init__(self, step: str, source: object) -> None:
        self._step, self._source = step, source
        self._has_failed = False
        self._first_bytes: dict[int, tuple[object, int, int]] = {}
        """By split: its reader, and its position in bytes and records when it was first asked."""

    def sum(self, splits: Sequence[ReadSplit]) -> PendingInput | None:
        """Returns what waits, with an estimate of the records where bytes are counted; None if a split does not tell.

        ``records`` is None while no record was read that would tell how long one is.
        """
        open_ = [(number, split) for number, split in enumerate(splits) if not split.is_done]
        known = []
        for number, split in open_:
            if (found := self._of(number, split)) is None:
                return None
            known.append(found)
        records = sum(split.records_ahead for _, split in open_) + sum(each.records or 0 for each in known)
        counted = [each.bytes for each in known if each.records is None]
        if not counted:
            return PendingInput(records)
        waiting_bytes = sum(each or 0 for each in counted)
        record_bytes = self._record_bytes(open_, known)
        if record_bytes is None:
            return PendingInput(None if waiting_bytes else records, waiting_bytes)
        return PendingInput(records + round(waiting_bytes / record_bytes), waiting_bytes)

    def _of(self, number: int, split: ReadSplit) -> PendingInput | None:
        reader = split.reader
        if self._has_failed:
            return None
        try:
            if reader is None:
                source = self._source
                return source.pending(split.split, split.mark) if isinstance(source, PendingSource) else None
            found = pending_of(reader)
        except Exception as error:  # noqa: BLE001  of user code; it is a figure, and the task does not need it
            if split.reader is reader and not split.is_done:  # else the reader was closed meanwhile
                self._has_failed = True
                logger.warning(
                    "%s: pending() of its source raised %r. How much waits in front of it is not shown any more.",
                    self._step,
                    error,
                )
            return None
        if found is not None and found.records is None:
            known = self._first_bytes.get(number)
            if known is None or known[0] is not reader:
                self._first_bytes[number] = (reader, found.read_bytes, split.records_read)
        return found

    def _record_bytes(self, open_: Sequence[tuple[int, ReadSplit]], known: Sequence[PendingInput]) -> float | None:
        """Returns the mean length of the records that were read since the first call, None without any."""
        total_bytes = records = 0
        for (number, split), found in zip(open_, known, strict=True):
            first = self._first_bytes.get(number)
            if first is not None and first[0] is split.reader:
                total_bytes += max(0, found.read_bytes - first[1])
                records += max(0, split.records_read - first[2])
        return total_bytes / records if total_bytes and records else None
