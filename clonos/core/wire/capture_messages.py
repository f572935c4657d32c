"""Messages of a capture: an epoch of a task is read while the task goes on (protocol 6.13)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_digest

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

    ``has_digests``: send a digest in place of each payload. ``until_seq``: where the page may end; 0: nowhere.
    ``file``: of the driver, for the page, if it is on this machine; "": send it. Answered by ``CapturedElements``,
    repeated while it is not answered; the segments on disk are loaded meanwhile.
    """

    channel: ChannelId
    task: TaskId  # the sender
    incarnation: Incarnation
    from_seq: Count
    bytes_max: Count
    has_digests: bool
    number: Count
    until_seq: Count = 0
    file: str = ""
    offset_bytes: Count = 0  # in the file


class CapturedElements(msgspec.Struct, frozen=True, array_like=True, tag="captured_elements"):
    """Slot to the coordinator's process: the elements from that with ``from_seq`` on, encoded in the payload.

    ``start_seq`` and ``next_seq`` are those of the in-flight log. ``file`` and ``offset_bytes`` are those of the
    request. ``saved_bytes``: of the page, which is in the file there; the payload has digests of the payloads then.
    Until the slot has written it, ``digests`` has those of a page for a file.
    """

    channel: ChannelId
    task: TaskId
    incarnation: Incarnation
    from_seq: Count
    start_seq: Count
    next_seq: Count
    number: Count
    file: str = ""
    offset_bytes: Count = 0
    saved_bytes: Count = 0
    digests: bytes = b""


class Elements(msgspec.Struct, frozen=True, array_like=True, tag="elements"):
    """Consecutive elements of one kind of a channel, as the sender's in-flight log has them, in a page and in a record.

    Those of a record may begin before the epoch.
    """

    channel: ChannelId
    first_seq: Count
    kind: ElementKind
    count: Annotated[int, msgspec.Meta(ge=1)]
    checkpoint: CheckpointId  # of a barrier, else 0
    payload: bytes  # or the digest of it


DIGEST_BYTES: Final = 8


def digest_of(payload: bytes | memoryview) -> bytes:
    """Returns the digest that stands for a payload of output, here and in a record of an epoch."""
    return xxh3_64_digest(payload)


LENGTH_BYTES: Final = 4
EMPTY_BYTES: Final = b"\xc4\x00"
LARGE_BYTES: Final = b"\xc6"  # of msgpack: four bytes of length follow, then the bytes

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Elements).decode


def length_of(content: bytes) -> bytes:
    """Returns what is in front of each piece in a page, and in the parts of a record that have many pieces."""
    return len(content).to_bytes(LENGTH_BYTES, "little")


def framed(head: msgspec.Struct, data: bytes) -> tuple[bytes, bytes]:
    """Encodes a piece of a page or of a part without a copy of ``data``, which follows the first result. ``head``: the
    piece with no bytes in its last field, where ``data`` belongs."""
    begin = _encode(head).removesuffix(EMPTY_BYTES) + LARGE_BYTES + len(data).to_bytes(4, "big")
    return (len(begin) + len(data)).to_bytes(LENGTH_BYTES, "little") + begin, data


def encode_page(elements: Iterable[Elements]) -> bytes:
    """Encodes a page, as the input of a record has it."""
    return b"".join([part for each in elements for part in framed(replace(each, payload=b""), each.payload)])


def decode_page(page: bytes | memoryview) -> list[Elements]:
    """Decodes a page. Raises an error of ``DECODE_ERRORS``."""
    found, at, view = [], 0, memoryview(page)
    while at < len(view):
        begin = at + LENGTH_BYTES
        at = begin + int.from_bytes(view[at:begin], "little")
        found.append(_decode(view[begin:at]))
    return found


def with_digests(elements: Iterable[Elements]) -> list[Elements]:
    """Returns elements with a digest in place of each payload."""
    return [replace(each, payload=digest_of(each.payload)) for each in elements]
