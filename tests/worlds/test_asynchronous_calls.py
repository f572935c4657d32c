"""Asynchronous calls in simulated worlds: concurrent, with one answer per record in every incarnation."""

from __future__ import annotations

from functools import partial
from itertools import count
from random import Random
from typing import Any

import pytest

from clonos import Job, collect, http, values
from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.core.coordinator.coordinator_events import SlotGone
from clonos.core.log import determinants as d
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos.core.task.async_calls import OpenCalls
from clonos.core.task.call_parts import PART_BYTES
from clonos.core.task.record_or_replay import TaskLog
from clonos.operators.steps.async_map import AsyncMap
from clonos.operators.steps.async_stateful_map import AsyncStatefulMap
from clonos.operators.steps.awaited_events import AwaitedEvents, ResumedCall, SuspendedCall
from clonos.testing import Outputs, crash_test
from clonos_chaos.jobs.api_jobs import CountPerKey, Offsets, Parts, Row
from clonos_chaos.jobs.async_jobs import AsideJob, AwaitingJob
from clonos_chaos.jobs.fuzz_chain import KEYS
from clonos_chaos.project.mutants.mutation import Mutation
from clonos_chaos.sim.environment import WorldFailed
from clonos_chaos.sim.external_systems import SimAsked
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.sim.world_settings import WorldSettings
from clonos_chaos.swarm.world import World
from clonos_services.interception import EpochEntropy

pytestmark = [pytest.mark.worlds, pytest.mark.slow]

SEEDS = range(24)


def world(seed: int) -> World:
    return World(seed, job=lambda rng: AsideJob("aside", rng, rng.randint(20, 60), rng.choice((None, None, 1, 2))))


def test_random_worlds_of_jobs_with_concurrent_calls_are_correct() -> None:
    asked, repeated = 0, 0
    for seed in SEEDS:
        played = world(seed)
        played.run()
        answers = played.job.service.answers
        asked += len(answers)
        repeated += len(answers) - len({answer.key for answer in answers})
    assert asked > repeated > 0, "no failure ever repeated a call with its key"


def test_a_call_with_the_state_before_the_last_one_is_detected() -> None:
    olds: dict[tuple[int, int], int | None] = {}

    def submit(right: Any, step: Any, number: int, given: Any, request: bytes) -> None:
        if isinstance(step, AsyncStatefulMap):
            key, seen, row = given
            given = key, olds.setdefault((id(step), key), seen), row
        right(step, number, given, request)

    mutation = Mutation()
    mutation.wrap(AsyncMap, "_submit", submit)
    try:
        assert any(_is_wrong(seed) for seed in range(40))
    finally:
        mutation.undo()


def _is_wrong(seed: int) -> bool:
    try:
        world(seed).run()
    except (AssertionError, WorldFailed):
        return True
    return False


def test_intercepted_random_bytes_that_differ_in_a_replay_are_detected() -> None:
    drawn, mutation = count(), Mutation()
    mutation.swap(EpochEntropy, "draw", lambda entropy, size: next(drawn).to_bytes(size, "big"))
    try:
        assert any(_is_wrong(seed) for seed in range(60))
    finally:
        mutation.undo()


@pytest.mark.parametrize("seed", range(16))
def test_calls_that_await_an_event_have_one_each_in_every_world(seed: int) -> None:
    played = World(seed, job=lambda rng: AwaitingJob("awaiting", rng, rng.randint(20, 60), rng.choice((None, 1, 2))))
    played.run()


def _early(right: Any, events: AwaitedEvents, stored: Any, call: SuspendedCall) -> None:
    right(events, stored, call._replace(due_ns=call.due_ns and call.due_ns - MILLISECOND_NS))


def _untimed(right: Any, events: AwaitedEvents, stored: Any, call: SuspendedCall) -> None:
    right(events, stored, call._replace(due_ns=None))


def _without_following(
    right: Any, events: AwaitedEvents, stored: Any, cancelled: bytes, at_ns: Any
) -> ResumedCall | None:
    resumed: ResumedCall | None = right(events, stored, cancelled, at_ns)
    return resumed and resumed._replace(following=())


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("follow", lambda right, events, stored, record, timestamp_ns: None),
        ("suspend", _early),
        ("suspend", _untimed),
        ("take_cancelled", _without_following),
    ],
    ids=["lost record", "early time-out", "lost time-out", "record lost by a cancellation"],
)
def test_faults_of_suspended_calls_are_detected(method: str, fault: Any) -> None:
    mutation = Mutation()
    mutation.wrap(AwaitedEvents, method, fault)
    try:
        assert any(_has_a_fault(seed) for seed in range(16))
    finally:
        mutation.undo()


def _has_a_fault(seed: int) -> bool:
    try:
        test_calls_that_await_an_event_have_one_each_in_every_world(seed)
    except (AssertionError, WorldFailed):
        return True
    return False


def test_all_records_of_a_key_have_the_answer_in_the_cache_whatever_dies() -> None:
    """Each request has another answer, so a cache that a successor had not would show."""
    numbers = count()

    def check(outputs: Outputs) -> None:
        found = {(n % 7, answer) for n, answer in outputs["found"]}
        assert sorted(n for n, _ in outputs["found"]) == list(range(80))
        assert sorted(key for key, _ in found) == list(range(7))

    def make_job() -> Job:
        job = Job("enriched", checkpoint_every="1s")
        rows = job.source(values([{"n": n, "key": n % 7} for n in range(80)]), name="rows").rebalance()
        rows.enrich(
            "http://host/{key}",
            select=lambda row, answer: (row["n"], answer["answer"]),
            cache=10,
            capacity=3,
            parallelism=1,
        ).sink(collect(), name="found")
        return job

    report = crash_test(
        make_job, seeds=SEEDS, check=check, http=lambda request: {"answer": next(numbers)}, compare=False
    )
    assert report.injected["kill"] > 3


def test_all_records_of_a_key_have_the_answer_of_one_question_whatever_dies() -> None:
    """Each question has another answer, so a question that is asked for other keys, or again, would show."""
    numbers = count()

    def check(outputs: Outputs) -> None:
        found = outputs["found"]
        assert sorted(n for n, *_ in found) == list(range(80))
        assert len({(key, answer) for _, key, answer in found}) == 7, "a key has one answer, that of the cache"

    def ask(keys: list[int]) -> dict[int, int]:
        answer: int = http.get(f"http://host/{'-'.join(map(str, keys))}").json()["answer"]
        return dict.fromkeys(keys, answer)

    def make_job() -> Job:
        job = Job("batches", checkpoint_every="1s")
        rows = job.source(values([{"n": n, "key": n % 7} for n in range(80)]), name="rows").rebalance()
        rows.enrich_batch(
            ask,
            on="key",
            keys=3,
            within="5ms",
            select=lambda row, answer: (row["n"], row["key"], answer),
            cache=10,
            capacity=2,
            parallelism=1,
        ).sink(collect(), name="found")
        return job

    report = crash_test(
        make_job, seeds=range(12), check=check, http=lambda request: {"answer": next(numbers)}, compare=False
    )
    assert report.injected["kill"] > 3


CAPACITY = 3


class DriftingJob(AsideJob):
    """Job whose calls have other records when their task runs again, though each has the same answer."""

    drift = count()

    def _build(self, graph: JobGraph, rng: Random) -> None:
        rows: Stream[Any] = graph.source(Offsets(self.records), parallelism=1).rebalance()
        drifted = rows.map(_drifted, parallelism=1)
        drifted.map_async(self._answered_without_the_drift, capacity=CAPACITY, parallelism=1).sink(Parts())

    def _answered_without_the_drift(self, drifted: tuple[Row, int], idempotency_key: str) -> Row:
        return self._answered(1, drifted[0], idempotency_key)


def _drifted(row: Row) -> tuple[Row, int]:
    return row, next(DriftingJob.drift)  # clonos: ok CLN505 a replay is to ask for something else


def _has_diverged(seed: int) -> bool:
    """Whether a world of such a job, whose task dies, ends with the error of a replay that asks for something else."""
    settings = WorldSettings(network_ns_max=MILLISECOND_NS // 100, store_ns_max=MILLISECOND_NS)
    options = Options(checkpoint_every_ms=100_000)
    played = World(seed, "", options, settings, lambda rng: DriftingJob("drift", rng, 60, None), targeted_faults=())

    def kill() -> None:
        slot = played.slot_of(TaskId(1))
        if len(played.job.service.answers) < 30:
            played.clock.after(MILLISECOND_NS, kill)
        elif slot is not None:
            played.end_slot(slot.id)
            played.handle(SlotGone(slot.id, "killed", played.clock.now_ns))

    kill()
    try:
        played.run()
    except WorldFailed as failed:
        return "ReplayDiverged" in str(failed)
    return False


def test_a_replayed_call_that_asks_for_something_else_takes_no_answer_of_the_log() -> None:
    assert all(map(_has_diverged, range(4)))


def test_an_answer_for_another_request_is_detected_by_no_other_rule() -> None:
    mutation = Mutation()
    mutation.swap(TaskLog, "_accept", lambda *_: None)
    try:
        assert not any(map(_has_diverged, range(4)))
    finally:
        mutation.undo()


class LastJob(AsideJob):
    """Job whose calls are made in the task of its sink: no other task has their outcomes."""

    def _build(self, graph: JobGraph, rng: Random) -> None:
        rows = graph.source(Offsets(self.records), parallelism=1).rebalance()
        rows.enrich(
            partial(self._looked_up, 1), on=lambda row: row[0], select=_answered, capacity=CAPACITY, parallelism=1
        ).sink(Parts())


def _answered(row: Row, answer: int) -> Row:
    offset, lineage = row
    return offset, (*lineage, (1, 0, offset * 8, 0, 0, answer))


@pytest.mark.parametrize("seed", range(6))
def test_random_worlds_of_calls_in_the_task_of_a_sink_are_correct(seed: int) -> None:
    World(seed, job=lambda rng: LastJob("last", rng, rng.randint(20, 60), None)).run()


@pytest.mark.parametrize("seed", range(6))
def test_a_call_with_an_outcome_in_the_log_is_not_made_again_though_no_task_follows(seed: int) -> None:
    settings = WorldSettings(network_ns_max=MILLISECOND_NS // 100, store_ns_max=MILLISECOND_NS)
    options = Options(checkpoint_every_ms=100_000)
    played = World(seed, "", options, settings, lambda rng: LastJob("last", rng, 200, None), targeted_faults=())
    task = TaskId(1)

    def kill() -> None:
        answers, slot = played.job.service.answers, played.slot_of(task)
        if len(answers) < 100:
            played.clock.after(MILLISECOND_NS, kill)
        elif slot is not None:
            played.end_slot(slot.id)
            played.handle(SlotGone(slot.id, "killed", played.clock.now_ns))

    kill()
    played.run()
    answers = played.job.service.answers
    assert len({answer.key for answer in answers}) == 200
    assert 0 < len(answers) - 200 <= CAPACITY


RECORDS, QUESTIONS = 60, 24
BETWEEN_KILLS_NS = 250 * MILLISECOND_NS
"""Long enough for a new keeper to be ready: a task that dies with its keepers may repeat effects."""


class PartsJob(AsideJob):
    """Job with one step whose calls are logged on their own, and counts after it."""

    def _build(self, graph: JobGraph, rng: Random) -> None:
        rows = graph.source(Offsets(self.records), parallelism=1).rebalance()
        answered = rows.map_async(
            self._answered_in_many_parts, capacity=CAPACITY, parallelism=1, log_calls=True, effects=True
        )
        answered.key_by(lambda row: row[0] % KEYS).process(CountPerKey(2, 0)).sink(Parts())

    def _answered_in_many_parts(self, row: Row) -> Row:
        for number in range(QUESTIONS):
            self._part("before", (1, row[0], number))
        return self._answered_in_parts(1, row)


def _killed_often(seed: int, kills: int) -> list[SimAsked]:
    """Calls that a world has made whose task was killed several times, each time with calls under way."""
    settings = WorldSettings(network_ns_max=MILLISECOND_NS // 100, store_ns_max=MILLISECOND_NS)
    played = World(
        seed,
        "",
        Options(checkpoint_every_ms=40, credit_window_bytes=512, step_records_first=1, step_records_max=1),
        settings,
        lambda rng: PartsJob("parts", rng, RECORDS, None),
        targeted_faults=(),
    )
    left = list(range(kills))

    def kill() -> None:
        slot = played.slot_of(TaskId(1))
        if slot is not None:
            left.pop()
            played.end_slot(slot.id)
            played.handle(SlotGone(slot.id, "killed", played.clock.now_ns))
        if left:
            played.clock.after(BETWEEN_KILLS_NS, kill)

    played.clock.after(BETWEEN_KILLS_NS, kill)
    played.run()
    return list(played.job.service.answers)


@pytest.mark.parametrize("seed", range(8))
def test_a_call_inside_is_made_again_only_where_it_was_under_way(seed: int) -> None:
    kills = 4
    answers = _killed_often(seed, kills)
    effects = [answer for answer in answers if answer.is_effect]
    assert len({answer.key for answer in effects}) == RECORDS
    assert sum(not answer.is_in_doubt for answer in effects) <= RECORDS, "an effect was made twice"
    repeated = len(answers) - len({answer.key for answer in answers})
    assert repeated <= 4 * kills * CAPACITY, "those under way, and the last outcomes before them"


@pytest.mark.parametrize("place", ["state", "log"])
def test_lost_parts_of_calls_are_detected(place: str) -> None:
    mutation = Mutation()
    if place == "state":
        mutation.swap(AsyncMap, "take_part", lambda step, number, name, data: None)
    else:
        mutation.swap(OpenCalls, "take_part", lambda calls, number, data: (data[:PART_BYTES], data[PART_BYTES:]))
    try:
        assert any(_repeats_too_much(seed) for seed in range(8))
    finally:
        mutation.undo()


def _repeats_too_much(seed: int) -> bool:
    try:
        test_a_call_inside_is_made_again_only_where_it_was_under_way(seed)
    except (AssertionError, WorldFailed):
        return True
    return False


def test_outcomes_that_are_not_logged_are_detected() -> None:
    mutation = Mutation()
    mutation.wrap(TaskLog, "append", lambda right, log, entry: entry[0] == d.COMPLETION or right(log, entry))
    try:
        assert any(_fails(seed) for seed in SEEDS)
    finally:
        mutation.undo()


def _fails(seed: int) -> bool:
    try:
        world(seed).run()
    except WorldFailed:
        return True
    return False
