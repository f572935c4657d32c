"""One vertex's fused operators: a tree, run batch by batch, in one incarnation of one task (``core.chain.Chain``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import Any

from clonos.core.ports.operator_chain import ChainContext, ChainSnapshot, Mirror, NothingToRead, Pieces
from clonos.operators.journal_source import JournalHead
from clonos.operators.operator import Drop, DueTimer, Fork, Operator, Scope
from clonos.operators.split_source import SourceHead
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.user_errors import Guard


class InputShape(StrEnum):
    """What arrives on an input edge."""

    PLAIN = "plain"  # rows or columns as they are
    PAIRS = "pairs"  # rows (key, value)
    KEYS = "keys"  # rows that are their own keys
    COLUMNS = "columns"  # columns with the key among them


@dataclass(frozen=True, slots=True)
class Input:
    """An input edge of a vertex: which node takes it, and in which form. ``column`` holds the key of ``COLUMNS``."""

    node: int
    form: InputShape = InputShape.PLAIN
    column: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A step in a chain. ``make`` gives a new operator for each incarnation; children stand behind their parents.

    ``is_aligned``: record i of a batch at this step is record i of the batch at the chain's input.
    """

    step: str
    make: Callable[[], Operator]
    children: tuple[int, ...] = ()
    is_aligned: bool = False


@dataclass(frozen=True, slots=True)
class VertexImage:
    """What the tasks of a vertex run. ``error_port``: where records go whose user code raised; None fails the task."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Input, ...] = ()
    error_port: int | None = None

    def new_chain(self) -> OperatorChain:
        """For one incarnation."""
        return OperatorChain(self)


class OperatorChain:
    """The chain of one incarnation."""

    def __init__(self, image: VertexImage) -> None:
        self._image = image
        self._operators = [node.make() for node in image.nodes]
        self._timed = [operator for operator in self._operators if operator.has_timers]
        self._calling = [operator for operator in self._operators if operator.has_calls]
        head = self._operators[0]
        self._source = head if isinstance(head, (SourceHead, JournalHead)) else None
        self._rows_inputs: list[Callable[[list[Any]], None]] = []
        self._columns_inputs: list[Callable[[Any], None]] = []
        self._state: StateBackend | None = None

    # --- life

    def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
        """Restores and opens. StepFailed: ``open`` of a process function raised."""
        assert mirror is None or isinstance(mirror, StateImage), "the image is of another kind of chain"
        self._state = StateBackend(mirror, context.inline_bytes_max)
        for node, operator in zip(self._image.nodes, self._operators, strict=True):
            operator.guard = Guard(node.step, node.is_aligned, context.collector, self._image.error_port)
            operator.out = self._follower_of(node)
        for place, operator in enumerate(self._calling):
            operator.number_calls(place, len(self._calling))
        scope = Scope(context, self._state)
        for operator in self._operators:
            operator.open(scope)
        if self._source is not None and position is not None:
            self._source.restore(position)
        self._rows_inputs = [self._rows_input(each) for each in self._image.inputs]
        self._columns_inputs = [self._columns_input(each) for each in self._image.inputs]

    def close(self) -> None:
        """Closes every step; raises what the first of them raised, when all are closed."""
        faults: list[Exception] = []
        for operator in self._operators:
            try:
                operator.close()
            except Exception as fault:  # noqa: BLE001  raised below
                faults.append(fault)
        if faults:
            raise faults[0]

    # --- data

    def process_rows(self, port: int, rows: list[Any]) -> None:
        """One step's rows of an input edge."""
        if rows:
            self._begin_step()
            self._rows_inputs[port](rows)

    def process_columns(self, port: int, batch: Any) -> None:
        """One step's columns of an input edge."""
        if batch.num_rows:
            self._begin_step()
            self._columns_inputs[port](batch)

    def poll(self, records_max: int) -> tuple[int, int] | NothingToRead:
        """What a source could read now."""
        return self._head().poll(records_max)

    def read(self, split: int, count: int) -> None:
        """Takes records of a split through the chain."""
        self._begin_step()
        self._head().read(split, count)

    def look(self, now_ns: int) -> bytes:
        """Splits that are new to a source that watches for them."""
        return self._watch().look(now_ns)

    def learn(self, splits: bytes) -> None:
        """What ``look`` has found is read too."""
        self._watch().learn(splits)

    def feed(self, data: bytes) -> bool:
        """More of the journal of a source that cannot be re-read."""
        return self._journal().feed(data)

    def unread_bytes(self) -> int:
        """What was fed of it and is not read."""
        return self._journal().unread_bytes()

    def complete(self, number: int, outcome: bytes) -> None:
        """To the step that has asked for it."""
        self._calling[number % len(self._calling)].complete(number, outcome)

    # --- time

    def next_timer_ns(self) -> int | None:
        """When the earliest timer of any step is due."""
        instants = [instant for operator in self._timed if (instant := operator.next_timer_ns()) is not None]
        return min(instants, default=None)

    def fire_timers(self, instant_ns: int) -> None:
        """Fires what is due, by (time, place of the step, registration); what is set meanwhile comes next time."""
        due = [
            (timer.instant_ns, place, timer)
            for place, operator in enumerate(self._timed)
            for timer in operator.due(instant_ns)
        ]
        due.sort(key=itemgetter(0, 1))
        for place, group in groupby(due, key=itemgetter(1)):
            timers: list[DueTimer] = [timer for _, _, timer in group]
            self._timed[place].fire(timers)

    def end_of_input(self) -> None:
        """Fires all timers once, step by step from the front: behind a step's last result nothing comes to the next.

        Where that asks for asynchronous calls, it goes no further; it is called again when they have their outcomes."""
        for operator in self._operators:
            if operator.has_timers:
                operator.fire(operator.due(None))
            if operator.awaits_calls():
                return

    # --- snapshots

    def snapshot(self, checkpoint: int, full: bool) -> ChainSnapshot:
        """State at a barrier. StateUnsupported: a value cannot be kept."""
        assert self._state is not None, "a chain is opened first"
        for operator in self._operators:
            operator.prepare(checkpoint)
        position = b"" if self._source is None else self._source.position()
        changes, more = self._state.take(full)
        return ChainSnapshot(changes, position, more)

    def whole_state(self) -> Pieces | None:
        """All of the keyed state as ``snapshot`` has just found it."""
        assert self._state is not None, "a chain is opened first"
        return self._state.whole()

    def _begin_step(self) -> None:
        """What was frozen for a snapshot that is stored by now is not any more."""
        assert self._state is not None, "a chain is opened first"
        self._state.melt()

    def _head(self) -> SourceHead | JournalHead:
        assert self._source is not None, "only a source reads splits"
        return self._source

    def _watch(self) -> SourceHead:
        assert isinstance(self._source, SourceHead), "only a source with splits watches for more"
        return self._source

    def _journal(self) -> JournalHead:
        assert isinstance(self._source, JournalHead), "only a source that cannot be re-read has a journal"
        return self._source

    def _follower_of(self, node: Node) -> Operator:
        followers: Sequence[Operator] = [self._operators[child] for child in node.children]
        if len(followers) == 1:
            return followers[0]
        return Fork(followers) if followers else Drop()

    def _rows_input(self, image: Input) -> Callable[[list[Any]], None]:
        operator = self._operators[image.node]
        return operator.keys if image.form is InputShape.KEYS else operator.rows

    def _columns_input(self, image: Input) -> Callable[[Any], None]:
        operator = self._operators[image.node]
        if image.form is InputShape.COLUMNS:
            return lambda batch: operator.keyed_columns(batch, image.column)
        return operator.columns
