"""Splits of a source: the messages of a stream, or those of one of its subjects, between two sequence numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.external_system import MessagesLost, SystemRefused
from clonos.connectors.kit.splits import decoded_split
from clonos.connectors.nats.nats_address import Connection, NatsAddress
from clonos.connectors.nats.nats_errors import NATS

Start: TypeAlias = Literal["earliest", "latest"] | datetime | int

CONNECTOR: Final = "nats.source"
NO_END: Final = -1
INVALID_IN_NAMES: Final = frozenset(" \t\r\n.*>/\\")


class StreamSplit(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a stream from sequence ``start`` up to ``end``; -1 for no end.

    ``subject`` is "" for all subjects. ``created`` tells the stream from a later one of the same name.
    """

    stream: str
    subject: str
    start: int
    end: int
    created: str

    def encoded(self) -> bytes:
        """Returns the split."""
        return msgspec.json.encode(self)


_decoder: Final = msgspec.json.Decoder(StreamSplit)


def split_of(data: bytes) -> StreamSplit:
    """Returns what a split describes.

    Raises: SplitMalformed: it is none.
    """
    return decoded_split(_decoder, "part of a stream of NATS", data)


def checked_subjects(subjects: str | Sequence[str] | None) -> tuple[str, ...]:
    """Returns the subjects of the splits; "" for all.

    Raises: InvalidConnector: these are no subjects, or one would be read twice.
    """
    found = ("",) if subjects is None else (subjects,) if isinstance(subjects, str) else tuple(subjects)
    advice = 'Give subjects of the stream, such as "orders.eu" or "orders.*".'
    if not found or (subjects is not None and not all(map(is_subject, found))):
        raise InvalidConnector(CONNECTOR, f"subjects is {subjects!r:.80}", advice)
    for index, one in enumerate(found):
        for other in found[:index]:
            if overlap(one, other):
                problem = f"the subjects {other!r} and {one!r} overlap"
                raise InvalidConnector(CONNECTOR, problem, "Each message must belong to one of them.")
    return found


def is_subject(text: object) -> bool:
    """Returns whether a text is a subject, with or without wildcards."""
    return isinstance(text, str) and bool(text) and not set(text) & set(" \t\r\n") and all(text.split("."))


def overlap(one: str, other: str) -> bool:
    """Returns whether there are subjects that belong to both."""
    left, right = one.split("."), other.split(".")
    for a, b in zip(left, right, strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(left) == len(right)


def checked_start(start: Start) -> Start:
    """Checks where a source begins.

    Raises: InvalidConnector: this is no start.
    """
    if isinstance(start, datetime):
        is_right = start.tzinfo is not None
    else:
        is_right = start in ("earliest", "latest") if isinstance(start, str) else type(start) is int and start >= 1
    if not is_right:
        advice = 'Give "earliest", "latest", an aware datetime or a sequence number from 1.'
        raise InvalidConnector(CONNECTOR, f"start is {start!r:.80}", advice)
    return start


async def listed(
    server: NatsAddress, stream: str, subjects: Sequence[str], start: Start, is_bounded: bool
) -> list[bytes]:
    """Returns the splits of a stream, with the sequences at which they begin and, if bounded, end.

    Raises: SystemRefused: there is no such stream, or it cannot be read again. InvalidConnector: the stream has no such
    start. SystemUnreachable.
    """
    connection = await Connection.opened(server)
    try:
        doing = f"looking up the stream {stream}"
        info = await connection.answer(doing, connection.jetstream.stream_info(stream))
        _check_replayable(server, stream, info.config)
        first, end = info.state.first_seq, info.state.last_seq + 1
        if isinstance(start, datetime):
            begin = await _sequence_at(connection, stream, start)
        elif isinstance(start, int):
            begin = start
            if not first <= begin <= end:
                problem = f"start is {start}, but the stream {stream} has the sequences from {first} up to {end - 1}"
                raise InvalidConnector(CONNECTOR, problem, "Give one of these.")
        else:
            begin = max(first, 1) if start == "earliest" else end
        created = str(info.created)
        behind = end if is_bounded else NO_END
        return [StreamSplit(stream, subject, begin, behind, created).encoded() for subject in subjects]
    finally:
        await connection.close()


async def gone_after(server: NatsAddress, stream: str, start: Start) -> str:
    """Returns why messages from ``start`` on may be gone, or messages in front of it may still come; "" if neither.

    Raises: SystemRefused, SystemUnreachable.
    """
    if isinstance(start, datetime) and start > datetime.now(UTC):
        return f"{start.isoformat()} is in the future, so that messages in front of it may still come"
    connection = await Connection.opened(server)
    try:
        info = await connection.answer(f"looking up the stream {stream}", connection.jetstream.stream_info(stream))
        first = info.state.first_seq
        at_time = await _sequence_at(connection, stream, start) if isinstance(start, datetime) else first
    finally:
        await connection.close()
    # A message that is there and lies in front of the time shows that none after the time is gone.
    has_all = start >= first if isinstance(start, int) else at_time > first
    if first > 1 and not has_all:
        return f"the stream {stream} begins at sequence {first}, and messages after that place may be gone"
    return ""


async def _sequence_at(connection: Connection, stream: str, time: datetime) -> int:
    """Returns the sequence of the first message at or after a time, as the server places a consumer there."""
    library = connection.jetstream
    config = consumer_config(deliver_policy="by_start_time", opt_start_time=time)
    doing = f"looking for the messages of {stream} from {time.isoformat()} on"
    found = await connection.answer(doing, library.add_consumer(stream, config))
    await connection.answer(doing, library.delete_consumer(stream, found.name))
    return int(found.delivered.stream_seq) + 1


def consumer_config(**options: Any) -> Any:
    """Returns the configuration of a consumer that ends by itself and acknowledges nothing."""
    from nats.js import api

    options["deliver_policy"] = api.DeliverPolicy(options["deliver_policy"])
    return api.ConsumerConfig(
        description="clonos",
        ack_policy=api.AckPolicy.NONE,
        inactive_threshold=30.0,
        mem_storage=True,
        num_replicas=1,
        **options,
    )


def check_sequences(split: StreamSplit, info: Any, sequence: int) -> None:
    """Checks that a stream has what was not read.

    Raises: MessagesLost: it has not.
    """
    state = info.state
    if split.created != str(info.created):
        reason = f"a stream of this name was created anew at {info.created}"
    elif state.first_seq > sequence:
        reason = f"the stream begins at {state.first_seq}, because its limits or a purge have removed what was before"
    elif state.last_seq + 1 < sequence:
        reason = f"the stream ends at {state.last_seq}"
    else:
        return
    raise MessagesLost(f"the stream {split.stream}", f"sequence {sequence}", reason)


def _check_replayable(server: NatsAddress, stream: str, config: Any) -> None:
    """Raises: SystemRefused: the stream removes messages otherwise than from its beginning."""
    reason = ""
    retention = str(getattr(config.retention, "value", config.retention))
    if retention != "limits":
        reason = f"its retention is {retention}, so messages vanish when they are acknowledged; it has to be limits"
    elif config.max_msgs_per_subject > 0 and not config.discard_new_per_subject:
        reason = "it has max_msgs_per_subject, so messages vanish that a restart reads again"
    elif config.allow_rollup_hdrs:
        reason = "it allows roll-ups, which remove messages that a restart reads again"
    if reason:
        raise SystemRefused(NATS, server.place, f"reading the stream {stream} exactly-once", reason)
