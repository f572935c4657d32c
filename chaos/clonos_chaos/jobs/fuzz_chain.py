"""Operator chain whose rows carry their lineage: what each vertex drew for them, so that any contradiction shows.

A row is ``(offset, lineage, stamp)``. Every vertex appends ``(vertex, task, state, instant, random, answer)`` to the
lineage. The stamp is ``(vertex, task, serial)`` of the last sender, so that the next vertex detects a gap, a repeat or
a change of order in its input. It uses the core alone, so that the core's worlds do not depend on the operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from clonos.core.log.call_outcomes import CallInDoubt
from clonos.core.model.suspect import Suspect
from clonos.core.model.watermark import Watermark
from clonos.core.ports.operator_chain import (
    ChainContext,
    ChainSnapshot,
    FailedAt,
    Mirror,
    NothingToRead,
    Pieces,
    ReadyPieces,
    StepFailed,
)
from clonos.core.values import decode_value, encode_rows, encode_value
from clonos_chaos.sim.external_systems import ServiceDown, SimService
from clonos_services import random as causal_random
from clonos_services.calls import Perform, reconciled

KEYS = 7


@dataclass(frozen=True)
class Work:
    """Work of a vertex of a fuzz job on each row."""

    calls: bool = False  # calls the service
    effects: bool = False  # with an effect: INTENT
    doubt: str = "again"  # in doubt, a call is repeated under its key; "reconcile": looked up first; "raise": fails
    draws: bool = False  # random numbers
    reads_clock: bool = False
    flush_count: int = 0  # rows wait until this number of them is there; they have lost their keys
    windows_ns: int = 0  # holds rows back until a processing-time window ends
    ports: tuple[int, ...] = ()  # outputs, each gets every row
    is_sink: bool = False  # transactional: collects rows for the checkpoint
    poison: int | None = None  # raises at this offset, in every incarnation
    fails_once: int | None = None  # raises at this offset, in the first one
    is_pushed: bool = False  # a source that cannot be re-read
    is_hot: bool = False  # has hot standbys
    fails_in_shadow: int | None = None  # raises at this offset in its shadow only
    diverges: bool = False  # the question of a call is another one in each incarnation
    varies: bool = False  # rows have the incarnation in their lineage
    padding: tuple[int, int] | None = None  # (offset, bytes): makes this row a huge element


class Disorder(AssertionError):
    """A gap, a repeat or another order in the input of an operator."""


class Poisoned(Exception):
    """Error of user code at a poison record."""


class FuzzMirror:
    """Mirror of the state of a fuzz chain: key -> value."""

    def __init__(self) -> None:
        self.state: dict[Any, Any] = {}

    def apply(self, changes: bytes | memoryview) -> None:
        changed, deleted = cast("tuple[dict[Any, Any], list[Any]]", decode_value(changes))
        self.state.update(changed)
        for key in deleted:
            self.state.pop(key, None)


class SharedByChains:
    """State that the chains of a job share. ``failed_once``: offsets at which a chain has failed already."""

    service: SimService
    works: list[Work]
    inputs: list[list[int]]
    failed_once: list[int]
    chains_open: int
    is_keyed = False  # every edge is by the key of the state


class FuzzChain:
    """Implementation of ``clonos.core.ports.operator_chain.Chain``."""

    def __init__(self, job: SharedByChains, vertex: int) -> None:
        self.job, self.work = job, job.works[vertex]
        self.state: dict[Any, Any] = {}
        self.changed: dict[Any, None] = {}
        self.position: Any = 0  # of a source
        self.serial = 0  # of rows sent
        self.received: dict[Any, int] = {}  # (port, vertex, task) -> serial of the last row received
        self.collected: list[Any] = []

    def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
        self.context = context
        self.job.chains_open += 1
        if mirror is not None:
            assert isinstance(mirror, FuzzMirror)
            self.state = mirror.state
        if position is not None:
            self.position, self.serial, self.received = decode_value(position)  # type: ignore[misc]

    def process_rows(self, port: int, rows: list[Any], times: Sequence[int] | None = None) -> None:
        for _, _, stamp in rows:
            self._check_order(port, *stamp[:3])
        self._process(rows)

    def process_columns(self, port: int, batch: Any) -> None:
        raise AssertionError("fuzz jobs have rows only")

    def _check_order(self, port: int, vertex: int, task: int, serial: int) -> None:
        """Checks that rows of one task arrive in order, once, and without gaps where this is the only receiver."""
        sender = (port, vertex, task)
        last = self.received.get(sender, 0)
        is_next = serial == last + 1 if self.context.parallelism == 1 else serial > last
        if not is_next:
            raise Disorder(f"{self.context.task_name} got row {serial} of {sender} after row {last}")
        self.received[sender] = serial

    def _process(self, rows: list[Any]) -> None:
        processed = []
        for index, row in enumerate(rows):
            fails_now = row[0] == self.work.fails_once and row[0] not in self.job.failed_once
            fails_here = row[0] == self.work.fails_in_shadow and self.context.is_shadow
            if row[0] == self.work.poison or fails_now or fails_here:
                self.job.failed_once.append(row[0])
                at = FailedAt("fuzz", index, repr(row[0]))
                raise StepFailed(at) from Poisoned(f"offset {row[0]}")
            processed.append(self._with_lineage(row[0], row[1]))
        self._hold_or_send(processed)

    def _with_lineage(self, offset: int, lineage: Any) -> tuple[int, Any]:
        work, recorder = self.work, self.context.recorder
        key = offset % KEYS
        seen = self.state.get(key, 0) + 1
        self._set(key, seen)
        instant = recorder.instant_ns(False) if work.reads_clock else 0
        rng = causal_random.getrandbits(32) if work.draws else 0
        answer = self._ask(offset, lineage) if work.calls else 0
        vertex = self.context.incarnation if work.varies else self.context.vertex
        return offset, (*lineage, (vertex, self.context.index, seen, instant, rng, answer))

    def _ask(self, offset: int, lineage: Any) -> int:
        context, is_effect = self.context, self.work.effects
        service = self.job.service
        place = context.incarnation if self.work.diverges else context.vertex
        question = (place, offset, tuple(entry[0] for entry in lineage))

        def ask(key: str) -> int:
            return service.ask(question, key, context, is_effect)

        in_doubt = self._in_doubt(question) if is_effect else None
        try:
            answer = context.recorder.call("ask", encode_value(question), ask, effect=is_effect, in_doubt=in_doubt)
        except ServiceDown as down:
            return -down.answer
        except CallInDoubt:
            return 0
        assert isinstance(answer, int), answer
        return answer

    def _in_doubt(self, question: Any) -> Perform | None:
        service, is_reconciled = self.job.service, self.work.doubt == "reconcile"

        def ask_again(key: str) -> int:
            return service.ask(question, key, self.context, True, True, is_reconciled)

        return {"again": ask_again, "reconcile": reconciled(service.reconcile, ask_again), "raise": None}[
            self.work.doubt
        ]

    def _set(self, key: Any, value: Any) -> None:
        self.state[key] = value
        self.changed[key] = None

    def _hold_or_send(self, rows: list[tuple[int, Any]]) -> None:
        width = self.work.windows_ns
        if not width:
            self._send(rows)
            return
        end = (self.context.recorder.instant_ns(False) // width + 1) * width
        self._set(("window", end), [*self.state.get(("window", end), []), *rows])

    def _send(self, rows: list[Any]) -> None:
        stamped = []
        padding = self.work.padding
        for offset, lineage in rows:
            self.serial += 1
            stamp: Any = (self.context.vertex, self.context.index, self.serial)
            if padding is not None and offset == padding[0]:
                stamp = (*stamp, b"x" * padding[1])
            stamped.append((offset, lineage, stamp))
        if self.work.is_sink:
            self.collected += stamped
        for port in self.work.ports:
            keys = [row[0] % KEYS for row in stamped] if self.job.is_keyed else [row[0] for row in stamped]
            self.context.collector.rows(port, stamped, keys)

    def _windows(self) -> list[int]:
        return sorted(key[1] for key in self.state if isinstance(key, tuple))

    def fire_timers(self, instant_ns: int) -> None:
        for end in self._windows():
            if end <= instant_ns:
                rows = self.state.pop(("window", end))
                self.changed["window", end] = None
                self._send(rows)

    def advance_watermark(self, watermark: Watermark) -> None:
        raise AssertionError("these jobs have no event time")

    def next_timer_ns(self) -> int | None:
        return min(self._windows(), default=None) if self.work.windows_ns else None

    def drain(self) -> None:
        """Emits what waits without its key; here nothing does."""

    def end_of_input(self) -> None:
        self.fire_timers(1 << 62)

    def snapshot(self, checkpoint: int, full: bool) -> ChainSnapshot:
        keys = self.state if full else self.changed
        changed = {key: self.state[key] for key in keys if key in self.state}
        deleted = [key for key in keys if key not in self.state]
        self.changed = {}
        if self.collected:
            self.context.collector.prepared(encode_rows(self.collected))
            self.collected = []
        return ChainSnapshot(
            encode_value((changed, deleted)), encode_value((self.position, self.serial, self.received))
        )

    def whole_state(self) -> Pieces | None:
        return ReadyPieces((encode_value((self.state, [])),))

    def suspects(self, step: str) -> tuple[Suspect, ...]:
        return ()

    def close(self) -> None:
        self.job.chains_open -= 1

    # ------------------------------------------------------------------ sources

    def _records(self) -> list[int]:
        return self.job.inputs[self.context.index]

    def poll(self, records_max: int) -> tuple[int, int] | NothingToRead:
        left = len(self._records()) - self.position
        return (0, min(left, records_max)) if left else NothingToRead.ALL_READ

    def read(self, split: int, count: int) -> None:
        offsets = self._records()[self.position : self.position + count]
        self.position += count
        self._process([(offset, ()) for offset in offsets])
