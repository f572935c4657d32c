"""Head of a source vertex: reads its splits in turn and can restore its position at any barrier.

``poll`` only reads ahead; ``read`` takes records. The position in a split is (mark before the chunk, records taken of
the chunk), so a restored task opens at the mark and skips less than a chunk. Splits are numbered over all tasks of the
source; task i of n has the splits with number % n == i.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, Protocol, cast, runtime_checkable

import msgspec

from clonos.core.log import determinants as d
from clonos.core.log.determinants import LogReader
from clonos.core.model.errors import EnvironmentFault, InternalError, JobError
from clonos.core.ports.operator_chain import FailedAt, NothingToRead, StepFailed
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.column_contract import gives_columns
from clonos.operators.connector_contract import (
    PartlyMalformed,
    PendingInput,
    PhasedSource,
    Source,
    SplitReader,
    WatchedSource,
    check_split,
    discovery_interval_ns,
)
from clonos.operators.event_time.timestamp_assigner import TimestampAssigner
from clonos.operators.facts import Facts, KnownInputs, calls_of
from clonos.operators.operator import Operator, Scope, Times, pass_in_parts
from clonos.operators.pending_splits import PendingSplits
from clonos.operators.source_position import SourcePosition, SplitPosition, decode_position, encode_position
from clonos.operators.state.state_spec import StateKind, StateScope, StateSpec

POSITION: Final = StateSpec("position", StateKind.POSITION, StateScope.DEAL)

CHUNK_RECORDS: Final = 1_024
"""Records of a read-ahead chunk, unless more are asked for."""


class SourceChanged(JobError):
    """A split gives fewer records than before."""

    step: str
    split: int
    missing: int

    def __str__(self) -> str:
        return (
            f"the source {self.step} ended {self.missing} records earlier in its split {self.split} than when it was"
            " first read. Do not change the input while the job runs or may be resumed."
        )


class SourceRecordsMissing(EnvironmentFault):
    """A split has no records at the moment where it had some before."""

    step: str
    split: int
    missing: int

    def __str__(self) -> str:
        return (
            f"the source {self.step} has {self.missing} fewer records in its split {self.split} than it had given"
            " before: the system that keeps them (a broker, for example) has lost them."
        )


class PositionMalformed(EnvironmentFault):
    """The position of a source in a snapshot cannot be used."""

    step: str
    reason: str

    def __str__(self) -> str:
        return f"the stored position of the source {self.step} cannot be used: {self.reason}."


_encoder: Final = msgspec.msgpack.Encoder()
_splits_decoder: Final = msgspec.msgpack.Decoder(list[bytes])


@runtime_checkable
class AcknowledgedSource(Protocol):
    """``Source`` or ``PushSource`` whose external system may drop what no restart of the job reads again."""

    def acknowledge(self, split: bytes, mark: bytes) -> None:
        """Notes, in the slot and without waiting, that no restart opens the split before ``mark``.

        A ``PushSource`` gets b"" and a decimal number: as many bytes of its producer are in the state of checkpoints.
        """


def marks_of(position: bytes, splits: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Returns the splits of a position that are being read, each with its mark. ``splits`` are those of the job."""
    return [
        (each.found or splits[each.split], each.mark)
        for each in decode_position(position).splits
        if each.mark is not None and not each.is_done
    ]


class OpenSplit:
    """Split of this task with its reader and its read-ahead chunk."""

    def __init__(self, number: int, split: bytes, source: Source[Any], step: str, is_found: bool = False) -> None:
        self.number = number
        self.found = split if is_found else b""
        self.is_done = False  # all records were taken
        self.split = split
        self._source = source
        self._step = step
        self._reader: SplitReader[Any] | None = None
        self._mark: bytes | None = None
        self._chunk: Any = ()
        self._taken = 0
        self._to_skip = 0
        self._has_ended = False  # the reader has ended; the chunk may still hold records
        self.records_read = 0  # by the reader that is open

    @property
    def reader(self) -> SplitReader[Any] | None:
        """Returns the reader, None while it is not open."""
        return self._reader

    @property
    def mark(self) -> bytes | None:
        """Returns the mark before the chunk, None at the beginning."""
        return self._mark

    @property
    def records_ahead(self) -> int:
        """Returns how many records were read and not taken."""
        return max(0, self._size() - self._taken)

    def restore(self, position: SplitPosition) -> None:
        """Restores the position of a snapshot."""
        self._mark, self._to_skip, self.is_done = position.mark, position.skip, position.is_done

    @property
    def position(self) -> SplitPosition:
        """Returns the present position."""
        if self.is_done:
            return SplitPosition(self.number, None, 0, True, self.found)
        return SplitPosition(self.number, self._mark, self._taken + self._to_skip, False, self.found)

    def buffered(self, records_max: int) -> int:
        """Returns how many records can be taken now, reading ahead if needed; 0 if there are none now or at the end."""
        if self._size() == self._taken and not self._fill(records_max):
            return 0
        return min(self._size() - self._taken, records_max)

    def take(self, count: int) -> Any:
        """Takes exactly ``count`` records: rows, or a RecordBatch.

        Raises: SourceChanged, SourceRecordsMissing: the split has fewer. StepFailed: its reader raised.
        """
        parts: list[Any] = []
        missing = count
        while missing:
            available = self.buffered(missing)
            if available == 0:
                fault = SourceChanged if self._has_ended else SourceRecordsMissing
                raise fault(self._step, self.number, missing)
            parts.append(_cut(self._chunk, self._taken, available))
            self._taken += available
            missing -= available
        return parts[0] if len(parts) == 1 else _joined(parts)

    def end_if_read(self) -> None:
        """Marks the split as done and closes its reader, if all records were taken."""
        if self._has_ended and self._taken == self._size():
            self.finish()

    def finish(self) -> None:
        """Marks the split as done and closes its reader."""
        self.is_done = True
        self.close()

    def close(self) -> None:
        """Closes the reader."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._chunk, self._taken = (), 0

    def _fill(self, records_max: int) -> bool:
        """Reads the next chunk with a record that is not to be skipped; False if there is none now, or at the end."""
        if self._has_ended:
            return False
        while True:
            mark, chunk = self._read(max(records_max, CHUNK_RECORDS) + self._to_skip)
            if chunk is None:
                self._has_ended = True
                return False
            size = _size_of(chunk)
            if size == 0:
                if not self._to_skip:  # all before it was taken: the system need not keep that for a restart
                    self._mark, self._chunk, self._taken = mark, (), 0
                return False
            self._mark, self._chunk, self._taken = mark, chunk, min(self._to_skip, size)
            self.records_read += size
            self._to_skip -= self._taken
            if self._taken < size:
                return True

    def _read(self, records_max: int) -> tuple[bytes, Any]:
        """Returns the mark before a chunk, and the chunk.

        Raises: StepFailed: the reader raised.
        """
        try:
            if self._reader is None:
                self._reader, self.records_read = self._source.reader(), 0
                self._reader.open(self.split, self._mark)
            return self._reader.mark(), self._reader.read(records_max)
        except Exception as error:
            raise StepFailed(FailedAt(self._step, None, "")) from error

    def _size(self) -> int:
        return _size_of(self._chunk)


class SourceHead(Operator):
    """First step of a source vertex. ``splits`` are those of all its tasks."""

    @classmethod
    def facts(cls, given: KnownInputs, source: object, assigner: TimestampAssigner | None) -> Facts:
        """Returns those of the step of a source. ``assigner``: what gives timestamps to its records."""
        emits_columns = gives_columns(source)
        return Facts(
            calls=calls_of(assigner),
            emits_columns=emits_columns,
            is_one_to_one=True,
            has_times=assigner is not None,
            keeps_times=False,
            timestamp_column=assigner.column if assigner is not None and emits_columns else None,
            assigner=assigner,
        )

    def __init__(self, step: str, source: Source[Any], splits: Sequence[bytes], is_columnar: bool) -> None:
        self._step = step
        self._source = source
        self._all_splits = splits
        self._is_columnar = is_columnar
        self._plain: Any = None  # PlainColumns
        self._splits: dict[int, OpenSplit] = {}
        self._discovery_interval_ns = discovery_interval_ns(source)
        self._look_ns = 0  # time of the next search for new splits
        self._found: list[bytes] = []
        self._pending_splits = PendingSplits(step, source)
        self._elsewhere: tuple[bytes, ...] = ()  # splits that other tasks found before the width changed
        self._scope: tuple[int, int] = (0, 1)  # (index of the task, parallelism)
        self._has_splits = False  # opened, although there may be none
        self._waiting: list[int] = []
        """Numbers of the splits that may have records, the next one to read first."""
        self._held: list[list[int]] = []
        """Numbers of the splits of each later phase (``PhasedSource``), which begins when ``_waiting`` is empty."""

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (POSITION,)

    def open(self, scope: Scope) -> None:
        self._open_splits(scope.context.index, scope.context.parallelism)

    def _open_splits(self, index: int, parallelism: int) -> None:
        self._scope = index, parallelism
        mine = range(index, len(self._all_splits), parallelism)
        self._splits = {
            number: OpenSplit(number, self._all_splits[number], self._source, self._step) for number in mine
        }
        self._wait_for(list(self._splits))
        self._has_splits = True

    def restore(self, position: bytes) -> None:
        """Restores the positions of a snapshot.

        Raises: PositionMalformed: they cannot be decoded or belong to other splits.
        """
        try:
            restored = decode_position(position)
        except DECODE_ERRORS as error:
            raise PositionMalformed(self._step, str(error)) from error
        positions, self._elsewhere = restored.splits, restored.elsewhere
        for each in positions:
            if each.found:
                check_split(self._source, each.found)
                self._add(each.found)
        if sorted(each.split for each in positions) != sorted(self._splits):
            raise PositionMalformed(self._step, "the task and the snapshot have different splits")
        for each in positions:
            self._splits[each.split].restore(each)
        self._wait_for([each.split for each in positions if not each.is_done])
        self._restore_times(restored.times)

    def _restore_times(self, times: bytes) -> None:
        """Restores the watermarks of a snapshot."""

    def _wait_for(self, numbers: Sequence[int]) -> None:
        """Begins with the splits of the first phase."""
        source: object = self._source
        phases = dict[int, list[int]]()
        for number in numbers:
            phase = source.phase_of(self._splits[number].split) if isinstance(source, PhasedSource) else 0
            phases.setdefault(phase, []).append(number)
        self._waiting, *self._held = [phases[phase] for phase in sorted(phases)] or [[]]

    def _begin_phase(self) -> list[int]:
        """Begins the next phase, when all splits of this one have ended; returns the numbers of its splits."""
        if self._held and not self._waiting:
            self._waiting = self._held.pop(0)
            return self._waiting
        return []

    def position(self) -> bytes:
        """Returns the position of each split."""
        splits = tuple(split.position for split in self._splits.values())
        return encode_position(SourcePosition(splits, self._elsewhere, self._times_state()))

    def _times_state(self) -> bytes:
        """Returns the watermarks for a snapshot."""
        return b""

    def discover_splits(self, now_ns: int) -> bytes:
        """See ``operator_chain.WatchingChain.discover_splits``.

        Raises: StepFailed: ``discover`` of the source raised.
        """
        if now_ns < self._look_ns or self._held:
            return b""
        self._look_ns = now_ns + self._discovery_interval_ns
        try:
            known = [*self._all_splits, *self._found, *self._elsewhere]
            splits = cast(WatchedSource, self._source).discover(known, *self._scope)
        except Exception as error:
            raise StepFailed(FailedAt(self._step, None, "")) from error
        return _encoder.encode(splits) if splits else b""

    def add_splits(self, splits: bytes) -> None:
        """See ``operator_chain.WatchingChain.add_splits``.

        Raises: PositionMalformed: the splits cannot be decoded.
        """
        try:
            found = _splits_decoder.decode(splits)
        except DECODE_ERRORS as error:
            raise PositionMalformed(self._step, str(error)) from error
        for split in found:
            check_split(self._source, split)
            self._waiting.append(self._add(split))

    def pending(self) -> PendingInput | None:
        """Returns how much waits in the external system, of all splits; None if that of one of them is not known, or
        they are not open yet. Any thread may call this.
        """
        return self._pending_splits.sum(list(self._splits.values())) if self._has_splits else None

    def _add(self, split: bytes) -> int:
        index, parallelism = self._scope
        number = max(self._splits, default=index - parallelism) + parallelism
        self._splits[number] = OpenSplit(number, split, self._source, self._step, is_found=True)
        self._found.append(split)
        return number

    def poll(self, records_max: int) -> tuple[int, int] | NothingToRead:
        """See ``operator_chain.Chain.poll``. A split without records at the moment goes to the end of the queue."""
        self._begin_phase()
        for _ in range(len(self._waiting)):
            split = self._splits[self._waiting[0]]
            available = split.buffered(records_max)
            if available:
                return split.number, available
            split.end_if_read()
            passed = self._waiting.pop(0)
            if not split.is_done:
                self._waiting.append(passed)
        return NothingToRead.NOW if self._may_read_more else NothingToRead.ALL_READ

    @property
    def _may_read_more(self) -> bool:
        return bool(self._waiting or self._held or self._discovery_interval_ns)

    def read_again(self, index: int, parallelism: int, position: bytes, log: bytes) -> Iterator[tuple[int, int, Any]]:
        """Yields (split, count, records) of each ``READ`` in the log of a task, with new readers, as these give them.

        This head stays as it is. ``position``: of the snapshot before the log; empty at the job's start.

        Raises: what a recovery raises where the records cannot be read again: StepFailed, SourceChanged,
        SourceRecordsMissing, PositionMalformed.
        """
        again = SourceHead(self._step, self._source, self._all_splits, self._is_columnar)
        again._open_splits(index, parallelism)
        reader = LogReader(log)
        try:
            if position:
                again.restore(position)
            while not reader.at_end:
                tag, number, count, data = reader.next()
                if tag == d.SPLITS:
                    again.add_splits(data)
                elif tag == d.READ and count:
                    yield number, count, again._splits[number].take(count)
        finally:
            again.close()

    def read(self, number: int, count: int) -> None:
        """See ``operator_chain.Chain.read``.

        Raises: NotColumnar: the source declares columns and gives rows.
        """
        self._pass_on(self._taken(number, count))

    def _taken(self, number: int, count: int) -> RecordBatch | list[Any]:
        """Takes records as the reader gives them, without malformed ones; none if all of them are."""
        split = self._splits.get(number)
        if split is None or split.is_done:
            raise InternalError(f"{self._step} is asked for {count} records of split {number}, which it does not have")
        batch = split.take(count)
        type_name = type(batch).__qualname__
        if isinstance(batch, PartlyMalformed):
            batch = self.guard.decoded(batch)
        if self._is_columnar and hasattr(batch, "num_rows"):
            return self._plain_batch(batch)
        if self._is_columnar and len(batch):
            raise NotColumnar(self._step, type_name)
        return batch  # type: ignore[no-any-return]

    def _plain_batch(self, batch: RecordBatch) -> RecordBatch:
        from clonos.operators.columnar.plain_columns import PlainColumns

        if self._plain is None:
            self._plain = PlainColumns()
        return self._plain.of(batch)  # type: ignore[no-any-return]

    def _pass_on(self, batch: RecordBatch | list[Any], times: Times = None) -> None:
        if isinstance(batch, list):
            if batch:
                pass_in_parts(self.out.rows, batch, times)
        elif self._is_columnar:
            self.out.columns(batch)
        else:
            rows, _ = self.python_rows(batch)
            if rows:
                self.out.rows(rows, times)

    def close(self) -> None:
        for split in self._splits.values():
            split.close()


class NotColumnar(JobError):
    """A source with ``is_columnar`` has returned something other than columns."""

    step: str
    type_name: str

    def __str__(self) -> str:
        return (
            f"the source {self.step} declares is_columnar, but its reader returned a {self.type_name}:"
            " it must return a pyarrow.RecordBatch."
        )


def _size_of(chunk: Any) -> int:
    return chunk.num_rows if hasattr(chunk, "num_rows") else len(chunk)


def _cut(chunk: Any, start: int, count: int) -> Any:
    if hasattr(chunk, "num_rows"):
        return chunk.slice(start, count)
    rows = list(chunk[start : start + count])
    return type(chunk)(rows) if isinstance(chunk, PartlyMalformed) else rows


def _joined(parts: list[RecordBatch | list[Any]]) -> Any:
    if not any(hasattr(part, "num_rows") for part in parts):
        rows = list(chain.from_iterable(parts))  # type: ignore[arg-type]
        return PartlyMalformed(rows) if any(isinstance(part, PartlyMalformed) for part in parts) else rows
    import pyarrow  # loaded only if there are columns

    return pyarrow.Table.from_batches(parts).combine_chunks().to_batches()[0]
