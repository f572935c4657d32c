"""Thread of one incarnation as its slot sees it: what it was given and has handed over (protocol 6.6, 6.10)."""

from __future__ import annotations

from clonos.core.channel.command_queue import CommandQueue
from clonos.core.log.causal_log import Replica
from clonos.core.model.ids import CheckpointId, TaskId, ThreadId
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.ports.operator_chain import Mirror
from clonos.core.ports.task_port import (
    Activation,
    CutAt,
    ReadLimit,
    ReplayExtended,
    Resumed,
    Suspended,
    TaskEmission,
    Triggered,
)
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.standby.shadow import Shadow
from clonos.core.wire.control_messages import Placement, View


class HostedThread(CommandQueue):
    """Thread of its own, or that of the shadow from which the incarnation continues."""

    __slots__ = (
        "watermark_ns_max",
        "asked",
        "cut",
        "fed_bytes",
        "first_record",
        "handled_bytes",
        "has_reached_limit",
        "is_suspended",
        "suspensions",
        "number",
        "reached_ns",
        "records_in",
        "records_out",
        "replayed",
        "shell",
        "task",
        "unfinished",
    )

    def __init__(self, task: TaskId, number: ThreadId, shell: EffectCollector) -> None:
        super().__init__()
        self.task, self.number, self.shell = task, number, shell
        self.fed_bytes = 0  # end of the log that the shadow was given
        #: Invariant: fed_bytes <= end of the own log
        self.handled_bytes = 0  # of what the task has emitted, as credit counts
        self.records_in: int | None = None  # since the job's start; None before the first step without a snapshot
        self.records_out = 0  # to other tasks, since the thread began
        self.first_record = self.replayed = 0  # input before its first step; records that it replayed to recover
        self.has_reached_limit = False  # a limit of the task lets nothing more through
        self.is_suspended = False  # asked to make no further step
        self.suspensions = 0
        self.cut = CheckpointId(0)  # checkpoint at whose barrier the task is suspended, 0: at none
        self.unfinished = b""  # log entries of the step in which its code raised
        self.asked: Triggered | None = None  # the highest barrier asked of a source
        self.reached_ns: int | None = None  # lowest watermark of a source's splits; None until it has reported one
        self.watermark_ns_max: int | None = None  # watermark above which a source reads nothing, as it was sent last

    def take_over(self, shadow: Shadow) -> None:
        """Continues with the thread of a shadow."""
        assert shadow.thread is not None and shadow.handle is not None, self.task
        self.number = shadow.thread
        self.attach(shadow.handle)
        self.handled_bytes, self.fed_bytes = shadow.handled_bytes, shadow.fed_bytes
        self.records_in = self.first_record = shadow.records_in

    def start(
        self,
        view: View,
        placement: Placement,
        snapshot: Snapshot | None,
        mirror: Mirror | None,
        own: Replica,
        journal: bytes,
        external_seq: int,
    ) -> None:
        """Starts a thread that restores a state and follows the log ``own``."""
        if snapshot is not None:
            self.records_in = self.first_record = snapshot.records_in
        activation = Activation(
            placement.incarnation,
            snapshot,
            mirror,
            bytes(own.data),
            own.start_bytes,
            view.generation,
            placement.is_single_step,
            view.job_id,
            journal,
            external_seq=external_seq,
        )
        self.attach(self.shell.start_task(self.task, self.number, activation))

    def follow_rest(self, own: Replica, is_single_step: bool) -> None:
        """Gives the thread of a shadow the end of the log: it is live after that."""
        assert own.start_bytes <= self.fed_bytes <= own.end_bytes, self.task
        self.put(ReplayExtended(bytes(own.data[self.fed_bytes - own.start_bytes :]), True, is_single_step))

    def flush(self) -> None:
        """Hands over what has waited, the highest barrier last."""
        super().flush()
        if self.asked is not None:
            self.put(self.asked)

    def is_superseded(self, message: Triggered) -> bool:
        """Whether a source has been asked for a later barrier."""
        return self.asked is not None and message.checkpoint < self.asked.checkpoint

    def ask(self, message: Triggered) -> None:
        """Asks a source for a barrier, which it puts where its log has ended."""
        self.asked = message
        if self.is_attached:
            self.put(message)

    def limit_drift(self, watermark_ns_max: int) -> None:
        """Tells a source how far it may read. One that has not started learns it from the next message."""
        if self.is_attached and watermark_ns_max != self.watermark_ns_max:
            self.watermark_ns_max = watermark_ns_max
            self.put(ReadLimit(watermark_ns_max))

    def suspend(self) -> None:
        """Asks the task to make no further step, once."""
        if not self.is_suspended:
            self.is_suspended = True
            self.suspensions += 1
            self.put(Suspended(self.suspensions))

    def resume(self) -> None:
        """Asks the task to go on, if it is suspended."""
        if self.is_suspended:
            self.is_suspended = False
            self.put(Resumed())

    def cut_at(self, checkpoint: CheckpointId) -> None:
        """Tells the task at which barrier it is suspended, if that has changed."""
        if checkpoint != self.cut:
            self.cut = checkpoint
            self.put(CutAt(checkpoint))

    def has_paused(self, emission: TaskEmission) -> bool:
        """Whether the emission is the last one of the suspension in force, not of a suspension that was given up."""
        return self.is_suspended and emission.suspension == self.suspensions

    def on_raised(self, unfinished: bytes) -> None:
        """Notes the log entries of the step in which its code raised."""
        self.unfinished = unfinished

    def on_log_end(self) -> None:
        """Counts what the task has replayed: its log has ended."""
        self.replayed = max(0, (self.records_in or self.first_record) - self.first_record)

    def validate(self, own_end_bytes: int) -> None:
        """Asserts what holds between two events."""
        assert self.fed_bytes <= own_end_bytes, (self.task, self.fed_bytes, own_end_bytes)
        assert self.handled_bytes >= 0, (self.task, self.handled_bytes)

    def on_emission(self, emission: TaskEmission) -> None:
        """Counts what the task has handed over."""
        if emission.records_in:  # 0 in mid-step
            self.records_in = emission.records_in
        self.has_reached_limit = self.has_reached_limit or emission.has_reached_limit
        if emission.reached_ns is not None:
            self.reached_ns = emission.reached_ns
        self.handled_bytes += emission.cost_bytes
        for output in emission.outputs:
            if output.kind.is_data:
                self.records_out += output.count
