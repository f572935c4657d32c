"""The closed union of all messages, which ``codec`` encodes and decodes."""

from __future__ import annotations

from clonos.core.wire.channel_messages import Batch, Position, Statement
from clonos.core.wire.control_messages import (
    Accusation,
    Completed,
    Hold,
    Logged,
    Register,
    Release,
    SlotStatus,
    Snapshotted,
    Trigger,
    View,
    Warned,
)
from clonos.core.wire.log_delta import Delta as Delta
from clonos.core.wire.log_delta import Length as Length
from clonos.core.wire.recovery_messages import Answer, Approaching, LogLost, Noted, Question, TaskFailed
from clonos.core.wire.replication_messages import Keep, Kept, StandbyUpdate
from clonos.core.wire.shadow_messages import Follow as Follow
from clonos.core.wire.shadow_messages import Following as Following

Message = (
    Batch
    | Position
    | Statement
    | Question
    | Answer
    | Keep
    | Kept
    | StandbyUpdate
    | Follow
    | Following
    | Register
    | SlotStatus
    | Snapshotted
    | LogLost
    | TaskFailed
    | Approaching
    | Accusation
    | Warned
    | Logged
    | View
    | Trigger
    | Noted
    | Hold
    | Completed
    | Release
)
