"""Mutants of recovery: fencing, gathering, the lost-log rule, standbys, keepers, external systems."""

from __future__ import annotations

from typing import Any

from clonos.connectors.tables.table_writer import TableWriter
from clonos.core.checkpoint.pending_snapshots import PendingSnapshots
from clonos.core.external.external_output import ExternalOutput, KeeperLink
from clonos.core.external.keeper import Keeper
from clonos.core.external.output_gate import OutputGate
from clonos.core.model.ids import owner_of
from clonos.core.placement import assignment as placement
from clonos.core.recovery import gathering, recovery_machine
from clonos.core.recovery.gathering import Gathering
from clonos.core.recovery.task_recovery import TaskRecovery
from clonos.core.slot import hosted_task
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.slot.slot import FROM_SLOTS, Slot
from clonos.core.slot.storage_events import StorageEvents
from clonos.core.standby.state_mirror import Standby
from clonos.core.wire.recovery_messages import LogReply, LogRequest
from clonos.operators.connector_contract import WriterIdentity
from clonos_chaos.project.mutants.mutation import Mutation, mutant
from clonos_chaos.sim.external_systems import SimExternalSystem


class _Silent:
    """A part of a task of which one method does nothing."""

    def __init__(self, part: Any, silent: str) -> None:
        self._part, self._silent = part, silent

    def __getattr__(self, name: str) -> Any:
        return (lambda: None) if name == self._silent else getattr(self._part, name)


@mutant("6.3")
def no_fencing(mutation: Mutation) -> None:
    """A slot that installs a view stops the incarnations that the view does not assign to it."""

    mutation.swap(Slot, "fence", lambda self, view: {})


@mutant("7")
def external_system_does_not_fence(mutation: Mutation) -> None:
    """An external system refuses incarnations earlier than the registered one."""

    def write(right: Any, self: SimExternalSystem, incarnation: int, *arguments: Any) -> int:
        return int(right(self, self.life[1], *arguments))

    mutation.wrap(SimExternalSystem, "write", write)


@mutant("6.4")
def shortest_log_wins(mutation: Mutation) -> None:
    """The longest reply wins."""
    mutation.swap(gathering, "choose_longest", lambda copies: min(copies, key=lambda d: d.offset_bytes + len(d.data)))


@mutant("6.4")
def first_answer_wins(mutation: Mutation) -> None:
    """A successor waits for the replies of all holders."""
    mutation.swap(Gathering, "is_complete", property(lambda self: bool(self.replies) or not self.waiting_for))


@mutant("6.4")
def keepers_are_not_asked(mutation: Mutation) -> None:
    """Keepers are holders too."""

    def holders_of(right: Any, *arguments: Any) -> Any:
        return tuple(holder for holder in right(*arguments) if not holder.is_keeper)

    mutation.wrap(gathering, "holders_of", holders_of)


@mutant("6.4")
def no_repeated_log_requests(mutation: Mutation) -> None:
    """A log request is repeated at the heartbeat until the reply comes."""

    def tick(right: Any, self: HostedTask) -> None:
        recovery, self.recovery = self.recovery, _Silent(self.recovery, "ask_holders")  # type: ignore[assignment]
        right(self)
        self.recovery = recovery

    mutation.wrap(HostedTask, "tick", tick)


@mutant("6.4")
def holders_that_recover_do_not_answer(mutation: Mutation) -> None:
    """A holder replies in every state, also while it recovers itself."""

    def on_question(right: Any, self: Slot, sender: Any, logs_for: Any, payload: Any) -> None:
        holder = self.hosted.get(logs_for.holder)
        if logs_for.is_keeper or holder is None or not isinstance(holder.state, recovery_machine.Recovering):
            right(self, sender, logs_for, payload)

    mutation.wrap_entry(FROM_SLOTS, LogRequest, on_question)


@mutant("6.4")
def holders_answer_before_they_have_installed_the_view(mutation: Mutation) -> None:
    """A holder replies once it has installed the view of the request: until then it accepts logs."""

    def is_dropped(right: Any, self: Slot, sender: Any, message: Any) -> Any:
        if not isinstance(message, LogRequest) or message.view <= self.view.number:
            return right(self, sender, message)
        holder = self.hosted.get(message.holder)
        if holder is not None and not message.is_keeper:
            replicas = holder.logs_for(message.task)
            answer = LogReply(message.task, message.incarnation, message.view, message.holder, False, self.id, replicas)
            self.shell.send(sender, answer)
        return True

    mutation.wrap(Slot, "_is_of_another_view", is_dropped)


@mutant("6.5")
def nobody_is_asked_again_under_another_view(mutation: Mutation) -> None:
    """After another view, all holders are asked again under it."""
    mutation.swap(TaskRecovery, "gather_again", lambda recovery, view: None)


@mutant("6.4")
def replicas_are_not_gathered(mutation: Mutation) -> None:
    """The replicas that the task should hold are gathered too."""

    def adopt_logs(right: Any, self: HostedTask, found: dict[Any, Any]) -> None:
        right(self, {log: delta for log, delta in found.items() if owner_of(log) == self.task})

    mutation.wrap(HostedTask, "adopt_logs", adopt_logs)


@mutant("6.8")
def no_lost_log_rule(mutation: Mutation) -> None:
    """A task never records a new determinant while its output is behind a received position."""

    def end_log(self: HostedTask, positions: dict[Any, int]) -> None:
        self.advance(recovery_machine.LogEnded(tuple(sorted(positions.items())), None, False))

    mutation.swap(HostedTask, "end_log", end_log)


@mutant("6.7")
def positions_of_the_dead_count(mutation: Mutation) -> None:
    """Replay waits for the received position of a receiver that is being replaced."""

    def end_log(right: Any, self: HostedTask, positions: dict[Any, int]) -> None:
        sessions = {channel: sender.session for channel, sender in self.outputs.senders.items()}
        for sender in self.outputs.senders.values():
            sender.session = sender.session or 1
        right(self, positions)
        for channel, session in sessions.items():
            if channel in self.outputs.senders:
                self.outputs.senders[channel].session = session

    mutation.wrap(HostedTask, "end_log", end_log)


@mutant("6.7")
def replay_does_not_wait_for_handshakes(mutation: Mutation) -> None:
    """Replay begins when every receiver, external systems included, has sent its handshake."""
    table = recovery_machine.HANDLERS
    mutation.swap_entry(
        table,
        (recovery_machine.Connecting, recovery_machine.HandshakesReceived),
        lambda state, event: (recovery_machine.Replaying(), (recovery_machine.Start(),)),
    )


@mutant("6.2")
def standby_applies_later_changes(mutation: Mutation) -> None:
    """A standby restores exactly the checkpoint that the view names."""

    def restore(right: Any, self: Slot, hosted: HostedTask) -> None:
        standby = self.backups.standbys.get(hosted.task)
        if standby is not None:
            standby.complete(1 << 40)  # type: ignore[arg-type]
        right(self, hosted)

    def apply_view(self: Standby, incarnation: Any, checkpoint: Any) -> None:
        self.incarnation = incarnation

    mutation.swap(Standby, "apply_view", apply_view)
    mutation.wrap(StorageEvents, "restore", restore)
    mutation.swap(Standby, "is_at", lambda self, restored: self.applied is not None)


@mutant("6.2")
def standby_keeps_changes_of_the_dead(mutation: Mutation) -> None:
    """A standby drops changes of a dead incarnation beyond the checkpoint that the view names."""

    def apply_view(self: Standby, incarnation: Any, restore: Any) -> None:
        self.incarnation = incarnation

    mutation.swap(Standby, "apply_view", apply_view)


@mutant("5")
def standby_misses_a_change(mutation: Mutation) -> None:
    """A standby applies every change up to the completed checkpoint."""

    def hold(right: Any, self: Standby, update: Any, data: bytes) -> None:
        if update.previous is None or update.checkpoint % 3:
            right(self, update, data)

    def is_at(right: Any, self: Standby, restore: Any) -> bool:
        return self.applied is not None and self.applied.checkpoint >= restore - 1

    mutation.wrap(Standby, "hold", hold)
    mutation.wrap(Standby, "is_at", is_at)


@mutant("3")
def output_leaves_before_the_keepers_have_it(mutation: Mutation) -> None:
    """An effect leaves when the keepers have acknowledged its causes."""
    mutation.swap(ExternalOutput, "_is_free", lambda self, entry, links: True)


@mutant("7")
def calls_leave_before_the_keepers_have_them(mutation: Mutation) -> None:
    """A call with an effect is made when the keepers have acknowledged INTENT."""

    def on_await_replicated(self: OutputGate, thread: Any, end_bytes: int) -> None:
        self.shell.replicated_to(self.task, thread, end_bytes)

    mutation.swap(OutputGate, "on_await_replicated", on_await_replicated)


@mutant("3")
def keepers_get_only_the_own_log(mutation: Mutation) -> None:
    """Keepers receive every log that the task holds, not only its own."""

    def requirement(right: Any, self: OutputGate) -> Any:
        return {log: end for log, end in right(self).items() if log == self.own_log}

    def deltas(right: Any, self: KeeperLink, logs: Any) -> Any:
        return tuple(delta for delta in right(self, logs) if delta.log == owner[0])

    owner: list[Any] = [None]

    def keep(right: Any, self: OutputGate, link: KeeperLink, is_whole: bool) -> None:
        owner[0] = self.own_log
        right(self, link, is_whole)

    mutation.wrap(OutputGate, "requirement", requirement)
    mutation.wrap(KeeperLink, "deltas", deltas)
    mutation.wrap(OutputGate, "_keep", keep)


@mutant("7")
def keepers_acknowledge_the_dead(mutation: Mutation) -> None:
    """A keeper acknowledges only the incarnation of its view."""

    def keep(right: Any, self: Keeper, message: Any, slot: Any) -> Any:
        incarnation, self.incarnation = self.incarnation, message.incarnation
        acknowledgement = right(self, message, slot)
        self.incarnation = incarnation
        return acknowledgement

    mutation.wrap(Keeper, "keep", keep)


@mutant("3")
def keepers_take_what_follows_a_lost_message(mutation: Mutation) -> None:
    """A keeper that has missed a message accepts a whole log first: it holds no entry without its causes."""

    def keep(right: Any, self: Keeper, message: Any, slot: Any) -> Any:
        self.next_ordinal = message.ordinal
        return right(self, message, slot)

    mutation.wrap(Keeper, "keep", keep)


@mutant("7")
def keeper_is_replaced_in_one_phase(mutation: Mutation) -> None:
    """The old keeper goes when the new one holds everything."""
    mutation.swap(placement.Readiness, "has_keeper", lambda self, slot, task: True)


@mutant("3")
def no_repeated_appends(mutation: Mutation) -> None:
    """Appends that a keeper has not acknowledged are sent again."""
    mutation.swap(OutputGate, "tick", lambda self: None)


@mutant("5")
def sinks_acknowledge_before_the_external_system_has(mutation: Mutation) -> None:
    """A sink's snapshot counts when the external system has confirmed all output before the barrier."""

    def acknowledgements(right: Any, self: PendingSnapshots, task: Any, incarnation: Any, confirmed_seq: int) -> Any:
        return right(self, task, incarnation, 1 << 60)

    mutation.wrap(PendingSnapshots, "acknowledgements", acknowledgements)


@mutant("5")
def snapshots_are_acknowledged_before_they_are_durable(mutation: Mutation) -> None:
    """A task acknowledges when its snapshot is durable."""

    def take(right: Any, self: PendingSnapshots, *arguments: Any) -> str:
        name = str(right(self, *arguments))
        self.unwritten.clear()
        return name

    mutation.wrap(PendingSnapshots, "take", take)


@mutant("8")
def keepers_outlive_the_generation(mutation: Mutation) -> None:
    """Keepers and replicas are empty in a new generation."""
    mutation.swap(Keeper, "begin_generation", lambda self: None)


@mutant("8")
def tables_keep_what_a_rollback_has_left(mutation: Mutation) -> None:
    """The first registration of a generation withdraws rows that earlier ones wrote after the checkpoint."""
    mutation.swap(TableWriter, "_withdraw", lambda self, rows, first_number, next_number: None)


@mutant("8")
def every_registration_withdraws(mutation: Mutation) -> None:
    """Another incarnation of the same generation continues where the last one ended."""

    def register(right: Any, self: TableWriter, rows: Any, restored_number: int) -> Any:
        is_first, registration = right(self, rows, restored_number)
        if registration.next_number > restored_number:
            rows.withdraw(restored_number, registration.next_number)
        return is_first, registration

    mutation.wrap(TableWriter, "_register", register)


@mutant("8")
def external_systems_forget_before_a_checkpoint_is_complete(mutation: Mutation) -> None:
    """An external system forgets how to withdraw only the rows of completed checkpoints."""

    def on_confirmed(right: Any, self: OutputGate, next_number: int) -> None:
        right(self, next_number)
        self.shell.forget_external(self.task, self.incarnation, next_number)

    mutation.wrap(OutputGate, "on_confirmed", on_confirmed)


@mutant("7.1")
def streams_need_no_log(mutation: Mutation) -> None:
    """A log that no keeper has is lost, if the external system does not say what it has."""
    mutation.swap(hosted_task, "has_replicated_log", lambda *_: True)


@mutant("7.1")
def keepers_get_a_log_that_lacks_output(mutation: Mutation) -> None:
    """Keepers get no log of which the end may be missing, because it would count as whole."""

    def keep_all(right: Any, self: OutputGate, link: KeeperLink) -> None:
        lacks_log, self.lacks_log = self.lacks_log, False
        right(self, link)
        self.lacks_log = lacks_log

    mutation.wrap(OutputGate, "_keep_all", keep_all)


@mutant("7.1")
def rows_have_the_same_ids_after_a_rollback(mutation: Mutation) -> None:
    """The id of a row names its generation."""
    mutation.swap(WriterIdentity, "id_space", property(lambda self: f"{self.job_id}/{self.task_name}"))


@mutant("6.8")
def lost_is_reported_once(mutation: Mutation) -> None:
    """The report of a lost log is repeated at the heartbeat until the generation ends."""

    def tick(right: Any, self: HostedTask) -> None:
        recovery, self.recovery = self.recovery, _Silent(self.recovery, "report_lost")  # type: ignore[assignment]
        right(self)
        self.recovery = recovery

    mutation.wrap(HostedTask, "tick", tick)
