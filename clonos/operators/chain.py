"""Fused operators of one vertex: a tree that processes batches in one incarnation of a task.

Implements ``clonos.core.ports.operator_chain.Chain``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final

from clonos.core.model.ids import CheckpointId
from clonos.core.model.suspect import NO_SUSPECTS, Suspect
from clonos.core.model.watermark import Watermark
from clonos.core.ports.operator_chain import ChainContext, ChainSnapshot, Mirror, NothingToRead, Pieces
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import PendingInput
from clonos.operators.event_time.regions import regions_of
from clonos.operators.event_time.timed_source import TimedHead
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.journal_source import JournalHead
from clonos.operators.key_sample import KeySample
from clonos.operators.operator import Drop, DueTimer, Fork, Operator, Scope, Times, WithSides
from clonos.operators.sink_digests import SinkDigests
from clonos.operators.split_source import SourceHead
from clonos.operators.state.declared_state import DeclaredState, StepState, full_name
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.state.state_spec import StateScope, small
from clonos.operators.tap import tap
from clonos.operators.transforms.limit import Limit
from clonos.operators.user_errors import Guard


class InputShape(StrEnum):
    """Shape of the batches of an input edge."""

    PLAIN = "plain"  # rows or columns without a key
    PAIRS = "pairs"  # rows (key, value)
    KEYS = "keys"  # keys alone: the step reads no more of its records
    COLUMNS = "columns"  # columns, some of which are the key


@dataclass(frozen=True, slots=True)
class Input:
    """Input edge of a vertex: its node and the shape of its batches. ``keys`` are the key columns of ``COLUMNS``."""

    node: int
    form: InputShape = InputShape.PLAIN
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """Step of a chain. ``make`` creates an operator for each incarnation; children follow their parents in the list.

    ``is_aligned``: record i of a batch at this step comes from record i of the batch at the chain's input.
    ``tagged``: the followers of each side output. ``intercepts``: its user code gets recorded values of clocks and the
    like. ``timestamp_column``: the column that has the timestamps of batches
    of columns that this step takes.
    """

    step: str
    make: Callable[[], Operator]
    children: tuple[int, ...] = ()
    is_aligned: bool = False
    timestamp_column: TimestampColumn | None = None
    tagged: tuple[tuple[str, tuple[int, ...]], ...] = ()
    intercepts: bool = False

    @property
    def followers(self) -> tuple[int, ...]:
        """Indexes of all followers, those of side outputs last."""
        return tuple(chain.from_iterable((self.children, *(children for _, children in self.tagged))))


@dataclass(frozen=True, slots=True)
class VertexImage:
    """Program of the tasks of a vertex.

    ``error_port`` is the output for records whose user code raised; None fails the task. ``suspects``: what of each
    step a replay may not repeat, the likeliest first. ``has_sink_digests``: its snapshots have digests of the rows that
    its sinks were given.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Input, ...] = ()
    error_port: int | None = None
    suspects: Mapping[str, tuple[Suspect, ...]] = field(default_factory=dict)
    has_sink_digests: bool = False

    def before(self, index: int) -> tuple[int, ...]:
        """Returns the indexes of all nodes in front of a node."""
        found = {index}
        for place in range(index - 1, -1, -1):
            if found.intersection(self.nodes[place].followers):
                found.add(place)
        return tuple(sorted(found - {index}))

    def suspects_of(self, step: str) -> tuple[Suspect, ...]:
        """Returns what may be the cause if a step does not repeat itself: first what it does itself, then what the
        steps before it do, the nearest first. "": all steps."""
        own = {index for index, node in enumerate(self.nodes) if step in ("", node.step)}
        before = {found for index in own for found in self.before(index)} - own
        names = dict.fromkeys(self.nodes[index].step for index in (*sorted(own), *sorted(before, reverse=True)))
        suspects = getattr(self, "suspects", NO_SUSPECTS)  # a record of an epoch may be from before there were any
        return tuple(chain.from_iterable(suspects.get(name, ()) for name in names))

    def declared_state(self) -> DeclaredState:
        """Returns the declarations of all state of a task."""
        made = [(node.step, node.make()) for node in self.nodes]
        steps = [(operator.state_step or step, spec) for step, operator in made for spec in operator.state_specs]
        return DeclaredState([*steps, (CHAIN, ENDS)])

    def new_chain(self) -> OperatorChain:
        """Creates the chain of one incarnation."""
        return OperatorChain(self)


CHAIN: Final = ""
"""Name of the step of the state of a chain itself."""

ENDS: Final = small("ends", StateScope.EQUAL)
"""Table with one entry: how many operators had fired all their timers at the end of the input, before a barrier."""


class OperatorChain:
    """Chain of one incarnation.

    ``_ended``: the number of operators that have fired all their timers at the end of the input.
    """

    def __init__(self, image: VertexImage) -> None:
        self._image = image
        self._operators = [node.make() for node in image.nodes]
        if any(node.intercepts for node in image.nodes):
            from clonos.operators.intercepting import intercept  # few jobs need it

            intercept(self._operators, [node.intercepts for node in image.nodes])
        self._timed = [(index, operator) for index, operator in enumerate(self._operators) if operator.has_timers]
        self._checking = [
            (index, operator) for index, operator in enumerate(self._operators) if operator.checks_idleness
        ]
        self._calling = [operator for operator in self._operators if operator.has_calls]
        self._limits = [
            (operator, [self._operators[before] for before in image.before(index) if self._operators[before].has_calls])
            for index, operator in enumerate(self._operators)
            if isinstance(operator, Limit)
        ]
        head = self._operators[0]
        self._source = head if isinstance(head, (SourceHead, JournalHead)) else None
        self._rows_inputs: list[Callable[[list[Any], Times], None]] = []
        self._columns_inputs: list[Callable[[Any], None]] = []
        self._state: StateBackend | None = None
        self._drained: list[str] = []  # names of state that a change of widths needs empty
        self._key_sample = KeySample()
        self._ended = 0
        self._sinks: SinkDigests | None = None

    # --- lifecycle

    def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
        """Restores the state and opens every operator.

        Raises: StepFailed: ``open`` of user code or of a writer raised.
        """
        assert mirror is None or isinstance(mirror, StateImage), "the image belongs to another kind of chain"
        self._state = StateBackend(mirror, context.inline_bytes_max)
        self._watch_sinks(context.checkpoint)
        for node, operator in zip(reversed(self._image.nodes), reversed(self._operators), strict=True):
            if any(self._operators[follower].changes_rows for follower in node.followers):
                operator.changes_rows = True
        for node, operator in zip(self._image.nodes, self._operators, strict=True):
            operator.guard = self._new_guard(node, context)
            operator.timestamp_column = node.timestamp_column
            operator.out = self._follower_of(node.children)
            if node.tagged:
                operator.side_outputs = {tag: self._follower_of(children) for tag, children in node.tagged}
                operator.out = WithSides(operator.out, operator.side_outputs.values())
        self._region = regions_of(self._operators, [node.followers for node in self._image.nodes])
        for index, operator in enumerate(self._calling):
            operator.number_calls(index, len(self._calling))
        for node, operator in zip(self._image.nodes, self._operators, strict=True):
            step = operator.state_step or node.step
            state = StepState(self._state, step, operator.state_specs)
            self._drained += [
                full_name(step, each) for each in operator.state_specs if each.scope is StateScope.DRAINED
            ]
            operator.open(Scope(context, state))
        if self._source is not None and position:
            self._source.restore(position)
        self._ends = StepState(self._state, CHAIN, (ENDS,)).table(ENDS)
        self._ended = self._ends.entries.get(0, 0)
        self._rows_inputs = [self._rows_input(each) for each in self._image.inputs]
        self._columns_inputs = [self._columns_input(each) for each in self._image.inputs]

    def _watch_sinks(self, since: CheckpointId) -> None:
        if self._image.has_sink_digests:
            steps = [node.step for node in self._image.nodes]
            self._sinks = SinkDigests(zip(steps, self._operators, strict=True), since)

    def _new_guard(self, node: Node, context: ChainContext) -> Guard:
        return Guard(node.step, node.is_aligned, context.collector, self._image.error_port)

    def suspects(self, step: str) -> tuple[Suspect, ...]:
        """Returns what may be the cause if a step does not repeat itself, the likeliest first. "": all steps."""
        return self._image.suspects_of(step)

    def close(self) -> None:
        """Closes every operator, then raises the first exception of these."""
        errors: list[Exception] = []
        for operator in self._operators:
            try:
                operator.close()
            except Exception as error:  # noqa: BLE001  raised below
                errors.append(error)
        if errors:
            raise errors[0]

    def peek(self, step: str, rows_max: int, show: Callable[[bytes], None]) -> None:
        """Shows the last rows of the next batch that a step emits. Any thread may call this; before ``open`` does
        nothing."""
        # The last node: those before it prepare the input of the step.
        nodes = [i for i, node in enumerate(self._image.nodes) if node.step == step and node.followers]
        if nodes and hasattr(self._operators[nodes[-1]], "out"):
            tap(self._operators[nodes[-1]], rows_max, show)

    def hottest_key(self) -> tuple[str, int] | None:
        """Returns the key of which most of the latest input is, as text, and its share of it in percent; None if no
        key stands out. Any thread may call this."""
        return self._key_sample.hottest()

    def state_bytes(self) -> int:
        """Returns the size of the state: the memory of columns, and about the encoded size of rows. Any thread may call
        this."""
        return 0 if self._state is None else self._state.column_bytes + self._state.row_bytes

    def pending(self) -> PendingInput | None:
        """Returns how much input of a source waits in the external system; None if that is not known. Any thread may
        call this."""
        return None if self._source is None else self._source.pending()

    # --- data

    def process_rows(self, port: int, rows: list[Any], times: Times = None) -> None:
        """Processes a batch of rows of an input edge."""
        if rows:
            self._begin_step()
            self._rows_inputs[port](rows, times)

    def process_columns(self, port: int, batch: RecordBatch) -> None:
        """Processes a batch of columns of an input edge."""
        if batch.num_rows:
            self._begin_step()
            self._columns_inputs[port](batch)

    def poll(self, records_max: int) -> tuple[int, int] | NothingToRead:
        """Returns how many records of which split the source could read now, ALL_READ if a limit is reached.

        The open calls in front of a limit may fill it.
        """
        for limit, calling in self._limits:
            room = limit.room
            if not room:
                return NothingToRead.ALL_READ
            records_max = min(records_max, room - sum(operator.open_calls for operator in calling))
        return self._head().poll(records_max) if records_max > 0 else NothingToRead.NOW

    def read_again(self, index: int, parallelism: int, position: bytes, log: bytes) -> Iterator[tuple[int, int, Any]]:
        """Yields what ``SourceHead.read_again`` does; nothing for a source with a journal. The chain need not be
        open."""
        head = self._source
        return head.read_again(index, parallelism, position, log) if isinstance(head, SourceHead) else iter(())

    def read(self, split: int, count: int) -> None:
        """Reads records of a split and processes them."""
        self._begin_step()
        self._head().read(split, count)

    def discover_splits(self, now_ns: int) -> bytes:
        """Returns new splits of a source that watches its input."""
        return self._watch().discover_splits(now_ns)

    def add_splits(self, splits: bytes) -> None:
        """Adds splits that ``discover_splits`` has returned."""
        self._watch().add_splits(splits)

    def reached_ns(self) -> int:
        """Returns the lowest watermark of the source's splits."""
        return self._timed_head().reached_ns()

    def hold_back(self) -> None:
        """Notes that the source reads nothing although there may be records."""
        self._timed_head().hold_back()

    def feed(self, data: bytes) -> bool:
        """Appends bytes of the journal of a source that cannot be replayed."""
        return self._journal().feed(data)

    def unread_bytes(self) -> int:
        """Returns the number of journal bytes that were appended and not read yet."""
        return self._journal().unread_bytes()

    def journal_cursor(self) -> bytes | None:
        """Returns the cursor after the journal bytes that were appended, None if the source has none."""
        return self._journal().cursor

    def complete(self, number: int, outcome: bytes) -> None:
        """Passes the outcome of an asynchronous call to the step that made it."""
        self._calling[number % len(self._calling)].complete(number, outcome)

    def take_part(self, number: int, name: bytes, data: bytes) -> None:
        """Passes a part of an asynchronous call to the step that made it."""
        self._calling[number % len(self._calling)].take_part(number, name, data)

    # --- timers

    def next_timer_ns(self) -> int | None:
        """Returns the time of the earliest timer of any step, None without timers."""
        timed = self._timed
        if self._checking and not any(operator.holds_checks for _, operator in self._checking):
            timed = [*timed, *self._checking]
        instants = [
            instant
            for index, operator in timed
            if index >= self._ended and (instant := operator.next_timer_ns()) is not None
        ]
        return min(instants, default=None)

    def fire_timers(self, instant_ns: int) -> None:
        """Fires the timers that are due, by (time, index of the step, registration).

        Timers set meanwhile fire next time. So do checks for idleness that are due with other timers: which of them
        ``next_timer_ns`` meant is not in the log.
        """
        due = self._due(self._timed, instant_ns) or self._due(self._checking, instant_ns)
        due.sort(key=itemgetter(0, 1))
        for index, group in groupby(due, key=itemgetter(1)):
            timers: list[DueTimer] = [timer for _, _, timer in group]
            self._operators[index].fire(timers)

    def _due(self, timed: list[tuple[int, Operator]], instant_ns: int) -> list[tuple[int, int, DueTimer]]:
        return [
            (timer.instant_ns, index, timer)
            for index, operator in timed
            if index >= self._ended
            for timer in operator.due(instant_ns)
        ]

    def advance_watermark(self, watermark: Watermark) -> None:
        """Fires event-time timers by (time, index of the step, registration), and passes the watermark on."""
        self._begin_step()
        self._region.advance(watermark)

    def drain(self) -> None:
        """Lets the rows go that wait in any step, from the source on."""
        self._begin_step()
        for operator in self._operators:
            operator.drain()

    def end_of_input(self) -> None:
        """Fires all timers once, step by step from the source on, so that each step has seen all of its input.

        Stops at a step that has open asynchronous calls; call it again when these are complete. A timer that is set by
        a timer fired here never fires, unless a call sets it.
        """
        for index in range(max(self._ended - 1, 0), len(self._operators)):
            operator = self._operators[index]
            is_first = index == self._ended
            self._ended = max(self._ended, index + 1)
            if operator.has_timers and (is_first or operator.has_calls):
                operator.fire(operator.due(None))
            if operator.open_calls:
                self._ends.set(0, self._ended)
                return
            if operator.has_event_timers:
                operator.fire_events(operator.due_events(None))
            operator.end_of_time()

    # --- snapshots

    def snapshot(self, checkpoint: int, full: bool) -> ChainSnapshot:
        """Takes the changes of state since the last snapshot, or all state if ``full``.

        Raises: StateUnsupported: a value cannot be stored.
        """
        assert self._state is not None, "a chain is opened before it is used"
        for operator in self._operators:
            operator.prepare(checkpoint)
        position = b"" if self._source is None else self._source.position()
        waiting = self._state.filled(self._drained)
        changes, more = self._state.take(full)
        sinks = () if self._sinks is None else self._sinks.take(CheckpointId(checkpoint))
        return ChainSnapshot(changes, position, more, waiting, sinks)

    def whole_state(self) -> Pieces | None:
        """Returns all keyed state as of the ``snapshot`` just taken; None while an earlier snapshot is being read."""
        assert self._state is not None, "a chain is opened before it is used"
        return self._state.whole()

    def _begin_step(self) -> None:
        """Merges some of the changes made while a snapshot was read, if it is stored by now."""
        assert self._state is not None, "a chain is opened before it is used"
        self._state.merge_overlay()

    def _head(self) -> SourceHead | JournalHead:
        assert self._source is not None, "only a source reads splits"
        return self._source

    def _watch(self) -> SourceHead:
        assert isinstance(self._source, SourceHead), "only a source with splits can watch its input"
        return self._source

    def _timed_head(self) -> TimedHead:
        assert isinstance(self._source, TimedHead), "only a source with timestamps makes watermarks"
        return self._source

    def _journal(self) -> JournalHead:
        assert isinstance(self._source, JournalHead), "only a source that cannot be replayed has a journal"
        return self._source

    def _follower_of(self, children: Sequence[int]) -> Operator:
        followers: Sequence[Operator] = [self._operators[child] for child in children]
        if len(followers) == 1:
            return followers[0]
        return Fork(followers) if followers else Drop()

    def _rows_input(self, image: Input) -> Callable[[list[Any], Times], None]:
        operator, sample = self._operators[image.node], self._key_sample
        if image.form is InputShape.KEYS:
            return _sampling(sample.see_keys, operator.keys)
        if image.form is InputShape.PAIRS:
            return _sampling(sample.see_pairs, operator.rows)
        return operator.rows

    def _columns_input(self, image: Input) -> Callable[[Any], None]:
        operator = self._operators[image.node]
        if image.form is InputShape.COLUMNS:
            key = image.keys[0] if len(image.keys) == 1 else image.keys
            return _sampling(
                lambda batch: self._key_sample.see_columns(batch, image.keys),
                lambda batch: operator.keyed_columns(batch, key),
            )
        return operator.columns


def _sampling(see: Callable[[Any], None], process: Callable[..., None]) -> Callable[..., None]:
    """Returns ``process`` with a sample of the keys of each batch taken first."""

    def process_sampled(batch: RecordBatch, *times: Any) -> None:
        see(batch)
        process(batch, *times)

    return process_sampled
