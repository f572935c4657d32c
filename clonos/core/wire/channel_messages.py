"""Messages of the data plane: batches, and the handshake that opens a session and grants credit (protocol 4)."""

from __future__ import annotations

import msgspec

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, ViewNumber
from clonos.core.wire.log_delta import Count
from clonos.core.wire.log_delta import Delta as Delta
from clonos.core.wire.log_delta import Length as Length
from clonos.core.wire.shadow_messages import FeedAck as FeedAck
from clonos.core.wire.shadow_messages import FeedShadow as FeedShadow


class Batch(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    """Sender to receiver of a channel: ``count`` consecutive elements of one kind, payload in the next frame.

    A barrier (its checkpoint in ``checkpoint``) and an end of stream are batches of their own, count = 1.
    """

    channel: ChannelId
    sender: Incarnation
    receiver: Incarnation
    session: Count
    ordinal: Count  # of this message in its session, positions counted too: a message that was lost is noticed
    first_seq: Count
    kind: ElementKind
    count: Count
    checkpoint: CheckpointId
    deltas: tuple[Delta, ...]


class Position(msgspec.Struct, frozen=True, array_like=True, tag="position"):
    """Sender to receiver at the heartbeat: all below ``next_seq`` was sent, all below ``produced_seq`` was produced."""

    channel: ChannelId
    sender: Incarnation
    receiver: Incarnation
    session: Count
    ordinal: Count
    next_seq: Count
    produced_seq: Count
    deltas: tuple[Delta, ...]


class ChannelHandshake(msgspec.Struct, frozen=True, array_like=True, tag="statement"):
    """Receiver to sender of a channel: opens a session, grants credit, states the claim.

    ``claim``: sequence number up to which it has received or its own log has steps. ``credit_bytes``: granted since
    the session began, a running total. ``lengths``: every replica at the start of a session, later what changed.
    """

    channel: ChannelId
    view: ViewNumber
    receiver: Incarnation
    sender: Incarnation
    session: Count
    next_seq: Count
    claim: Count
    credit_bytes: Count
    lengths: tuple[Length, ...]
