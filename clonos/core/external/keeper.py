"""Keeper: a buffer of the logs of a task whose effects leave the job, apart from the standby (protocol 3)."""

from __future__ import annotations

from collections.abc import Mapping

from clonos.core.log.causal_log import NOTHING_COMPLETED, CausalLogs
from clonos.core.model.ids import Incarnation, LogId, SlotId, TaskId, journal_of
from clonos.core.model.plan import Plan
from clonos.core.wire.log_delta import Delta, Length
from clonos.core.wire.replication_messages import AppendAck, AppendLog


class Keeper:
    """Keeper's end, for one task: its log and every log that it holds."""

    __slots__ = ("incarnation", "is_ready", "logs", "next_ordinal", "task")

    def __init__(
        self, task: TaskId, incarnation: Incarnation, completed: Mapping[LogId, int] = NOTHING_COMPLETED
    ) -> None:
        """``completed``: as ``CausalLogs`` has it."""
        self.task = task
        self.incarnation = incarnation
        self.is_ready = False
        self.next_ordinal = 0  # of the next message of the task
        #: Invariant: next_ordinal > 0 if it is ready
        self.logs = CausalLogs(completed)

    def apply_view(self, incarnation: Incarnation) -> None:
        """Takes over the task's incarnation that a view names; only it is acknowledged from now on."""
        if incarnation != self.incarnation:
            self.incarnation = incarnation
            self.is_ready = False

    def begin_generation(self) -> None:
        """Empties all logs but the journal: what a source took in will be read again."""
        journal = self.logs.replicas.get(journal_of(self.task))
        self.logs = CausalLogs(self.logs.completed)
        if journal is not None:
            self.logs.begin(journal_of(self.task), journal.start_bytes, bytes(journal.data))

    def of_task(self, task: TaskId, completed: Mapping[LogId, int]) -> Keeper:
        """Returns the keeper of a task that has the name of this one in another plan: it has the journal alone."""
        found = Keeper(task, self.incarnation, completed)
        journal = self.logs.replicas.get(journal_of(self.task))
        if journal is not None:
            found.logs.begin(journal_of(task), journal.start_bytes, bytes(journal.data))
        return found

    def keep(self, message: AppendLog, slot: SlotId) -> AppendAck | None:
        """Appends and acknowledges; returns None for a message of another incarnation.

        A keeper that is new to the incarnation, or has missed a message, takes a whole message first: a lost message
        need not leave a gap in the logs of the next one.
        """
        if message.incarnation != self.incarnation:
            return None
        follows = self.is_ready and message.ordinal == self.next_ordinal
        if not (follows or message.is_whole) or any(map(self.logs.has_gap, message.deltas)):
            return self.acknowledgement(slot)
        self.next_ordinal = message.ordinal + 1
        for delta in message.deltas:
            self.logs.receive(delta)
        self.logs.truncate(journal_of(self.task), message.journal_start_bytes)
        self.is_ready = True
        lengths = tuple([Length(delta.log, self.logs.end_bytes(delta.log)) for delta in message.deltas])
        return AppendAck(self.task, self.incarnation, slot, True, lengths)

    def validate(self) -> None:
        """Asserts what holds between two events."""
        assert self.next_ordinal > 0 or not self.is_ready, (self.task, self.next_ordinal)
        self.logs.validate()

    def reply(self, asker: TaskId, plan: Plan) -> tuple[Delta, ...]:
        """Returns every log held here to the task's successor, because nobody else may have its causes; to other askers
        only the logs they asked for."""
        asked = plan.logs_requested_by(asker)
        return self.logs.deltas(dict.fromkeys((*asked, *self.logs.replicas)) if asker == self.task else asked)

    def acknowledgement(self, slot: SlotId) -> AppendAck:
        """Returns an acknowledgement of the lengths of all logs."""
        return AppendAck(self.task, self.incarnation, slot, self.is_ready, self.logs.lengths())
