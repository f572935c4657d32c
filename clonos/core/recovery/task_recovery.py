"""Recovery of one incarnation: its state, and the holders that it asks for its log (protocol 6.4 to 6.8)."""

from __future__ import annotations

from collections.abc import Iterable

from clonos.core.model.ids import COORDINATOR, LogId, SlotId
from clonos.core.model.plan import Plan
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.recovery import gathering as gather
from clonos.core.recovery import recovery_machine
from clonos.core.recovery.gathering import Gathering, Holder, begin_gathering
from clonos.core.recovery.recovery_machine import Effect, Event, Gathered, Lost, Recovering, State
from clonos.core.wire.control_messages import Placement, View
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.recovery_messages import LogReply, LogRequest


class TaskRecovery:
    """State of one incarnation. What has to be done is returned, as effects of the table."""

    __slots__ = ("incarnation", "plan", "shell", "state", "task")

    def __init__(self, plan: Plan, shell: EffectCollector, view: View, placement: Placement) -> None:
        self.task, self.incarnation, self.plan, self.shell = placement.task, placement.incarnation, plan, shell
        self.state: State = Recovering(begin_gathering(plan, view, self.task), not placement.objects)

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Takes one step of the table; returns what it asks for."""
        self.state, effects = recovery_machine.step(self.state, event)
        return effects

    @property
    def is_recovering(self) -> bool:
        """Whether the log or the state is not there yet."""
        return isinstance(self.state, Recovering)

    @property
    def needs_state(self) -> bool:
        """Whether the state as of the checkpoint of the view is still to be restored."""
        return isinstance(self.state, Recovering) and not self.state.is_restored

    def begin(self) -> Gathered | None:
        """Asks the holders; returns the event of it."""
        self.ask_holders()
        return Gathered(self.state.gathering) if isinstance(self.state, Recovering) else None

    def ask_holders(self) -> None:
        """Asks the holders that have not answered; repeated at the heartbeat."""
        if isinstance(self.state, Recovering):
            view = self.state.gathering.view
            for holder in sorted(self.state.gathering.waiting_for):
                request = LogRequest(self.task, self.incarnation, view, holder.task, holder.is_keeper)
                self.shell.send(holder.slot, request)

    def gather_again(self, view: View) -> Gathered | None:
        """Asks all holders again under another view, unless all have answered; returns the event of it."""
        if not isinstance(self.state, Recovering) or self.state.gathering.is_complete:
            return None
        gathering = gather.ask_again(begin_gathering(self.plan, view, self.task), self.state.gathering)
        self.state = Recovering(gathering, self.state.is_restored)
        self.ask_holders()
        return Gathered(gathering)

    def on_log_reply(self, reply: LogReply, log_offset_bytes: int) -> Gathered | None:
        """Takes the answer of a holder in; returns the event of it, if it is news. The state that is restored ends at
        ``log_offset_bytes`` of the log.

        Raises: MessageMalformed, if the copy begins after the checkpoint that is restored.
        """
        if not isinstance(self.state, Recovering):
            return None
        gather.check_reply(self.plan, reply, log_offset_bytes)
        holder = Holder(reply.holder, reply.is_keeper, reply.slot)
        gathering = gather.collect_reply(self.state.gathering, reply.view, holder, reply.replicas)
        return Gathered(gathering) if gathering is not self.state.gathering else None

    def add_reply(self, slot: SlotId, deltas: tuple[Delta, ...], is_restored: bool) -> None:
        """Counts what has come to the task's shadow in this slot as one more answer; the shadow may have the state."""
        assert isinstance(self.state, Recovering), self.state
        asked = self.state.gathering
        replies = (*asked.replies, (Holder(self.task, False, slot), deltas))
        gathering = Gathering(asked.view, asked.waiting_for, replies)
        self.state = Recovering(gathering, self.state.is_restored or is_restored)

    def lose_state(self) -> None:
        """Needs the state restored, because the shadow that had it has failed."""
        assert isinstance(self.state, Recovering), self.state
        self.state = Recovering(self.state.gathering, False)

    def gathered(self, logs: Iterable[LogId]) -> tuple[Delta, ...]:
        """Returns the longest copies of some logs that holders have sent so far."""
        assert isinstance(self.state, Recovering), self.state
        found = gather.gathered_logs(self.state.gathering)
        return tuple(found[log] for log in logs if log in found)

    def report_lost(self) -> None:
        """Reports to the coordinator what is lost; repeated at the heartbeat."""
        if isinstance(self.state, Lost):
            self.shell.send(COORDINATOR, recovery_machine.report_of(self.task, self.incarnation, self.state))
