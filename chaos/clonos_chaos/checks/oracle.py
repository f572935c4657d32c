"""Oracle of simulated worlds: invariants that must hold in every world (protocol 10).

It receives all events and delegates: ``log_watch`` compares causal logs and bounds their length, ``channel_watch``
compares elements, ``survival`` knows which failures may cost a log, ``verdict`` reads the output of the job. A
complaint ends the world.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator.coordinator_effects import JobDone, JobFailed
from clonos.core.coordinator.failure_detector import GRACE_HEARTBEATS
from clonos.core.coordinator.failure_policy import DEATHS_OF_POISON
from clonos.core.model.ids import COORDINATOR, ChannelId, CheckpointId, Incarnation, SlotId, TaskId
from clonos.core.model.plan import Plan
from clonos.core.wire.control_messages import Snapshotted, View
from clonos.core.wire.recovery_messages import JournalLost, LogLost, SinkFenced
from clonos_chaos.checks.assignment_watch import AssignmentWatch
from clonos_chaos.checks.channel_watch import ChannelWatch
from clonos_chaos.checks.log_watch import LogWatch
from clonos_chaos.checks.situation_watch import Situations
from clonos_chaos.checks.survival import Survival
from clonos_chaos.sim.rare_situations import RESCALED, RESCALED_AFTER_END
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.sim_slot import SimSlot
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS, SECOND_NS


class Oracle:
    """Oracle that checks a world while it runs and judges its output."""

    def __init__(self, world: SimCluster) -> None:
        self.world = world
        self.incarnations: dict[TaskId, dict[Incarnation, SlotId]] = {}
        self.retired: dict[
            str, dict[Incarnation, SlotId]
        ] = {}  # of tasks that the plan does not have any more, by name
        self.is_over = False  # the job has ended: later deaths are not failures
        self.logs = LogWatch(world)
        self.channels = ChannelWatch(world)
        self.survival = Survival(world)
        self.assignment = AssignmentWatch(world)
        self.situations = Situations(world)
        self.is_lost = False  # a task has reported a lost log in this generation
        self._progress_ns = 0  # last event that a stuck job does not have
        self._records_ns = (
            0  # last event that a job does not have whose sources wait for ever, though checkpoints complete
        )
        self._died_at: Counter[tuple[TaskId, ChannelId | None, int]] = (
            Counter()
        )  # (task, channel, seq) that the coordinator may know
        self._completed = CheckpointId(0)  # highest durable checkpoint
        self._last: CheckpointMetadata | None = None  # its metadata
        self._until_look = world.settings.look_every

    # ------------------------------------------------------------------ events

    def started(self, slot: SlotId, task: TaskId, incarnation: Incarnation) -> None:
        """Checks that an incarnation starts once, in one slot."""
        incarnations = self.incarnations.setdefault(task, {})
        if incarnation in incarnations:
            self.world.fail(f"task {task} was started twice as incarnation {incarnation:x}")
        incarnations[incarnation] = slot
        name = self.world.plan.task_name(task) if task < len(self.world.plan.tasks) else f"task {task}"
        self.world.note(f"start {name} {incarnation:x} in slot {slot}")

    def renumber(self, before: Plan, plan: Plan) -> None:
        """Widths change: what is known of tasks stays with their names, and channels are others."""
        self.retired |= {before.task_name(task): lives for task, lives in self.incarnations.items()}
        names = {plan.task_name(task): task for task in plan.tasks}
        self.incarnations = {names[name]: self.retired.pop(name) for name in list(self.retired) if name in names}
        self.logs.forget_plan()
        self.channels.forget_plan()
        self.situations.forget_plan()
        self.survival.renumber(before, plan)

    def viewed(self, view: View) -> bool:
        """Checks a view: a new generation needs a lost log. Returns whether the view is a rollback."""
        before = self.world.view
        is_switch = self._is_switch(before, view)
        is_rollback = bool(before.number) and view.generation > before.generation and not is_switch
        if is_rollback and not self.is_lost and self._is_anybody_left(before):
            self.world.fail(f"generation {view.generation} begins, but no task has reported a lost log")
        if not is_switch:
            self.look()
        if is_switch:
            self.world.count(RESCALED)
            self._check_cut(before)
        if is_switch or is_rollback or not before.number:
            self.world.outcome.rollbacks += is_rollback
            self.is_lost = False
            self.survival.begin(view)
        else:
            self.survival.viewed(before, view)
        self.situations.viewed(view, is_rollback)
        self.world.outcome.views += 1
        self._progress_ns = self._records_ns = self.world.clock.now_ns
        return is_rollback

    def _is_switch(self, before: View, view: View) -> bool:
        """Returns whether a view goes on from a cut with the widths in its metadata."""
        last = self._last
        is_after = last is not None and last.is_cut and last.generation == before.generation
        return is_after and view.generation > before.generation

    def _check_cut(self, before: View) -> None:
        """Checks that each task stands at the barrier of the cut: its log ends there, and its output is committed."""
        assert self._last is not None
        if any(entry.final for entry in self._last.tasks):
            self.world.count(RESCALED_AFTER_END)
        is_committed = self.world.committed_up_to >= self._last.checkpoint
        if not is_committed and any(entry.prepared for entry in self._last.tasks):
            self.world.fail(
                f"the tasks begin again before the output of their cut {self._last.checkpoint} is committed"
            )
        for entry in self._last.tasks:
            slot = self.world.slot_at(before.placements[entry.task].slot)
            hosted = slot.slot.hosted.get(entry.task) if slot is not None and not slot.is_dead else None
            if hosted is None or hosted.incarnation != entry.incarnation:
                continue
            if (end_bytes := hosted.logs.end_bytes(hosted.own_log)) != entry.log_offset_bytes:
                name = hosted.plan.task_name(entry.task)
                self.world.fail(f"the log of {name} ends at {end_bytes}, after its cut at {entry.log_offset_bytes}")

    def _is_anybody_left(self, view: View) -> bool:
        """Returns whether the coordinator must know a task of a view. A new coordinator that knows none starts anew."""
        return any(
            (slot := self.world.slot_of(placement.task)) is not None
            and placement.task in slot.slot.hosted
            and self._must_be_known(slot)
            for placement in view.placements
        )

    def _must_be_known(self, slot: SimSlot) -> bool:
        """Returns whether a slot has reported its tasks to this coordinator since it could, or had the time to.

        A connection that is restored just before the new coordinator has listened for a lease comes too late.
        """
        world, coordinator = self.world, self.world.coordinator
        whole_ns = world.network.whole_since_ns(slot.id, COORDINATOR)
        if whole_ns is None or slot.paused_until_ns > world.clock.now_ns:
            return False
        since_ns = max(whole_ns, slot.paused_until_ns, coordinator.began_ns)
        has_reported = coordinator.status_received_ns.get(slot.id, -1) >= since_ns
        has_had_time = world.clock.now_ns - since_ns >= GRACE_HEARTBEATS * world.options.heartbeat_ms * MILLISECOND_NS
        return has_reported or (has_had_time and not world.network.loss)

    def dying(self, slots: list[SlotId]) -> None:
        """Records that these processes are about to die."""
        if self.is_over:
            return
        self._progress_ns = self._records_ns = self.world.clock.now_ns
        for slot in slots:
            for life in self.world.slots[slot].tasks.values():
                announced = {element for element in (life.announced, life.acknowledged) if element is not None}
                self._died_at.update((life.task, *element) for element in announced)
        self.survival.dying(slots, self.world.view)
        self.situations.dying(slots)

    def diverged(self) -> None:
        """Takes over that a replay has differed. Where code is to do that, it permits a rollback; else the channels are
        looked at, which shows both values."""
        if self.world.expects_divergence:
            self.is_lost = True
        else:
            self.channels.look(self.world.view)

    def lost(self, message: LogLost | JournalLost | SinkFenced) -> None:
        """Checks a report that the generation must end: a failure must have permitted the loss."""
        placements = self.world.view.placements
        is_current = message.task < len(placements) and placements[message.task].incarnation == message.incarnation
        if not is_current or self.is_lost:
            return
        self.is_lost = True
        self.world.count("lost")
        if not self.survival.why_permitted:
            what = type(message).__name__
            if isinstance(message, LogLost):
                what = f"LogLost at {message.position} of channel {message.channel} behind {message.received_up_to}"
            self.world.fail(
                f"{self.world.plan.task_name(message.task)} reports {what}, though no failure so far may cost a log"
            )

    def acknowledged(self, message: Snapshotted) -> None:
        """Checks that an acknowledged snapshot is in the store."""
        is_late = not self.world.view.number or message.incarnation < self.world.view.generation
        if is_late or message.checkpoint <= self._completed:
            return  # of a dead generation, or repeated: the task does not know yet that the checkpoint has ended
        self.situations.acknowledged(message, self.world.view)
        missing = [name for name in message.objects if name not in self.world.store]
        if missing and self.world.view.placements[message.task].incarnation == message.incarnation:
            self.world.fail(
                f"task {message.task} acknowledges {message.checkpoint}, but {missing} are not in the store"
            )

    def completed(self, metadata: CheckpointMetadata) -> None:
        """Records that a checkpoint is durable."""
        self._progress_ns = self.world.clock.now_ns
        self._completed, self._last = max(self._completed, metadata.checkpoint), metadata
        self.logs.completed(metadata)
        self.situations.completed(metadata)

    def delivered(self) -> None:
        """Counts a delivered message; now and then checks all logs, and that the job makes progress."""
        self._until_look -= 1
        if self._until_look <= 0:
            self._until_look = self.world.settings.look_every
            self.look()
            silent_ns = self.world.clock.now_ns - self._progress_ns
            patience_ns = self.world.settings.patience_ms * MILLISECOND_NS
            if silent_ns > patience_ns and self.world.ending is None:
                self.world.fail(f"stuck: no view, checkpoint or fault for {silent_ns / SECOND_NS:.1f} virtual seconds")
            silent_ns = self.world.clock.now_ns - self._records_ns
            if silent_ns > patience_ns and self.world.ending is None:
                self.world.fail(f"stuck: no view, record or fault for {silent_ns / SECOND_NS:.1f} virtual seconds")

    def received(self) -> None:
        """Records that a task has received elements that are no barriers."""
        self._records_ns = self.world.clock.now_ns

    def look(self) -> None:
        """Checks all logs, channels and assignments."""
        if self.world.view.number:
            self.logs.look(self.world.view)
            if not self.world.expects_divergence:
                self.channels.look(self.world.view)
            self.survival.look(self.world.view)
            self.assignment.look()

    # ------------------------------------------------------------------ the end

    def _looks_like_poison(self, failed: JobFailed) -> bool:
        """Returns whether random deaths at one element could not be told from a poison record."""
        tasks = [task for task in self.world.plan.tasks if self.world.plan.task_name(task) == failed.task_name]
        at = failed.at
        return at is not None and any(
            self._died_at[task, at.channel, at.first_seq] >= DEATHS_OF_POISON for task in tasks
        )

    def judge(self, complaints_of: Callable[[], list[str]]) -> None:
        """Checks at the end of the job that its output is that of a run without failures: asks for complaints."""
        world = self.world
        if isinstance(world.ending, JobFailed) and self._looks_like_poison(world.ending):
            self.world.count("three deaths at one element")
            return
        if not isinstance(world.ending, JobDone):
            world.fail(f"the job did not finish: {world.ending}")
        complaints = complaints_of()
        if complaints:
            world.fail("; ".join(complaints[:5]))
