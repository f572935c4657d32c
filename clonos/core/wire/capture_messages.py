"""Messages of a capture: an epoch of a task is read while the task goes on (protocol 6.13)."""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Final

import msgspec

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, LogId, TaskId
from clonos.core.wire.log_delta import Count


class CaptureLog(msgspec.Struct, frozen=True, array_like=True, tag="capture_log"):
    """Coordinator's process to the slot of a task: send a page of its causal log, or of its journal.

    Answered by ``CapturedLog``, repeated while it is not answered.
    """

    task: TaskId
    incarnation: Incarnation
    log: LogId
    from_bytes: Count
    bytes_max: Count
    number: Count  # of the capture


class CapturedLog(msgspec.Struct, frozen=True, array_like=True, tag="captured_log"):
    """Slot to the coordinator's process: bytes of a log from ``from_bytes`` on, in the payload.

    ``start_bytes`` and ``end_bytes`` are those of the copy in the slot; without a copy the payload is empty.
    ``unfinished``: entries of the step in which the task's code raised, which follow at ``end_bytes``.
    """

    task: TaskId
    incarnation: Incarnation
    log: LogId
    from_bytes: Count
    start_bytes: Count
    end_bytes: Count
    unfinished: bytes
    number: Count


class CaptureElements(msgspec.Struct, frozen=True, array_like=True, tag="capture_elements"):
    """Coordinator's process to the slot of a channel's sender: send a page of the channel's in-flight log.

    ``has_digests``: send a digest in place of each payload. Answered by ``CapturedElements``, repeated while it is not
    answered; the segments on disk are loaded meanwhile.
    """

    channel: ChannelId
    task: TaskId  # the sender
    incarnation: Incarnation
    from_seq: Count
    bytes_max: Count
    has_digests: bool
    number: Count


class CapturedElements(msgspec.Struct, frozen=True, array_like=True, tag="captured_elements"):
    """Slot to the coordinator's process: the chunks from that with ``from_seq`` on, encoded in the payload.

    ``start_seq`` and ``next_seq`` are those of the in-flight log.
    """

    channel: ChannelId
    task: TaskId
    incarnation: Incarnation
    from_seq: Count
    start_seq: Count
    next_seq: Count
    number: Count


class CapturedChunk(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive elements of one kind in the payload of ``CapturedElements``."""

    first_seq: Count
    kind: ElementKind
    count: Annotated[int, msgspec.Meta(ge=1)]
    checkpoint: CheckpointId  # of a barrier, else 0
    payload: bytes  # or the digest of it


DIGEST_BYTES: Final = 8


def digest_of(payload: bytes | memoryview) -> bytes:
    """Returns the digest that stands for a payload of output, here and in a record of an epoch."""
    return blake2b(payload, digest_size=DIGEST_BYTES).digest()


encode_chunks = msgspec.msgpack.Encoder().encode
decode_chunks = msgspec.msgpack.Decoder(tuple[CapturedChunk, ...]).decode
