"""Status of a hosted task, as its slot reports it at each heartbeat (protocol 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.recovery import recovery_machine
from clonos.core.wire.control_messages import TaskStatus

if TYPE_CHECKING:
    from clonos.core.slot.hosted_task import HostedTask


def status_of(hosted: HostedTask) -> TaskStatus:
    """Returns what the slot reports to the coordinator about a task."""
    is_live = isinstance(hosted.state, recovery_machine.Live)
    phase = TaskPhase.FINAL if hosted.is_final and is_live else recovery_machine.phase_of(hosted.state)
    logs = [sending.log for sending in hosted.sendings.values()] + hosted.effects.logs
    counters = (
        *(((TaskCounter.RECORDS_IN, hosted.records_in),) if hosted.records_in is not None else ()),
        (TaskCounter.DETERMINANT_BYTES, hosted.logs.end_bytes(hosted.own_log)),
        (TaskCounter.LOG_MEMORY_BYTES, hosted.logs.size_bytes),
        (TaskCounter.INFLIGHT_MEMORY_BYTES, sum([log.memory_bytes for log in logs])),
        (TaskCounter.INFLIGHT_DISK_BYTES, sum([log.disk_bytes for log in logs])),
        (TaskCounter.OVER_SOFT_LIMIT, int(hosted.slot.pressure.is_over_soft_limit)),
    )
    return TaskStatus(hosted.task, hosted.incarnation, phase, (*_backlog(hosted), *counters))


def _backlog(hosted: HostedTask) -> tuple[tuple[TaskCounter, int], ...]:
    """Returns what waits in the task's inputs, if it is known."""
    if isinstance(hosted.state, recovery_machine.Recovering):
        return ()
    if hosted.effects.journal is not None:
        return ((TaskCounter.BACKLOG_BYTES, hosted.effects.journal.unread_bytes),)
    backlog = hosted.inputs.backlog
    return () if backlog is None else ((TaskCounter.BACKLOG_ELEMENTS, backlog),)
