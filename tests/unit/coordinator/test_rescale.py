"""Live rescale: all tasks stand at the barrier of one checkpoint, and the next generation begins there."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from clonos.core.coordinator import rescale_machine
from clonos.core.coordinator.checkpoint_machine import COMMIT_ATTEMPTS_MAX
from clonos.core.coordinator.coordinator_effects import Alarm, CommitOutput, DivideState, JobFailed, WriteMetadata
from clonos.core.coordinator.coordinator_events import (
    MetadataWritten,
    OutputCommitted,
    RescaleRequested,
    StateDivided,
    StopRequested,
    WriteOutcome,
)
from clonos.core.coordinator.rescale import refusal
from clonos.core.model.errors import Blame
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.model.plan import LIMIT_KIND, Edge, Partitioning, Plan, StatefulStep, Vertex
from clonos.core.model.progress import TaskPhase
from clonos.core.wire.control_messages import TriggerCheckpoint, View
from clonos.core.wire.recovery_messages import AnnounceStep
from clonos.job.status_view import build_status
from tests.harnesses.coordinator_harness import (
    CoordinatorHarness,
    live_chain,
    of_kind,
    sent,
    sharing_chain,
    written_metadata,
)

CUT = CheckpointId(2)


def cutting(*widths: tuple[str, int], **options: Any) -> CoordinatorHarness:
    """A job whose view names its second checkpoint as the cut."""
    harness = live_chain(**options)
    harness.complete(1)
    harness.do(OutputCommitted(CheckpointId(1)))
    harness.do(RescaleRequested(7, widths))
    while not harness.view.cut:
        harness.tick(100)
    assert harness.view.cut == CUT
    return harness


def state_of(harness: CoordinatorHarness) -> rescale_machine.State:
    return harness.coordinator.rescale


def refusal_of(harness: CoordinatorHarness) -> str:
    state = state_of(harness)
    assert isinstance(state, rescale_machine.Steady), state
    return state.refusal


def test_the_checkpoint_of_a_cut_begins_only_when_every_slot_has_the_view_with_it() -> None:
    harness = live_chain()
    harness.complete(1)
    deaf = harness.slots[harness.of(0).hosting_slot]
    harness.do(RescaleRequested(7, ()))
    while not isinstance(state_of(harness), rescale_machine.Cutting):
        harness.tick(100)
    deaf.is_deaf = True
    effects = harness.tick(1_000)
    assert harness.view.cut == CUT
    assert not sent(effects, TriggerCheckpoint), "a task that does not know the cut would go on after the barrier"
    deaf.is_deaf = False
    assert sent(harness.tick(1_000), TriggerCheckpoint)


def test_the_metadata_of_a_cut_has_the_widths_and_the_next_view_begins_a_generation() -> None:
    harness = cutting()
    harness.tick(300)
    before = harness.view
    metadata = written_metadata(harness.acknowledge(CUT))
    assert metadata.widths == (("source", 2), ("map", 2), ("sink", 2))
    harness.durable(CUT)
    assert harness.view.generation > before.generation
    assert harness.view.begins_at_cut
    assert not harness.view.cut
    assert all(p.is_fresh and p.restore == CUT for p in harness.view.placements)
    harness.tick(300)
    assert state_of(harness) == rescale_machine.Steady(7)


def test_the_view_of_a_switch_waits_until_the_output_of_the_cut_is_committed() -> None:
    harness = cutting()
    harness.tick(300)
    before = harness.view
    harness.acknowledge(CUT, parts=[(CUT, b"part")])
    assert of_kind(harness.durable(CUT), CommitOutput)
    harness.gone(harness.of(0).hosting_slot)
    harness.tick(1_000)
    assert harness.view == before, "a task would begin again behind the cut"
    harness.do(OutputCommitted(CUT))
    assert harness.view.generation > before.generation


def test_a_failure_before_the_metadata_gives_the_rescale_up_and_all_tasks_go_on() -> None:
    harness = cutting()
    harness.tick(300)
    harness.acknowledge(CUT, 1, 2, 3, 4)
    generation = harness.view.generation
    harness.gone(harness.of(0).hosting_slot)
    assert (harness.view.cut, harness.view.generation) == (0, generation)
    assert "source/0 has failed" in refusal_of(harness)
    assert harness.coordinator.is_rescale_interrupted(7)
    harness.tick(300)
    metadata = written_metadata((*harness.acknowledge(CUT, 0), *harness.acknowledge(CUT, 5)))
    assert not metadata.is_cut, "it counts as an ordinary checkpoint"


def test_a_failure_after_the_metadata_is_begun_does_not_give_the_rescale_up() -> None:
    harness = cutting()
    harness.tick(300)
    generation = harness.view.generation
    assert of_kind(harness.acknowledge(CUT), WriteMetadata)
    harness.gone(harness.of(0).hosting_slot)
    harness.do(MetadataWritten(CUT, WriteOutcome.FAILED, "unknown"))
    assert harness.view.generation == generation
    harness.tick(500)
    harness.durable(CUT)
    assert harness.view.generation > generation
    assert harness.view.begins_at_cut


def shown_checkpoint(harness: CoordinatorHarness) -> int:
    status = build_status("id", True, (), harness.coordinator).rescale
    assert status is not None
    return status.checkpoint


def test_the_status_names_the_checkpoint_at_which_tasks_stop_until_they_begin_again() -> None:
    harness = live_chain()
    harness.complete(1)
    harness.do(OutputCommitted(CheckpointId(1)))
    harness.do(RescaleRequested(7, (("map", 1),)))
    assert shown_checkpoint(harness) == 0
    while not harness.view.cut:
        harness.tick(100)
    assert shown_checkpoint(harness) == CUT
    harness.tick(300)
    harness.divides = False
    harness.acknowledge(CUT)
    [division] = of_kind(harness.durable(CUT), DivideState)
    assert isinstance(state_of(harness), rescale_machine.Switching)
    assert shown_checkpoint(harness) == CUT
    harness.do(StateDivided(CUT, division.metadata))
    assert isinstance(state_of(harness), rescale_machine.Switching)
    assert shown_checkpoint(harness) == 0


def test_tasks_that_have_ended_do_not_keep_the_widths_from_changing() -> None:
    harness = live_chain()
    harness.complete(1)
    harness.do(OutputCommitted(CheckpointId(1)))
    harness.acknowledge(CheckpointId(1), 0, final=True)
    harness.slots[harness.of(0).hosting_slot].phase = TaskPhase.FINAL
    harness.do(RescaleRequested(7, (("map", 1),)))
    while not harness.view.cut:
        harness.tick(100)
    harness.tick(300)
    metadata = written_metadata(harness.acknowledge(CUT, 1, 2, 3, 4, 5))
    assert (metadata.is_cut, metadata.tasks[0].final) == (True, True)
    harness.durable(CUT)
    assert harness.view.begins_at_cut
    assert len(harness.view.placements) == 5


def test_a_task_that_ends_before_its_barrier_does_not_give_the_cut_up() -> None:
    harness = cutting()
    harness.tick(300)
    harness.acknowledge(CheckpointId(CUT - 1), 0, final=True)
    assert written_metadata(harness.acknowledge(CUT, 1, 2, 3, 4, 5)).is_cut
    harness.durable(CUT)
    assert (harness.view.begins_at_cut, harness.view.cut) == (True, 0)


def test_widths_of_a_job_whose_tasks_have_all_ended_are_refused() -> None:
    harness = live_chain()
    harness.complete(1)
    harness.acknowledge(CheckpointId(1), final=True)
    harness.do(RescaleRequested(7, (("map", 1),)))
    assert refusal_of(harness) == "it has read all input"


def test_a_cut_that_takes_too_long_is_given_up() -> None:
    harness = cutting(rescale_timeout_ms=2_000)
    harness.tick(300)
    harness.acknowledge(CUT, 0, 1, 2)
    effects = harness.tick(3_000)
    [text] = [alarm.text for alarm in of_kind(effects, Alarm) if "rescale_timeout" in alarm.text]
    assert text.startswith("the widths stay as they are: map/1 did not end calls or a step that had begun")
    assert harness.coordinator.rescale_refusals.get(7, "") in text
    assert not harness.view.cut
    assert sent(effects, View)


def test_a_job_that_is_being_stopped_changes_no_widths() -> None:
    harness = cutting()
    harness.do(StopRequested(drain=True))
    assert refusal_of(harness) == "the job is being stopped"
    assert not harness.coordinator.is_rescale_interrupted(7)
    harness.do(RescaleRequested(8, ()))
    assert state_of(harness) == rescale_machine.Steady(8, "the job is being stopped")


def test_a_change_of_widths_is_refused_while_another_one_is_under_way() -> None:
    harness = cutting()
    before = state_of(harness)
    harness.do(RescaleRequested(8, ()))
    assert state_of(harness) == before
    assert harness.coordinator.rescale_refusals.get(8, "") == "another change of widths is under way"
    assert harness.coordinator.rescale_refusals.get(7, "") == ""


def test_the_reason_of_a_change_that_was_given_up_is_known_when_another_one_has_begun() -> None:
    harness = cutting()
    harness.gone(harness.of(0).hosting_slot)
    reason = refusal_of(harness)
    harness.do(RescaleRequested(8, ()))
    assert harness.coordinator.rescale_refusals.get(7, "") == reason
    harness.do(StopRequested(drain=True))
    harness.tick(100)
    harness.do(RescaleRequested(9, ()))
    assert harness.coordinator.rescale_refusals.get(7, "") == reason
    assert harness.coordinator.rescale_refusals.get(9, "") == "the job is being stopped"


@pytest.mark.parametrize(
    ("widths", "reason"),
    [
        ({"map": 3}, ""),
        ({"mop": 3}, "the job has no step mop; it has source, map, limit"),
        ({"map": 0}, '"map" cannot have 0 tasks: 1 to 128 (max_parallelism) are possible'),
        ({"map": 129}, '"map" cannot have 129 tasks: 1 to 128 (max_parallelism) are possible'),
        ({"source": 3}, '"source" keeps its number of tasks: it keeps a journal of its input, which has an order'),
        ({"limit": 3}, '"limit" keeps its number of tasks: it lets a limited number of records through'),
    ],
)
def test_widths_that_a_job_cannot_have_are_refused_with_the_reason(widths: dict[str, int], reason: str) -> None:
    vertices = (
        Vertex("source", 1, is_source=True, is_journalled=True),
        Vertex("map", 2),
        Vertex("limit", 1, steps=(StatefulStep("limit", LIMIT_KIND),)),
    )
    edges = (Edge(0, 1, Partitioning.HASH, 0), Edge(1, 2, Partitioning.HASH, 0))
    assert refusal(Plan("job", vertices, edges), widths) == reason


def test_a_vertex_whose_state_cannot_be_divided_keeps_its_width_in_a_running_job_too() -> None:
    vertices = Vertex("source", 2, is_source=True), Vertex("total", 2, fixed="its records have no key")
    plan = Plan("job", vertices, (Edge(0, 1, Partitioning.HASH, 0),))
    assert refusal(plan, {"total": 3}) == '"total" keeps its number of tasks, 2: its records have no key'
    assert refusal(plan, {"total": 2, "source": 4}) == ""


def test_state_of_a_cut_that_cannot_be_divided_ends_the_job_with_the_remedy() -> None:
    harness = cutting(("map", 1))
    harness.tick(300)
    harness.divides = False
    harness.acknowledge(CUT)
    assert of_kind(harness.durable(CUT), DivideState)
    [failed] = of_kind(harness.do(StateDivided(CUT, None, "it is torn", blame=Blame.ENVIRONMENT)), JobFailed)
    assert failed.blame is Blame.ENVIRONMENT
    assert failed.reason.startswith("the widths could not change at checkpoint 2: it is torn. To go on with")


def test_a_division_that_fails_is_repeated_after_pauses_that_double_and_then_ends_the_job() -> None:
    harness = cutting(("map", 1))
    harness.tick(300)
    harness.divides = False
    harness.acknowledge(CUT)
    harness.durable(CUT)
    pauses_ms = []
    for _ in range(COMMIT_ATTEMPTS_MAX - 1):
        [alarm] = of_kind(harness.do(StateDivided(CUT, None, "the store is away.")), Alarm)
        assert alarm.text == "the state of checkpoint 2 could not be divided; trying again"
        begun_ns = harness.now_ns
        while not of_kind(harness.tick(100), DivideState):
            assert harness.now_ns < begun_ns + 100_000_000_000
        pauses_ms.append((harness.now_ns - begun_ns) // 1_000_000)
    assert pauses_ms == [100 * 2**attempt for attempt in range(COMMIT_ATTEMPTS_MAX - 1)]
    [failed] = of_kind(harness.do(StateDivided(CUT, None, "the store is away.")), JobFailed)
    assert failed.blame is Blame.ENVIRONMENT
    assert "among the next tasks in 10 attempts: the store is away. Repair the store, then resume" in failed.reason


def test_numbers_of_tasks_in_messages_of_other_generations_are_not_looked_up() -> None:
    harness = live_chain()
    coordinator, generation = harness.coordinator, harness.view.generation
    now = AnnounceStep(TaskId(0), Incarnation(generation), ChannelId(0), 0)
    assert coordinator.plan_of(now) is coordinator.plan
    assert coordinator.plan_of(structs.replace(now, incarnation=Incarnation(generation - 1))) is None
    assert coordinator.plan_of(structs.replace(now, incarnation=Incarnation(harness.view.number + 1))) is None
    wider = coordinator.plan_of(structs.replace(harness.view, widths=(("map", 5),)))
    assert wider is not None
    assert len(wider.tasks) == len(coordinator.plan.tasks) + 3


def test_a_change_that_waits_for_a_job_in_vain_names_what_was_under_way() -> None:
    harness = live_chain(rescale_timeout_ms=2_000)
    harness.complete(1)
    harness.do(OutputCommitted(CheckpointId(1)))
    slot = harness.slots[harness.of(3).hosting_slot]
    slot.phase = TaskPhase.REPLAYING
    harness.speak()
    harness.do(RescaleRequested(7, ()))
    harness.tick(3_000)
    assert refusal_of(harness).startswith("the job did not come to rest, because map/1 did not run within 2 s")


@pytest.mark.parametrize("is_placed_anew", [False, True])
def test_tasks_are_spread_over_all_slots_at_a_switch_if_the_request_asks_for_it(is_placed_anew: bool) -> None:
    harness = sharing_chain()
    hosting = [placement.slot for placement in harness.view.placements]
    assert len(set(hosting)) < len(hosting), "two tasks share a slot, and another slot has none"
    harness.complete(2)
    harness.do(OutputCommitted(CheckpointId(2)))
    harness.do(RescaleRequested(7, (), is_placed_anew=is_placed_anew))
    while not harness.view.cut:
        harness.tick(100)
    cut = harness.view.cut
    harness.tick(300)
    harness.acknowledge(cut)
    harness.durable(cut)
    harness.do(OutputCommitted(cut))
    assert harness.view.begins_at_cut
    slots = [placement.slot for placement in harness.view.placements]
    assert (len(set(slots)) == len(slots)) is is_placed_anew
    assert (slots == hosting) is not is_placed_anew
