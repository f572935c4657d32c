"""Standbys, shadows of hot standbys and keepers that a slot holds for other slots (protocol 3, 5 and 6.10)."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count

from clonos.core.checkpoint.snapshot import RestoredState
from clonos.core.external.keeper import Keeper
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import CheckpointId, Incarnation, SlotId, TaskId, ViewNumber
from clonos.core.ports.slot_effects import ShadowRead, StandbyRead
from clonos.core.standby.shadow import Shadow
from clonos.core.standby.slot_context import SlotContext
from clonos.core.standby.state_mirror import Standby
from clonos.core.wire.authorization import check_life, sender_name
from clonos.core.wire.control_messages import Completed, Placement, View
from clonos.core.wire.replication_messages import AppendLog, StandbyUpdate
from clonos.core.wire.shadow_messages import FeedShadow


class Backups:
    """Standbys, shadows and keepers of one slot: installed with each view, fed by the slots of their tasks."""

    def __init__(self, context: SlotContext) -> None:
        self.context, self.slot, self.plan, self.shell = context, context.slot, context.plan, context.shell
        self.view = View(ViewNumber(0), 0, "", (), ())
        self.completed = CheckpointId(0)
        self.standbys: dict[TaskId, Standby] = {}
        self.shadows: dict[TaskId, Shadow] = {}
        self.keepers: dict[TaskId, Keeper] = {}
        #: Invariant: a shadow has the incarnation of its task in the view
        self._sessions = count(1)  # numbers of sessions with shadows, each given once

    @property
    def log_bytes(self) -> int:
        """Memory of the causal logs and replicas that keepers and shadows hold."""
        found_bytes = 0
        for keeper in self.keepers.values():
            found_bytes += keeper.logs.size_bytes
        for shadow in self.shadows.values():
            found_bytes += shadow.logs.size_bytes
        return found_bytes

    def of_plan(self, context: SlotContext, installed: View) -> Backups:
        """Ends all that has ids of the plan so far; returns the backups of the next plan, which have the journals."""
        self.close()
        found = Backups(context)
        found.take_over(self, installed)
        return found

    def take_over(self, before: Backups, installed: View) -> None:
        """Takes over the journals that the keepers of another plan have."""
        self.view, self.completed, self._sessions = installed, before.completed, before._sessions
        for task, keeper in before.keepers.items():
            successor = self.plan.task_named(before.plan.task_name(task))
            if successor is not None:
                self.keepers[successor] = keeper.of_task(successor, self.context.log_offsets)

    # ------------------------------------------------------------------ messages

    def on_append_log(self, sender: SlotId, message: AppendLog, _payload: object) -> None:
        """Appends to the logs of a keeper, and acknowledges.

        Raises: MessageMalformed, if the sender does not host the task.
        """
        check_life(sender, message.task, message.incarnation, self.view)
        keeper = self.keepers.get(message.task)
        acknowledgement = keeper.keep(message, self.slot) if keeper is not None else None
        if acknowledgement is not None and (slot := self.view.placements[message.task].slot) is not None:
            self.shell.send(slot, acknowledgement)

    def on_standby_update(self, sender: SlotId, update: StandbyUpdate, payload: bytes | memoryview) -> None:
        """Hands a snapshot to the task's standby and shadow.

        Raises: MessageMalformed, if the sender does not host the task, or if the snapshot is not in the store.
        """
        check_life(sender, update.task, update.incarnation, self.view)
        if not update.objects:
            raise MessageMalformed(sender_name(sender), "a snapshot for a standby that is in no object of the store")
        standby = self.standbys.get(update.task)
        if standby is not None and update.checkpoint > standby.checkpoint:
            standby.hold(update, bytes(payload))
        shadow = self.shadows.get(update.task)
        if shadow is not None:
            shadow.on_update(update)

    def on_feed(self, sender: SlotId, message: FeedShadow, payload: bytes | memoryview) -> None:
        """Hands what a task has decided and taken in to its shadow.

        Raises: MessageMalformed, if the sender does not host the task, or if the task has no such input.
        """
        check_life(sender, message.task, message.incarnation, self.view)
        shadow = self.shadows.get(message.task)
        if shadow is None or message.incarnation != shadow.incarnation:
            return
        if message.count:
            channels = [channel.id for channel in self.plan.inputs[message.task]]
            if message.channel not in channels:
                what = f"elements of channel {message.channel} for task {message.task}"
                raise MessageMalformed(sender_name(sender), f"{what}, which takes in {channels}")
        shadow.on_feed(message, payload)

    # ------------------------------------------------------------------ views

    def apply_view(self, view: View, hosted: Collection[TaskId]) -> None:
        """Installs what the view has in this slot; ``hosted``: the tasks that live here already."""
        installed, self.view = self.view, view
        self._install_keepers(view, installed)
        self._install_standbys(view, hosted)
        self._install_shadows(view, installed)

    def _install_keepers(self, view: View, installed: View) -> None:
        named = [p for p in view.placements if self.slot in p.keepers]
        # A keeper that a skipped view did not name lacks what came since, and may have more than exists.
        old = {p.task: self.keepers.get(p.task) for p in named if p.is_keeper_since(self.slot) <= installed.number}
        self.keepers = {p.task: old.get(p.task) or self._new_keeper(p) for p in named}
        if view.generation != installed.generation:
            for keeper in self.keepers.values():
                keeper.begin_generation()
        for placement in named:
            self.keepers[placement.task].apply_view(placement.incarnation)

    def _new_keeper(self, placement: Placement) -> Keeper:
        return Keeper(placement.task, placement.incarnation, self.context.log_offsets)

    def _install_standbys(self, view: View, hosted: Collection[TaskId]) -> None:
        # A standby that is activated now is no standby any more, but its mirror is what the task starts from.
        remaining: dict[TaskId, Standby] = {}
        for placement in view.placements:
            task = placement.task
            if self.slot in placement.standbys:
                remaining[task] = self.standbys.get(task) or self._new_standby(placement)
                remaining[task].apply_view(placement.incarnation, placement.restore)
            elif placement.slot == self.slot and task in self.standbys and task not in hosted:
                remaining[task] = self.standbys[task]
                remaining[task].apply_view(placement.incarnation, placement.restore)
        self.standbys = remaining

    def _new_standby(self, placement: Placement) -> Standby:
        task = placement.task
        return Standby(task, placement.incarnation, lambda: self.shell.new_mirror(task))

    def _install_shadows(self, view: View, installed: View) -> None:
        """Keeps a shadow while its incarnation has a standby here, and on if the next incarnation lives here."""
        remaining: dict[TaskId, Shadow] = {}
        for task, shadow in self.shadows.items():
            placement = view.placements[task]
            if self._succeeds(shadow, placement, view, installed):
                shadow.seal(placement.incarnation)
            at = placement.slot == self.slot if shadow.is_sealed else self.slot in placement.standbys
            if at and placement.incarnation == shadow.incarnation:
                remaining[task] = shadow
            else:
                shadow.close()
        for task in sorted(self.plan.hot - remaining.keys()) if self.context.options.causal_logging else ():
            placement = view.placements[task]
            if self.slot in placement.standbys and placement.slot != self.slot:
                remaining[task] = Shadow(self.context, view, placement, self.completed, self._sessions)
                remaining[task].ask()
        self.shadows = remaining

    def _succeeds(self, shadow: Shadow, placement: Placement, view: View, installed: View) -> bool:
        """Whether the incarnation that follows the shadow's begins here.

        By a view that was skipped another one may have lived elsewhere, whose log is not what the shadow has followed.
        """
        return (
            placement.slot == self.slot
            and not placement.is_fresh
            and not shadow.is_sealed
            and shadow.incarnation == installed.placements[placement.task].incarnation
            and int(placement.incarnation) == view.number == installed.number + 1
        )

    # ------------------------------------------------------------------ state

    def restored(self, placement: Placement) -> Standby | None:
        """Takes the standby of a task that begins here out; returns it if it is at the checkpoint of the view."""
        standby = self.standbys.pop(placement.task, None)
        if standby is None:
            return None
        if not standby.is_at(placement.restore):
            standby.complete(placement.restore)
        return standby if standby.is_at(placement.restore) else None

    def on_objects_read(self, purpose: StandbyRead | ShadowRead, restored: RestoredState | None) -> None:
        """Takes snapshots from the store; a standby reads again when the next checkpoint completes."""
        if isinstance(purpose, ShadowRead):
            shadow = self.shadows.get(purpose.task)
            if shadow is not None:
                shadow.on_objects_read(purpose.session, restored)
            return
        standby = self.standbys.get(purpose.task)
        if standby is None or standby.incarnation != purpose.incarnation or restored is None:
            return
        if restored.snapshot.checkpoint > standby.checkpoint:
            standby.adopt(restored)

    def on_completed(self, completed: Completed) -> None:
        """Truncates logs up to a completed checkpoint, and brings standbys up to it."""
        self.completed = completed.checkpoint
        for keeper in self.keepers.values():
            keeper.logs.drop_completed()
        for standby in self.standbys.values():
            missing = standby.complete(completed.checkpoint)
            if missing:
                self.shell.read_objects(StandbyRead(standby.task, standby.incarnation), missing)
        for shadow in self.shadows.values():
            shadow.on_completed(completed)

    # ------------------------------------------------------------------ shadows

    def end_shadows(self) -> bool:
        """Ends shadows that nothing depends on, because memory is short; returns whether there were any."""
        ended = [shadow for shadow in self.shadows.values() if shadow.is_following and not shadow.is_sealed]
        for shadow in ended:
            shadow.renew()
        return bool(ended)

    def drop_shadow(self, task: TaskId) -> None:
        """Ends the shadow of a task that it cannot take over."""
        self.shadows.pop(task).close()

    def forget_shadow(self, task: TaskId) -> None:
        """Lets go of a shadow that is the task now, and of the mirror that the task does not need."""
        del self.shadows[task]
        self.standbys.pop(task, None)

    # ------------------------------------------------------------------ heartbeat and end

    def status(
        self,
    ) -> tuple[tuple[tuple[TaskId, CheckpointId], ...], tuple[tuple[TaskId, Incarnation], ...], tuple[TaskId, ...]]:
        """Returns the standbys, the ready keepers and the following shadows, as a ``SlotStatus`` lists them."""
        standbys = [(task, standby.checkpoint) for task, standby in sorted(self.standbys.items())]
        keepers = [(task, keeper.incarnation) for task, keeper in sorted(self.keepers.items()) if keeper.is_ready]
        shadows = [task for task, shadow in sorted(self.shadows.items()) if shadow.is_following]
        return tuple(standbys), tuple(keepers), tuple(shadows)

    def tick(self) -> None:
        """Repeats at the heartbeat what shadows ask for and what keepers hold."""
        for shadow in self.shadows.values():
            shadow.tick()
        for task, keeper in self.keepers.items():
            slot = self.view.placements[task].slot
            if keeper.is_ready and slot is not None:
                self.shell.send(slot, keeper.acknowledgement(self.slot))

    def validate(self) -> None:
        """Asserts what holds between two events."""
        for standby in self.standbys.values():
            standby.validate()
        for keeper in self.keepers.values():
            keeper.validate()
        for task, shadow in self.shadows.items():
            assert shadow.incarnation == self.view.placements[task].incarnation, (task, shadow.incarnation)
            shadow.validate()

    def close(self) -> None:
        """Ends all shadows."""
        for shadow in self.shadows.values():
            shadow.close()
        self.shadows.clear()
