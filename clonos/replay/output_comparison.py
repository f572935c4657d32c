"""EpochComparison of what a replay has emitted with what the live task had emitted, payload by payload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from clonos.core.model.ids import ChannelId
from clonos.core.model.plan import Plan
from clonos.core.values import encode_columns, encode_rows, encode_timed_rows
from clonos.core.values.elements import TimedRows, decode_elements, decode_records, join_elements
from clonos.io.epochs.record_parts import PAYLOAD_DIGESTS, EmittedOutput
from clonos.replay.compared_sinks import ComparedSink
from clonos.replay.epoch import Epoch
from clonos.replay.replaying import Replayed, Sent

ROWS_SHOWN: Final = 3


class RanLive(StrEnum):
    """Which of two results the live task had made, as far as the record has a digest of it."""

    WAS = "was"
    IS = "is"
    NEITHER = "neither"
    UNKNOWN = "unknown"


LIVE_TEXTS: Final = {
    RanLive.WAS: "'was', by its digest in the record",
    RanLive.IS: "'is', by its digest in the record",
    RanLive.NEITHER: "neither of them, by its digest in the record",
    RanLive.UNKNOWN: "not known: the record has no digest of it, and 'was' is a replay too",
}


class Difference(NamedTuple):
    """Difference between the record and a replay, or between the recorded and the changed code.

    ``record``: number of the record of the task's input that made it, None if it is not known; ``last_record``: the
    last of several that may have made it. ``key``: as text, "" without one. ``was``, ``now``: texts of the results;
    ``was`` is "" if only its digest is known. ``place``: a line of user code, "" if none is known. ``live``: which
    of two replays did what the live task did.
    """

    record: int | None
    last_record: int | None
    key: str
    was: str
    now: str
    where: str
    place: str = ""
    live: RanLive | None = None

    def __str__(self) -> str:
        record = "" if self.record is None else f"record {self.record:,}"
        if self.record is not None and self.last_record not in (None, self.record):
            record = f"one of the records {self.record:,} to {self.last_record:,}"
        parts = [
            " ".join(filter(None, (record, "differs" if record else "it differs", self.where and f"({self.where})")))
        ]
        parts[0] += self.key and f": key {self.key}"
        if self.was:
            parts.append(f"  was  {self.was}")
        parts.append(f"  is   {self.now}")
        if self.live is not None:
            parts.append(f"  live {LIVE_TEXTS[self.live]}")
        if self.place:
            parts.append(f"  at   {self.place}")
        return "\n".join(parts)


class ComparedSpan(NamedTuple):
    """Payload of records that a replay has emitted. ``output``: its port, as text. ``first``, ``last``: numbers of the
    records that may have made it. ``is_equal``: to the digest; None if the record has none."""

    output: str
    first: int
    last: int
    is_equal: bool | None

    def covers(self, output: str, first: int, last: int) -> bool:
        """Returns whether it may have results of these records."""
        return self.output == output and self.first <= last and first <= self.last


class EpochComparison(NamedTuple):
    """Result of a comparison. ``equal``: elements that are equal byte by byte; ``unknown``: those of which the record
    has no digest. Elements are records, watermarks, barriers and the end of the stream. ``equal_rows``,
    ``unknown_rows``: of the sinks whose rows have digests."""

    equal: int
    unknown: int
    differences: list[Difference]
    spans: list[ComparedSpan]
    equal_rows: int = 0
    unknown_rows: int = 0


def compared(epoch: Epoch, replayed: Replayed) -> EpochComparison:
    """Compares the output of a replay with the digests of a record."""
    by_channel = dict[ChannelId, list[EmittedOutput]]()
    for each in epoch.expected:
        by_channel.setdefault(each.channel, []).append(each)
    equal = unknown = 0
    differences: list[Difference] = []
    spans: list[ComparedSpan] = []
    is_torn = replayed.error is not None and epoch.head.failure is None
    sinks = replayed.chain.sinks
    outputs = {each.output for each in sinks}
    digest_of = PAYLOAD_DIGESTS[epoch.head.digests]
    for channel in sorted({*by_channel, *replayed.sent}):
        where, output = _output_of(replayed.image.plan, channel)
        if output in outputs:
            continue
        emitted, sent = by_channel.get(channel, []), replayed.sent.get(channel, [])
        found = _compared_channel(emitted, sent, where, is_torn, output, digest_of)
        equal, unknown = equal + found.equal, unknown + found.unknown
        differences += found.differences
        spans += found.spans
    for sink in sinks:
        differences += _differences_of_rows(sink, is_torn or replayed.error is not None, replayed.gone_on is not None)
        spans += [ComparedSpan(sink.output, *each) for each in sink.spans]
    differences.sort(key=lambda each: each.record or 0)
    equal_rows, unknown_rows = sum(each.equal for each in sinks), sum(each.unknown for each in sinks)
    return EpochComparison(equal, unknown, differences, spans, equal_rows, unknown_rows)


def _differences_of_rows(sink: ComparedSink, is_torn: bool, has_gone_on: bool) -> Iterator[Difference]:
    """Yields the first row that differs, and the rows that the replay did not give to the sink."""
    where, other = f"to the sink {sink.step}", sink.other
    if other is not None and not (other.is_further and has_gone_on):
        was = "no further row" if other.is_further else ""
        yield Difference(other.first, other.last, "", was, shown(other.row), where)
    if sink.lacking and not is_torn:
        rows = f"{sink.lacking:,} rows from {sink.count + 1:,} on"
        yield Difference(None, None, "", rows, "nothing", where)


def _compared_channel(
    expected: Sequence[EmittedOutput],
    sent: Sequence[Sent],
    where: str,
    is_torn: bool,
    output: str,
    digest_of: Callable[[bytes], bytes],
) -> EpochComparison:
    equal = unknown = place = 0
    differences: list[Difference] = []
    spans: list[ComparedSpan] = []

    def span(parts: Sequence[Sent], is_equal: bool | None) -> None:
        spans.extend(ComparedSpan(output, *each.records, is_equal) for each in parts if each.kind.is_data)

    for emitted in expected:
        end_seq = emitted.first_seq + emitted.count
        while place < len(sent) and sent[place].first_seq < emitted.first_seq:
            unknown += sent[place].elements
            span([sent[place]], None)
            place += 1
        parts: list[Sent] = []
        while place < len(sent) and sent[place].first_seq < end_seq:
            parts.append(sent[place])
            place += 1
        was = emitted.first_seq, emitted.kind, emitted.count, emitted.digest
        if parts and _payload_of(parts, emitted, digest_of) == was:
            equal += emitted.count
            span(parts, True)
        elif parts:
            span(parts, False)
            records = parts[0].records[0], parts[-1].records[1]
            differences.append(Difference(*records, "", "", _shown(parts), where))
        elif not is_torn:
            differences.append(
                Difference(None, None, "", f"{emitted.count} elements from {emitted.first_seq:,} on", "nothing", where)
            )
    unknown += sum(each.elements for each in sent[place:])
    span(sent[place:], None)
    return EpochComparison(equal, unknown, differences, spans)


def _payload_of(parts: list[Sent], emitted: EmittedOutput, digest_of: Callable[[bytes], bytes]) -> tuple[Any, ...]:
    """Returns what the parts are together, as ``EmittedOutput`` has it: a live task that replays a log itself emits
    several steps at once."""
    head = parts[0]
    if len(parts) == 1:
        return head.first_seq, head.kind, head.elements, digest_of(head.payload)
    count = sum(part.elements for part in parts)
    if any(part.kind is not head.kind for part in parts) or not head.kind.is_data or count != emitted.count:
        return head.first_seq, head.kind, count, b""
    joined: Any = join_elements(head.kind, [decode_elements(part.kind, part.payload) for part in parts])
    digests = list(map(digest_of, _encodings(joined)))
    return head.first_seq, head.kind, count, emitted.digest if emitted.digest in digests else digests[0]


def _encodings(joined: Any) -> Iterator[bytes]:
    """Yields the payloads that a task may have made of these elements: pairs may be those of a key and a row."""
    if not isinstance(joined, list | TimedRows):
        yield encode_columns(joined)
        return
    times = list(joined.times) if isinstance(joined, TimedRows) else None
    rows = list(joined.rows if isinstance(joined, TimedRows) else joined)
    yield encode_rows(rows) if times is None else encode_timed_rows(rows, times)
    if all(type(row) is tuple and len(row) == 2 for row in rows):
        keys, values = [key for key, _ in rows], [value for _, value in rows]
        yield encode_rows(values, keys) if times is None else encode_timed_rows(values, times, keys)


def _shown(parts: list[Sent]) -> str:
    """Returns the first rows of payloads as text."""
    rows: list[str] = []
    for part in parts:
        rows += [shown(row) for row in decode_records(part.kind, part.payload)] if part.kind.is_data else []
    if not rows:
        return parts[0].kind.name.lower()
    more = len(rows) - ROWS_SHOWN
    return ", ".join(rows[:ROWS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def shown(row: object) -> str:
    """Returns a row as text."""
    try:
        text = repr(row)
    except Exception as error:  # noqa: BLE001  a user's __repr__ may raise anything
        return f"<its repr raised {type(error).__name__}>"
    return text if len(text) <= 300 else f"{text[:300]}..."


def _output_of(plan: Plan, channel: ChannelId) -> tuple[str, str]:
    """Returns the receiver of a channel, in words, and the port of the chain that feeds it, as text."""
    found = next((each for each in plan.channels if each.id == channel), None)
    if found is None:
        return "to the sink", ""
    receiver = "the sink" if found.receiver is None else plan.task_name(found.receiver)
    return f"to {receiver}", str(plan.edges[found.edge].port)
