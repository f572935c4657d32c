"""Digests of the rows that the sinks of a recorded task are given, so that a replay can compare them.

A sink is watched at its entry, by attributes of its operator. So a sink that is not recorded costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from xxhash import xxh3_64_digest

from clonos.core.model.ids import CheckpointId
from clonos.core.ports.task_snapshot import SINK_DIGEST_BYTES, SinkRows
from clonos.core.values import ValueBeyondLimit, ValueUnsupported, encode_value
from clonos.core.values.column_rows import NoPythonValue, rows_of_columns
from clonos.core.values.tree import DICT, ENCODER, PLAIN
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.chain_outputs import ToEdge, ToImmediateSink, ToSink
from clonos.operators.operator import Operator, Times

SINK_ROWS_MAX: Final = 1_000
"""Rows of a sink and an epoch that have a digest; further ones are counted."""

NO_DIGEST: Final = bytes(SINK_DIGEST_BYTES)
"""Stands for a row that has no encoding."""

ONE: Final = (1).to_bytes(SINK_DIGEST_BYTES, "little")
"""Digest of a row whose digest would be ``NO_DIGEST``."""


def digest_of_row(row: Any) -> bytes:
    """Returns the digest of a row, ``NO_DIGEST`` if it has no encoding."""
    try:
        return _digest_of(encode_value(row))
    except (ValueUnsupported, ValueBeyondLimit):
        return NO_DIGEST


def _digest_of(encoded: bytes) -> bytes:
    found = xxh3_64_digest(encoded)[: -SINK_DIGEST_BYTES - 1 : -1]  # the lowest bytes, little-endian
    return found if found != NO_DIGEST else ONE


def digests_of_batch(rows: list[dict[str, Any]]) -> bytes:
    """Returns the digests of the rows of a batch of columns, which have the same names. They are encoded as
    ``encode_value`` does, without a look at the names in each row."""
    if not rows:
        return b""
    names = list(rows[0])
    tree: list[Any] = [DICT] * (1 + 2 * len(names))
    tree[1::2] = names

    def digest_of(row: dict[str, Any]) -> bytes:
        tree[2::2] = row.values()
        if not PLAIN.issuperset(map(type, row.values())):
            return digest_of_row(row)
        try:
            return _digest_of(ENCODER.encode(tree))
        except (OverflowError, UnicodeEncodeError):  # an int or a str that is not plain
            return digest_of_row(row)

    return b"".join(map(digest_of, rows))


def output_of_sink(step: str, operator: Operator) -> str | None:
    """Returns the name of what a step writes to: itself for a transactional sink, the port for an immediate one. None
    for a step that is no sink, and for the error output, which depends on what the sink refuses."""
    if isinstance(operator, ToEdge) or not isinstance(operator, ToSink | ToImmediateSink) or operator.is_error_output:
        return None
    return step if isinstance(operator, ToSink) else str(operator.port)


class WatchedSink:
    """Entry of a sink, at which each row of an epoch gets its digest."""

    def __init__(self, step: str, operator: Operator, rows_max: int = SINK_ROWS_MAX) -> None:
        """``rows_max``: rows of an epoch that have a digest."""
        self.step, self.count, self._rows_max = step, 0, rows_max
        self.digests = bytearray()
        self._rows, self._columns = operator.rows, operator.columns
        self._is_in_columns = False
        operator.rows, operator.columns = self.rows, self.columns  # type: ignore[method-assign]

    def rows(self, rows: list[Any], times: Times = None) -> None:
        """Takes rows, and passes them on."""
        if not self._is_in_columns:
            self.take_rows(rows)
        self._rows(rows, times)

    def columns(self, batch: RecordBatch) -> None:
        """Takes the rows of a batch, and passes it on."""
        self.take_columns(batch)
        self._is_in_columns = True
        try:
            self._columns(batch)
        finally:
            self._is_in_columns = False

    def take_rows(self, rows: list[Any]) -> None:
        """Takes the next rows."""
        room = max(0, self._rows_max - self.count)
        if room:
            self.digests += b"".join(map(digest_of_row, rows if len(rows) <= room else rows[:room]))
        self.count += len(rows)

    def take_columns(self, batch: RecordBatch) -> None:
        """Takes the next rows, as columns."""
        room = max(0, self._rows_max - self.count)
        if room:
            part = batch.slice(0, room)
            try:
                self.digests += digests_of_batch(rows_of_columns(part))
            except NoPythonValue:
                self.digests += NO_DIGEST * part.num_rows
        self.count += batch.num_rows


class SinkDigests:
    """Digests of all sinks of a chain since its last barrier, ``since``."""

    def __init__(self, steps: Iterable[tuple[str, Operator]], since: CheckpointId) -> None:
        self._sinks = [WatchedSink(step, each) for step, each in steps if output_of_sink(step, each) is not None]
        self._since = since

    def take(self, checkpoint: CheckpointId) -> tuple[SinkRows, ...]:
        """Returns what each sink was given up to the barrier of a checkpoint, and begins the next epoch."""
        found = tuple(SinkRows(each.step, self._since, each.count, bytes(each.digests)) for each in self._sinks)
        self._since = checkpoint
        for each in self._sinks:
            each.count = 0
            each.digests.clear()
        return found
