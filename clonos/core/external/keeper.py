"""A keeper: a buffer of the logs of a task whose effects leave the job, apart from the standby."""

from __future__ import annotations

from clonos.core.log.causal_log import CausalLogs
from clonos.core.model.ids import Incarnation, SlotId, TaskId, journal_of
from clonos.core.model.plan import Plan
from clonos.core.wire.log_delta import Delta, Length
from clonos.core.wire.replication_messages import AppendAck, AppendLog


class Keeper:
    """The keeper's end, for one task: its log and every log that it holds."""

    __slots__ = ("incarnation", "is_ready", "logs", "next_ordinal", "task")

    def __init__(self, task: TaskId, incarnation: Incarnation) -> None:
        self.task = task
        self.incarnation = incarnation
        self.is_ready = False
        self.next_ordinal = 0  # of the next message of the task
        #: Invariant: next_ordinal > 0 if it is ready
        self.logs = CausalLogs()

    def apply_view(self, incarnation: Incarnation) -> None:
        """A view names the task's incarnation; only it is acknowledged from now on."""
        if incarnation != self.incarnation:
            self.incarnation = incarnation
            self.is_ready = False

    def begin_generation(self) -> None:
        """All logs are empty now; what a source took in stays, for it will be read again."""
        journal = self.logs.replicas.get(journal_of(self.task))
        self.logs = CausalLogs()
        if journal is not None:
            self.logs.begin(journal_of(self.task), journal.start_bytes, bytes(journal.data))

    def keep(self, message: AppendLog, slot: SlotId) -> AppendAck | None:
        """Appends and acknowledges; None for a message of another incarnation.

        A keeper that is new to the incarnation takes a whole message first, and so does one that has missed a message:
        what was lost need not leave a gap in the logs that the next one bears.
        """
        if message.incarnation != self.incarnation:
            return None
        follows = self.is_ready and message.ordinal == self.next_ordinal
        if not (follows or message.is_whole) or any(map(self.logs.has_gap, message.deltas)):
            return self.kept(slot)
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

    def answer(self, asker: TaskId, plan: Plan) -> tuple[Delta, ...]:
        """To the task's successor all that is kept: its causes too, which nobody else may have; to others theirs."""
        asked = plan.asked_for(asker)
        return self.logs.deltas(dict.fromkeys((*asked, *self.logs.replicas)) if asker == self.task else asked)

    def kept(self, slot: SlotId) -> AppendAck:
        """All lengths."""
        return AppendAck(self.task, self.incarnation, slot, self.is_ready, self.logs.lengths())
