"""What a slot tells of the tasks that it hosts, and of what they use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.core import recovery
from clonos.core.messages import TaskStatus

if TYPE_CHECKING:
    from clonos.core.hosted import Hosted


def status_of(hosted: Hosted) -> TaskStatus:
    """For the coordinator."""
    is_live = isinstance(hosted.state, recovery.Live)
    phase = "final" if hosted.is_final and is_live else recovery.phase_name(hosted.state)
    logs = [sending.log for sending in hosted.sendings.values()] + hosted.effects.logs
    hosted.counters.update(
        determinant_bytes=hosted.logs.end_bytes(hosted.task),
        log_memory_bytes=hosted.logs.size_bytes,
        inflight_memory_bytes=sum([log.memory_bytes for log in logs]),
        inflight_disk_bytes=sum([log.disk_bytes for log in logs]),
        over_soft_limit=int(hosted.slot.pressure.is_over_soft_limit),
    )
    return TaskStatus(hosted.task, hosted.incarnation, phase, tuple(hosted.counters.items()))
