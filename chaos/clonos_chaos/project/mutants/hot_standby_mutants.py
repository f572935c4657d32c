"""Mutants of hot standbys: what a shadow receives, when it may take over, what it leaves behind."""

from __future__ import annotations

from typing import Any

from clonos.core.channel.receiver import ChannelReceiver
from clonos.core.model.ids import CheckpointId, LogId
from clonos.core.recovery.recovery_machine import Recovering
from clonos.core.recovery.task_recovery import TaskRecovery
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.standby.shadow import Shadow
from clonos.core.standby.shadow_feed import ShadowFeed
from clonos.core.wire.log_delta import Delta
from clonos_chaos.project.mutants.mutation import Mutation, mutant


@mutant("6")
def shadow_gets_only_the_own_log(mutation: Mutation) -> None:
    """A shadow receives every log that the task holds: a holder of an entry has its causes."""

    def deltas(right: Any, self: ShadowFeed, own_log: LogId, *rest: Any) -> tuple[Delta, ...]:
        return tuple(delta for delta in right(self, own_log, *rest) if delta.log == own_log)

    mutation.wrap(ShadowFeed, "deltas", deltas)


@mutant("6")
def shadow_is_no_holder(mutation: Mutation) -> None:
    """The logs of a shadow count as a reply when its task's log is gathered."""

    def add_reply(right: Any, self: TaskRecovery, slot: Any, deltas: Any, is_restored: bool) -> None:
        before = self.state
        right(self, slot, deltas, is_restored)
        assert isinstance(before, Recovering) and isinstance(self.state, Recovering)
        self.state = Recovering(before.gathering, self.state.is_restored)

    mutation.wrap(TaskRecovery, "add_reply", add_reply)


@mutant("6")
def shadow_takes_over_wherever_it_stands(mutation: Mutation) -> None:
    """A shadow takes over only if it has passed the barrier of the restored checkpoint, with all output since."""

    def stands_at(right: Any, self: Shadow, restore: CheckpointId) -> bool:
        if self.handle is not None and self.reached and restore not in self.reached:
            self.reached[restore] = self.reached[min(self.reached)]
        return bool(right(self, restore))

    mutation.wrap(Shadow, "stands_at", stands_at)


@mutant("6")
def snapshots_of_a_shadow_are_forgotten(mutation: Mutation) -> None:
    """Snapshots of a shadow for checkpoints that are not complete are stored when it takes over."""

    def take_over(right: Any, self: HostedTask, shadow: Shadow) -> None:
        shadow.reached = {at: taken for at, taken in shadow.reached.items() if at <= self.placement.restore}
        right(self, shadow)

    mutation.wrap(HostedTask, "take_over", take_over)


@mutant("6")
def shadow_asks_for_its_input_again(mutation: Mutation) -> None:
    """A shadow that takes over asks its inputs to continue after what it has received."""

    def take_over(right: Any, self: ChannelReceiver, *arguments: Any) -> None:
        start = self.next_seq
        right(self, *arguments)
        self.next_seq = start

    mutation.wrap(ChannelReceiver, "take_over", take_over)
