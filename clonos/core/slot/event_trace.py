"""Trace of a slot: its events as bytes, as they come by protocol 3 to 9, and the slot that they lead to (``replay``).

A trace is a header (slot, plan, options), then each event as it is handled, followed by a checksum of its effects. A
process that is killed leaves a whole trace, or one whose last record is torn. Bytes that the machine never looks into
(elements, state) are written as their length, and replayed as zeros.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from clonos.core.checkpoint.snapshot import RestoredState, decode_snapshot, encode_snapshot
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import EnvironmentFault, InternalError, PeerError
from clonos.core.model.ids import SlotId
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.ports import slot_effects as effect
from clonos.core.ports.operator_chain import ReadyPieces
from clonos.core.ports.slot_effects import Effect, ShadowRead, StandbyRead, TaskRead
from clonos.core.ports.task_port import Delivered, Output, TaskEmission
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.slot.slot import MACHINE, Slot
from clonos.core.slot.slot_events import (
    Event,
    MessageReceived,
    PartFailed,
    SegmentLoaded,
    SnapshotsRead,
    SnapshotWritten,
    StepEmitted,
    ThreadRaised,
)
from clonos.core.wire.channel_messages import ChannelHandshake, Mark
from clonos.core.wire.decoding import check_format
from clonos.core.wire.message_codec import decode_message, encode_message
from clonos.core.wire.messages import Message
from clonos.core.wire.replication_messages import StandbyUpdate

TRACE_FORMAT = 2
RECORD_LENGTH_BYTES = 4

Values = tuple[Any, ...]


class TraceDiffers(InternalError):
    """A slot that handled the events of a trace again had other effects."""

    event: int
    name: str

    def __str__(self) -> str:
        return (
            f"event {self.event} of the trace ({self.name}) has other effects when it is replayed."
            " Replay it with the version of clonos that wrote it; if it was this one, please report the bug."
        )


class TraceUnreadable(EnvironmentFault):
    """Bytes are no trace of a slot."""

    reason: str

    def __str__(self) -> str:
        return f"the slot's trace cannot be replayed: {self.reason}. Take the whole file and the version that wrote it."


class Header(msgspec.Struct, frozen=True):
    """The first record."""

    format: int
    slot: SlotId
    plan: Plan
    options: Options


class _AnyHeader(msgspec.Struct, frozen=True):
    """Header of any format."""

    format: int


class TracedSlot:
    """Steps a slot and writes down its events and checksums. ``write`` gets whole records."""

    def __init__(self, slot: Slot, write: Callable[[bytes], object]) -> None:
        self._slot, self._write = slot, write
        write(_record(Header(TRACE_FORMAT, slot.id, slot.plan, slot.options)))

    def step(self, event: Event) -> list[Effect]:
        """Returns the effects of the event. It is written before it is handled, because it may be the last one."""
        self._write(encode_event(event))
        effects = self._slot.step(event)
        self._write(_record(checksum(effects)))
        return effects


def replay(trace: bytes) -> Slot:
    """Returns a slot in the state to which the events of a trace have led.

    Raises: TraceUnreadable, without a header, or where an event is damaged; FormatUnknown, if another version wrote it;
    TraceDiffers, at the first event whose effects differ from those that it had.
    """
    records = _records(trace)
    first = next(records, None)
    if first is None:
        raise TraceUnreadable(f"its {len(trace)} bytes end within the header")
    header = _header(first)
    slot = Slot(header.slot, header.plan, header.options, lambda _task: _EmptyMirror())
    for number, record in enumerate(records):
        try:
            event = _decode_event(record)
        except (msgspec.MsgspecError, PeerError, LookupError, TypeError, ValueError) as error:
            raise TraceUnreadable(f"event {number} is damaged: {error!r}") from None
        effects = slot.step(event)
        found = next(records, None)
        if found is not None and msgspec.msgpack.decode(found) != checksum(effects):
            raise TraceDiffers(number, type(event).__name__)
    return slot


def _header(record: bytes) -> Header:
    try:
        found = msgspec.msgpack.decode(record, type=_AnyHeader)
        check_format("the trace of the slot", found.format, TRACE_FORMAT)
        return msgspec.msgpack.decode(record, type=Header)
    except msgspec.DecodeError as error:
        raise TraceUnreadable(f"its header is damaged: {error}") from None


def _record(value: Any) -> bytes:
    data = msgspec.msgpack.encode(value, enc_hook=_plain)
    return len(data).to_bytes(RECORD_LENGTH_BYTES, "little") + data


def _records(trace: bytes) -> Iterator[bytes]:
    """Yields the records that are whole."""
    start = 0
    while (begin := start + RECORD_LENGTH_BYTES) <= len(trace):
        end = begin + int.from_bytes(trace[start:begin], "little")
        if end > len(trace):
            return
        yield trace[begin:end]
        start = end


def _plain(value: Any) -> None:
    """A mirror or pieces of state: the machine only hands them over."""


class _EmptyMirror:
    def apply(self, changes: bytes | memoryview) -> None:
        """Takes nothing in."""


# ------------------------------------------------------------------ events


def encode_event(event: Event) -> bytes:
    """Returns an event as one record of a trace."""
    encode = _ENCODERS.get(type(event))
    values = msgspec.structs.astuple(event) if encode is None else encode(event)
    return _record((type(event).__name__, *values))


def _decode_event(record: bytes) -> Event:
    name, *values = msgspec.msgpack.decode(record)
    kind = _KINDS[name]
    decode = _DECODERS.get(kind)
    decoded: Event = kind(*values) if decode is None else decode(values)
    return decoded


def _encode_received(event: MessageReceived) -> Values:
    is_read = type(event.message) is StandbyUpdate  # state for a mirror, with the snapshot's positions
    message = encode_message(_without_row(event.message))
    return event.sender, message, bytes(event.payload) if is_read else len(event.payload)


def _without_row(message: Message) -> Message:
    """Returns a message without the digest of a row: a trace has no rows that could be compared with it."""
    return msgspec.structs.replace(message, taken=None) if type(message) is ChannelHandshake else message


def _decode_received(values: list[Any]) -> MessageReceived:
    sender, message, payload = values
    return MessageReceived(sender, decode_message(message, "the trace"), bytes(payload))  # a length gives zeros


def _encode_emitted(event: StepEmitted) -> Values:
    done: Any = event.emission
    traced = done._replace(
        outputs=[(o.channel, o.kind, o.count, o.checkpoint, len(o.payload)) for o in done.outputs],
        snapshot=_without_state(done.snapshot),
        more=done.more is not None,
        whole=done.whole is not None,
    )
    return event.task, event.thread, *traced


def _decode_emitted(values: list[Any]) -> StepEmitted:
    task, thread, *fields = values
    read: Any = TaskEmission(*fields)
    emission = read._replace(
        outputs=tuple(Output(c, ElementKind(kind), n, at, bytes(size)) for c, kind, n, at, size in read.outputs),
        consumed=tuple(tuple(each) for each in read.consumed),
        snapshot=_snapshot(read.snapshot),
        prepared=tuple(read.prepared),
        more=ReadyPieces() if read.more else None,
        whole=ReadyPieces() if read.whole else None,
        mark=None if read.mark is None else Mark(*read.mark),
    )
    return StepEmitted(task, thread, emission)


def _without_state(snapshot: Snapshot | None) -> bytes | None:
    if snapshot is None:
        return None
    return encode_snapshot(msgspec.structs.replace(snapshot, position=b"", changes=b""))


def _snapshot(data: bytes | None) -> Snapshot | None:
    return None if data is None else decode_snapshot(data, "the trace")


def _encode_read(event: SnapshotsRead) -> Values:
    restored = None if event.restored is None else _without_state(event.restored.snapshot)
    match event.purpose:
        case TaskRead(task, number):
            return "task", task, number, restored, event.error
        case StandbyRead(task, number):
            return "standby", task, number, restored, event.error
        case ShadowRead(task, session):
            return "shadow", task, session, restored, event.error


_PURPOSES: dict[str, Callable[..., Any]] = {"task": TaskRead, "standby": StandbyRead, "shadow": ShadowRead}


def _decode_read(values: list[Any]) -> SnapshotsRead:
    purpose, task, number, restored, error = values
    snapshot = _snapshot(restored)
    state = None if snapshot is None else RestoredState(snapshot, _EmptyMirror())
    return SnapshotsRead(_PURPOSES[purpose](task, number), state, error)


def _sizes(payloads: list[bytes] | None) -> list[int]:
    return [len(payload) for payload in payloads or ()]


def _encode_loaded(event: SegmentLoaded) -> Values:
    heads = None if event.payloads is None else event.payloads[:1]  # the machine reads what the others hold
    return event.segment, heads, _sizes(event.payloads), event.error


def _decode_loaded(values: list[Any]) -> SegmentLoaded:
    segment, heads, sizes, error = values
    payloads = None if heads is None else [*heads, *map(bytes, sizes[1:])]
    return SegmentLoaded(segment, payloads, error)


_KINDS: dict[str, type[Any]] = {kind.__name__: kind for _, kind in MACHINE.table}

_ENCODERS: dict[type, Callable[[Any], Values]] = {
    MessageReceived: _encode_received,
    StepEmitted: _encode_emitted,
    SnapshotsRead: _encode_read,
    SnapshotWritten: lambda e: (e.name, len(e.payload), e.error, e.stored_as),
    SegmentLoaded: _encode_loaded,
    ThreadRaised: lambda e: (e.thread, encode_message(e.failed)),
    PartFailed: lambda e: (encode_message(e.failed),),
}

_DECODERS: dict[type, Callable[[list[Any]], Any]] = {
    MessageReceived: _decode_received,
    StepEmitted: _decode_emitted,
    SnapshotsRead: _decode_read,
    SnapshotWritten: lambda v: SnapshotWritten(v[0], bytes(v[1]), *v[2:]),
    SegmentLoaded: _decode_loaded,
    ThreadRaised: lambda v: ThreadRaised(v[0], decode_message(v[1], "the trace")),  # type: ignore[arg-type]
    PartFailed: lambda v: PartFailed(decode_message(v[0], "the trace")),  # type: ignore[arg-type]
}

# ------------------------------------------------------------------ effects


def checksum(effects: list[Effect]) -> int:
    """Returns a number that two equal lists of effects have in common; bytes of elements and state do not
    count, nor the digest of a row, which a trace does not have."""
    plain = [_plain_effect(each) for each in effects]
    return zlib.crc32(msgspec.msgpack.encode(plain, enc_hook=_plain))


def _plain_effect(asked: Effect) -> Values:
    kind = type(asked).__name__
    match asked:
        case effect.SendMessage(slot, message, payload):
            return kind, slot, _without_row(message), len(payload)
        case effect.PutCommand(task, thread, Delivered() as given):
            return kind, task, thread, msgspec.structs.replace(given, payload=b""), len(given.payload)
        case effect.StartTask(task, thread, activation):
            snapshot = _without_state(activation.snapshot)
            return kind, task, thread, activation._replace(snapshot=None, mirror=None), snapshot
        case effect.WriteSnapshot(name, snapshot, more):
            return kind, name, _without_state(snapshot), more is None
        case effect.WriteWholeState(name, snapshot, _):
            return kind, name, _without_state(snapshot)
        case effect.WriteToSink(task, incarnation, first_seq, count, elements, payload):
            return kind, task, incarnation, first_seq, count, elements, len(payload)
        case effect.WriteSegment(segment, payloads):
            return kind, segment, _sizes(payloads)
        case effect.RefuseMessage(error):
            return kind, str(error)
        case _:
            return kind, *msgspec.structs.astuple(asked)
