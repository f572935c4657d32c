"""Head of a source vertex whose source makes watermarks: reads its splits in turn and sends them after the records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from clonos.core.model.watermark import Watermark
from clonos.core.ports.operator_chain import FailedAt, NothingToRead, StepFailed
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import Source, TimedSource
from clonos.operators.event_time.source_watermarks import SourceWatermarks
from clonos.operators.event_time.stamped_records import stamp_of
from clonos.operators.event_time.timestamp_assigner import TimestampAssigner, checked_watermark
from clonos.operators.operator import DueTimer, Scope, Times
from clonos.operators.split_source import PositionMalformed, SourceHead

if TYPE_CHECKING:
    from clonos.operators.event_time.column_times import IntArray


class TimedHead(SourceHead):
    """First step of a source vertex with watermarks. The end of a split is in the log: a read of 0 records."""

    checks_idleness: ClassVar[bool] = True
    holds_watermarks: ClassVar[bool] = True

    _times: SourceWatermarks

    def __init__(
        self,
        step: str,
        source: Source[Any],
        splits: Sequence[bytes],
        is_columnar: bool,
        assigner: TimestampAssigner | None = None,
    ) -> None:
        """Creates the head of a ``TimedSource``, or with ``assigner`` that of any source."""
        super().__init__(step, source, splits, is_columnar)
        self._assigner = None if assigner is None else assigner.of_task(step)
        if assigner is not None:
            self._every_ns, self._idle_after_ns = assigner.every_ns, assigner.idle_after_ns
        else:
            timed = cast(TimedSource, source)
            self._every_ns, self._idle_after_ns = timed.watermark_every_ns, timed.idle_after_ns

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._recorder = scope.context.recorder
        is_watching = self._discovery_interval_ns > 0
        self._times = SourceWatermarks(self._waiting, self._every_ns, self._idle_after_ns, is_watching)

    def _restore_times(self, times: bytes) -> None:
        if not times:  # the source had no watermarks when the snapshot was taken
            for number in [number for number, split in self._splits.items() if split.is_done]:
                self._times.end(number)
            for number in self._waiting:  # of a later phase, perhaps
                self._times.add(number)
            return
        try:
            self._times.restore(times)
        except DECODE_ERRORS as error:
            raise PositionMalformed(self._step, str(error)) from error

    def _times_state(self) -> bytes:
        return self._times.state()

    def discover_splits(self, now_ns: int) -> bytes:
        """See ``operator_chain.WatchingChain.discover_splits``."""
        splits = super().discover_splits(now_ns)
        self._times.look()
        return splits

    def _add(self, split: bytes) -> int:
        number = super()._add(split)
        self._times.add(number)
        return number

    # --- reading

    def poll(self, records_max: int) -> tuple[int, int] | NothingToRead:
        """See ``operator_chain.Chain.poll``. Another split comes first each time, so that none seems to be idle."""
        waiting = self._waiting
        waiting[:] = [*waiting[1:], *waiting[:1]]
        for _ in range(len(waiting)):
            split = self._splits[waiting[0]]
            available = split.buffered(records_max)
            if available:
                return split.number, available
            split.end_if_read()
            if split.is_done:
                return split.number, 0
            self._times.found_empty(split.number)
            waiting.append(waiting.pop(0))
        return NothingToRead.NOW if self._may_read_more else NothingToRead.ALL_READ

    def read(self, number: int, count: int) -> None:
        """See ``operator_chain.Chain.read``."""
        if not count:
            self._splits[number].finish()
            self._waiting = [waiting for waiting in self._waiting if waiting != number]
            for begun in self._begin_phase():  # they hold the watermark where those before have left it
                self._times.add(begun)
            self._pass(self._times.end(number))
            return
        self._pass(self._times.begin(number))
        batch: Any = self._taken(number, count)
        times: Any = None
        if self._assigner is not None:
            batch, times = self._assigned(self._assigner, batch, f", in split {number} of {self._step}")
        if (
            batch if isinstance(batch, list) else batch.num_rows
        ):  # otherwise all records were malformed or without timestamps
            self._pass_on(batch, times)
            self._pass(self._times.reach(number, self._watermark_after(number, batch, times)))

    def _assigned(
        self, assigner: TimestampAssigner, batch: RecordBatch | list[Any], where: str
    ) -> tuple[Any, list[int] | IntArray]:
        if self._is_columnar and not isinstance(batch, list):
            return assigner.assign_columns(batch, self.guard, self._recorder, where)
        rows = batch if isinstance(batch, list) else self.python_rows(batch)[0]
        rows, times = assigner.assign(rows, self.guard, self._recorder, where)
        return ([row for _, row in rows] if assigner.of is stamp_of else rows), times

    def _watermark_after(self, number: int, batch: RecordBatch, times: Times | IntArray) -> int | None:
        before_ns = self._times.reached_ns(number)
        try:
            if self._assigner is None:
                found = cast(TimedSource, self._source).watermark(before_ns, batch)
            else:
                where = f", in split {number} of {self._step}"
                assert times is not None, "an assigner gives timestamps"
                found = self._assigner.watermark(before_ns, batch, times, self._recorder, where)
        except Exception as error:
            raise StepFailed(FailedAt(self._step, None, "")) from error
        return checked_watermark(found, self._step, number)

    def _pass(self, watermarks: list[Watermark]) -> None:
        for watermark in watermarks:
            self.pass_watermark(watermark)

    # --- drift alignment

    def reached_ns(self) -> int:
        """See ``operator_chain.TimedChain.reached_ns``."""
        return self._times.lowest_ns()

    def hold_back(self) -> None:
        """See ``operator_chain.TimedChain.hold_back``."""
        self._times.hold_back()

    # --- idleness

    @property
    def holds_checks(self) -> bool:
        return self._times.holds_checks

    def next_timer_ns(self) -> int | None:
        return self._times.next_check_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        """Returns the check for idle splits. There is none at the end of the input."""
        return [] if until_ns is None else [DueTimer(until_ns, None)]

    def fire(self, due: Sequence[DueTimer]) -> None:
        for timer in due:
            self._pass(self._times.check(timer.instant_ns))
