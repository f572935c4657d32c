"""Hot standbys, case 50: a task continues in its shadow or is restored, with the same output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from clonos.core.model.ids import COORDINATOR, Incarnation, ViewNumber
from clonos.core.ports.slot_effects import SendMessage
from clonos.core.ports.task_port import TaskEmission
from clonos.core.slot.backups import Backups
from clonos.core.slot.slot_events import MessageReceived
from clonos.core.standby.shadow import Shadow
from clonos.core.standby.shadow_feed import ShadowFeeds
from clonos.core.wire.control_messages import Completed, View
from clonos.core.wire.shadow_messages import FeedShadow
from clonos_chaos.project.directed.building_blocks import RICH, directed, line
from clonos_chaos.project.directed.hot_standby_cases import HOT
from clonos_chaos.project.mutants.mutation import Mutation
from clonos_chaos.sim.rare_situations import HOT_TAKEOVER
from clonos_chaos.sim.sim_slot import SimSlot
from clonos_chaos.swarm.world import World
from tests.worlds.playing import incarnations_of, played, played_scene, scenes_of

pytestmark = [pytest.mark.worlds, pytest.mark.slow]

PASSIVE = (
    "50 task dies with its shadow",
    "50 task dies when its shadow begins",
    "50 code raises in the shadow only",
)
"""In these the shadow is dead, too young or at fault, and the task goes on without it."""


@pytest.mark.slow
@pytest.mark.parametrize("scene", [scene for scene in scenes_of(50) if scene not in PASSIVE])
def test_a_failed_task_continues_in_its_shadow(scene: str) -> None:
    for world in played_scene(scene):
        assert world.outcome.reached[HOT_TAKEOVER] > 0
        assert world.outcome.rollbacks == 0


@pytest.mark.parametrize("scene", PASSIVE)
def test_a_failed_task_without_a_shadow_is_restored(scene: str) -> None:
    for world in played_scene(scene):
        assert incarnations_of(world, "a/0") > 1
        assert world.outcome.rollbacks == 0


def test_code_that_raises_only_in_a_shadow_ends_the_shadow_with_a_warning() -> None:
    for world in played(50, "code raises in the shadow only"):
        assert HOT_TAKEOVER not in world.outcome.reached
        assert any("hot standby of a/0 has ended" in text and "offset 150" in text for text, _ in world.warnings)


def test_a_shadow_is_dropped_when_the_memory_of_its_slot_is_short() -> None:
    with _followed() as (_, slot, shadow):
        slot.slot.relieve_pressure()
        assert shadow.outputs
        slot.slot.pressure.budget.tail_bytes += slot.slot.options.inflight_memory_bytes
        slot.slot.relieve_pressure()
        assert not shadow.is_following
        assert len(shadow.outputs) == 0


# ------------------------------------------------------------------ rules that random worlds do not exercise


@contextmanager
def _followed() -> Iterator[tuple[World, SimSlot, Shadow]]:
    """A world in whose midst ``a/0`` has a shadow that could take over."""
    world = directed(3, line(RICH, HOT, RICH), [], records=300)
    for _ in range(world.slots_needed):
        world.add_slot()
    world.coordinator.begin(world.slots_needed)
    try:
        while (found := _standing(world)) is None:
            world.clock.step()
        yield world, *found
    finally:
        for slot in world.slots.values():
            slot.kill()


def _standing(world: World) -> tuple[SimSlot, Shadow] | None:
    for slot in world.living():
        for shadow in slot.slot.backups.shadows.values():
            if shadow.stands_at(slot.slot.completed):
                return slot, shadow
    return None


def _promoting(view: View, shadow: Shadow, slot: SimSlot, number: int) -> View:
    """The view of this number, in which the task goes on in its shadow's slot."""
    restored = shadow.reached[max(at for at in shadow.reached if at <= slot.slot.completed)]
    placement = msgspec.structs.replace(
        view.placements[shadow.task],
        incarnation=Incarnation(number),
        slot=slot.id,
        restore=restored.checkpoint,
        log_offset_bytes=restored.log_offset_bytes,
        is_fresh=False,
        standbys=(),
    )
    placements = (*view.placements[: shadow.task], placement, *view.placements[shadow.task + 1 :])
    return msgspec.structs.replace(view, number=ViewNumber(number), placements=placements)


def _goes_on_from_shadow(views_skipped: int) -> bool:
    with _followed() as (_, slot, shadow):
        view = slot.slot.view
        slot.handle(MessageReceived(COORDINATOR, _promoting(view, shadow, slot, view.number + 1 + views_skipped)))
        return slot.slot.hosted[shadow.task].promoted_shadow is shadow


def test_a_shadow_takes_over_only_by_the_next_view() -> None:
    """By a later view the task may have run elsewhere in between, with other choices."""
    assert _goes_on_from_shadow(views_skipped=0)
    assert not _goes_on_from_shadow(views_skipped=1)


def test_the_worlds_detect_a_shadow_that_takes_over_by_a_later_view() -> None:
    mutation = Mutation()

    def succeeds(right: Any, self: Backups, shadow: Any, placement: Any, view: View, installed: View) -> bool:
        before = msgspec.structs.replace(installed, number=view.number - 1)
        return bool(right(self, shadow, placement, view, before))

    mutation.wrap(Backups, "_succeeds", succeeds)
    try:
        assert _goes_on_from_shadow(views_skipped=1)
    finally:
        mutation.undo()


def _sent_in_mid_step() -> list[FeedShadow]:
    """Messages to the shadow when the task sends a determinant in the middle of a step."""
    with _followed() as (world, _, shadow):
        primary = world.slot_of(shadow.task)
        assert primary is not None
        hosted = primary.slot.hosted[shadow.task]
        hosted.shadow_feeds.tick()  # nothing waits
        primary.slot.shell.take()
        hosted.on_emission(TaskEmission(b"\x81\x01"))
        hosted.shadow_feeds.tick()
        sent = [asked.message for asked in primary.slot.shell.take() if isinstance(asked, SendMessage)]
        return [message for message in sent if isinstance(message, FeedShadow) and message.deltas]


def test_a_shadow_receives_only_completed_steps() -> None:
    """A record that kills its process would kill the shadow's too."""
    assert _sent_in_mid_step() == []


def test_the_worlds_detect_a_shadow_that_receives_unfinished_steps() -> None:
    mutation = Mutation()

    def on_emission(right: Callable[..., None], self: ShadowFeeds, emission: TaskEmission, received: Any) -> None:
        right(self, emission._replace(records_in=1), received)

    mutation.wrap(ShadowFeeds, "on_emission", on_emission)
    try:
        assert _sent_in_mid_step() != []
    finally:
        mutation.undo()


class Released(tuple[bytes, ...]):
    """Pieces that know whether they were let go."""

    is_released = False

    def release(self) -> None:
        """Drops the pieces."""
        self.is_released = True


def test_a_shadow_releases_the_state_frozen_for_a_checkpoint_when_it_completes() -> None:
    with _followed() as (_, slot, shadow):
        pieces = Released()
        shadow.more[slot.slot.completed] = pieces
        shadow.reached[slot.slot.completed] = shadow.reached[max(shadow.reached)]
        shadow.on_completed(Completed(slot.slot.completed, slot.slot.view.generation, ()))
        assert pieces.is_released
