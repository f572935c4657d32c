"""Warm-ups: slots read the state of the next tasks before the cut, as of a checkpoint, and nothing depends on it."""

from __future__ import annotations

from msgspec import structs

from clonos.core.coordinator import rescale_machine, warming
from clonos.core.coordinator.coordinator_effects import DeleteObjects, DivideState
from clonos.core.coordinator.coordinator_events import OutputCommitted, RescaleRequested, StateDivided, StopRequested
from clonos.core.coordinator.rescale_machine import Cutting, Steady, Warming
from clonos.core.model.ids import CheckpointId, SlotId
from clonos.core.model.options import Options
from clonos.core.wire.control_messages import WarmSource, WarmUp
from tests.harnesses.coordinator_harness import CoordinatorHarness, live_chain, of_kind, sent


def waiting(*widths: tuple[str, int], reads: bool = False) -> CoordinatorHarness:
    """A job whose slots were asked to read ahead; ``reads``: they do so at once."""
    harness = live_chain()
    harness.complete(1)
    harness.do(OutputCommitted(CheckpointId(1)))
    for slot in harness.slots.values():
        slot.reads_ahead = reads
    harness.do(RescaleRequested(7, widths))
    if widths:
        harness.register(7, "a")
        harness.slots[SlotId(7)].reads_ahead = reads
    for _ in range(TICKS_MAX):
        if sent(harness.tick(100), WarmUp):
            return harness
    raise AssertionError(state_of(harness))


def tick_until_cut(harness: CoordinatorHarness) -> None:
    for _ in range(TICKS_MAX):
        harness.tick(100)
        if harness.view.cut:
            return
    raise AssertionError(state_of(harness))


def state_of(harness: CoordinatorHarness) -> rescale_machine.State:
    return harness.coordinator.rescale


def asked(harness: CoordinatorHarness, milliseconds: int = 200) -> dict[SlotId, WarmUp]:
    """The last request to each slot in a while."""
    found: dict[SlotId, WarmUp] = {}
    for slot, message in sent(harness.tick(milliseconds), WarmUp):
        assert isinstance(message, WarmUp)
        found[slot] = message
    return found


TICKS_MAX = 100


def finish_reading(harness: CoordinatorHarness) -> None:
    for slot, message in asked(harness).items():
        harness.slots[slot].warmed = message.number


def test_each_slot_is_asked_to_read_the_state_of_the_tasks_that_begin_there() -> None:
    harness = waiting(("map", 3))
    requests = asked(harness, 100)
    found = {task.task: (slot, task.sources) for slot, m in requests.items() for task in m.tasks}
    entries = harness.coordinator.completed.tasks
    old = tuple(WarmSource("map", index, 2, entries[2 + index].objects) for index in (0, 1))
    assert {name: sources for name, (_, sources) in found.items() if name.startswith("map")} == {
        f"map/{index}": old for index in range(3)
    }
    assert found["source/0"] == (harness.of(0).hosting_slot, (WarmSource("", 0, 0, entries[0].objects),))
    assert {slot for slot, _ in found.values()} == set(harness.slots), "map/2 has the slot without a task"
    places = {name: slot for name, (slot, _) in found.items()}
    for slot, message in requests.items():
        harness.slots[slot].warmed = message.number
    tick_until_cut(harness)
    harness.tick(300)
    harness.divides = False
    harness.acknowledge(harness.view.cut)
    [divide] = of_kind((*harness.durable(CheckpointId(2)), *harness.do(OutputCommitted(CheckpointId(2)))), DivideState)
    had = divide.metadata.tasks
    tasks = (*had[:4], structs.replace(had[3], task=4), *(structs.replace(e, task=e.task + 1) for e in had[4:]))
    harness.do(StateDivided(CheckpointId(2), structs.replace(divide.metadata, tasks=tasks)))
    assert {harness.coordinator.plan.task_name(p.task): p.slot for p in harness.view.placements} == places


def test_the_cut_waits_for_slots_that_read_and_not_for_a_dead_slot() -> None:
    harness = waiting()
    late = harness.of(0).hosting_slot
    for slot, message in asked(harness).items():
        if slot != late:
            harness.slots[slot].warmed = message.number
    harness.tick(1_000)
    assert isinstance(state_of(harness), Warming)
    harness.gone(late)
    harness.tick(1_000)
    assert harness.pending() == [2], "slots are to read as of a fresh checkpoint"
    harness.acknowledge(2)
    harness.durable(2)
    finish_reading(harness)
    harness.tick(200)
    assert isinstance(state_of(harness), Cutting), "the death gives up nothing before the cut has its number"


def test_slots_that_take_too_long_are_not_waited_for() -> None:
    harness = waiting()
    harness.tick(Options().rescale_timeout_ms + 1_000)
    assert isinstance(state_of(harness), Cutting)


def test_requests_are_repeated_at_the_heartbeat_and_without_tasks_once_a_slot_has_done_them() -> None:
    harness = waiting()
    first = asked(harness)
    assert asked(harness) == first
    slot = min(first)
    harness.slots[slot].warmed = first[slot].number
    harness.tick(100)
    again = asked(harness)
    assert again.pop(slot) == WarmUp(first[slot].number, first[slot].generation, first[slot].widths, ())
    assert again == {other: message for other, message in first.items() if other != slot}


def test_slots_read_again_as_of_a_new_checkpoint_if_the_last_one_is_old() -> None:
    harness = waiting()
    first = asked(harness, 1_000)  # the checkpoint gets old
    harness.tick(100)
    finish_reading(harness)
    harness.tick(300)
    assert harness.pending() == [2], "a checkpoint begins at once"
    assert isinstance(state_of(harness), Warming)
    harness.acknowledge(2)
    harness.durable(2)
    again = asked(harness)
    assert again.keys() == first.keys()
    assert all(m.number > first[slot].number and m.tasks != first[slot].tasks for slot, m in again.items())
    finish_reading(harness)
    harness.tick(300)
    assert isinstance(state_of(harness), Cutting)


def test_the_cut_follows_after_some_rounds_however_old_the_checkpoint_is() -> None:
    harness = waiting()
    for checkpoint in range(2, 2 + warming.ROUNDS_MAX):
        assert isinstance(state_of(harness), Warming), checkpoint
        harness.tick(1_000)
        finish_reading(harness)
        harness.tick(300)
        if isinstance(state_of(harness), Warming):
            harness.acknowledge(checkpoint)
            harness.durable(checkpoint)
    assert isinstance(state_of(harness), Cutting)


def test_the_objects_that_slots_read_outlast_later_checkpoints_until_they_are_done() -> None:
    harness = waiting()
    read = {name for m in asked(harness).values() for task in m.tasks for each in task.sources for name in each.objects}
    deleted: list[str] = []
    for checkpoint in range(2, 6):
        effects = harness.complete(checkpoint)
        harness.do(OutputCommitted(CheckpointId(checkpoint)))
        deleted += [name for effect in of_kind(effects, DeleteObjects) for name in effect.names]
    assert not read & set(deleted)
    effects = (*harness.do(StopRequested(drain=True)), *harness.tick(100))
    assert isinstance(state_of(harness), Steady)
    assert read <= {name for effect in of_kind(effects, DeleteObjects) for name in effect.names}


def test_a_change_that_is_given_up_asks_for_nothing_more() -> None:
    harness = waiting()
    assert asked(harness)
    harness.do(StopRequested(drain=True))
    assert isinstance(state_of(harness), Steady)
    assert not asked(harness, 1_000)


def test_slots_retain_what_they_have_read_until_the_generation_begins() -> None:
    harness = waiting(reads=True)
    tick_until_cut(harness)
    assert asked(harness, 300), "while the checkpoint is under way"
    harness.acknowledge(harness.view.cut)
    harness.durable(CheckpointId(2))
    assert harness.view.begins_at_cut
    assert not asked(harness, 1_000)


def test_a_job_without_a_checkpoint_reads_nothing_ahead() -> None:
    harness = live_chain()
    harness.do(RescaleRequested(7, ()))
    effects = harness.tick(500)
    assert not sent(effects, WarmUp)
    assert harness.view.cut == 1
