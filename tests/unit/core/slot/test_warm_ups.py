"""Reads of a slot for tasks of the next plan: once, while the coordinator repeats it, and not beyond a generation."""

from __future__ import annotations

import pytest
from msgspec import structs

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import COORDINATOR, Incarnation, SlotId, TaskId, ViewNumber
from clonos.core.model.options import Options
from clonos.core.ports import slot_effects as effect
from clonos.core.slot.slot_events import HeartbeatDue, MessageReceived, WarmedUp
from clonos.core.slot.warm_ups import WARM_HEARTBEATS
from clonos.core.wire.admission import check_for_slot
from clonos.core.wire.control_messages import SlotStatus, TaskWarmUp, WarmSource, WarmUp
from tests.harnesses.slot_harness import SlotHarness

OPTIONS = Options(heartbeat_ms=100, lease_ms=500)
TASKS = (TaskWarmUp("count/0", (WarmSource("count", 0, 2, ("a/0",)),)),)


@pytest.fixture
def bench() -> SlotHarness:
    found = SlotHarness(OPTIONS)
    found.begin()
    return found


def steps(bench: SlotHarness, event: object, *kinds: type) -> list[object]:
    """The effects of these kinds."""
    effects = bench.slot.step(event)  # type: ignore[arg-type]
    return [each for each in effects if isinstance(each, kinds or (effect.ReadAhead, effect.DropReadAhead))]


def request(bench: SlotHarness, number: int = 5, generation: int | None = None) -> MessageReceived:
    name = bench.plan.vertices[0].name
    since = bench.slot.view.generation if generation is None else generation
    return MessageReceived(COORDINATOR, WarmUp(number, since, ((name, 4),), TASKS))


def beat(bench: SlotHarness) -> list[object]:
    bench.shell.now += OPTIONS.heartbeat_ms * 1_000_000
    return steps(bench, HeartbeatDue(bench.shell.now))


def warmed(bench: SlotHarness) -> int:
    """The number that the next status has."""
    bench.shell.now += OPTIONS.heartbeat_ms * 1_000_000
    for each in steps(bench, HeartbeatDue(bench.shell.now), effect.SendMessage):
        assert isinstance(each, effect.SendMessage)
        if isinstance(each.message, SlotStatus):
            return each.message.warmed
    raise AssertionError("no status")


def test_a_slot_reads_what_it_is_asked_for_once_and_reports_when_it_is_done(bench: SlotHarness) -> None:
    beat(bench)
    (read,) = steps(bench, request(bench))
    assert isinstance(read, effect.ReadAhead)
    assert (read.number, read.tasks) == (5, TASKS)
    assert steps(bench, request(bench)) == []
    assert warmed(bench) == 0
    assert steps(bench, WarmedUp(4), effect.SendMessage) == [], "an earlier request"
    assert steps(bench, WarmedUp(5), effect.SendMessage)
    assert warmed(bench) == 5


def test_a_state_that_was_read_ahead_is_dropped_when_its_request_is_not_repeated(bench: SlotHarness) -> None:
    beat(bench)
    steps(bench, request(bench))
    steps(bench, WarmedUp(5))
    for _ in range(WARM_HEARTBEATS - 1):
        assert beat(bench) == []
    steps(bench, request(bench))
    for _ in range(WARM_HEARTBEATS - 1):
        assert beat(bench) == []
    assert beat(bench) == [effect.DropReadAhead()]
    assert warmed(bench) == 0
    assert beat(bench) == []


def test_a_generation_ends_what_was_read_after_the_reads_of_its_tasks(bench: SlotHarness) -> None:
    beat(bench)
    steps(bench, request(bench))
    number = ViewNumber(bench.slot.view.number + 1)
    begun = tuple(
        structs.replace(p, incarnation=Incarnation(number), objects=("a/1",), restore=1, is_fresh=True)
        for p in bench.slot.view.placements
    )
    view = structs.replace(bench.slot.view, number=number, generation=number, placements=begun)
    found = steps(bench, MessageReceived(COORDINATOR, view), effect.ReadSnapshots, effect.DropReadAhead)
    assert [type(each) for each in found] == [effect.ReadSnapshots, effect.DropReadAhead]
    assert warmed(bench) == 0


def test_an_earlier_request_and_a_request_of_another_generation_are_ignored(bench: SlotHarness) -> None:
    beat(bench)
    assert steps(bench, request(bench, generation=bench.slot.view.generation + 1)) == []
    assert len(steps(bench, request(bench, 5))) == 1
    assert steps(bench, request(bench, 4)) == []
    assert len(steps(bench, request(bench, 6))) == 1


def test_a_request_with_widths_that_the_job_cannot_have_is_refused(bench: SlotHarness) -> None:
    for widths in ((("nothing", 2),), ((bench.plan.vertices[0].name, 0),)):
        with pytest.raises(MessageMalformed):
            check_for_slot(bench.plan, COORDINATOR, WarmUp(5, 1, widths, TASKS))
    (refused,) = bench.slot.step(MessageReceived(SlotId(11), WarmUp(5, 1, (), TASKS)))
    assert isinstance(refused, effect.RefuseMessage)
    assert TaskId(0) in bench.slot.hosted
