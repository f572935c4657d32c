"""In simulated worlds: a task has caught up when its backlog is no larger than before its failure."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.core.coordinator.coordinator_effects import Milestone
from clonos.core.model.ids import ChannelId, TaskId
from clonos.core.ports.task_port import TaskEmission
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.standby.shadow import Shadow
from clonos_chaos.project.directed.building_blocks import PLAIN, about, directed, kills, line
from clonos_chaos.sim.sim_task import SimTask
from clonos_chaos.sim.targeted_faults import TargetedFault
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.world import World
from tests.worlds.playing import is_done, played_scene

pytestmark = pytest.mark.worlds


class Watch:
    """The real backlog of a task, from the work of its threads instead of its slots' reports."""

    def __init__(self, world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.task: TaskId = world.task(name)
        self.processed: dict[ChannelId, int] = {}
        self.waiting_at: dict[str, int] = {}  # when the successor's milestones were told
        self.waited_max = 0  # while the first incarnation lived
        self._emit, self._note = SimTask.emit, world.note
        monkeypatch.setattr(SimTask, "emit", lambda port, emission: self._emitted(port, emission))
        monkeypatch.setattr(world, "note", self._recorded)

    def _emitted(self, port: SimTask, emission: TaskEmission) -> None:
        if port.world is self.world and port.task == self.task:
            if self.world.killed == 0:
                self.waited_max = max(self.waited_max, self.waiting())
            self.processed.update({channel: next_seq for channel, next_seq, _ in emission.consumed})
        self._emit(port, emission)

    def _recorded(self, line: str) -> None:
        milestone = line.split(maxsplit=1)[0]
        if milestone in tuple(Milestone) and f" task {self.task} " in line:
            self.waiting_at[milestone] = self.waiting()
        self._note(line)

    def waiting(self) -> int:
        """Elements that the task's inputs have produced and it has not processed."""
        total = 0
        for channel in self.world.plan.inputs[self.task]:
            slot = self.world.slot_of(channel.sender)
            assert slot is not None
            produced_seq = slot.slot.hosted[channel.sender].outputs.senders[channel.id].log.next_seq
            total += produced_seq - self.processed.get(channel.id, 0)
        return total


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_task_with_a_backlog_catches_up_after_its_replay(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No slot is spare, and the source has produced everything when a new one is there."""
    dies = TargetedFault("emission", kills("a/0"), about("a/0"), nth=100)
    settings = {"fresh_slot_ns_max": 20_000 * MILLISECOND_NS, "spare_slots": 0}
    world = directed(seed, line(PLAIN, PLAIN), [dies], {"standbys": 0}, settings, records=800)
    watch = Watch(world, "a/0", monkeypatch)
    world.run()
    assert is_done(world)
    assert list(watch.waiting_at) == [
        each for each in Milestone if each is not Milestone.FAILED
    ]  # no last sign of life
    assert watch.waited_max < watch.waiting_at[Milestone.REPLAYED]
    assert watch.waiting_at[Milestone.CAUGHT_UP] <= watch.waited_max


@pytest.mark.slow
def test_a_shadow_that_takes_over_keeps_its_processed_count(monkeypatch: pytest.MonkeyPatch) -> None:
    taken_over: list[int] = []
    take_over = HostedTask.take_over

    def watched(hosted: Any, shadow: Shadow) -> None:
        restored = dict(hosted.snapshot.inputs)
        take_over(hosted, shadow)
        for channel, receiver in hosted.inputs.receivers.items():
            assert receiver.processed_seq == shadow.receivers[channel].processed_seq
            taken_over.append(receiver.processed_seq - restored[channel])

    monkeypatch.setattr(HostedTask, "take_over", watched)
    played_scene("50 hot standby takes over")
    assert any(taken_over)
