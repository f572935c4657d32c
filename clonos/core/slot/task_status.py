"""Status of a hosted task, as its slot reports it at each heartbeat (protocol 5)."""

from __future__ import annotations

from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.recovery import recovery_machine
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.wire.control_messages import TaskStatus


def status_of(hosted: HostedTask, is_over_soft_limit: bool) -> TaskStatus:
    """Returns what the slot reports to the coordinator about a task."""
    is_live = isinstance(hosted.state, recovery_machine.Live)
    phase = recovery_machine.phase_of(hosted.state)
    if is_live and hosted.output_gate.may_hand_over:
        phase = TaskPhase.SUSPENDED
    elif is_live and hosted.is_final:
        phase = TaskPhase.FINAL
    logs = hosted.outputs.inflight_logs + hosted.output_gate.inflight_logs
    counters = (
        *(((TaskCounter.RECORDS_IN, hosted.running.records_in),) if hosted.running.records_in is not None else ()),
        (TaskCounter.RECORDS_OUT, hosted.running.records_out),
        *(((TaskCounter.LIMIT_REACHED, 1),) if hosted.running.has_reached_limit else ()),
        *(((TaskCounter.WATERMARK_NS, hosted.running.reached_ns),) if hosted.running.reached_ns is not None else ()),
        *(((TaskCounter.ROWS_WRITTEN, hosted.output_gate.confirmed_seq),) if hosted.output_gate.confirmed_seq else ()),
        *(((TaskCounter.REPLAYED_RECORDS, hosted.running.replayed),) if hosted.running.replayed else ()),
        (TaskCounter.DETERMINANT_BYTES, hosted.logs.end_bytes(hosted.own_log)),
        (TaskCounter.LOG_MEMORY_BYTES, hosted.logs.size_bytes),
        (TaskCounter.INFLIGHT_MEMORY_BYTES, sum([log.memory_bytes for log in logs])),
        (TaskCounter.INFLIGHT_DISK_BYTES, sum([log.disk_bytes for log in logs])),
        (TaskCounter.OVER_SOFT_LIMIT, int(is_over_soft_limit)),
    )
    return TaskStatus(hosted.task, hosted.incarnation, phase, (*_backlog(hosted), *counters))


def _backlog(hosted: HostedTask) -> tuple[tuple[TaskCounter, int], ...]:
    """Returns what waits in the task's inputs, if it is known."""
    if isinstance(hosted.state, recovery_machine.Recovering):
        return ()
    if hosted.output_gate.journal is not None:
        return ((TaskCounter.BACKLOG_BYTES, hosted.output_gate.journal.unread_bytes),)
    backlog = hosted.inputs.backlog
    return () if backlog is None else ((TaskCounter.BACKLOG_ELEMENTS, backlog),)
