"""How far a task is and what it counts: the words of a slot's status."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TaskPhase(StrEnum):
    """Where an incarnation stands, from the view that names it to the end of its stream."""

    WAITING = "waiting"  # for a slot; only the coordinator knows that
    RECOVERING = "recovering"  # gathers its log while its state is being restored
    CONNECTING = "connecting"  # waits for each receiver's statement
    REPLAYING = "replaying"  # follows its log
    STALLED = "stalled"  # its log has ended behind the claim of a receiver that is being replaced
    LIVE = "live"  # records new determinants
    FINAL = "final"  # live, and at the end of its stream
    LOST = "lost"  # cannot go on: only the coordinator can help


SETTLED_PHASES: Final = frozenset({TaskPhase.LIVE, TaskPhase.FINAL})
"""Of an incarnation whose recovery is over."""


class TaskCounter(StrEnum):
    """What a task counts; where nothing else is said, an amount at the time of the status."""

    RECORDS_IN = "records_in"  # since the job's start
    DETERMINANT_BYTES = "determinant_bytes"  # since the job's start
    LOG_MEMORY_BYTES = "log_memory_bytes"
    INFLIGHT_MEMORY_BYTES = "inflight_memory_bytes"
    INFLIGHT_DISK_BYTES = "inflight_disk_bytes"
    OVER_SOFT_LIMIT = "over_soft_limit"  # 1 while its slot is
    BACKLOG_ELEMENTS = "backlog_elements"  # produced for it and not processed yet, 0 for a source; not there: unknown
    BACKLOG_BYTES = "backlog_bytes"  # instead, of a source that keeps a journal: taken in and not read yet
