"""What a slot holds for tasks of other slots: standbys, the shadows of hot ones, and keepers."""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING

from clonos.core.external.keeper import Keeper
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import SlotId, TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.ports.slot_shell import SlotShell
from clonos.core.standby.shadow import Shadow
from clonos.core.standby.state_mirror import Standby
from clonos.core.wire.authorization import check_life, sender_name
from clonos.core.wire.control_messages import Placement, View
from clonos.core.wire.replication_messages import AppendLog, StandbyUpdate
from clonos.core.wire.shadow_messages import FeedShadow

if TYPE_CHECKING:
    from clonos.core.slot.hosted_task import HostedTask
    from clonos.core.slot.slot import Slot


class Backups(ABC):
    """The part of a ``Slot`` that has riders: installed with each view, fed by the slots of their tasks."""

    id: SlotId
    plan: Plan
    options: Options
    shell: SlotShell
    view: View
    hosted: dict[TaskId, HostedTask]

    def __init__(self) -> None:
        self.standbys: dict[TaskId, Standby] = {}
        self.shadows: dict[TaskId, Shadow] = {}
        self.keepers: dict[TaskId, Keeper] = {}
        self._shadows_numbered = 0

    def number_shadow(self) -> int:
        """A number that no session of a shadow here has had."""
        self._shadows_numbered += 1
        return self._shadows_numbered

    # ------------------------------------------------------------------ messages

    def _on_keep(self, sender: SlotId, message: AppendLog, _payload: object) -> None:
        check_life(sender, message.task, message.incarnation, self.view)
        keeper = self.keepers.get(message.task)
        kept = keeper.keep(message, self.id) if keeper is not None else None
        if kept is not None and (slot := self.view.placements[message.task].slot) is not None:
            self.shell.send(slot, kept)

    def _on_standby_update(self, sender: SlotId, update: StandbyUpdate, payload: bytes | memoryview) -> None:
        check_life(sender, update.task, update.incarnation, self.view)
        if not update.objects:
            raise MessageMalformed(sender_name(sender), "a snapshot for a standby that is in no object of the store")
        standby = self.standbys.get(update.task)
        if standby is not None and update.checkpoint > standby.checkpoint:
            standby.hold(update, bytes(payload))
        shadow = self.shadows.get(update.task)
        if shadow is not None:
            shadow.on_update(update)

    def _on_feed(self, sender: SlotId, message: FeedShadow, payload: bytes | memoryview) -> None:
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

    def _install_keepers(self, view: View, installed: View) -> None:
        named = [p for p in view.placements if self.id in p.keepers]
        # Whoever was named no longer in a view that was skipped here lacks what came since, and may have more than is.
        old = {p.task: self.keepers.get(p.task) for p in named if p.is_keeper_since(self.id) <= installed.number}
        self.keepers = {p.task: old.get(p.task) or Keeper(p.task, p.incarnation) for p in named}
        if view.generation != installed.generation:
            for keeper in self.keepers.values():
                keeper.begin_generation()
        for placement in named:
            self.keepers[placement.task].apply_view(placement.incarnation)

    def _install_standbys(self, view: View) -> None:
        # A standby that is activated now is no standby any more, but its mirror is what the task starts from.
        kept: dict[TaskId, Standby] = {}
        for placement in view.placements:
            task = placement.task
            if self.id in placement.standbys:
                kept[task] = self.standbys.get(task) or self._new_standby(placement)
                kept[task].apply_view(placement.incarnation, placement.restore)
            elif placement.slot == self.id and task in self.standbys and task not in self.hosted:
                kept[task] = self.standbys[task]
                kept[task].apply_view(placement.incarnation, placement.restore)
        self.standbys = kept

    def _new_standby(self, placement: Placement) -> Standby:
        task = placement.task
        return Standby(task, placement.incarnation, lambda: self.shell.new_mirror(task))

    def _install_shadows(self, view: View, installed: View) -> None:
        """A shadow lives as long as its incarnation has a standby here, and on if the next one lives here."""
        kept: dict[TaskId, Shadow] = {}
        for task, shadow in self.shadows.items():
            placement = view.placements[task]
            if self._succeeds(shadow, placement, view, installed):
                shadow.incarnation, shadow.is_sealed = placement.incarnation, True
            at = placement.slot == self.id if shadow.is_sealed else self.id in placement.standbys
            if at and placement.incarnation == shadow.incarnation:
                kept[task] = shadow
            else:
                shadow.close()
        for task in sorted(self.plan.hot - kept.keys()) if self.options.causal_logging else ():
            placement = view.placements[task]
            if self.id in placement.standbys and placement.slot != self.id:
                kept[task] = Shadow(self._slot(), placement)
                kept[task].ask()
        self.shadows = kept

    def _succeeds(self, shadow: Shadow, placement: Placement, view: View, installed: View) -> bool:
        """Whether the incarnation that follows the shadow's own begins here. By a view that was skipped another one may
        have lived elsewhere, whose log is not what the shadow has followed."""
        return (
            placement.slot == self.id
            and not placement.is_fresh
            and not shadow.is_sealed
            and shadow.incarnation == installed.placements[placement.task].incarnation
            and int(placement.incarnation) == view.number == installed.number + 1
        )

    def end_shadows(self) -> bool:
        """Memory is short: those that nothing depends on begin anew at a later barrier. Whether there were any."""
        ended = [shadow for shadow in self.shadows.values() if shadow.is_following and not shadow.is_sealed]
        for shadow in ended:
            shadow.renew()
        return bool(ended)

    def drop_shadow(self, task: TaskId) -> None:
        """It is no use."""
        self.shadows.pop(task).close()

    def forget_shadow(self, task: TaskId) -> None:
        """It is the task now, and the task needs no mirror here."""
        del self.shadows[task]
        self.standbys.pop(task, None)

    def _slot(self) -> Slot:
        from clonos.core.slot.slot import Slot

        assert isinstance(self, Slot), self
        return self
