"""What a slot tells of the tasks that it hosts, and of what they use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.core.recovery import recovery_machine
from clonos.core.wire.control_messages import BACKLOG_BYTES, BACKLOG_ELEMENTS, TaskStatus

if TYPE_CHECKING:
    from clonos.core.slot.hosted_task import HostedTask


def status_of(hosted: HostedTask) -> TaskStatus:
    """What the slot tells the coordinator about a task."""
    is_live = isinstance(hosted.state, recovery_machine.Live)
    phase = "final" if hosted.is_final and is_live else recovery_machine.phase_name(hosted.state)
    logs = [sending.log for sending in hosted.sendings.values()] + hosted.effects.logs
    hosted.counters.update(
        determinant_bytes=hosted.logs.end_bytes(hosted.task),
        log_memory_bytes=hosted.logs.size_bytes,
        inflight_memory_bytes=sum([log.memory_bytes for log in logs]),
        inflight_disk_bytes=sum([log.disk_bytes for log in logs]),
        over_soft_limit=int(hosted.slot.pressure.is_over_soft_limit),
    )
    return TaskStatus(hosted.task, hosted.incarnation, phase, (*_backlog(hosted), *hosted.counters.items()))


def _backlog(hosted: HostedTask) -> tuple[tuple[str, int], ...]:
    """What waits in the task's inputs, if it is known."""
    if isinstance(hosted.state, recovery_machine.Recovering):
        return ()
    if hosted.effects.journal is not None:
        return ((BACKLOG_BYTES, hosted.effects.journal.unread_bytes),)
    backlog = hosted.inputs.backlog
    return () if backlog is None else ((BACKLOG_ELEMENTS, backlog),)
