"""Limits of drift between sources (protocol 2.2), through the whole machine."""

from __future__ import annotations

from clonos.core.coordinator.coordinator_effects import Effect
from clonos.core.coordinator.coordinator_events import Begin, Ticked
from clonos.core.model.options import Options
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.model.watermark import END_OF_TIME_NS, INSTANT_NS_MIN
from clonos.core.wire.control_messages import DriftLimit
from tests.harnesses.coordinator_harness import CoordinatorHarness, sent

DRIFT_NS = 100
OPTIONS = Options(watermark_drift_max_ns=DRIFT_NS)
NOTHING_REPORTED = INSTANT_NS_MIN + DRIFT_NS


def plan_of(*timed: bool) -> Plan:
    """Sources, some of which make watermarks, and a sink."""
    sources = tuple(Vertex(f"source{n}", 1, is_source=True, is_timed=is_timed) for n, is_timed in enumerate(timed))
    edges = tuple(Edge(n, len(timed), Partitioning.REBALANCE, 0) for n in range(len(timed)))
    return Plan("job", (*sources, Vertex("sink", 1, is_transactional=True)), edges)


def formed(*timed: bool, options: Options = OPTIONS) -> CoordinatorHarness:
    harness = CoordinatorHarness(plan_of(*timed), options)
    harness.form(slots=6)
    return harness


def report(harness: CoordinatorHarness, task: int, watermark_ns: int) -> None:
    """The slot of a task reports its watermark from now on."""
    harness.slots[harness.of(task).hosting_slot].counters = ((TaskCounter.WATERMARK_NS, watermark_ns),)


def limits(harness: CoordinatorHarness, effects: tuple[Effect, ...]) -> dict[int, DriftLimit]:
    """The last limit that each source was given."""
    given: dict[int, DriftLimit] = {}
    for slot, message in sent(effects, DriftLimit):
        assert isinstance(message, DriftLimit)
        given.update({task: message for task in harness.plan.sources if harness.of(task).slot == slot})
    return given


def limit_of(harness: CoordinatorHarness, effects: tuple[Effect, ...], task: int) -> int:
    """How far a source may read."""
    limit = limits(harness, effects)[task]
    return limit.slowest_ns_max if limit.slowest == task else limit.watermark_ns_max


def test_a_source_may_be_ahead_of_the_slowest_other_one_by_the_drift() -> None:
    harness = formed(True, True, True)
    for task, watermark_ns in enumerate((900, -50, 30)):
        report(harness, task, watermark_ns)
    given = harness.tick()
    assert [limit_of(harness, given, task) for task in range(3)] == [50, 130, 50]


def test_the_limits_are_sent_once_at_each_repetition_and_only_with_the_option_and_two_sources() -> None:
    harness = formed(True, True, False)
    report(harness, 0, 5)
    report(harness, 1, 6)
    for _ in range(5):
        given = sent(harness.tick(), DriftLimit)
        assert sorted(slot for slot, _ in given) == sorted(harness.of(task).hosting_slot for task in (0, 1))
    for alone in (formed(True, False), formed(True, True, options=Options())):
        assert sent(alone.tick(1_000), DriftLimit) == []


def test_a_source_without_timestamps_holds_no_other_back() -> None:
    harness = formed(True, True, False)
    report(harness, 0, 5)
    report(harness, 1, 6)
    assert limit_of(harness, harness.tick(), 1) == 5 + DRIFT_NS


def test_a_source_that_has_ended_or_is_idle_holds_no_other_back() -> None:
    harness = formed(True, True, True)
    report(harness, 0, 7)
    report(harness, 1, 900)
    report(harness, 2, 0)
    assert limit_of(harness, harness.tick(), 1) == DRIFT_NS
    report(harness, 2, END_OF_TIME_NS)  # idle
    assert limit_of(harness, harness.tick(), 1) == 7 + DRIFT_NS
    harness.slots[harness.of(0).hosting_slot].phase = TaskPhase.FINAL
    assert limit_of(harness, harness.tick(), 1) == END_OF_TIME_NS
    report(harness, 1, END_OF_TIME_NS)
    assert sent(harness.tick(1_000), DriftLimit) == []


def test_a_final_task_that_has_reported_nothing_holds_no_other_back() -> None:
    harness = formed(True, True)
    harness.slots[harness.of(0).hosting_slot].phase = TaskPhase.FINAL
    report(harness, 1, 3)
    assert limit_of(harness, harness.tick(), 1) == END_OF_TIME_NS


def test_the_others_wait_for_a_source_that_has_not_reported_and_it_reads_up_to_them() -> None:
    harness = formed(True, True)
    report(harness, 0, 900)
    given = harness.tick()
    assert limit_of(harness, given, 0) == NOTHING_REPORTED
    assert limit_of(harness, given, 1) == 900 + DRIFT_NS


def test_the_others_wait_while_a_source_recovers_and_go_on_when_its_successor_reports() -> None:
    harness = formed(True, True)
    report(harness, 0, 900)
    report(harness, 1, 10)
    assert limit_of(harness, harness.tick(), 0) == 10 + DRIFT_NS
    before = harness.of(1).incarnation
    harness.gone(harness.of(1).hosting_slot)
    assert limit_of(harness, harness.tick(), 0) == NOTHING_REPORTED
    assert harness.of(1).incarnation > before
    report(harness, 1, 10)
    assert limit_of(harness, harness.tick(), 0) == 10 + DRIFT_NS


def test_a_new_generation_begins_with_what_its_incarnations_report() -> None:
    harness = formed(True, True)
    report(harness, 0, 900)
    report(harness, 1, 800)
    harness.tick()
    for slot in harness.slots.values():
        slot.counters = ()
    harness.lose_log(0)
    assert limit_of(harness, harness.tick(), 1) == NOTHING_REPORTED
    report(harness, 0, 3)
    report(harness, 1, 4)
    assert limit_of(harness, harness.tick(), 1) == 3 + DRIFT_NS


def test_a_new_coordinator_sends_the_limits_that_follow_from_the_reports() -> None:
    harness = formed(True, True)
    report(harness, 0, 900)
    report(harness, 1, 10)
    again = CoordinatorHarness(harness.plan, OPTIONS)
    again.do(Ticked(0))
    again.do(Begin(2, "job-1", len(harness.slots), harness.coordinator.completed, awaits_slots=True))
    again.slots = harness.slots
    again.tick(5_000)
    assert limit_of(again, again.tick(), 0) == 10 + DRIFT_NS
