"""Messages of the data plane: batches, and the handshake that opens a session and grants credit (protocol 4)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, ViewNumber
from clonos.core.wire.log_delta import Count
from clonos.core.wire.log_delta import Delta as Delta
from clonos.core.wire.log_delta import Length as Length
from clonos.core.wire.shadow_messages import FeedAck as FeedAck
from clonos.core.wire.shadow_messages import FeedShadow as FeedShadow


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """Latency mark of a batch, in ns since the Unix epoch: when a source read a record that led to it, and when the
    sender emitted it. ``source``: number of the source's task if the mark is traced. Nothing depends on it.
    """

    read_ns: Count
    sent_ns: Count
    source: Count | None = None


class Batch(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    """Sender to receiver of a channel: ``count`` consecutive elements of one kind, with the payload in the next frame.

    A barrier (its checkpoint in ``checkpoint``), a watermark (its payload) and an end of stream are batches of one
    element.
    """

    channel: ChannelId
    sender: Incarnation
    receiver: Incarnation
    session: Count
    ordinal: Count  # number of this message in its session, Positions included, so that a lost message shows as a gap
    first_seq: Count
    kind: ElementKind
    count: Count
    checkpoint: CheckpointId
    deltas: tuple[Delta, ...]
    mark: Mark | None = None


class Position(msgspec.Struct, frozen=True, array_like=True, tag="position"):
    """Sender to receiver of a channel at the heartbeat: how far it has sent and produced elements.

    All elements below ``next_seq`` are sent, all below ``produced_seq`` are produced.
    """

    channel: ChannelId
    sender: Incarnation
    receiver: Incarnation
    session: Count
    ordinal: Count
    next_seq: Count
    produced_seq: Count
    deltas: tuple[Delta, ...]


class TakenRow(msgspec.Struct, frozen=True, array_like=True):
    """Row ``seq`` of a channel as its receiver has taken it: ``digest`` as ``row_digest`` makes it."""

    seq: Count
    digest: Annotated[bytes, msgspec.Meta(max_length=64)]


class ChannelHandshake(msgspec.Struct, frozen=True, array_like=True, tag="channel_handshake"):
    """Receiver to sender of a channel: opens a session, grants credit, and says what the receiver has received.

    ``received_up_to`` is the sequence number below which the receiver has all elements, or its own log has their steps.
    ``credit_bytes`` is granted since the session began, a running total. ``lengths`` names every replica when a session
    begins, and afterwards those that changed. ``taken``, when a session begins: the last row that an earlier
    incarnation of the sender has sent, which the replay of the sender must repeat.
    """

    channel: ChannelId
    view: ViewNumber
    receiver: Incarnation
    sender: Incarnation
    session: Count
    next_seq: Count
    received_up_to: Count
    credit_bytes: Count
    lengths: tuple[Length, ...]
    taken: TakenRow | None = None
