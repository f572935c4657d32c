"""Conformance C 11 to C 18: a task is a function of its input and its causal log, for every cut of the log.

A life is recorded; others begin with its log cut at an entry, their input arrives in other pieces and another order,
their clock is behind and their random numbers differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from clonos.core.log import determinants as d
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import ReplayDiverged
from clonos.core.model.ids import CheckpointId, TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.model.watermark import ACTIVE, IDLE
from clonos.core.ports.task_port import Command, Triggered
from clonos.core.ports.task_snapshot import Snapshot
from tests.harnesses.recording_chain import (
    EVERYTHING,
    RecordingChain,
    Refused,
    Use,
    ask_aside,
    ask_in_parts,
    clock,
    nothing,
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
    columns,
    ends_of_entries,
    restored_at,
    rows,
    tags_of,
    watermark,
)

pytestmark = pytest.mark.slow

JOIN = Plan(
    "join",
    (
        Vertex("left", 2, is_source=True),
        Vertex("right", 1, is_source=True),
        Vertex("work", 1, has_effects=True),
        Vertex("hashed", 3),
        Vertex("spread", 2),
        Vertex("copied", 2),
    ),
    (
        Edge(0, 2, Partitioning.HASH, 0),
        Edge(1, 2, Partitioning.HASH, 0),
        Edge(2, 3, Partitioning.HASH, 0),
        Edge(2, 4, Partitioning.REBALANCE, 0),
        Edge(2, 5, Partitioning.BROADCAST, 0),
        Edge(2, None, Partitioning.EXTERNAL, 0),
    ),
)
WORK = TaskId(3)
READER = Plan(
    "reader",
    (Vertex("reader", 1, is_source=True), Vertex("spread", 3)),
    (Edge(0, 1, Partitioning.REBALANCE, 0),),
)


def fickle(rng: Random) -> Callable[[Any, str], object]:
    """An outside that answers at random and refuses now and then."""

    def answer(row: Any, key: str) -> object:
        if rng.random() < 0.3:
            raise Refused(str(rng.random()))
        return rng.random()

    return answer


def work(uses: tuple[Use, ...] = EVERYTHING, **options: int) -> Job:
    """Two inputs from one vertex and one from another: union, with barriers between."""
    inputs = {
        0: [*rows(1, 2, 3), *barrier(1), *rows(4, 5, 6, 7), *barrier(2), *rows(8, 9), *END],
        1: [*rows(10, 11), *columns(12, 13, 14), *barrier(1), *barrier(2), *rows(15, 16), *END],
        2: [*barrier(1), *columns(*range(20, 27)), *rows(27, 28), *barrier(2), *END],
    }
    return Job(
        JOIN,
        WORK,
        lambda rng: RecordingChain(uses, fickle(rng)),
        inputs,
        options=replace(Options(step_records_first=3), **options),  # type: ignore[arg-type]
    )


def reader(uses: tuple[Use, ...] = EVERYTHING, **options: int) -> Job:
    """A source with three splits."""
    splits = {0: list(range(9)), 1: list(range(10, 23)), 4: list(range(40, 45))}
    return Job(
        READER,
        TaskId(0),
        lambda rng: RecordingChain(uses, fickle(rng), splits, rng),
        triggers=(1, 2, 5),
        options=replace(Options(step_records_first=4), **options),  # type: ignore[arg-type]
    )


def watcher(**options: int) -> Job:
    """A source that finds two of its three splits while it runs."""
    splits = {0: list(range(9)), 1: list(range(10, 23)), 4: list(range(40, 45))}
    source, spread = READER.vertices
    plan = replace(READER, vertices=(replace(source, is_watching=True), spread))
    return Job(
        plan,
        TaskId(0),
        lambda rng: RecordingChain(
            EVERYTHING, fickle(rng), {0: splits[0]}, rng, hidden={split: splits[split] for split in (1, 4)}
        ),
        triggers=(1, 2, 5),
        options=replace(Options(step_records_first=4), **options),  # type: ignore[arg-type]
    )


def timed(**options: int) -> Job:
    """The same inputs with watermarks in all places: before records, between them, in a row, next to barriers."""
    inputs = {
        0: [
            *(*rows(1, 2, 3), *watermark(-7), *rows(4), *barrier(1), *watermark(5), *rows(5, 6, 7), *watermark(9)),
            *(*watermark(IDLE), *barrier(2), *watermark(ACTIVE), *rows(8, 9), *watermark(30), *END),
        ],
        1: [
            *(*watermark(1), *rows(10, 11), *columns(12, 13), *watermark(7), *columns(14), *barrier(1), *barrier(2)),
            *(*watermark(8), *watermark(20), *rows(15, 16), *watermark(IDLE), *END),
        ],
        2: [
            *(*watermark(-9), *barrier(1), *columns(*range(20, 24)), *watermark(3), *columns(24, 25), *watermark(6)),
            *(*rows(27, 28), *barrier(2), *watermark(31), *rows(29), *watermark(40), *END),
        ],
    }
    return replace(work(EVERYTHING, **options), inputs=inputs)


def skipping(**options: int) -> Job:
    """The same inputs, two of which skip a barrier that a later one stands for."""
    inputs = {
        0: [*rows(1, 2, 3), *barrier(2), *rows(4, 5, 6, 7), *barrier(4), *rows(8, 9), *END],
        1: [*rows(10), *barrier(1), *rows(11, 12), *barrier(2), *rows(13), *barrier(3), *rows(14), *barrier(4), *END],
        2: [*barrier(1), *columns(*range(20, 27)), *barrier(2), *rows(27, 28), *barrier(4), *rows(29), *END],
    }
    return replace(work(EVERYTHING, **options), inputs=inputs)


ASIDE: tuple[Use, ...] = (ask_aside, clock, ask_in_parts, rng, timer, ask_aside)

JOBS: dict[str, Callable[..., Job]] = {
    "work": work,
    "timed": timed,
    "work with skipped barriers": skipping,
    "reader": reader,
    "watcher": watcher,
    "work with calls aside": partial(work, ASIDE),
    "reader with calls aside": partial(reader, ASIDE),
}


@pytest.mark.parametrize("clock_tick_ms", [0, 2])
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("seed", range(3))
def test_c11_c13_an_incarnation_with_the_whole_log_repeats_it_for_every_order_of_arrival(
    job: str, seed: int, clock_tick_ms: int
) -> None:
    made = JOBS[job](clock_tick_ms=clock_tick_ms)
    first = ScriptedTask(made, seed).run()
    assert first.task.is_final
    for number in range(10, 12):
        check_repeats(first, ScriptedTask(made, number + seed, Start(first.log)).run())


@pytest.mark.parametrize("clock_tick_ms", [0, 2])
@pytest.mark.parametrize("job", JOBS)
def test_c11_to_c14_from_every_cut_of_the_log_the_next_incarnation_repeats_it_and_continues(
    job: str, clock_tick_ms: int
) -> None:
    made = JOBS[job](clock_tick_ms=clock_tick_ms)
    first = ScriptedTask(made, 1).run()
    for number, end in enumerate(ends_of_entries(first.log), 100):
        second = ScriptedTask(made, number, Start(first.log[:end])).run()
        check_continuation(first, second)
        if number % 3 == 0:
            check_repeats(second, ScriptedTask(made, number + 1000, Start(second.whole_log)).run())


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("seed", range(2))
def test_c16_from_every_barrier_and_cut_of_the_log_the_next_incarnation_continues(job: str, seed: int) -> None:
    made = JOBS[job]()
    first = ScriptedTask(made, seed).run()
    assert len(first.snapshots) >= 3
    for snapshot in first.snapshots[:-1]:
        ends = [end for end in ends_of_entries(first.log) if end >= snapshot.log_offset_bytes]
        for number, end in enumerate(ends[seed::2], 100):
            second = ScriptedTask(made, number, restored_at(first, snapshot.checkpoint, end)).run()
            check_continuation(first, second)
            assert second.task.is_final
    whole = ScriptedTask(made, 99, restored_at(first, first.snapshots[0].checkpoint)).run()
    check_repeats(first, whole)
    theirs = [_place_of(snapshot) for snapshot in first.snapshots[1:]]
    assert [_place_of(snapshot) for snapshot in whole.snapshots] == theirs


def _place_of(snapshot: Snapshot) -> tuple[Any, ...]:
    positions = snapshot.inputs, snapshot.outputs, snapshot.log_offset_bytes, snapshot.position
    return snapshot.checkpoint, *positions, snapshot.event_time


def test_c15_processing_time_windows_over_a_union_equal_the_output_that_survivors_saw() -> None:
    made = work((timer, nothing))
    first = ScriptedTask(made, 6).run()
    fired = [place for place, tag in enumerate(tags_of(first.log), 1) if tag == d.TIMER]
    assert len(fired) >= 3
    for place in fired:
        for end in ends_of_entries(first.log)[place - 1 : place + 2]:
            check_continuation(first, ScriptedTask(made, end, Start(first.log[:end])).run())


def test_c16_a_barrier_has_the_same_output_position_in_every_incarnation_with_its_log() -> None:
    made = reader()
    first = ScriptedTask(made, 5).run()
    for number, end in enumerate(ends_of_entries(first.log), 100):
        second = ScriptedTask(made, number, Start(first.log[:end])).run()
        logged = [s for s in first.snapshots if s.log_offset_bytes <= end]
        assert [(s.checkpoint, s.outputs) for s in second.snapshots[: len(logged)]] == [
            (s.checkpoint, s.outputs) for s in logged
        ]


@pytest.mark.parametrize("job", JOBS)
def test_an_incarnation_that_dies_at_any_point_has_sent_a_log_that_its_successor_continues(job: str) -> None:
    made = JOBS[job]()
    whole = ScriptedTask(made, 3).run()
    for emission in range(1, whole.emissions, 3):
        first = ScriptedTask(made, 3, dies_at_emission=emission).run()
        assert first.task.chain.is_closed  # type: ignore[attr-defined]
        assert whole.log.startswith(first.log)
        second = ScriptedTask(made, 50 + emission, Start(first.log)).run()
        check_continuation(whole, second)  # in mid-step the log may be ahead of the output
        third = ScriptedTask(made, 500 + emission, Start(second.whole_log)).run()
        check_repeats(second, third)


def test_g34_the_log_ends_with_the_step_that_completes_an_alignment_and_so_does_the_epoch() -> None:
    first = ScriptedTask(work(), 2).run()
    ends = ends_of_entries(first.log)
    for snapshot in first.snapshots[:-1]:
        entry = ends.index(snapshot.log_offset_bytes)
        assert tags_of(first.log)[entry - 1] == d.STEP


def test_the_end_of_a_source_is_the_last_choice_in_its_log() -> None:
    first = ScriptedTask(reader(), 2).run()
    tags = tags_of(first.log)
    assert tags.count(d.END) == 1
    assert set(tags[tags.index(d.END) + 1 :]) <= {d.CLOCK, d.SEED}


class PromptTriggers(ScriptedTask):
    """An incarnation that gets its triggers while calls are open: before their outcomes, and after the last record."""

    def receive(self, until_ns: int | None) -> Command | None:
        if d.END in tags_of(self.log):
            due = self._triggers
            return Triggered(CheckpointId(due.pop(0)), False) if due else super().receive(until_ns)
        self._now_ns = max(self._now_ns, until_ns or 0)
        return self._answers.pop() if until_ns and len(self._answers) > 2 else None


def test_a_source_that_has_read_everything_passes_barriers_while_calls_are_open() -> None:
    """Otherwise a source without output budget, which a checkpoint would give it, would hold up that checkpoint."""
    made = reader(ASIDE)
    first = PromptTriggers(made, 1).run()
    assert first.task.is_final
    assert [(snapshot.checkpoint, snapshot.final) for snapshot in first.snapshots] == [
        (1, False),
        (2, False),
        (5, False),
        (6, True),
    ]
    for snapshot in first.snapshots[:-1]:
        for number, end in enumerate(end for end in ends_of_entries(first.log) if end >= snapshot.log_offset_bytes):
            second = ScriptedTask(made, number + 100, restored_at(first, snapshot.checkpoint, end)).run()
            check_continuation(first, second)
        check_repeats(first, ScriptedTask(made, 99, restored_at(first, snapshot.checkpoint)).run())


def test_c17_broadcast_sends_all_to_all_rebalance_in_turn_and_the_external_channel_everything() -> None:
    first = ScriptedTask(work(), 2).run()
    by_edge: dict[int, list[list[tuple[ElementKind, int, str]]]] = {}
    for channel in JOIN.outputs[WORK]:
        by_edge.setdefault(channel.edge, []).append(
            [element for element in first.outputs[channel.id] if not element[1] and element[2]]
        )
    (everything,) = by_edge[5]
    assert by_edge[4] == [everything, everything]
    assert by_edge[3] == [everything[0::2], everything[1::2]]
    assert sorted(e for part in by_edge[2] for e in part) == sorted(everything)


def test_an_operator_gets_each_step_as_one_batch_of_the_same_size() -> None:
    made = work()
    first = ScriptedTask(made, 2).run()
    again = ScriptedTask(made, 9, Start(first.log)).run()
    assert again.task.chain.batches == first.task.chain.batches  # type: ignore[attr-defined]


def test_a_replay_without_its_input_waits_and_reports_its_need() -> None:
    made = work()
    first = ScriptedTask(made, 2).run()
    starved = replace(made, inputs={channel: [] for channel in made.inputs})
    needed: list[tuple[int, int]] = []

    class Noting(ScriptedTask):
        def needs(self, channel: int, next_seq: int) -> None:
            needed.append((channel, next_seq))

    life = Noting(starved, 8, Start(first.log)).run()
    assert life.live_at is None
    reader_ = d.LogReader(first.log)
    _, index, count, _ = reader_.next()
    assert needed == [(index, count)]


def test_replayed_steps_are_emitted_together_up_to_a_step_in_which_the_log_may_end() -> None:
    """A task that goes live within a step has emitted all earlier steps: positions are compared with them."""

    def clock_late(chain: RecordingChain, row: Any) -> object:
        return clock(chain, row) if row >= 7 else None

    made = replace(work((clock_late,)), inputs={0: [*rows(*range(1, 9)), *END], 1: [*END], 2: [*END]})
    behind = [ScriptedTask(made, seed, Start(d.step(0, 2) * 3)).run() for seed in range(20)]
    assert {max(life.live_at.values()) for life in behind if life.live_at} == {6}
    assert min(life.emissions_when_live for life in behind) < 3  # where enough had arrived

    for seed in range(20):
        midst = ScriptedTask(made, seed, Start(d.step(0, 2) * 4)).run()
        assert midst.live_at == behind[0].live_at


def test_a_log_with_other_choices_is_a_divergence() -> None:
    made = reader(uses=EVERYTHING[:1])
    with pytest.raises(ReplayDiverged, match="asked for the next step; its replay asks for a new step"):
        ScriptedTask(made, 1, Start(d.step(0, 1))).run()
    with pytest.raises(ReplayDiverged, match="asked for the next step; its replay asks for a step of 3 elements"):
        ScriptedTask(replace(work(), inputs={0: [*rows(1, 2, 3), *barrier(1)]}), 1, Start(d.step(0, 4))).run()
    with pytest.raises(
        ReplayDiverged, match=r"asked for a call of a service .* not used yet; its replay asks for the time"
    ):
        ScriptedTask(made, 1, Start(d.numbers(d.READ, 0, 1) + d.call(0, b""))).run()


def test_the_test_incarnations_write_every_determinant_except_effects() -> None:
    """INTENT, ROUTED, LAST_TRIGGER, DRAIN and HELD have tests of their own."""
    written = {tag for made in JOBS.values() for tag in tags_of(ScriptedTask(made(), 1).run().log)}
    assert written == set(d.NAMES) - {d.INTENT, d.ROUTED, d.LAST_TRIGGER, d.DRAIN, d.HELD}
