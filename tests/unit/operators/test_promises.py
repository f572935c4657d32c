"""The promises about limits, triggers, folds and ends, case by case: each test has the name of one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.emission import at_end, each, every
from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.core.coordinator.coordinator_events import OutputCommitted
from clonos.core.model.ids import CheckpointId
from clonos.core.model.options import Options
from clonos.operators.emission_times import Emission
from clonos.operators.source_position import decode_position
from tests.harnesses.coordinator_harness import formed
from tests.unit.operators.driver import START_NS, Given, Outbox, Run, run
from tests.unit.operators.samples import Endless, Files
from tests.unit.operators.test_calls import Calls, completed
from tests.unit.operators.test_limits_and_triggers import SECOND_NS, add, first, output, records_of


@settings(max_examples=30, deadline=None)
@given(records_of)
def test_each_1_fires_on_every_element(records: list[tuple[int, int]]) -> None:
    graph = JobGraph("job")
    graph.source(Given(records), parallelism=1).fold(0, add, emit=each(1)).sink(Outbox())
    assert output(graph) == [sum(number for _, number in records[:end]) for end in range(1, len(records) + 1)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 7)), max_size=25))
def test_folds_with_a_timed_trigger_emit_at_the_right_intervals(steps: list[tuple[int, int]]) -> None:
    """Every multiple of 5 s at which something has changed, in the order of the first change."""
    graph = JobGraph("job")
    source = graph.source(Given([(key, 1) for key, _ in steps]), parallelism=1)
    source.key_by(first).fold(0, add, emit=every("5s")).sink(Outbox())
    going = Run(graph.compile(Options(), parallelism=1))
    twin: list[Any] = []
    totals: dict[int, int] = {}
    changed: dict[int, None] = {}
    second = START_NS // SECOND_NS

    def emit() -> None:
        twin.extend((key, totals[key]) for key in changed)
        changed.clear()

    for key, pause in steps:
        for _ in range(pause):
            going.pass_time(1)
            second += 1
            if second % 5 == 0:
                emit()
        going.read(1)
        going.drain()
        totals[key] = totals.get(key, 0) + 1
        changed[key] = None
        assert [row for rows in going.written.values() for row in rows] == twin
    going.finish()
    emit()
    assert [row for rows in going.written.values() for row in rows] == twin
    going.close()


def test_several_folds_in_a_row() -> None:
    graph = JobGraph("job")
    totals = (
        graph.source(Given([(n % 3, n) for n in range(31)]), parallelism=1).key_by(first).fold(0, add, emit=each(5))
    )
    counted = totals.fold(0, lambda count, _: count + 1, emit=each(2))
    counted.fold([], list.append, emit=at_end()).sink(Outbox())
    # 31 records: keys 0, 1, 2 have 11, 10, 10; values after 5, 10 and at the end of key 0: 7 values.
    assert output(graph, 1) == [[2, 4, 6, 7]]


def test_limits_after_a_fold() -> None:
    graph = JobGraph("job")
    folded = graph.source(Given(range(100)), parallelism=1).key_by(lambda n: n % 2).fold(0, max, emit=each(3))
    folded.limit(4, name="limit").sink(Outbox())
    found = output(graph)
    assert len(found) == 4
    assert set(found) <= {(n % 2, n) for n in range(100)}


def test_the_final_commit_is_precise_under_a_limit() -> None:
    """A transactional sink has the records up to the limit, and the source stands after the last of them."""
    graph = JobGraph("job")
    files = Files()
    graph.source(Endless(), limit=5).sink(files)
    going = Run(graph.compile(Options(), parallelism=4))
    going.finish(100)
    assert position_of(going) == 5
    assert going.prepared == {0: [b"0\n1\n2\n3\n4"]}
    going.close()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=20), st.booleans())
def test_sinks_with_timed_triggers_flush(pauses: list[int], is_file: bool) -> None:
    """Every multiple of 5 s at which rows wait; a file sink prepares them at the next barrier."""
    graph = JobGraph("job")
    graph.source(Given(range(len(pauses))), parallelism=1).sink(Files() if is_file else Outbox(), flush=every("5s"))
    going = Run(graph.compile(Options(), parallelism=1))
    twin: list[Any] = []
    waiting: list[Any] = []
    second = START_NS // SECOND_NS
    for record, pause in enumerate(pauses):
        for _ in range(pause):
            going.pass_time(1)
            second += 1
            if second % 5 == 0:
                twin, waiting = twin + waiting, []
        going.read(1)
        waiting.append(repr(record) if is_file else record)
        assert found(going) == twin
    going.finish()
    assert found(going) == twin + waiting
    going.close()


@pytest.mark.parametrize("flush", [each(100), at_end()])
def test_sinks_without_timed_triggers_still_checkpoint_and_under_a_limit_flush_once_at_the_end(flush: Emission) -> None:
    """A checkpoint has the rows that wait, and a task restored from it flushes them with the others."""
    graph = JobGraph("job")
    graph.source(Endless(), limit=50).sink(Files(), flush=flush)
    image = graph.compile(Options(), parallelism=1)
    before = Run(image)
    before.read(20)
    taken = before.barrier(1)
    assert before.prepared == {}
    before.close()
    after = Run(image, taken)
    after.read(20)
    after.barrier(2)
    assert after.prepared == {}
    after.finish()
    after.barrier(3)
    assert after.prepared == {0: ["\n".join(map(str, range(50))).encode()]}
    after.close()


def test_sinks_without_a_trigger_fire_once_at_the_end() -> None:
    """Without flush= and without a checkpoint in between, the last one makes all rows visible in one part."""
    graph = JobGraph("job")
    graph.source(Given(range(50)), parallelism=1).sink(Files())
    going = run(graph, 1)  # its only barrier is after the end of the input
    assert going.prepared == {0: ["\n".join(map(str, range(50))).encode()]}


def test_bounded_input_always_terminates_with_the_correct_result() -> None:
    """A fold after a limit emits its total when the limit has ended an endless source."""
    graph = JobGraph("job", limit=10)
    source = graph.source(Endless())
    source.fold(0, lambda total, n: total + n, emit=at_end(), name="total").sink(Outbox())
    source.key_by(lambda n: n % 2).fold(0, lambda total, n: total + n, emit=every("1h"), name="keyed").sink(Outbox())
    written = run(graph).written
    assert written["total"] == [45]
    assert sorted(written["keyed"]) == [(0, 20), (1, 25)]


def position_of(going: Run) -> int:
    """Returns how many records the first task has taken of its only split."""
    (split,) = decode_position(going.barrier(99)[0][1]).splits
    return int(split.mark or b"0") + split.skip


STEPS: dict[str, tuple[Callable[[Stream[Any], int | None], Stream[Any]], list[Any], int]] = {
    "sources": (lambda stream, par: stream, [0, 1, 2, 3, 4], 5),
    "maps": (lambda stream, par: stream.map(lambda n: -n, par=par), [0, -1, -2, -3, -4], 5),
    "filters": (lambda stream, par: stream.filter(lambda n: n % 3 == 1, par=par), [1, 4, 7, 10, 13], 14),
    "flat maps": (lambda stream, par: stream.flat_map(lambda n: [n] * n, par=par), [1, 2, 2, 3, 3], 4),
    "folds": (
        lambda stream, par: stream.map(lambda n: n, par=par).fold(0, lambda total, n: total + n, emit=each(2)),
        [1, 6, 15, 28, 45],
        10,
    ),
}
"""By the step with a limit: the steps, the output, and how many records the source has to read for it."""


@pytest.mark.parametrize("place", STEPS)
@pytest.mark.parametrize("par", [None, 4])
@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize("records_max", [1, 3, 100])
def test_limits_work_on_sources_filters_maps_flat_maps_folds_and_sinks_with_and_without_par(
    place: str, par: int | None, is_file: bool, records_max: int
) -> None:
    """The source stands after the last record that the limit needed, whatever the order in which calls end."""
    steps, expected, needed = STEPS[place]
    graph = JobGraph("job")
    steps(graph.source(Endless(), parallelism=1), par).limit(5).sink(Files() if is_file else Outbox())
    calls = Calls()
    going = Run(graph.compile(Options(), parallelism=1), clock=calls)
    finish(going, calls, random.Random(records_max), records_max)
    if place != "flat maps" or (records_max == 1 and par is None):  # the others give at most one result per record
        assert position_of(going) == needed
    assert found(going) == ([repr(row) for row in expected] if is_file else expected)
    going.close()


def finish(going: Run, calls: Calls, rng: random.Random, records_max: int) -> None:
    """Runs a job of one task to its end; its calls end in a random order."""
    while going.read(records_max) or calls.open:
        numbers = rng.sample(sorted(calls.open), rng.randint(0, len(calls.open)))
        completed(going, 0, numbers, calls)
    for chain in going.chains:
        chain.end_of_input()


def found(going: Run) -> list[Any]:
    """Returns the rows at immediate sinks, and the lines of all parts of a transactional sink so far."""
    going.barrier(99)
    rows = [row for rows in going.written.values() for row in rows]
    return rows + [line for parts in going.prepared.values() for part in parts for line in part.decode().splitlines()]


SHAPES: dict[str, tuple[Callable[[Stream[Any], int], Stream[Any]], Callable[[int], list[Any]]]] = {
    "maps": (lambda s, par: s.map(lambda n: n * n, par=par), lambda n: [n * n]),
    "filters": (lambda s, par: s.filter(lambda n: n % 3, par=par), lambda n: [n] if n % 3 else []),
    "flat maps": (lambda s, par: s.flat_map(lambda n: [n] * (n % 4), par=par), lambda n: [n] * (n % 4)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_sink", [False, True])
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 30))
def test_order_is_preserved_with_par_in_filters_maps_flat_maps_and_sinks(shape: str, is_sink: bool, seed: int) -> None:
    """Whatever the order in which the calls end, results have the order of the records."""
    step, twin = SHAPES[shape]
    graph = JobGraph("job")
    step(graph.source(Given(range(20)), parallelism=1), 4).sink(Files() if is_sink else Outbox())
    calls = Calls()
    going = Run(graph.compile(Options(), parallelism=1), clock=calls)
    rng = random.Random(seed)
    while going.read(5):
        numbers = [*calls.open]
        rng.shuffle(numbers)
        completed(going, 0, numbers[: rng.randint(0, len(numbers))], calls)
    numbers = [*calls.open]
    rng.shuffle(numbers)
    completed(going, 0, numbers, calls)
    expected = [result for n in range(20) for result in twin(n)]
    if is_sink:
        going.barrier(1)
        assert going.prepared == {0: ["\n".join(map(str, expected)).encode()]}
    else:
        assert [row for rows in going.written.values() for row in rows] == expected
    going.close()


def test_commits_back_off_when_they_take_longer() -> None:
    """A checkpoint that is due during a commit begins when the commit has ended, so commits never queue up."""
    harness = formed(checkpoint_every_ms=1_000)
    harness.tick(1_000)
    harness.acknowledge(1, parts=[(1, b"part")])
    harness.tick(3_500)  # the metadata takes longer than the interval
    assert harness.pending() == [1]
    harness.durable(1)
    harness.tick(3_500)  # the output takes longer than the interval
    assert harness.pending() == []
    harness.do(OutputCommitted(CheckpointId(1)))
    harness.tick(100)
    assert harness.pending() == [2]
    harness.tick(900)
    assert harness.pending() == [2]  # the interval counts from the beginning of the last one
    harness.tick(100)
    assert harness.pending() == [2, 3]
