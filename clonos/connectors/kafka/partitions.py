"""Partitions that a source reads: which there are, where each begins and ends."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kafka.client import START_S, Client
from clonos.connectors.kafka.kafka_errors import UnknownTopic
from clonos.connectors.kit.splits import decoded_split

Start: TypeAlias = Literal["earliest", "latest"] | datetime | Mapping[int, int]
Topics: TypeAlias = "str | Sequence[str] | re.Pattern[str]"

CONNECTOR: Final = "kafka.source"
NO_END: Final = -1


class Partition(msgspec.Struct, frozen=True, array_like=True):
    """Split of a source: a partition from offset ``start`` up to ``end``; -1 for no end.

    ``topic_id`` tells the topic from a later one of the same name; "" if the brokers have no ids.
    """

    topic: str
    number: int
    start: int
    end: int
    topic_id: str

    def encoded(self) -> bytes:
        """Returns the split."""
        return msgspec.json.encode(self)


_decoder: Final = msgspec.json.Decoder(Partition)


def partition_of(split: bytes) -> Partition:
    """Returns what a split describes.

    Raises: SplitMalformed: it is none.
    """
    return decoded_split(_decoder, "partition of Kafka", split)


class TopicChoice:
    """Topics by name, or all whose name matches a pattern as a whole."""

    def __init__(self, topics: Topics) -> None:
        self.pattern = topics if isinstance(topics, re.Pattern) else None
        self.names: tuple[str, ...] = ()
        if not isinstance(topics, re.Pattern):
            self.names = (topics,) if isinstance(topics, str) else tuple(topics)
            if not self.names or "" in self.names:
                raise InvalidConnector(
                    CONNECTOR, f"topics is {topics!r:.80}", "Give a name, a list of names, or re.compile(...)."
                )

    def __repr__(self) -> str:
        return repr(self.pattern or (self.names[0] if len(self.names) == 1 else list(self.names)))

    @property
    def shown(self) -> str:
        """Returns the pattern between slashes, or the names."""
        return ",".join(self.names) if self.pattern is None else f"/{self.pattern.pattern}/"

    def covers(self, topic: str) -> bool:
        """Returns whether a topic belongs to it."""
        return topic in self.names if self.pattern is None else self.pattern.fullmatch(topic) is not None

    def listed(self, client: Client, limit_s: float = START_S) -> list[tuple[str, int]]:
        """Returns all partitions that exist now: by topic, then by number.

        Raises: UnknownTopic: a topic that is named does not exist, or none matches. SystemRefused, SystemUnreachable.
        """
        doing = f"looking for the topics {self!r}"
        if self.pattern is None:
            return [(name, number) for name in self.names for number in client.partitions(name, doing, limit_s)]
        found = client.topics(doing, limit_s)
        covered = sorted(filter(self.covers, found))
        return [(name, number) for name in covered for number in sorted(found[name].partitions)]


def checked_start(start: Start, topics: TopicChoice) -> Start:
    """Checks where a source begins.

    Raises: InvalidConnector: this is no start.
    """
    if isinstance(start, Mapping):
        is_right = len(topics.names) == 1 and all(
            type(number) is int and type(offset) is int and number >= 0 <= offset for number, offset in start.items()
        )
        advice = "Offsets are a dict from each partition of the one topic to its first offset."
    elif isinstance(start, datetime):
        is_right, advice = start.tzinfo is not None, "Give the datetime a time zone."
    else:
        is_right = start in ("earliest", "latest")
        advice = 'Give "earliest", "latest", a datetime or {partition: offset}.'
    if not is_right:
        raise InvalidConnector(CONNECTOR, f"start is {start!r:.80}", advice)
    return start


def resolved(
    client: Client, places: Iterable[tuple[str, int]], start: Start, is_bounded: bool, ids: Mapping[str, str]
) -> list[Partition]:
    """Returns the splits of partitions, with the offsets at which they begin and, if bounded, end.

    ``ids`` has the id of each topic, asked for before: a topic made anew meanwhile is noticed when it is read.

    Raises: InvalidConnector: an offset is not in its partition. SystemRefused, SystemUnreachable.
    """
    places = list(places)
    at_time = _offsets_at(client, places, start) if isinstance(start, datetime) else {}
    found = []
    for place in places:
        topic, number = place
        first, end = bounds(client, topic, number)
        if isinstance(start, Mapping):
            begin = _given(start, place, first, end)
        elif isinstance(start, datetime):
            begin = at_time[place] if at_time[place] >= 0 else end
        else:
            begin = first if start == "earliest" else end
        found.append(Partition(topic, number, begin, end if is_bounded else NO_END, ids[topic]))
    if isinstance(start, Mapping) and (unknown := sorted(set(start) - {number for _, number in places})):
        raise InvalidConnector(
            CONNECTOR, f"start has the partition {unknown[0]}, which does not exist", "Name partitions of the topic."
        )
    return found


def gone_after(client: Client, places: Iterable[tuple[str, int]], start: Start) -> str:
    """Returns why records from ``start`` on may be gone, or records in front of it may still come; "" if neither.

    Raises: SystemRefused, SystemUnreachable.
    """
    places = list(places)
    if isinstance(start, datetime) and start > datetime.now(UTC):
        return f"{start.isoformat()} is in the future, so that records in front of it may still come"
    at_time = _offsets_at(client, places, start) if isinstance(start, datetime) else {}
    for topic, number in places:
        first, end = bounds(client, topic, number)
        if isinstance(start, Mapping):
            has_all = start.get(number, first) >= first
        else:  # a record that is there and lies in front of the time shows that none after the time is gone
            offset = at_time.get((topic, number), first)
            has_all = first == 0 or (first < end and (offset < 0 or offset > first))
        if not has_all:
            return f"partition {number} of {topic} begins at offset {first}, and records after that place may be gone"
    return ""


def bounds(client: Client, topic: str, number: int) -> tuple[int, int]:
    """Returns the first offset of a partition and that after its last record.

    Raises: UnknownTopic: there is no such partition. SystemRefused, SystemUnreachable.
    """
    place = client.place(topic, number, 0)
    doing = f"asking for the offsets of partition {number} of {topic}"
    ask = client.raw.get_watermark_offsets
    found: tuple[int, int] | None = client.ask(doing, lambda wait_s: ask(place, timeout=wait_s, cached=False))
    if found is None:
        raise UnknownTopic(client.servers, topic)
    return found


def _offsets_at(client: Client, places: list[tuple[str, int]], start: datetime) -> dict[tuple[str, int], int]:
    time_ms = round(start.timestamp() * 1_000)
    asked = [client.place(*place, time_ms) for place in places]
    doing = f"asking for the offsets at {start.isoformat()}"
    found: list[Any] = client.ask(doing, lambda wait_s: client.raw.offsets_for_times(asked, timeout=wait_s))
    return {(each.topic, each.partition): each.offset for each in found}


def _given(start: Mapping[int, int], place: tuple[str, int], first: int, end: int) -> int:
    topic, number = place
    if number not in start:
        raise InvalidConnector(
            CONNECTOR, f"start has no offset for partition {number} of {topic}", "Name each partition."
        )
    if not first <= start[number] <= end:
        raise InvalidConnector(
            CONNECTOR,
            f"start has offset {start[number]} for partition {number} of {topic}",
            f"It has the offsets {first} to {end}.",
        )
    return start[number]


def index_of(topic: str, number: int, parallelism: int) -> int:
    """Returns the index of the task that reads a partition which is found while the job runs."""
    return (zlib.crc32(topic.encode()) + number) % parallelism
