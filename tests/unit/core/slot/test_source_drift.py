"""How far the sources of a slot may read (protocol 2.2): the coordinator's last limit, until it expires."""

from __future__ import annotations

from dataclasses import replace

from clonos.core.model.ids import COORDINATOR, SlotId, TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.model.watermark import END_OF_TIME_NS, INSTANT_NS_MIN
from clonos.core.ports import slot_effects as effect
from clonos.core.ports.task_port import ReadLimit, TaskEmission
from clonos.core.slot.slot_events import Event, HeartbeatDue, MessageReceived, StepEmitted
from clonos.core.wire.control_messages import DriftLimit
from tests.harnesses.sample_plans import shuffle
from tests.harnesses.slot_harness import SlotHarness

OPTIONS = Options(heartbeat_ms=100, lease_ms=500, watermark_drift_max_ns=1)


def plan_of(is_timed: bool) -> Plan:
    plan = shuffle(2)
    source, count = plan.vertices
    return replace(plan, vertices=(replace(source, is_timed=is_timed), count))


def begun(task: int = 0, is_timed: bool = True) -> SlotHarness:
    bench = SlotHarness(OPTIONS, plan_of(is_timed), task)
    bench.begin()
    return bench


def limits(bench: SlotHarness, event: Event) -> list[int]:
    """What the task learns about how far it may read."""
    effects = bench.slot.step(event)
    bench.shell.perform(effects)
    commands = [each.command for each in effects if isinstance(each, effect.PutCommand)]
    return [command.watermark_ns_max for command in commands if isinstance(command, ReadLimit)]


def sent(watermark_ns_max: int, slowest: int, slowest_ns_max: int) -> MessageReceived:
    return MessageReceived(COORDINATOR, DriftLimit(watermark_ns_max, TaskId(slowest), slowest_ns_max))


def beat(bench: SlotHarness) -> list[int]:
    bench.shell.now += OPTIONS.heartbeat_ms * 1_000_000
    return limits(bench, HeartbeatDue(bench.shell.now))


def test_the_slowest_source_has_its_own_limit() -> None:
    bench = begun()
    assert limits(bench, sent(70, 1, 90)) == [70]
    assert limits(bench, sent(70, 0, 90)) == [90]


def test_a_limit_is_passed_to_a_source_once() -> None:
    bench = begun()
    assert limits(bench, sent(70, 1, 90)) == [70]
    assert limits(bench, sent(70, 1, 99)) == []
    assert limits(bench, sent(71, 1, 99)) == [71]


def test_a_limit_expires_after_a_lease_without_another_one() -> None:
    bench = begun()
    beat(bench)
    assert limits(bench, sent(70, 1, 90)) == [70]
    assert [beat(bench) for _ in range(4)] == [[]] * 4
    assert limits(bench, sent(70, 1, 90)) == []
    assert [beat(bench) for _ in range(6)] == [*([[]] * 4), [END_OF_TIME_NS], []]


def test_sources_read_on_without_any_limit_after_a_lease_and_so_does_a_source_that_starts_later() -> None:
    bench = begun()
    assert [beat(bench) for _ in range(7)] == [*([[]] * 5), [END_OF_TIME_NS], []]
    late = SlotHarness(OPTIONS, plan_of(True))
    for _ in range(6):
        assert beat(late) == []  # its thread has not started
    late.begin()
    assert beat(late) == [END_OF_TIME_NS]
    assert limits(late, sent(70, 1, 90)) == [70]


def test_a_limit_is_passed_to_sources_with_watermarks_only() -> None:
    assert limits(begun(is_timed=False), sent(70, 1, 90)) == []
    assert limits(begun(task=2), sent(70, 1, 90)) == []


def test_a_limit_that_names_a_task_of_another_plan_is_the_limit_of_all_sources() -> None:
    assert limits(begun(), sent(70, 4, 90)) == [70]


def test_a_limit_from_another_slot_is_refused() -> None:
    bench = begun()
    (refused,) = bench.slot.step(MessageReceived(SlotId(11), DriftLimit(70, TaskId(0), 90)))
    assert isinstance(refused, effect.RefuseMessage)


def test_the_status_has_the_watermark_that_the_task_has_handed_over_last() -> None:
    bench = begun()
    bench.tick()
    assert "watermark_ns" not in bench.counters
    for reached_ns, shown_ns in ((INSTANT_NS_MIN, INSTANT_NS_MIN), (-4, -4), (None, -4), (9, 9)):
        bench.post(StepEmitted(bench.task, bench.thread, TaskEmission(b"", reached_ns=reached_ns)))
        bench.tick()
        assert bench.counters["watermark_ns"] == shown_ns
