"""A chain whose rows tell their own story: what each vertex drew for them, so that any contradiction shows.

A row is ``(offset, story)``; every vertex appends ``(vertex, task, state, instant, luck, answer)`` to the story. Written on
the core alone, without the operators, so that the core's worlds do not depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clonos.core.chain import ChainContext, ChainSnapshot, Mirror
from clonos.core.values import decode_value, encode_rows, encode_value
from clonos_chaos.outsides import SimService
from clonos_services import random as causal_random

KEYS = 7


@dataclass(frozen=True)
class Work:
    """What a vertex of a fuzz job does with each row."""

    calls: bool = False  # asks the service
    effects: bool = False  # with an effect: INTENT
    draws: bool = False  # random numbers
    reads_clock: bool = False
    windows_ns: int = 0  # holds rows back until a processing-time window ends
    ports: tuple[int, ...] = ()  # outputs, each gets every row
    is_sink: bool = False  # transactional: collects rows for the checkpoint


class FuzzMirror:
    """State of a fuzz chain: key -> value."""

    def __init__(self) -> None:
        self.state: dict[Any, Any] = {}

    def apply(self, changes: bytes) -> None:
        changed, deleted = decode_value(changes)  # type: ignore[misc]
        self.state.update(changed)
        for key in deleted:
            self.state.pop(key, None)


class FuzzChain:
    """Implements ``clonos.core.chain.Chain``."""

    def __init__(self, work: Work, service: SimService, inputs: list[list[Any]] | None) -> None:
        self.work, self.service = work, service
        self.records = inputs  # per source task
        self.state: dict[Any, Any] = {}
        self.changed: dict[Any, None] = {}
        self.position = 0
        self.collected: list[Any] = []

    def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
        self.context = context
        if mirror is not None:
            assert isinstance(mirror, FuzzMirror)
            self.state = mirror.state
        if position is not None:
            self.position = decode_value(position)  # type: ignore[assignment]

    def process_rows(self, port: int, rows: list[Any]) -> None:
        self._emit([self._told(row) for row in rows])

    def process_columns(self, port: int, batch: Any) -> None:
        raise AssertionError("fuzz jobs have rows only")

    def _told(self, row: Any) -> Any:
        offset, story = row
        work, recorder = self.work, self.context.recorder
        key = offset % KEYS
        seen = self.state.get(key, 0) + 1
        self._set(key, seen)
        instant = recorder.instant_ns(False) if work.reads_clock else 0
        luck = causal_random.getrandbits(32) if work.draws else 0
        answer = 0
        if work.calls:
            question = (self.context.vertex, offset)
            answer = recorder.call(
                "ask",
                encode_value(question),
                lambda key: self.service.ask(question, key),
                effect=work.effects,
                in_doubt=(lambda key: self.service.ask(question, key)) if work.effects else None,
            )
        return (offset, (*story, (self.context.vertex, self.context.index, seen, instant, luck, answer)))

    def _set(self, key: Any, value: Any) -> None:
        self.state[key] = value
        self.changed[key] = None

    def _emit(self, rows: list[Any]) -> None:
        width = self.work.windows_ns
        if not width:
            self._send(rows)
            return
        end = (self.context.recorder.instant_ns(False) // width + 1) * width
        self._set(("window", end), [*self.state.get(("window", end), []), *rows])

    def _send(self, rows: list[Any]) -> None:
        if self.work.is_sink:
            self.collected += rows
        for port in self.work.ports:
            self.context.collector.rows(port, rows, [offset for offset, _ in rows])

    def _windows(self) -> list[int]:
        return sorted(key[1] for key in self.state if isinstance(key, tuple))

    def fire_timers(self, instant_ns: int) -> None:
        for end in self._windows():
            if end <= instant_ns:
                rows = self.state.pop(("window", end))
                self.changed["window", end] = None
                self._send(rows)

    def next_timer_ns(self) -> int | None:
        return min(self._windows(), default=None) if self.work.windows_ns else None

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
        return ChainSnapshot(encode_value((changed, deleted)), encode_value(self.position))

    def close(self) -> None:
        pass

    def poll(self, records_max: int) -> tuple[int, int] | None:
        assert self.records is not None
        left = len(self.records[self.context.index]) - self.position
        return (0, min(left, records_max)) if left else (-1, 0)

    def read(self, split: int, count: int) -> None:
        assert self.records is not None
        rows = self.records[self.context.index][self.position : self.position + count]
        self.position += count
        self.process_rows(0, rows)
