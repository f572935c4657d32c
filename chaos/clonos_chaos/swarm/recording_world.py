"""Recordings in a simulated world: each task's whole epochs are read, one checkpoint after the other, while the slots
do not learn that the checkpoint is complete."""

from __future__ import annotations

from typing import Any

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.checkpoint.snapshot import decode_snapshot
from clonos.core.model.ids import COORDINATOR, CheckpointId, SlotId, TaskId
from clonos.core.recovery.capture import EpochEnd, TaskCapture
from clonos.core.recovery.completed_hold import CompletedHold
from clonos.core.wire.control_messages import Completed
from clonos.core.wire.messages import Message
from clonos_chaos.sim.network import Watch
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.capturing_world import BYTES_MAX, CapturedEpoch, CapturingWorld

TIME_NS_MAX = 400 * MILLISECOND_NS
"""Time for which an epoch is read, before it is given up."""


class RecordingWorld(CapturingWorld):
    """World in which the epochs of all tasks are recorded. ``captured``: whole ones; ``given_up``: how many were not
    read in time, or not any more."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.given_up = self.held = 0
        self._hold = CompletedHold(CheckpointId(0))
        self._announced: CheckpointMetadata | None = None
        self._begun: CheckpointMetadata | None = None
        self._ended: CheckpointMetadata | None = None
        self._left: list[TaskId] = []
        self._due_ns = 0
        self._faults_watch: Watch | None = None
        self.clock.after(0, self._begin_watch)

    def _begin_watch(self) -> None:
        """Takes the place of the watch of the faults, which is there from the beginning of the run."""
        self._faults_watch, self.network.watch = self.network.watch, self._watch

    def _tick(self) -> None:
        if self._announced is None and self.view.placements:
            self._announced = self.coordinator.machine.completed
        super()._tick()

    def _watch(self, what: str, sender: SlotId, receiver: SlotId, message: Message) -> bool:
        """Returns whether a message is not sent."""
        if self._faults_watch is not None and self._faults_watch(what, sender, receiver, message):
            return True
        if not isinstance(message, Completed) or what != "sent":
            return False
        completed = self.coordinator.machine.completed
        if message.checkpoint != completed.checkpoint or message.generation != completed.generation:
            return False  # of an earlier coordinator
        if self._announced is None or message.checkpoint > self._announced.checkpoint:
            self._reach(completed)
        passed = self._hold.passed(message)
        if passed is message:
            return False
        self.held += 1
        if passed is not None:
            self.network.send(COORDINATOR, receiver, passed, b"")
        return True

    def _reach(self, completed: CheckpointMetadata) -> None:
        before, self._announced = self._announced, completed
        if self._left or before is None or len(before.tasks) != len(completed.tasks):
            self._give_up()
        else:
            self._begun, self._ended = before, completed
            self._left = [task for task in self.plan.tasks if not before.tasks[task].final]
            self._due_ns = self.clock.now_ns + TIME_NS_MAX
        if not self._left:
            self._hold.release(completed.checkpoint)

    def _give_up(self) -> None:
        self.given_up += len(self._left)
        self._left, self._capture = [], None
        assert self._announced is not None
        self._hold.release(self._announced.checkpoint)

    def _begin(self) -> TaskCapture | None:
        if (self._capture is not None and self._capture.is_stale) or (self._left and self.clock.now_ns > self._due_ns):
            self._give_up()
        view = self.view
        if not self._left or self.coordinator.is_dead or len(view.placements) <= self._left[0]:
            return None
        assert self._begun is not None and self._ended is not None
        task = self._left[0]
        entry, after = self._begun.tasks[task], self._ended.tasks[task]
        last = after.objects[-1]
        if any(name not in self.store for name in (*entry.objects, last)):
            self._give_up()
            return None
        self._objects = [(name, self.store[name]) for name in entry.objects]
        restored = self._restore(task)
        self.begun += 1
        end = EpochEnd(after.log_offset_bytes, decode_snapshot(self.store[last][0], last))
        snapshot = restored and restored.snapshot
        capture = TaskCapture(self.plan, view, entry, snapshot, self.begun, BYTES_MAX, end)
        for pages in capture.outputs:
            pages.has_digests = False
        return capture

    def _end_of(self, epoch: CapturedEpoch) -> None:
        super()._end_of(epoch)
        self._left.pop(0)
        if not self._left:
            assert self._announced is not None
            self._hold.release(self._announced.checkpoint)
