"""A source of values that the job brings with it, for tests, and a sink into nothing, for measurements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from clonos.connectors.connector_errors import ConnectorMisused, SplitMalformed
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.core.wire.log_delta import Count
from clonos.operators.connector_contract import WriterContext

MARK_BYTES = 8
AnyValue = TypeVar("AnyValue")


class _Share(msgspec.Struct, frozen=True, array_like=True):
    """A split: every ``of``-th of ``total`` values, from the ``first``-th on."""

    format: int
    first: Count
    of: Annotated[int, msgspec.Meta(ge=1, le=(1 << 62) - 1)]
    total: Count


_share_decoder = msgspec.msgpack.Decoder(_Share)


class ValueList(Generic[AnyValue]):
    """A source of a list that travels with the plan. Split i of n has the values i, i + n, i + 2n, ..."""

    def __init__(self, records: Iterable[AnyValue], *, batch: int | None, splits: int | None) -> None:
        for name, number in (("batch", batch), ("splits", splits)):
            if number is not None and number < 1:
                raise ConnectorMisused("values", f"{name} is {number}", "Give at least 1, or leave it out.")
        self.records = list(records)
        self.batch = batch
        self.split_count = splits

    def splits(self, parallelism: int) -> list[bytes]:
        """As many as there are tasks, unless told otherwise."""
        count = self.split_count or parallelism
        return [msgspec.msgpack.encode(_Share(1, first, count, len(self.records))) for first in range(count)]

    def reader(self) -> ValueReader[AnyValue]:
        """A reader of the values."""
        return ValueReader(self.records, self.batch)


class ValueReader(Generic[AnyValue]):
    """Reads one share of the list. A mark is the number of values before it in the share."""

    def __init__(self, records: list[AnyValue], batch: int | None) -> None:
        self._records = records
        self._batch = batch
        self._share: list[AnyValue] = []
        self._next = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Positions in one share."""
        share = _decode_share(split)
        if share.total != len(self._records):
            raise ConnectorMisused(
                "values",
                f"the job began with {share.total} values and now has {len(self._records)}",
                "Resume with the same ones, or start afresh with --overwrite.",
            )
        if mark is not None and len(mark) != MARK_BYTES:
            raise SplitMalformed("position in a list of values", mark, f"it has {len(mark)} bytes")
        self._share = self._records[share.first :: share.of]
        self._next = 0 if mark is None else int.from_bytes(mark, "big")

    def read(self, records_max: int) -> list[AnyValue] | None:
        """The next values, at most ``batch`` of them."""
        first = self._next
        if first >= len(self._share):
            return None
        self._next = min(first + min(records_max, self._batch or records_max), len(self._share))
        return self._share[first : self._next]

    def mark(self) -> bytes:
        """How many values have been read."""
        return self._next.to_bytes(MARK_BYTES, "big")

    def close(self) -> None:
        """Nothing is open."""


def _decode_share(split: bytes) -> _Share:
    try:
        return _share_decoder.decode(split)
    except DECODE_ERRORS as error:
        raise SplitMalformed("share of a list of values", split, str(error)) from None


def values(records: Iterable[AnyValue], *, batch: int | None = None, splits: int | None = None) -> ValueList[AnyValue]:
    """A source of these values. ``batch``: at most so many at once; ``splits``: instead of one for each task."""
    return ValueList(records, batch=batch, splits=splits)


class Blackhole:
    """A sink into nothing."""

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """There is nothing to prepare."""

    def writer(self) -> BlackholeWriter:
        """A writer that forgets."""
        return BlackholeWriter()

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """There is nothing to commit."""


class BlackholeWriter:
    """Forgets what it gets."""

    def open(self, context: WriterContext) -> None:
        """Whose life this is."""

    def write(self, rows: list[Any]) -> None:
        """Forgets."""

    def write_columns(self, batch: Any) -> None:
        """Forgets."""

    def prepare(self, checkpoint: int) -> bytes | None:
        """Nothing was written."""
        return None

    def close(self) -> None:
        """Nothing is open."""


def blackhole() -> Blackhole:
    """A sink into nothing: what a job costs without its output."""
    return Blackhole()
