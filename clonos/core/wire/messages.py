"""Closed union of all messages, which ``codec`` encodes and decodes (protocol 4)."""

from __future__ import annotations

from clonos.core.wire.capture_messages import CapturedElements, CapturedLog, CaptureElements, CaptureLog
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.control_messages import (
    Completed,
    DriftLimit,
    Hold,
    Logged,
    Peek,
    Peeked,
    Register,
    Release,
    SlotStatus,
    Snapshotted,
    Suspicion,
    TriggerCheckpoint,
    View,
    WarmUp,
    Warned,
)
from clonos.core.wire.log_delta import Delta as Delta
from clonos.core.wire.log_delta import Length as Length
from clonos.core.wire.recovery_messages import (
    AnnounceAck,
    AnnounceStep,
    JournalLost,
    LogLost,
    LogReply,
    LogRequest,
    SinkFenced,
    TaskFailed,
)
from clonos.core.wire.replication_messages import AppendAck, AppendLog, StandbyUpdate
from clonos.core.wire.shadow_messages import FeedAck as FeedAck
from clonos.core.wire.shadow_messages import FeedShadow as FeedShadow
from clonos.core.wire.stack_messages import SampleTask, ShowThreads, StacksShown
from clonos.core.wire.trace_messages import StepsTraced

Message = (
    Batch
    | Position
    | ChannelHandshake
    | LogRequest
    | LogReply
    | AppendLog
    | AppendAck
    | StandbyUpdate
    | FeedShadow
    | FeedAck
    | Register
    | SlotStatus
    | Snapshotted
    | LogLost
    | JournalLost
    | SinkFenced
    | TaskFailed
    | AnnounceStep
    | Suspicion
    | Warned
    | Logged
    | Peeked
    | CapturedLog
    | CapturedElements
    | StacksShown
    | StepsTraced
    | View
    | TriggerCheckpoint
    | AnnounceAck
    | Hold
    | DriftLimit
    | Peek
    | CaptureLog
    | CaptureElements
    | ShowThreads
    | SampleTask
    | WarmUp
    | Completed
    | Release
)
