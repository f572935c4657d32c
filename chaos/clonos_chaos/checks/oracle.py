"""What must hold in every world (``docs/protocol.md``, section 10), and who watches over it.

This file hears of everything that happens and hands it on: ``log_watch`` compares causal logs and bounds what is kept,
``channel_watch`` compares elements, ``survival`` knows which failures may cost a log, ``verdict`` reads what has left
the job. A complaint ends the world.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator.coordinator_effects import JobDone, JobFailed
from clonos.core.coordinator.failure_detector import GRACE_HEARTBEATS
from clonos.core.coordinator.failure_policy import DEATHS_OF_POISON
from clonos.core.model.ids import COORDINATOR, ChannelId, CheckpointId, Incarnation, SlotId, TaskId, ViewNumber
from clonos.core.wire.control_messages import Snapshotted, View
from clonos.core.wire.recovery_messages import JournalLost, LogLost, SinkFenced
from clonos_chaos.checks.assignment_watch import AssignmentWatch
from clonos_chaos.checks.channel_watch import ChannelWatch
from clonos_chaos.checks.log_watch import LogWatch
from clonos_chaos.checks.survival import Survival
from clonos_chaos.sim.rare_situations import Situations
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS, SECOND_NS

if TYPE_CHECKING:
    from clonos_chaos.sim.sim_slot import SimSlot
    from clonos_chaos.swarm.world import World


class Oracle:
    """Watches a world and judges its end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.view = View(ViewNumber(0), 0, "", (), ())  # the latest one that was issued
        self.views: list[View] = []  # all that were issued
        self.lives: dict[TaskId, dict[Incarnation, SlotId]] = {}
        self.is_over = False  # the job has ended: who dies from now on is no failure
        self.logs = LogWatch(world)
        self.channels = ChannelWatch(world)
        self.survival = Survival(world)
        self.assignment = AssignmentWatch(world)
        self.situations = Situations(world)
        self.is_lost = False  # in this generation a task has reported LOST
        self._progress_ns = 0  # when something has happened that a stuck job does not do
        self._died_at: Counter[tuple[TaskId, ChannelId | None, int]] = (
            Counter()
        )  # (task, channel, seq) that the coordinator may know
        self._completed = CheckpointId(0)  # the highest number that is durable
        self._until_look = world.settings.look_every

    # ------------------------------------------------------------------ hears

    def started(self, host: SimSlot, task: TaskId, incarnation: Incarnation) -> None:
        """An incarnation is started once, in one slot."""
        lives = self.lives.setdefault(task, {})
        if incarnation in lives:
            self.world.fail(f"task {task} was started twice as incarnation {incarnation:x}")
        lives[incarnation] = host.id
        self.world.note(f"start {self.world.plan.task_name(task)} {incarnation:x} in slot {host.id}")

    def viewed(self, view: View) -> bool:
        """Views grow; a new generation needs a lost log. Whether it is a rollback."""
        before = self.view
        is_rollback = bool(before.number) and view.generation > before.generation
        if is_rollback and not self.is_lost and self._is_anybody_left(before):
            self.world.fail(f"generation {view.generation} begins, but nobody has reported LOST")
        self.look()
        self.view = view
        self.views.append(view)
        if is_rollback or not before.number:
            self.world.outcome.rollbacks += is_rollback
            self.is_lost = False
            self.survival.begin(view)
        else:
            self.survival.viewed(before, view)
        self.situations.viewed(view, is_rollback)
        if not before.number:
            self.world.faults.first_view()
        self.world.outcome.views += 1
        self._progress_ns = self.world.clock.now_ns
        return is_rollback

    def _is_anybody_left(self, view: View) -> bool:
        """Whether the coordinator must know of some task of a view. If a new one knows of none, it begins anew."""
        return any(
            (slot := self.world.slot_of(placement.task)) is not None
            and placement.task in slot.slot.hosted
            and self._must_be_known(slot)
            for placement in view.placements
        )

    def _must_be_known(self, slot: SimSlot) -> bool:
        """Whether a slot has told this coordinator what it hosts and could answer it since, or had the time to tell it.

        A connection that is there again just before the new one has listened for a lease comes too late."""
        world, coordinator = self.world, self.world.coordinator
        whole_ns = world.network.whole_since_ns(slot.id, COORDINATOR)
        if whole_ns is None or slot.paused_until_ns > world.clock.now_ns:
            return False
        since_ns = max(whole_ns, slot.paused_until_ns, coordinator.began_ns)
        has_reported = coordinator.status_received_ns.get(slot.id, -1) >= since_ns
        has_had_time = world.clock.now_ns - since_ns >= GRACE_HEARTBEATS * world.options.heartbeat_ms * MILLISECOND_NS
        return has_reported or (has_had_time and not world.network.loss)

    def dying(self, slots: list[SlotId]) -> None:
        """These processes are about to die."""
        if self.is_over:
            return
        self._progress_ns = self.world.clock.now_ns
        for slot in slots:
            for life in self.world.slots[slot].tasks.values():
                announced = {element for element in (life.announced, life.acknowledged) if element is not None}
                self._died_at.update((life.task, *element) for element in announced)
        self.survival.dying(slots, self.view)
        self.situations.dying(slots)

    def lost(self, message: LogLost | JournalLost | SinkFenced) -> None:
        """A task has told the coordinator that the generation must end."""
        if self.view.placements[message.task].incarnation != message.incarnation or self.is_lost:
            return
        self.is_lost = True
        self._count("lost")
        if not self.survival.why_permitted:
            what = type(message).__name__
            if isinstance(message, LogLost):
                what = f"LOST at {message.position} of channel {message.channel} behind {message.claim}"
            self.world.fail(
                f"{self.world.plan.task_name(message.task)} reports {what}, though no failure so far may cost a log"
            )

    def acknowledged(self, message: Snapshotted) -> None:
        """A task has told the coordinator that its snapshot is durable: it is."""
        if message.checkpoint <= self._completed:
            return  # repeated, because the task has not heard yet that it is over
        self.situations.acknowledged(message, self.view)
        missing = [name for name in message.objects if name not in self.world.store]
        if missing and self.view.placements[message.task].incarnation == message.incarnation:
            self.world.fail(
                f"task {message.task} acknowledges {message.checkpoint}, but {missing} are not in the store"
            )

    def completed(self, metadata: CheckpointMetadata) -> None:
        """A checkpoint is durable."""
        self._progress_ns = self.world.clock.now_ns
        self._completed = max(self._completed, metadata.checkpoint)
        self.logs.completed(metadata)
        self.situations.completed(metadata)

    def delivered(self) -> None:
        """A message was taken in by a slot: now and then all logs are looked at, and whether anything moves."""
        self._until_look -= 1
        if self._until_look <= 0:
            self._until_look = self.world.settings.look_every
            self.look()
            silent_ns = self.world.clock.now_ns - self._progress_ns
            if silent_ns > self.world.settings.patience_ms * MILLISECOND_NS and self.world.ending is None:
                self.world.fail(f"stuck: no view, checkpoint or fault for {silent_ns / SECOND_NS:.1f} virtual seconds")

    def look(self) -> None:
        """At all logs and channels."""
        if self.view.number:
            self.logs.look(self.view)
            self.channels.look(self.view)
            self.survival.look(self.view)
            self.assignment.look()

    def _count(self, what: str) -> None:
        reached = self.world.outcome.reached
        reached[what] = reached.get(what, 0) + 1

    # ------------------------------------------------------------------ the end

    def _is_unlucky(self, failed: JobFailed) -> bool:
        """Chance has killed so often at one element that nobody can tell it from a poison record."""
        tasks = [task for task in self.world.plan.tasks if self.world.plan.task_name(task) == failed.task_name]
        at = failed.at
        return at is not None and any(
            self._died_at[task, at.channel, at.first_seq] >= DEATHS_OF_POISON for task in tasks
        )

    def judge(self) -> None:
        """The job has ended: its output is that of some run without failures."""
        world = self.world
        if isinstance(world.ending, JobFailed) and self._is_unlucky(world.ending):
            self._count("three deaths at one element")
            return
        if not isinstance(world.ending, JobDone):
            world.fail(f"the job did not finish: {world.ending}")
        complaints = world.complaints()
        if complaints:
            world.fail("; ".join(complaints[:5]))
