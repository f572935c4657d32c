"""Conformance C 12 to C 14 and G 47 in a task: timers, clock, random numbers, calls and effects, over incarnations."""

from __future__ import annotations

import ast
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from clonos.core.log import determinants as d
from clonos.core.model.errors import ReplayDiverged
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.ports.operator_chain import ChainContext, Mirror
from clonos.core.ports.recorder import ServiceWhileOpening
from tests.harnesses.recording_chain import (
    RecordingChain,
    Refused,
    Use,
    ask,
    clock,
    exact_clock,
    pay,
    pay_idempotent,
    rng,
    timer,
)
from tests.harnesses.task_harness import (
    END,
    Job,
    ScriptedTask,
    Start,
    barrier,
    check_continuation,
    check_repeats,
    ends_of_entries,
    restored_at,
    rows,
    tags_of,
)

LINE = Plan(
    "line",
    (Vertex("source", 1, is_source=True), Vertex("work", 1, has_effects=True), Vertex("next", 1)),
    (Edge(0, 1, Partitioning.FORWARD, 0), Edge(1, 2, Partitioning.FORWARD, 0)),
)
WORK = TaskId(1)
INPUT = [*rows(*range(6)), *barrier(1), *rows(*range(6, 12)), *barrier(2), *rows(12, 13), *END]


def line(
    *uses: Use,
    external_call: Callable[[Any, str], object] = lambda row, key: key,
    tick_ms: int = 0,
    draws_at_timers: bool = True,
) -> Job:
    """A task with one input and one output."""

    def new_chain(_: Random) -> RecordingChain:
        return RecordingChain(uses, external_call, draws_at_timers=draws_at_timers)

    return Job(LINE, WORK, new_chain, {0: INPUT}, options=Options(step_records_first=2, clock_tick_ms=tick_ms))


def reported(life: ScriptedTask) -> list[Any]:
    """The rows of the output, in order."""
    return [ast.literal_eval(content) for kind, _, content in life.outputs.get(1, []) if content]  # type: ignore[call-overload]


def drawn(life: ScriptedTask) -> dict[Any, Any]:
    """Values drawn for each row of the input."""
    return {row[0]: row[4] for row in reported(life) if isinstance(row[0], int)}


def cuts(job: Job, first: ScriptedTask, behind: int | None = None) -> list[ScriptedTask]:
    """A next life for each place at which the log can end, or for those after one kind of entry."""
    tags, ends = (0, *tags_of(first.log)), ends_of_entries(first.log)
    chosen = [end for tag, end in zip(tags, ends, strict=True) if behind in (None, tag)]
    lives = [ScriptedTask(job, number, Start(first.log[:end])).run() for number, end in enumerate(chosen, 50)]
    for life in lives:
        check_continuation(first, life)
        check_repeats(life, ScriptedTask(job, 999, Start(life.whole_log)).run())
    return lives


# ------------------------------------------------------------------ timers


def test_c12_timers_replay_at_the_start_the_end_and_several_at_one_position() -> None:
    seen: set[tuple[int, int]] = set()
    for number in range(4):
        job = line(timer, clock, draws_at_timers=number % 2 == 0)
        first = ScriptedTask(job, number).run()
        cuts(job, first, behind=d.TIMER)
        tags = tags_of(first.log)
        seen |= set(pairwise(tags))
        for snapshot in first.snapshots[:-1]:
            ends = ends_of_entries(first.log)
            place = ends.index(snapshot.log_offset_bytes)
            if tags[place : place + 1] == (d.TIMER,):
                seen.add((0, d.TIMER))  # at position 0
                for end in ends[place::5]:
                    life = ScriptedTask(job, end, restored_at(first, snapshot.checkpoint, end)).run()
                    check_continuation(first, life)
    assert seen >= {(0, d.TIMER), (d.TIMER, d.TIMER), (d.TIMER, d.SEED), (d.TIMER, d.CALL), (d.STEP, d.CLOCK)}


def test_c12_timers_of_one_instant_fire_in_the_order_in_which_they_were_set() -> None:
    life = ScriptedTask(line(timer), 3).run()
    fired = [(row[2], row[3]) for row in reported(life) if row[0] == "fired"]
    assert len(fired) > 10
    assert fired == sorted(fired)


def test_c12_no_timer_fires_by_the_real_clock_before_the_log_ends() -> None:
    job = line(timer)
    first = ScriptedTask(job, 3).run()
    again = ScriptedTask(job, -1000, Start(first.log)).run()  # its clock is far ahead: every timer would be due
    assert reported(again) == reported(first)


# ------------------------------------------------------------------ clock and random numbers


def test_c13_the_clock_never_runs_backwards_when_a_successors_clock_is_behind() -> None:
    for tick_ms in (0, 3):
        job = line(clock, exact_clock, tick_ms=tick_ms)
        for life in cuts(job, ScriptedTask(job, 2).run()):
            instants = [row[4] for row in reported(life) if isinstance(row[0], int)]
            assert instants == sorted(instants)
            assert instants[0] > 0


def test_c13_the_clock_continues_from_the_snapshots_timestamp() -> None:
    job = line(clock)
    first = ScriptedTask(job, 2).run()
    life = ScriptedTask(job, 60, restored_at(first, 2, first.snapshots[1].log_offset_bytes)).run()
    assert first.snapshots[1].instant_ns > 0
    assert min(drawn(life).values()) >= first.snapshots[1].instant_ns


def test_c13_a_step_has_one_timestamp_and_each_exact_read_its_own() -> None:
    first = ScriptedTask(line(clock), 2).run()
    steps = list(first.task.chain.batches)  # type: ignore[attr-defined]
    instants = [row[4] for row in reported(first) if isinstance(row[0], int)]
    for count in steps:
        assert len(set(instants[:count])) == 1
        del instants[:count]
    exact = ScriptedTask(line(exact_clock), 2).run()
    assert len(set(drawn(exact).values())) == len(drawn(exact))


def test_c13_random_numbers_repeat_in_each_incarnation_and_differ_per_epoch_and_task() -> None:
    job = line(rng)
    first = ScriptedTask(job, 2).run()
    assert tags_of(first.log).count(d.SEED) == 3
    for life in cuts(job, first):
        known = {row: value for row, value in drawn(first).items() if row in drawn(life)}
        seeds = tags_of(life.start.log).count(d.SEED)
        bound = (0, 6, 12, 14)[seeds]
        assert {row: drawn(life)[row] for row in range(bound)} == {row: known[row] for row in range(bound)}
    assert set(drawn(first).values()).isdisjoint(drawn(ScriptedTask(job, 3).run()).values())


# ------------------------------------------------------------------ calls


def test_c14_a_logged_call_is_not_repeated_even_when_it_raised() -> None:
    replies = Random(0)

    def external_call(row: Any, key: str) -> object:
        if replies.random() < 0.5:
            raise Refused(str(replies.random()))
        return replies.random()

    job = line(ask, external_call=external_call)
    first = ScriptedTask(job, 2).run()
    assert {type(value) for value in drawn(first).values()} == {tuple, float}
    for life in cuts(job, first):
        assert len(life.performed) == tags_of(life.log).count(d.CALL)
        logged = tags_of(life.start.log).count(d.CALL)
        assert len(life.performed) == 14 - logged
        assert life.task.log.replayed_calls == logged
        assert list(drawn(life).items())[:logged] == list(drawn(first).items())[:logged]


def test_c14_a_repeated_call_has_the_same_key() -> None:
    keys: dict[Any, set[str]] = {}

    def external_call(row: Any, key: str) -> object:
        keys.setdefault(row, set()).add(key)
        return None

    job = line(ask, external_call=external_call)
    cuts(job, ScriptedTask(job, 2).run())
    assert [len(found) for found in keys.values()] == [1] * 14
    assert len(set.union(*keys.values())) == 14


def test_c14_equal_requests_have_different_keys() -> None:
    job = line(lambda chain, row: ask(chain, "same"))
    first = ScriptedTask(job, 2).run()
    assert len(set(first.performed)) == 14
    assert ScriptedTask(job, 3).run().performed == first.performed


def call(chain: RecordingChain, row: Any) -> object:
    return chain.recorder.call("ask", b"", lambda key: None)


@pytest.mark.parametrize("use", [clock, exact_clock, rng, call])
@pytest.mark.parametrize("tick_ms", [0, 3])
def test_services_are_refused_while_an_incarnation_opens_because_no_replay_could_repeat_them(
    use: Use, tick_ms: int
) -> None:
    class Opening(RecordingChain):
        def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
            super().open(context, mirror, position)
            use(self, 0)

    with pytest.raises(ServiceWhileOpening, match="keep the result as state"):
        ScriptedTask(Job(LINE, WORK, lambda _: Opening(), options=Options(clock_tick_ms=tick_ms)), 1).run()


# ------------------------------------------------------------------ effects


def effects_in_order(life: ScriptedTask) -> None:
    """Before each call with an effect the keeper has the log up to its INTENT."""
    intents = [
        end
        for tag, end in zip(tags_of(life.whole_log), ends_of_entries(life.whole_log)[1:], strict=True)
        if tag == d.INTENT
    ]
    made = [event for event in life.events if event.startswith("call")]
    assert len(made) <= len(intents)
    end_bytes = -1
    waiting = intents[len(intents) - len(made) :]
    for event in life.events:
        word, argument = event.split()
        if word == "kept":
            end_bytes = int(argument)
        elif word == "call":
            assert end_bytes >= waiting.pop(0), life.events


def test_g47_an_effect_waits_until_the_keeper_has_its_intent() -> None:
    job = line(pay)
    first = ScriptedTask(job, 2).run()
    assert len(first.performed) == 14
    effects_in_order(first)


def test_g47_an_effect_in_doubt_is_repeated_only_if_idempotent() -> None:
    for use, times in ((pay, 1), (pay_idempotent, 2)):
        made: list[tuple[Any, str]] = []

        def external_call(row: Any, key: str, made: list[tuple[Any, str]] = made) -> object:
            made.append((row, key))
            return "paid"

        job = line(use, external_call=external_call)
        first = ScriptedTask(job, 2).run()
        tags, ends = tags_of(first.log), ends_of_entries(first.log)
        for place, end in enumerate(ends[1:]):
            if tags[place] != d.INTENT:
                continue
            made.clear()
            row = tags[:place].count(d.INTENT)
            life = ScriptedTask(job, 50 + row, Start(first.log[:end])).run()
            check_continuation(first, life)
            check_repeats(life, ScriptedTask(job, 999, Start(life.whole_log)).run())
            assert [payment for payment in made if payment[0] == row] == [
                (row, first.performed[row])  # the key is the same, for the log up to it was kept
            ] * (times - 1)
            assert drawn(life)[row] == ("paid" if times == 2 else ("CallInDoubt", "ask"))


def test_g47_a_repeated_effect_waits_for_the_keepers_of_its_incarnation() -> None:
    """A cause may have come from a downstream holder that dies next: the keepers need not have it."""
    job = line(pay_idempotent)
    first = ScriptedTask(job, 2).run()
    for number, end in enumerate(ends_of_entries(first.log), 50):
        effects_in_order(ScriptedTask(job, number, Start(first.log[:end])).run())


def test_g47_a_different_request_at_the_same_log_position_has_another_key() -> None:
    """If a log is lost with all its keepers, the external system must not take the next call for a known one."""
    first = ScriptedTask(line(pay), 2).run()
    other = ScriptedTask(line(lambda chain, row: pay(chain, row + 14)), 2).run()
    assert tags_of(other.log) == tags_of(first.log)
    assert set(other.performed).isdisjoint(first.performed)


def test_g47_an_effect_in_doubt_is_a_divergence_when_user_code_now_makes_another_call() -> None:
    """User code built the request from values outside the services, which is forbidden; it must still not pay twice."""
    first = ScriptedTask(line(pay), 2).run()
    place = tags_of(first.log).index(d.INTENT)
    start = Start(first.log[: ends_of_entries(first.log)[place + 1]])
    second = ScriptedTask(line(lambda chain, row: pay_idempotent(chain, row + 14)), 50, start)
    with pytest.raises(ReplayDiverged, match="asks for a call of ask, with an effect, with other arguments"):
        second.run()
    assert not second.performed


def test_g47_from_every_cut_of_the_log_the_next_incarnation_repeats_only_unlogged_effects() -> None:
    job = line(pay)
    first = ScriptedTask(job, 2).run()
    for life in cuts(job, first):
        logged = tags_of(life.start.log).count(d.INTENT)
        assert len(life.performed) == 14 - logged
