"""Conformance C 13 and C 14 for every service at once, on the real causal log of a task, cut at every entry."""

from __future__ import annotations

import os
import random as stdlib
import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn

import pytest

from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.log.call_outcomes import CallInDoubt
from clonos.core.log.determinants import INTENT, LogReader
from clonos.core.ports.recorder import ClockReadTooOften, EffectUndeclared, running
from clonos.core.ports.task_port import Command, TaskEmission, TaskPort
from clonos.core.task.record_or_replay import LogRules, Recovered, TaskLog
from clonos.io.interception.answers import answered_with
from clonos.io.interception.patches import install
from clonos_services import clock, http, random
from clonos_services.identity import uuid4
from clonos_services.interception import ANSWERS
from clonos_services.service import service
from tests.harnesses.fake_recorder import FIRST_INSTANT_NS

install()

EPOCHS = 3
DAY_NS = 86_400 * 10**9

unrecorded = stdlib.Random(0)
calls: list[str] = []


@service
def ask(word: str) -> float:
    """Answers at random, now and then with an exception."""
    calls.append(word)
    answer = unrecorded.random()
    if answer < 0.4:
        raise KeyError(word, answer)
    return answer


@service(effect=True)
def pay(amount: int, idempotency_key: str = "") -> tuple[str, float]:
    calls.append(idempotency_key)
    return idempotency_key, unrecorded.random()


class Port(TaskPort):
    """The world of one incarnation: its clock, its random numbers, and the log that it sent."""

    def open_journal(self) -> None:
        raise AssertionError("no source here")

    def lose_journal(self) -> NoReturn:
        raise AssertionError("no source here")

    def __init__(self, life: int) -> None:
        self.log = b""
        self._now_ns = FIRST_INSTANT_NS - life * DAY_NS  # each life's clock is behind that of the life before
        self._rng = stdlib.Random(life)

    def receive(self, until_ns: int | None) -> Command | None:
        raise AssertionError("a service waits for no command")

    def emit(self, emission: TaskEmission) -> None:
        self.log += emission.log

    def budget_bytes(self) -> int:
        return UNLIMITED

    def needs(self, channel: int, next_seq: int) -> None: ...

    def go_live(self, positions: dict[Any, int], accepted: str = "") -> None: ...

    def await_replicated(self, log_end_bytes: int) -> None: ...

    def begin_call(self, number: int, function: Callable[[str], bytes], key: str) -> None:
        raise AssertionError(number)

    def report_part(self, number: int, asked: int, data: bytes, *, waits: bool) -> bool:
        raise AssertionError(number)

    def end_calls(self) -> None: ...

    def when_replicated(self, log_end_bytes: int, act: Callable[[], None]) -> None:
        raise AssertionError(log_end_bytes)

    def announce_step(self, channel: int | None, first_seq: int) -> None: ...

    def now_ns(self) -> int:
        self._now_ns += self._rng.randrange(1, 10**9)
        return self._now_ns

    def cost_clock_ns(self) -> int:
        return 0

    def entropy(self, count: int) -> bytes:
        return self._rng.randbytes(count)

    def perform(self, function: Callable[[str], object], key: str) -> object:
        return function(key)


def caught(call: Callable[[], object]) -> object:
    try:
        return call()
    except (KeyError, CallInDoubt, http.HttpConnectionFailed) as error:
        return type(error), error.args


USES: tuple[Callable[[], object], ...] = (
    clock.now,
    lambda: clock.time_ns(exact=True),
    clock.monotonic_ns,
    random.random,
    random.stream("other").gauss,
    random.numpy().normal,
    uuid4,
    lambda: caught(lambda: ask("tea")),
    lambda: caught(lambda: ask("tea")),
    lambda: caught(lambda: http.get("http://127.0.0.1:9/", retries=0)),
    lambda: caught(lambda: pay(5)),
    clock.time_ns,
)
PLACES_OF_INSTANTS = (1, 2, 11)
PLACE_OF_PAYMENT = 10


@dataclass
class Story:
    """Values that user code saw in one incarnation, the end of the log after each, and the final log."""

    seen: list[Any] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    log: bytes = b""


def live_through(log: bytes, life: int, *, clock_tick_ms: int = 0, has_effects: bool = True) -> Story:
    """Runs some epochs of an incarnation that begins with this log."""
    port = Port(life)
    task_log = TaskLog(LogRules("map/0", "job/0/map", has_effects, clock_tick_ms), port, Recovered(log))
    story = Story()
    with running(task_log):
        for epoch in range(EPOCHS):
            if clock_tick_ms and (entry := task_log.peek()) is not None:
                task_log.take()
                task_log.follow_tick(entry[1])
            elif clock_tick_ms and not task_log.live:
                task_log.go_live()
            task_log.begin_step()
            for use in USES:
                story.seen.append(use())
                story.ends.append(task_log.end_bytes)
            task_log.begin_epoch(epoch + 1)
    story.log = log + port.log + task_log.drain()
    return story


@cache
def first_life(clock_tick_ms: int = 0) -> Story:
    return live_through(b"", life=0, clock_tick_ms=clock_tick_ms)


def ends_of_entries(log: bytes) -> list[int]:
    reader = LogReader(log)
    ends = [0]
    while not reader.at_end:
        reader.next()
        ends.append(reader.offset_bytes)
    return ends


@pytest.mark.parametrize("clock_tick_ms", [0, 1])
def test_c13_c14_an_incarnation_with_the_whole_log_repeats_its_choices_without_a_call(clock_tick_ms: int) -> None:
    first = first_life(clock_tick_ms)
    calls.clear()
    again = live_through(first.log, life=1, clock_tick_ms=clock_tick_ms)
    assert (again.seen, again.log) == (first.seen, first.log)
    assert calls == []


@pytest.mark.parametrize("clock_tick_ms", [0, 1])
def test_c13_c14_from_every_end_of_the_log_an_incarnation_repeats_it_and_continues(clock_tick_ms: int) -> None:
    first = first_life(clock_tick_ms)
    for cut in ends_of_entries(first.log):
        again = live_through(first.log[:cut], life=1, clock_tick_ms=clock_tick_ms)
        is_logged = [end <= cut for end in first.ends]
        assert [seen for seen, logged in zip(again.seen, is_logged, strict=True) if logged] == [
            seen for seen, logged in zip(first.seen, is_logged, strict=True) if logged
        ]
        assert again.log.startswith(first.log[:cut])
        instants = [seen for place, seen in enumerate(again.seen) if place % len(USES) in PLACES_OF_INSTANTS]
        assert instants == sorted(instants)


def test_c14_a_read_keeps_its_key_in_every_incarnation() -> None:
    keys: list[list[str]] = []
    for life in range(2):
        task_log = TaskLog(LogRules("map/0", "job/0/map", has_effects=False), Port(life))
        seen: list[str] = []
        for word in ("tea", "tea", "jam"):
            task_log.call("ask", word.encode(), seen.append)
        keys.append(seen)
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 3


def test_c14_an_effect_interrupted_by_a_death_is_in_doubt_in_the_next_incarnation() -> None:
    log = first_life().log
    reader = LogReader(log)
    while reader.next()[0] != INTENT:
        pass
    calls.clear()
    payment = live_through(log[: reader.offset_bytes], life=1).seen[PLACE_OF_PAYMENT]
    assert payment[0] is CallInDoubt
    assert len(calls) == EPOCHS - 1 + 2 * (EPOCHS - 1)  # all but what the first epoch had logged or left in doubt


def test_an_effect_in_a_step_that_does_not_declare_it_is_refused() -> None:
    with pytest.raises(EffectUndeclared, match="effects=True"):
        live_through(b"", life=0, has_effects=False)


def readings_before_the_limit(log: bytes, life: int) -> tuple[list[int], bytes]:
    """Reads the clock as a loop over it does, once in a first step and without end in a second one."""
    port = Port(life)
    task_log = TaskLog(LogRules("map/0", "job/0/map", has_effects=False, readings_max=4), port, Recovered(log))
    read: list[int] = []
    with running(task_log):
        task_log.begin_step()
        read.append(clock.time_ns(exact=True))
        task_log.begin_step()
        with pytest.raises(ClockReadTooOften, match="map/0 has read the clock more than 4 times in one step"):
            read.extend(iter(lambda: clock.time_ns(exact=True), 0))
        with pytest.raises(ClockReadTooOften):  # code that has caught the error gets it again
            clock.time_ns(exact=True)
    return read, log + port.log + task_log.drain()


def test_a_loop_over_the_clock_ends_at_the_same_reading_in_every_incarnation() -> None:
    read, log = readings_before_the_limit(b"", 0)
    assert len(read) == 1 + 4
    for cut in ends_of_entries(log):
        again, whole = readings_before_the_limit(log[:cut], 1)
        assert (len(again), len(ends_of_entries(whole))) == (len(read), len(ends_of_entries(log)))
    assert readings_before_the_limit(log, 1) == (read, log)


def test_random_numbers_add_one_entry_to_the_log_however_many_are_drawn() -> None:
    port = Port(0)
    task_log = TaskLog(LogRules("map/0", "job/0/map", has_effects=False), port)
    with running(task_log), answered_with(ANSWERS):
        for _ in range(1_000):
            stdlib.random(), secrets.token_hex(), uuid.uuid4(), os.urandom(8), stdlib.Random().random()
    assert len(ends_of_entries(task_log.drain())) - 1 == 1
