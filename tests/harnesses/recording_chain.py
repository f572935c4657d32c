"""User code for the tests of a task: each row that it emits shows what was drawn for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from clonos.core.log.call_outcomes import declare_exception, decode_outcome
from clonos.core.model.suspect import Suspect
from clonos.core.model.watermark import Activity, Watermark
from clonos.core.ports.operator_chain import ChainContext, ChainSnapshot, Mirror, NothingToRead, Pieces, ReadyPieces
from clonos.core.ports.recorder import current
from clonos.core.values import decode_value, encode_value

MILLISECOND_NS = 1_000_000

Use = Callable[["RecordingChain", Any], object]
"""What is drawn for a row."""


class Refused(Exception):
    """The external system refuses."""


declare_exception(Refused)


def clock(chain: RecordingChain, row: Any) -> object:
    return chain.recorder.instant_ns(False)


def exact_clock(chain: RecordingChain, row: Any) -> object:
    return chain.recorder.instant_ns(True)


def rng(chain: RecordingChain, row: Any) -> object:
    return chain.stream().random()


def ask(chain: RecordingChain, row: Any) -> object:
    """A read of an external system, which answers at random, or refuses."""
    return _call(chain, row, effect=False)


def pay(chain: RecordingChain, row: Any) -> object:
    """A call with an effect that is not idempotent: in doubt it is an exception."""
    return _call(chain, row, effect=True)


def pay_idempotent(chain: RecordingChain, row: Any) -> object:
    return _call(chain, row, effect=True, is_idempotent=True)


def _call(chain: RecordingChain, row: Any, effect: bool, is_idempotent: bool = False) -> object:
    def perform(key: str) -> object:
        return chain.external_call(row, key)

    try:
        in_doubt = perform if is_idempotent else None
        return chain.recorder.call("ask", encode_value(row), perform, effect=effect, in_doubt=in_doubt)
    except Exception as error:  # noqa: BLE001  user code that sees every outcome
        return type(error).__name__, str(error.args[0]) if error.args else ""


def ask_aside(chain: RecordingChain, row: Any) -> object:
    """A read of an external system whose answer arrives between two steps."""
    chain.asked[chain.served] = row
    chain.submit(chain.served, row)
    return "asked"


def ask_in_parts(chain: RecordingChain, row: Any) -> object:
    """As ``ask_aside``, in two calls inside, which have entries of their own."""
    chain.parts[chain.served] = {}
    return ask_aside(chain, row)


def nothing(chain: RecordingChain, row: Any) -> object:
    return None


def timer(chain: RecordingChain, row: Any) -> object:
    """Sets two timers for the same instant and one later."""
    instant = chain.recorder.instant_ns(False)
    for delay_ms in (3, 3, 8):
        chain.set_timer(instant + delay_ms * MILLISECOND_NS, row)
    return "timer"


EVERYTHING: tuple[Use, ...] = (clock, rng, ask, timer, exact_clock, ask, clock)


class RecordingMirror:
    def __init__(self) -> None:
        self.state: dict[Any, Any] = {}

    def apply(self, changes: bytes | memoryview) -> None:
        self.state.update(decode_value(changes))  # type: ignore[call-overload]


DRAINED_CALL = 1_000_000
"""Number of the call that what waited makes."""


class RecordingChain:
    """Implements ``clonos.core.ports.operator_chain.Chain``. Row k is served by ``uses[k mod n]``.

    ``splits``: of a source, the records of each; ``poll_rng`` chooses among them as arrival would.
    """

    def __init__(
        self,
        uses: tuple[Use, ...] = EVERYTHING,
        external_call: Callable[[Any, str], object] = lambda row, key: None,
        splits: dict[int, list[Any]] | None = None,
        poll_rng: Random | None = None,
        draws_at_timers: bool = True,
        hidden: dict[int, list[Any]] | None = None,
    ) -> None:
        self.uses, self.external_call = uses, external_call
        self.splits = dict(splits or {})
        self.hidden = dict(hidden or {})  # splits that are found while it runs
        self.poll_rng = poll_rng or Random(0)
        self.draws_at_timers = draws_at_timers
        self.state: dict[Any, Any] = {}
        self.changed: dict[Any, None] = {}
        self.timers: list[tuple[int, int, Any]] = []
        self.served: int = 0
        self.offsets: dict[int, int] = dict.fromkeys(sorted(self.splits), 0)
        self.is_closed = False
        self.suspected: tuple[Suspect, ...] = ()
        self.batches: list[int] = []  # the length of each batch as it came
        self.asked: dict[int, Any] = {}
        self.parts: dict[int, dict[bytes, bytes]] = {}  # of the open calls that have some
        self.watermark_ns: int | None = None
        self._stream: tuple[int, Random] | None = None

    # ------------------------------------------------------------------ services

    @property
    def recorder(self) -> Any:
        recorder = current()
        assert recorder is self.context.recorder
        return recorder

    def stream(self) -> Random:
        """The random numbers of the current epoch."""
        epoch = self.recorder.epoch
        if self._stream is None or self._stream[0] != epoch:
            self._stream = epoch, Random(self.recorder.seed())
        return self._stream[1]

    def set_timer(self, due_ns: int, row: Any) -> None:
        self.timers.append((due_ns, len(self.timers) + self.served * 10, row))

    # ------------------------------------------------------------------ Chain

    def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
        self.context = context
        if mirror is not None:
            assert isinstance(mirror, RecordingMirror)
            self.state = mirror.state
        if position is not None:
            restored: Any = decode_value(position)
            self.served, self.timers, offsets, self.asked, self.parts, self.watermark_ns = restored
            for split in offsets.keys() - self.offsets.keys():
                self.add_splits(encode_value(split))
            self.offsets = offsets
            for number, row in self.asked.items():
                self.submit(number, row)

    def process_rows(self, port: int, rows: list[Any], times: Sequence[int] | None = None) -> None:
        self.batches.append(len(rows))
        self._emit([self._reported(port, row) for row in rows])

    def process_columns(self, port: int, batch: Any) -> None:
        self.batches.append(batch.num_rows)
        assert batch.num_rows
        assert all(len(column.buffers()) for column in batch.columns)
        self._emit([self._reported(port, row["n"]) for row in batch.to_pylist()])

    def _reported(self, port: int, row: Any) -> Any:
        use = self.uses[self.served % len(self.uses)]
        self.served += 1
        seen = self.state.get(port, 0) + 1
        self.state[port] = seen
        self.changed[port] = None
        return row, port, self.served, seen, use(self, row)

    def _emit(self, rows: list[Any]) -> None:
        self.context.collector.rows(0, rows, [row[2] for row in rows])

    def submit(self, number: int, row: Any) -> None:
        recorder: Any = self.context.recorder
        recorder.limit_calls(3)

        def perform(key: str, inside: Any = None) -> object:
            if inside is None:
                return self.external_call(row, key)
            with inside.attempt(0, lambda: None):
                return [self._inside(row, part) for part in (b"first", b"second")]

        recorder.submit(number, "ask aside", encode_value(row), perform, self.parts.get(number))

    def _inside(self, row: Any, part: bytes) -> object:
        inside: Any = current()
        try:
            return inside.call("ask inside", part, partial(self.external_call, row)), inside.instant_ns(False)
        except Refused as error:
            return str(error)

    def take_part(self, number: int, name: bytes, data: bytes) -> None:
        self.parts[number][name] = data

    def complete(self, number: int, outcome: bytes) -> None:
        row = self.asked.pop(number)
        self.parts.pop(number, None)
        try:
            answer = decode_outcome(outcome)
        except Refused as error:
            answer = str(error)
        self._emit([("answered", row, number, answer, clock(self, row), self.stream().random())])

    def fire_timers(self, instant_ns: int) -> None:
        due = sorted(timer for timer in self.timers if timer[0] <= instant_ns)
        self.timers = [timer for timer in self.timers if timer[0] > instant_ns]
        for due_ns, order, row in due:
            drawn = (rng(self, row), ask(self, ("fired", order))) if self.draws_at_timers else ()
            self._emit([("fired", row, due_ns, order, instant_ns, drawn)])

    def advance_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            assert self.watermark_ns is None or watermark > self.watermark_ns, (watermark, self.watermark_ns)
            self.watermark_ns = watermark
        self._emit([("watermark", str(watermark), self.served)])
        self.context.collector.watermark(0, watermark)

    def next_timer_ns(self) -> int | None:
        return min((timer[0] for timer in self.timers), default=None)

    def drain(self) -> None:
        self._emit([("drained", 0, self.served, clock(self, None))])
        if ask_aside in self.uses and "drained" not in self.state:  # what waited makes a call
            self.state["drained"] = self.asked[DRAINED_CALL] = 0
            self.changed["drained"] = None
            self.submit(DRAINED_CALL, 0)

    def end_of_input(self) -> None:
        self._emit([("end", 0, self.served, clock(self, None), self.stream().random())])

    def snapshot(self, checkpoint: int, full: bool) -> ChainSnapshot:
        keys = self.state if full else self.changed
        changes = encode_value({key: self.state[key] for key in keys})
        self.changed = {}
        return ChainSnapshot(
            changes, encode_value((self.served, self.timers, self.offsets, self.asked, self.parts, self.watermark_ns))
        )

    def whole_state(self) -> Pieces | None:
        return ReadyPieces((encode_value(self.state),))

    def suspects(self, step: str) -> tuple[Suspect, ...]:
        return self.suspected

    def close(self) -> None:
        self.is_closed = True

    # ------------------------------------------------------------------ source

    def discover_splits(self, now_ns: int) -> bytes:
        if not self.hidden or self.poll_rng.random() < 0.7:
            return b""
        return encode_value(self.poll_rng.choice(sorted(self.hidden)))

    def add_splits(self, splits: bytes) -> None:
        found: Any = decode_value(splits)
        self.splits[found] = self.hidden.pop(found)
        self.offsets[found] = 0

    def poll(self, records_max: int) -> tuple[int, int] | NothingToRead:
        left = [split for split, records in self.splits.items() if self.offsets[split] < len(records)]
        if not left:
            return NothingToRead.NOW if self.hidden else NothingToRead.ALL_READ
        if self.poll_rng.random() < 0.2:
            return NothingToRead.NOW
        split = self.poll_rng.choice(left)
        count = min(records_max, len(self.splits[split]) - self.offsets[split])
        return split, self.poll_rng.randint(1, count)

    def read(self, split: int, count: int) -> None:
        offset = self.offsets[split]
        self.offsets[split] += count
        records = self.splits[split][offset : offset + count]
        assert len(records) == count
        self.process_rows(split, records)
