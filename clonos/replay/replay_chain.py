"""The chain of a task in a replay: sources give the recorded records, sinks write into memory."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, NoReturn

from clonos.core.model.ids import CheckpointId
from clonos.core.ports.operator_chain import ChainContext, Mirror, StepFailed
from clonos.io.epochs.record_parts import SourceRecords
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.chain import Node, OperatorChain, VertexImage
from clonos.operators.chain_outputs import ToSink
from clonos.operators.operator import Times
from clonos.operators.sink_digests import output_of_sink
from clonos.operators.split_source import OpenSplit, SourceHead
from clonos.operators.state.keyed_state import StateBackend
from clonos.operators.steps.async_stateful_map import AsyncStatefulMap
from clonos.operators.user_errors import Guard
from clonos.replay.compared_sinks import ComparedSink
from clonos.replay.epoch import Epoch
from clonos.replay.port import RecordEnded, RecordTorn
from clonos.replay.record_hooks import Hook, HookedGuard, RecordAt, methods_for_batches


class Made(NamedTuple):
    """Results that left the chain together: ``output`` is the number of its port, or the step of a sink.

    ``first``: how many records were given to the chain before those of its batch, which has ``size``. ``keys``: None
    without. ``rows``: a list, or a record batch. ``is_of_batch``: made while the batch was processed, not by a timer or
    a watermark after it.
    """

    output: int | str
    first: int
    size: int
    keys: Any
    rows: Any
    is_of_batch: bool


class ReplayChain(OperatorChain):
    """Chain of a replay. ``records``: how many records of the task's input it was given.

    ``failed_number``: the number of the record whose processing raised.
    """

    def __init__(self, image: VertexImage, epoch: Epoch, hook: Hook | None = None) -> None:
        super().__init__(image)
        self.records = 0
        self.sink_rows = 0  # rows of transactional sinks of which the record has no digests
        self.failed_number: int | None = None
        self.made: list[Made] | None = None  # gets the results, if it is set before the chain is opened
        self.one_by_one = False  # each record is a batch of its own
        self._first = 0  # records before the batch that is being processed
        self._is_in_batch = False
        self._hook = hook
        self._recorded = RecordedSplits(epoch)
        self.sinks: list[ComparedSink] = []
        self._expected = {each.step: each for each in epoch.head.sinks}
        for node, operator in zip(image.nodes, self._operators, strict=True):
            if isinstance(operator, ToSink):
                operator._sink = MemorySink(node.step, self)  # type: ignore[assignment]
            if hook is not None:
                for name in methods_for_batches(operator):
                    setattr(operator, name, self._hooked(node.step, hook, getattr(operator, name)))

    @property
    def state(self) -> StateBackend:
        """State of all steps."""
        assert self._state is not None, "a chain is opened before it is used"
        return self._state

    @property
    def replied_steps(self) -> dict[str, bool]:
        """Steps whose functions do not run, because the log has what their calls have returned, and whether a replay of
        one key runs them."""
        pairs = zip(self._image.nodes, self._operators, strict=True)
        return {
            node.step: isinstance(each, AsyncStatefulMap) and each.logs_calls for node, each in pairs if each.has_calls
        }

    def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
        collector: Any = context.collector
        if self.made is not None:
            collector = NotingCollector(collector, self)
        super().open(replace(context, collector=collector), mirror, position)
        if self._source is not None:
            self._source.out = Counted(self._source.out, self)  # type: ignore[assignment]
        self._take_recorded()

    def _watch_sinks(self, since: CheckpointId) -> None:
        for node, operator in zip(self._image.nodes, self._operators, strict=True):
            output, expected = output_of_sink(node.step, operator), self._expected.get(node.step)
            if output is not None and expected is not None:
                self.sinks.append(ComparedSink(operator, output, expected, self._records_of))

    def _records_of(self, results: int) -> tuple[int, int, bool]:
        """Returns the records that may have made results, and whether each is of one of them, in their order."""
        size = self.records - self._first
        return self._first + 1, max(self._first + 1, self.records), self._is_in_batch and results == size

    def has_digests(self, step: str) -> bool:
        """Returns whether the record has digests of the rows of a sink."""
        return step in self._expected

    def _hooked(self, step: str, hook: Hook, process: Callable[..., None]) -> Callable[..., None]:
        """Returns what calls a hook in front of each batch of a step that processes whole batches."""

        def columns(batch: RecordBatch, *key: Any) -> None:
            hook(RecordAt(self._first + 1, step, None, batch, max(self._first + 1, self.records)))
            process(batch, *key)

        return columns

    def add_splits(self, splits: bytes) -> None:
        super().add_splits(splits)
        self._take_recorded()

    def poll(self, records_max: int) -> NoReturn:
        """Ends a replay that has gone on: a source reads nothing new. Raises: RecordEnded."""
        raise RecordEnded

    def _take_recorded(self) -> None:
        if isinstance(self._source, SourceHead):
            for split in self._source._splits.values():
                self._recorded.replace(split)

    def _new_guard(self, node: Node, context: ChainContext) -> Guard:
        if self._hook is None:
            return super()._new_guard(node, context)
        guard = HookedGuard(node.step, node.is_aligned, context.collector, self._image.error_port)
        guard.watch(self._hook, self if node.is_aligned else None)
        return guard

    def process_rows(self, port: int, rows: list[Any], times: Times = None) -> None:
        process = super().process_rows
        for part, part_times in self.row_parts(rows, times):
            self.process_batch(len(part), partial(process, port, part, part_times))

    def process_columns(self, port: int, batch: RecordBatch) -> None:
        process = super().process_columns
        for part in self.column_parts(batch):
            self.process_batch(part.num_rows, partial(process, port, part))

    def row_parts(self, rows: list[Any], times: Times) -> Iterator[tuple[list[Any], Times]]:
        """Yields a batch, or each row of it."""
        if not self.one_by_one:
            yield rows, times
            return
        for index in range(len(rows)):
            yield rows[index : index + 1], None if times is None else times[index : index + 1]

    def column_parts(self, batch: RecordBatch) -> Iterator[RecordBatch]:
        """Yields a batch, or each row of it."""
        if self.one_by_one:
            yield from (batch.slice(index, 1) for index in range(batch.num_rows))
        else:
            yield batch

    def process_batch(self, count: int, process: Callable[[], None]) -> None:
        """Processes a batch and counts its records."""
        self._first = self.records
        self.records += count
        self._is_in_batch = True
        try:
            process()
        except StepFailed as failed:
            if self.failed_number is None and failed.at.index is not None:
                self.failed_number = self._first + failed.at.index + 1
            raise
        finally:
            self._is_in_batch = False

    @property
    def first(self) -> int:
        """Number of records before the batch that is being processed."""
        return self._first

    def note(self, output: int | str, rows: Any, keys: Any = None) -> None:
        """Records results, if that is asked for."""
        if self.made is not None:
            own = list(rows) if isinstance(rows, list) else rows
            own_keys = None if keys is None else list(keys)
            size = self.records - self._first
            self.made.append(Made(output, self._first, size, own_keys, own, self._is_in_batch))


class NotingCollector:
    """Collector that notes what leaves the chain, before it is divided among the receivers."""

    def __init__(self, target: Any, chain: ReplayChain) -> None:
        self._target, self._chain = target, chain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def rows(self, port: int, rows: list[Any], keys: Any = None, times: Times = None) -> None:
        """Notes rows and passes them on."""
        self._chain.note(port, rows, keys)
        self._target.rows(port, rows, keys, times)

    def pairs(self, port: int, keys: list[Any], rows: list[Any], times: Times = None) -> None:
        """Notes rows with their keys and passes them on."""
        self._chain.note(port, rows, keys)
        self._target.pairs(port, keys, rows, times)

    def columns(self, port: int, batch: RecordBatch, groups: Any = None) -> None:
        """Notes a batch and passes it on."""
        self._chain.note(port, batch)
        self._target.columns(port, batch, groups)


class Counted:
    """Output of a source that counts its records."""

    def __init__(self, target: Any, chain: ReplayChain) -> None:
        self._target, self._chain = target, chain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        """Counts a batch and passes it on."""
        for part, part_times in self._chain.row_parts(rows, times):
            self._chain.process_batch(len(part), partial(self._target.rows, part, part_times))

    def columns(self, batch: RecordBatch) -> None:
        """Counts a batch and passes it on."""
        for part in self._chain.column_parts(batch):
            self._chain.process_batch(part.num_rows, partial(self._target.columns, part))


class RecordedSplits:
    """Splits of a source whose records come from the record of the epoch."""

    def __init__(self, epoch: Epoch) -> None:
        self._task, self._missing = epoch.task, epoch.head.missing
        self._reads = deque(epoch.reads)

    def replace(self, split: OpenSplit) -> None:
        """Lets a split give what was recorded of it."""

        def take(count: int) -> Any:
            return pickle.loads(self._next(split.number, count).batch)  # noqa: S301  of a record that the user trusts

        split.take = take  # type: ignore[method-assign]

    def _next(self, split: int, count: int) -> SourceRecords:
        """Returns the next read. Raises: RecordTorn."""
        found = self._reads.popleft() if self._reads else None
        if found is None or (found.split, found.count) != (split, count):
            has = "ends" if found is None else f"has {found.count} records of split {found.split}"
            what = f"its log reads {count} records of split {split}, where what its source gave {has}"
            raise RecordTorn(self._task, what, self._missing)
        return found


class MemorySink:
    """Transactional sink of a replay, and its writer: notes what is written, and writes nothing."""

    def __init__(self, step: str, chain: ReplayChain) -> None:
        self._step, self._chain = step, chain

    def writer(self) -> MemorySink:
        """Returns itself."""
        return self

    def open(self, context: object) -> None:
        """Opens nothing."""

    def write(self, rows: list[Any]) -> None:
        """Notes rows."""
        self._chain.sink_rows += 0 if self._chain.has_digests(self._step) else len(rows)
        self._chain.note(self._step, rows)

    def write_columns(self, batch: RecordBatch) -> None:
        """Notes a batch."""
        self._chain.sink_rows += 0 if self._chain.has_digests(self._step) else batch.num_rows
        self._chain.note(self._step, batch)

    def prepare(self, checkpoint: int) -> bytes | None:
        """Prepares nothing."""
        return None

    def close(self) -> None:
        """Closes nothing."""
