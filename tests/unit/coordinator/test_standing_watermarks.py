"""A warning about a source whose watermark stands for long and holds event time back, through the whole machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos.core.coordinator.coordinator_effects import Alarm, Effect
from clonos.core.coordinator.sources import STANDING_MS
from clonos.core.model.options import Options
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.model.watermark import END_OF_TIME_NS, INSTANT_NS_MIN
from tests.harnesses.coordinator_harness import CoordinatorHarness, of_kind

SECOND_NS = 1_000_000_000
NOON_NS = 1_767_268_800 * SECOND_NS  # 2026-01-01 12:00 UTC


def plan_of(becomes_idle: bool = False, parallelism: int = 1) -> Plan:
    """Two sources with watermarks and a sink."""
    source = Vertex("clicks", parallelism, is_source=True, is_timed=True, becomes_idle=becomes_idle)
    vertices = (source, replace(source, name="orders", parallelism=1), Vertex("sink", 1, is_transactional=True))
    edges = tuple(Edge(n, 2, Partitioning.REBALANCE, 0) for n in range(2))
    return Plan("job", vertices, edges)


def formed(plan: Plan | None = None, **options: int) -> CoordinatorHarness:
    harness = CoordinatorHarness(plan or plan_of(), Options(**options))  # type: ignore[arg-type]
    harness.form(slots=6)
    return harness


def report(harness: CoordinatorHarness, task: int, watermark_ns: int, records: int) -> None:
    """The slot of a task reports these counters from now on."""
    slot = harness.slots[harness.of(task).hosting_slot]
    slot.counters = ((TaskCounter.RECORDS_IN, records), (TaskCounter.WATERMARK_NS, watermark_ns))


def warnings(effects: tuple[Effect, ...]) -> list[str]:
    return [alarm.text for alarm in of_kind(effects, Alarm) if "watermark" in alarm.text]


def wait(harness: CoordinatorHarness, milliseconds: int = STANDING_MS) -> list[str]:
    """Lets time pass in which the second source has new records and a later watermark at each tick."""
    found = []
    for n in range(milliseconds // 1_000):
        report(harness, len(harness.plan.timed_sources) - 1, NOON_NS + (n + 1) * SECOND_NS, n)
        found += warnings(harness.tick(1_000, 1_000))
    return found


def test_a_source_without_records_that_holds_another_one_back_is_reported_once() -> None:
    harness = formed()
    report(harness, 0, NOON_NS, 7)
    assert wait(harness) == []
    assert wait(harness, 3_000) == [
        "the source clicks/0 has read no record for 60 s, and its watermark stands: windows"
        " and event-time timers wait for it. If the source, or a split of it, may be without records for long, give the"
        ' timestamps of the source idle_after=, such as Timestamps(..., idle_after="1min").'
    ]
    assert wait(harness, 3 * STANDING_MS) == []


def test_a_source_that_has_never_had_a_record_is_reported() -> None:
    harness = formed(watermark_drift_max_ns=SECOND_NS)
    report(harness, 0, INSTANT_NS_MIN, 0)
    (text,) = wait(harness, 2 * STANDING_MS)
    assert text.startswith(
        "the source clicks/0 has read no record for 60 s, and its watermark has not begun: windows, event-time"
        " timers and the other sources wait for it."
    )


def test_a_watermark_that_stands_while_records_come_is_reported() -> None:
    harness = formed()
    found = []
    for n in range(63):
        report(harness, 0, NOON_NS, n * 1_000)
        report(harness, 1, NOON_NS + n, 5)
        found += warnings(harness.tick(1_000, 1_000))
    (text,) = found
    assert "has read 60,000 records in 60 s, but its watermark stands" in text
    assert "If one of its splits has no records, give" in text
    assert text.endswith("Otherwise check that its timestamps rise.")


@pytest.mark.parametrize("watermark_ns", [END_OF_TIME_NS, NOON_NS + 3_600 * SECOND_NS])
def test_a_source_that_is_idle_or_ahead_is_not_reported(watermark_ns: int) -> None:
    harness = formed()
    report(harness, 0, watermark_ns, 7)
    assert wait(harness, 2 * STANDING_MS) == []


def test_a_source_that_ends_or_becomes_idle_by_itself_is_not_reported() -> None:
    harness = formed(plan_of(becomes_idle=True))
    report(harness, 0, NOON_NS, 7)
    assert wait(harness, 2 * STANDING_MS) == []
    harness = formed()
    report(harness, 0, NOON_NS, 7)
    harness.slots[harness.of(0).hosting_slot].phase = TaskPhase.FINAL
    assert wait(harness, 2 * STANDING_MS) == []


def test_sources_that_are_all_without_records_are_not_reported() -> None:
    harness = formed()
    for task in (0, 1):
        report(harness, task, NOON_NS, 7)
    assert warnings(harness.tick(2 * STANDING_MS, 1_000)) == []


def test_a_watermark_that_rises_now_and_then_is_not_reported() -> None:
    harness = formed()
    for n in range(4):
        report(harness, 0, NOON_NS - 10 + n, 7)
        assert wait(harness, STANDING_MS - 2_000) == []


def test_the_tasks_of_a_source_are_reported_once() -> None:
    harness = formed(plan_of(parallelism=2))
    for task in (0, 1):
        report(harness, task, NOON_NS, 7)
    (text,) = wait(harness, 2 * STANDING_MS)
    assert "the source clicks/0 " in text


def test_a_source_that_recovers_is_not_reported() -> None:
    harness = formed()
    report(harness, 0, NOON_NS, 7)
    wait(harness, STANDING_MS - 2_000)
    harness.gone(harness.of(0).hosting_slot)
    harness.slots[harness.of(0).hosting_slot].counters = ()
    assert wait(harness, STANDING_MS - 2_000) == []
