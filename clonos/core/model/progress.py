"""Phases and counters of a task, as a slot reports them in its status."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TaskPhase(StrEnum):
    """Phase of an incarnation, from the view that names it to the end of its stream."""

    WAITING = "waiting"  # has no slot yet; known to the coordinator only
    RECOVERING = "recovering"  # gathers its log while its state is restored
    CONNECTING = "connecting"  # waits for the handshake of each receiver
    REPLAYING = "replaying"  # replays its log
    STALLED = "stalled"  # its log ended before what a receiver, now being replaced, had received
    LIVE = "live"  # records new determinants
    SUSPENDED = "suspended"  # makes no step and has nothing under way outside of the job, because it moves
    FINAL = "final"  # live and at the end of its stream
    LOST = "lost"  # cannot go on until the coordinator begins a new generation or incarnation
    ENDED = "ended"  # its job has ended before its stream did; known to the coordinator only


SETTLED_PHASES: Final = frozenset({TaskPhase.LIVE, TaskPhase.SUSPENDED, TaskPhase.FINAL, TaskPhase.ENDED})
"""Phases of an incarnation that has recovered."""


class TaskCounter(StrEnum):
    """Counter of a task. Unless the comment says otherwise, it is an amount at the time of the status."""

    RECORDS_IN = "records_in"  # since the job's start
    RECORDS_OUT = "records_out"  # to other tasks, since the incarnation began, with those that it replayed
    ROWS_WRITTEN = "rows_written"  # by an immediate sink, as its external system has confirmed, since the job's start
    REPLAYED_RECORDS = "replayed_records"  # by the incarnation, when it recovered; absent if there were none
    REPLAYED_CALLS = "replayed_calls"  # whose outcomes the incarnation took from its log; absent if there were none
    EXECUTED_CALLS = "executed_calls"  # of external systems that the incarnation made; absent if there were none
    BUSY_US = "busy_us"  # time in which the incarnation did not wait for input, microseconds
    BLOCKED_US = "blocked_us"  # time in which it waited for its receivers to take output, microseconds; not busy
    DETERMINANT_BYTES = "determinant_bytes"  # since the job's start
    LOG_MEMORY_BYTES = "log_memory_bytes"
    INFLIGHT_MEMORY_BYTES = "inflight_memory_bytes"
    INFLIGHT_DISK_BYTES = "inflight_disk_bytes"
    OVER_SOFT_LIMIT = "over_soft_limit"  # 1 while its slot is above the soft limit of a budget
    RESTORED_PERMILLE = "restored_permille"  # of the state that it is reading from the store; absent before and after
    STATE_BYTES = "state_bytes"  # memory of state in columns, about the encoded size of that in rows; absent without
    LATE_RECORDS = "late_records"  # refused by windows and joins since the job's start; absent if there were none
    LIMIT_REACHED = "limit_reached"  # 1 when a limit of the task lets nothing more through; absent before
    WATERMARK_NS = (
        "watermark_ns"  # of a source with timestamps: its lowest split's; the largest instant without a split
    )
    BACKLOG_ELEMENTS = "backlog_elements"  # produced for it and not processed yet, 0 for a source; absent while unknown
    BACKLOG_BYTES = "backlog_bytes"  # for a source with a journal instead: received and not read yet
    PENDING_RECORDS = "pending_records"  # of a source: that wait in the external system; absent while unknown
    PENDING_BYTES = "pending_bytes"  # the same in bytes, where the external system counts these
