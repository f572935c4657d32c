"""The head of a source vertex: reads its splits one after the other, and can go back to any barrier.

Rules: ``poll`` only reads ahead, ``read`` decides. Where a task is in a split is (mark before the chunk, records of the
chunk that are taken), so that a restored task opens at the mark and skips less than a chunk. Splits are numbered over
all tasks of the source; task i of n has those that leave i when divided by n.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, cast

import msgspec

from clonos.core.model.errors import EnvironmentFault, InternalError, JobError
from clonos.core.ports.operator_chain import FailedAt, NothingToRead, StepFailed
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.core.wire.log_delta import Count
from clonos.operators.connector_contract import (
    RecordBatch,
    Source,
    SplitReader,
    WatchedSource,
    check_split,
    look_every_ns,
)
from clonos.operators.operator import Operator, Scope

CHUNK_RECORDS: Final = 1_024
"""Read ahead at once, where less was asked for."""


class SourceChanged(JobError):
    """A split does not give again what it has given."""

    step: str
    split: int
    missing: int

    def __str__(self) -> str:
        return (
            f"the source {self.step} ended {self.missing} records earlier in its split {self.split} than when it was"
            " first read. Input must stay as it is while the job runs, and until it is resumed for the last time."
        )


class SourceSilent(EnvironmentFault):
    """A split has nothing to read where it had something before."""

    step: str
    split: int
    missing: int

    def __str__(self) -> str:
        return (
            f"the source {self.step} has {self.missing} records less in its split {self.split} than were read from it"
            " before. Whoever keeps them for reading again (a journal, a broker) has lost them."
        )


class PositionMalformed(EnvironmentFault):
    """The position of a source in a snapshot cannot be used."""

    step: str
    reason: str

    def __str__(self) -> str:
        return f"the stored position of the source {self.step} cannot be used: {self.reason}."


class _SplitPosition(msgspec.Struct, frozen=True, array_like=True):
    """``mark`` None: not begun. ``is_done``: all records of it were taken. ``found``: the split itself, where it was
    found while the job ran."""

    split: Count
    mark: bytes | None
    skip: Count
    is_done: bool
    found: bytes = b""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[_SplitPosition])
_splits_decoder: Final = msgspec.msgpack.Decoder(list[bytes])


class OpenSplit:
    """One split of the task: what is read ahead of it, and from where."""

    def __init__(self, number: int, split: bytes, source: Source[Any], step: str, is_found: bool = False) -> None:
        self.number = number
        self.found = split if is_found else b""
        self.is_done = False  # all was taken
        self._split = split
        self._source = source
        self._step = step
        self._reader: SplitReader[Any] | None = None
        self._mark: bytes | None = None
        self._chunk: Any = ()
        self._taken = 0
        self._to_skip = 0
        self._has_ended = False  # the reader says so; the chunk may still hold records

    def restore(self, position: _SplitPosition) -> None:
        """Goes back to where a snapshot was."""
        self._mark, self._to_skip, self.is_done = position.mark, position.skip, position.is_done

    @property
    def position(self) -> _SplitPosition:
        """Where it is now."""
        if self.is_done:
            return _SplitPosition(self.number, None, 0, True, self.found)
        return _SplitPosition(self.number, self._mark, self._taken + self._to_skip, False, self.found)

    def buffered(self, records_max: int) -> int:
        """How many records could be taken now; reads when there are none. 0: nothing just now, or the end."""
        if self._size() == self._taken and not self._fill(records_max):
            return 0
        return min(self._size() - self._taken, records_max)

    def take(self, count: int) -> Any:
        """Exactly ``count`` records: rows, or a RecordBatch. SourceChanged, SourceSilent."""
        parts: list[Any] = []
        missing = count
        while missing:
            available = self.buffered(missing)
            if available == 0:
                fault = SourceChanged if self._has_ended else SourceSilent
                raise fault(self._step, self.number, missing)
            parts.append(_cut(self._chunk, self._taken, available))
            self._taken += available
            missing -= available
        return parts[0] if len(parts) == 1 else _joined(parts)

    def end_if_read(self) -> None:
        """Notes that all was taken, and releases the reader."""
        if self._has_ended and self._taken == self._size():
            self.is_done = True
            self.close()

    def close(self) -> None:
        """Releases what is open."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._chunk, self._taken = (), 0

    def _fill(self, records_max: int) -> bool:
        """Reads the next chunk that has a record beyond those to skip. False: nothing now, or the end."""
        if self._has_ended:
            return False
        while True:
            mark, chunk = self._read(max(records_max, CHUNK_RECORDS) + self._to_skip)
            if chunk is None:
                self._has_ended = True
                return False
            size = _size_of(chunk)
            if size == 0:
                return False
            self._mark, self._chunk, self._taken = mark, chunk, min(self._to_skip, size)
            self._to_skip -= self._taken
            if self._taken < size:
                return True

    def _read(self, records_max: int) -> tuple[bytes, Any]:
        """A mark and what the reader gives from there on. StepFailed."""
        try:
            if self._reader is None:
                self._reader = self._source.reader()
                self._reader.open(self._split, self._mark)
            return self._reader.mark(), self._reader.read(records_max)
        except Exception as error:
            raise StepFailed(FailedAt(self._step, None, "")) from error

    def _size(self) -> int:
        return _size_of(self._chunk)


class SourceHead(Operator):
    """The first step of a source vertex. ``splits``: of all its tasks."""

    def __init__(self, step: str, source: Source[Any], splits: Sequence[bytes], is_columnar: bool) -> None:
        self._step = step
        self._source = source
        self._all_splits = splits
        self._is_columnar = is_columnar
        self._splits: dict[int, OpenSplit] = {}
        self._look_every_ns = look_every_ns(source)
        self._look_ns = 0  # when to look again for further splits
        self._found: list[bytes] = []
        self._scope: tuple[int, int] = (0, 1)  # index of the task, parallelism
        self._waiting: list[int] = []
        """Splits with something to read, the one to read next at the front."""

    def open(self, scope: Scope) -> None:
        self._scope = scope.context.index, scope.context.parallelism
        mine = range(scope.context.index, len(self._all_splits), scope.context.parallelism)
        self._splits = {
            number: OpenSplit(number, self._all_splits[number], self._source, self._step) for number in mine
        }
        self._waiting = list(self._splits)

    def restore(self, position: bytes) -> None:
        """Goes back to a snapshot's positions. PositionMalformed."""
        try:
            positions = _decoder.decode(position)
        except DECODE_ERRORS as error:
            raise PositionMalformed(self._step, str(error)) from error
        for each in positions:
            if each.found:
                check_split(self._source, each.found)
                self._add(each.found)
        if sorted(each.split for each in positions) != sorted(self._splits):
            raise PositionMalformed(self._step, "the splits of the task are others than those of the snapshot")
        for each in positions:
            self._splits[each.split].restore(each)
        self._waiting = [each.split for each in positions if not each.is_done]

    def position(self) -> bytes:
        """Where each split is."""
        return _encoder.encode([split.position for split in self._splits.values()])

    def look(self, now_ns: int) -> bytes:
        """See ``core.chain.WatchingChain.look``. StepFailed."""
        if now_ns < self._look_ns:
            return b""
        self._look_ns = now_ns + self._look_every_ns
        try:
            splits = cast(WatchedSource, self._source).discover([*self._all_splits, *self._found], *self._scope)
        except Exception as error:
            raise StepFailed(FailedAt(self._step, None, "")) from error
        return _encoder.encode(splits) if splits else b""

    def learn(self, splits: bytes) -> None:
        """See ``core.chain.WatchingChain.learn``."""
        try:
            found = _splits_decoder.decode(splits)
        except DECODE_ERRORS as error:
            raise PositionMalformed(self._step, str(error)) from error
        for split in found:
            check_split(self._source, split)
            self._waiting.append(self._add(split))

    def _add(self, split: bytes) -> int:
        index, parallelism = self._scope
        number = max(self._splits, default=index - parallelism) + parallelism
        self._splits[number] = OpenSplit(number, split, self._source, self._step, is_found=True)
        self._found.append(split)
        return number

    def poll(self, records_max: int) -> tuple[int, int] | NothingToRead:
        """See ``core.chain.Chain.poll``. A split that has nothing just now goes to the back."""
        for _ in range(len(self._waiting)):
            split = self._splits[self._waiting[0]]
            available = split.buffered(records_max)
            if available:
                return split.number, available
            split.end_if_read()
            passed = self._waiting.pop(0)
            if not split.is_done:
                self._waiting.append(passed)
        return NothingToRead.NOW if self._waiting or self._look_every_ns else NothingToRead.ALL_READ

    def read(self, number: int, count: int) -> None:
        """See ``core.chain.Chain.read``."""
        split = self._splits.get(number)
        if split is None or split.is_done:
            raise InternalError(f"{self._step} is asked for {count} records of split {number}, which it has not")
        batch = split.take(count)
        is_columns = hasattr(batch, "num_rows")
        if is_columns and self._is_columnar:
            self.out.columns(batch)
        elif self._is_columnar:
            raise NotColumnar(self._step, type(batch).__qualname__)
        else:
            self.out.rows(batch.to_pylist() if is_columns else batch)

    def close(self) -> None:
        for split in self._splits.values():
            split.close()


class NotColumnar(JobError):
    """A source said that it gives columns, and gave something else."""

    step: str
    type_name: str

    def __str__(self) -> str:
        return (
            f"the source {self.step} declares is_columnar and its reader gave a {self.type_name}:"
            " it must give a pyarrow.RecordBatch."
        )


def _size_of(chunk: Any) -> int:
    return chunk.num_rows if hasattr(chunk, "num_rows") else len(chunk)


def _cut(chunk: Any, start: int, count: int) -> Any:
    if hasattr(chunk, "num_rows"):
        return chunk.slice(start, count)
    return list(chunk[start : start + count])


def _joined(parts: list[RecordBatch | list[Any]]) -> Any:
    if not any(hasattr(part, "num_rows") for part in parts):
        return list(chain.from_iterable(parts))  # type: ignore[arg-type]
    import pyarrow  # where there are columns, it is loaded

    return pyarrow.Table.from_batches(parts).combine_chunks().to_batches()[0]
