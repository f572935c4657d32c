"""Redaction of a record: what the function ``redact`` makes of its values, before any of them is written.

What the function cannot be given is left out if a replay does not need it. Otherwise the epoch is not recorded
(``NotRedacted``). Nothing here shows a value in a text.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import structs

from clonos.core.checkpoint.snapshot import decode_snapshot, encode_snapshot
from clonos.core.log import determinants as d
from clonos.core.log.asked import service_of, without_intent, without_request
from clonos.core.log.call_outcomes import decode_outcome, encode_outcome, without_usage
from clonos.core.model.code_location import user_frames_of
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import ClonosError, EnvironmentFault
from clonos.core.model.ids import ChannelId
from clonos.core.ports.redaction import Redact, RedactedKind, RedactedOrigin
from clonos.core.values import column_of, encode_columns, encode_rows, encode_timed_rows, rows_of
from clonos.core.values.column_rows import rows_of_columns
from clonos.core.values.elements import TimedRows, decode_elements
from clonos.core.values.numpy_scalars import keeping_types
from clonos.core.wire.capture_messages import Elements
from clonos.io.epochs.record_parts import EpochContent, Input, JournalBytes, SourceRecords, StatePiece
from clonos.io.process.pickling import UNPICKLABLE, pickled
from clonos.operators.connector_contract import PartlyMalformed
from clonos.operators.state.declared_state import DeclaredState
from clonos.operators.state.state_changes import Section, decode_piece, encode_piece
from clonos.operators.state.state_spec import Encoding
from clonos.operators.steps.awaited_events import Awaits
from clonos.operators.steps.enrich_batch import EncodedOutcomes
from clonos_standby.driver.encoded_entries import has_identities, put_back, taken_out

KINDS: Final = {
    RedactedKind.SOURCE: "records of the source",
    RedactedKind.STEP: "records from the step",
    RedactedKind.SERVICE: "answers of the service",
    RedactedKind.STATE: "entries of the state",
}


class NotRedacted(EnvironmentFault):
    """A part of an epoch cannot be redacted, so it is not recorded."""

    reason: str

    def __str__(self) -> str:
        return self.reason


class Redactor:
    """Redactor of one record. ``sentences``: what its head says afterwards."""

    def __init__(self, redact: Redact, source: str, senders: Mapping[ChannelId, str], declared: DeclaredState) -> None:
        """``source``: name of the source if the task reads one. ``senders``: the steps that send to the task.
        ``declared``: the state of the job."""
        self._redact, self._source, self._senders, self._declared = redact, source, senders, declared
        self._changed: Counter[RedactedOrigin] = Counter()

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences about what was redacted, for the head of the record."""
        return tuple(
            f"{count:,} {_described(origin)} {'was' if count == 1 else 'were'} redacted"
            for origin, count in sorted(self._changed.items())
        )

    def redacted(self, content: EpochContent) -> EpochContent:
        """Returns the content of a record as it may be written.

        Once a value has changed, the digests of the live output, of the rows of sinks and of the requests of calls are
        left out: they cannot be compared with those of a replay, and a short secret can be guessed by its digest.

        Raises: NotRedacted.
        """
        try:
            found = EpochContent(
                list(self._state(content.state)),
                self._log(content.log),
                self._log(content.unfinished),
                [self._input(each) for each in content.input],
                content.expected,
                content.sinks,
            )
        except (ClonosError, *UNPICKLABLE) as error:
            if isinstance(error, NotRedacted):
                raise
            raise NotRedacted(f"a value cannot be read or written by redact: {type(error).__name__}") from None
        if not self._changed:
            return found
        return found._replace(
            log=_without_requests(found.log),
            unfinished=_without_requests(found.unfinished),
            expected=[],
            sinks=(),
        )

    # ------------------------------------------------------------------ values

    def _value(self, origin: RedactedOrigin, value: Any) -> Any:
        try:
            redacted = self._redact(origin, value)
        except BaseException as error:  # noqa: BLE001  any would end the thread that records; its text may have the value
            frames = user_frames_of(error)
            place = f" ({frames[-1].place})" if frames else ""
            raise NotRedacted(f"redact raised {type(error).__name__} for {_described(origin)}{place}") from None
        return redacted

    def _values(self, origin: RedactedOrigin, values: list[Any]) -> tuple[list[Any], int]:
        """Returns what is written in place of values, and how many are other objects."""
        redacted = [self._value(origin, value) for value in values]
        return redacted, sum(one is not other for one, other in zip(values, redacted, strict=True))

    def _count(self, origin: RedactedOrigin, others: int, total: int, *, is_equal: bool) -> None:
        """Counts what has changed. The function may have changed the objects that it was given, of which the bytes tell
        that there are some."""
        if not is_equal:
            self._changed[origin] += others or total

    def _batch(self, origin: RedactedOrigin, batch: Any) -> tuple[Any, int]:
        """Returns rows or columns as they are written, and how many rows are other objects."""
        if not hasattr(batch, "schema"):
            return self._values(origin, list(batch))
        import pyarrow

        rows, others = self._values(origin, rows_of_columns(batch))
        try:
            return pyarrow.RecordBatch.from_pylist(rows, schema=batch.schema), others
        except (pyarrow.ArrowException, TypeError, ValueError, AttributeError):
            raise NotRedacted(f"what redact returned for {_described(origin)} does not fit the columns") from None

    # ------------------------------------------------------------------ input

    def _input(self, piece: Input) -> Input:
        if isinstance(piece, Elements):
            return self._elements(piece)
        if isinstance(piece, JournalBytes):
            raise NotRedacted("its source has a journal, which cannot be redacted")
        return self._of_source(piece)

    def _of_source(self, piece: SourceRecords) -> SourceRecords:
        batch = pickle.loads(piece.batch)  # noqa: S301  it was pickled by this process
        if isinstance(batch, PartlyMalformed):
            raise NotRedacted(f"the source {self._source} gave malformed records, which cannot be redacted")
        origin = RedactedOrigin(RedactedKind.SOURCE, self._source)
        before = pickled(batch)
        redacted, others = self._batch(origin, batch)
        after = pickled(redacted)
        self._count(origin, others, piece.count, is_equal=after == before)
        return piece if after == before else structs.replace(piece, batch=after)

    def _elements(self, piece: Elements) -> Elements:
        if not piece.kind.is_data:
            return piece
        origin = RedactedOrigin(RedactedKind.STEP, self._senders[piece.channel])
        elements = decode_elements(piece.kind, piece.payload)
        before = _payload(piece.kind, elements)
        rows, others = self._batch(origin, elements.rows if isinstance(elements, TimedRows) else elements)
        after = _payload(piece.kind, TimedRows(rows, elements.times) if isinstance(elements, TimedRows) else rows)
        self._count(origin, others, piece.count, is_equal=after == before)
        return piece if after == before else structs.replace(piece, payload=after)

    # ------------------------------------------------------------------ log

    def _log(self, data: bytes) -> bytes:
        """Returns a log with other outcomes of calls. The parts of asynchronous calls are left out: a replay makes no
        such call."""
        found = []
        for entry, (tag, number, asked, outcome) in _entries(data):
            if tag == d.ROUTED:
                raise NotRedacted("its log has errors for the error output, whose texts cannot be redacted")
            if tag == d.PART:
                continue
            if tag in (d.CALL, d.COMPLETION):
                redacted = self._outcome(service_of(asked), outcome)
                found.append(d.call(asked, redacted) if tag == d.CALL else d.completion(number, asked, redacted))
            else:
                found.append(entry)
        return b"".join(found)

    def _outcome(self, service: str, outcome: bytes) -> bytes:
        value: object
        outcome = without_usage(outcome)  # which is in the metrics, and these are left out too
        try:
            value = decode_outcome(outcome)
        except Exception as error:  # noqa: BLE001  the outcome of the call
            value = error
        if type(value) is EncodedOutcomes:
            each = tuple(self._outcome(service, one) for one in value.outcomes)
            return encode_outcome(service, EncodedOutcomes(each))
        if type(value) is Awaits:
            return outcome  # it has the name of an event, and no value
        origin = RedactedOrigin(RedactedKind.SERVICE, service)
        before = encode_outcome(service, value)
        after = encode_outcome(service, self._value(origin, value))
        self._count(origin, 1, 1, is_equal=after == before)
        return outcome if after == before else after

    # ------------------------------------------------------------------ state

    def _state(self, pieces: list[StatePiece]) -> Iterator[StatePiece]:
        name = ""
        for piece in pieces:
            is_first, name = piece.name != name, piece.name
            yield structs.replace(piece, data=self._snapshot(piece) if is_first else self._changes(piece.data))

    def _snapshot(self, piece: StatePiece) -> bytes:
        """Returns a snapshot without the metrics of user code, whose labels may have anything, and without digests."""
        snapshot = decode_snapshot(piece.data, piece.name)
        changes = self._changes(snapshot.changes) if snapshot.changes else b""
        return encode_snapshot(structs.replace(snapshot, changes=changes, metrics=(), sinks=()))

    def _changes(self, data: bytes) -> bytes:
        changes = decode_piece(data)
        if changes.columns:
            raise NotRedacted("its state is in columns, which cannot be redacted")
        sections = [found for each in changes.sections if (found := self._section(each)) is not None]
        return encode_piece(tuple(sections), changes.is_full, changes.dropped)

    def _section(self, section: Section) -> Section | None:
        """Returns a section as it may be written, None if a record does not need it. The outcome of a call in an entry
        is redacted as one of the log is."""
        name, origin = section.name, RedactedOrigin(RedactedKind.STATE, section.name)
        if (declared := self._declared.find(name)) is None:
            raise NotRedacted(f"no step declares its state {name}, so nothing tells what is encoded in it")
        step, spec, _ = declared
        if spec.encoding is Encoding.RESUMED and not spec.encoded_place:
            return None
        entries = list(zip(rows_of(section.keys), rows_of(section.values), strict=True))
        if entries and (spec.encoding is Encoding.OPAQUE or has_identities(entries)):
            raise NotRedacted(f"values in its state {name} are encoded, and cannot be redacted")
        outcomes, shown = taken_out(spec, entries)
        before = _section_of(name, rows_of(section.deleted), shown)
        shown, others = self._entries(origin, shown)
        deleted, others_deleted = self._entries(origin, [(key, None) for key in rows_of(section.deleted)])
        after = _section_of(name, [key for key, _ in deleted], shown)
        self._count(origin, others + others_deleted, len(shown) + len(deleted), is_equal=after == before)
        if outcomes:
            redacted = [self._outcome(step, each) for each in outcomes]
            return _section_of(name, [key for key, _ in deleted], put_back(spec, shown, redacted))
        return after

    def _entries(self, origin: RedactedOrigin, entries: list[Any]) -> tuple[list[Any], int]:
        redacted, others = self._values(origin, entries)
        if any(not isinstance(entry, tuple) or len(entry) != 2 for entry in redacted):
            raise NotRedacted(f"redact has to return a pair (key, value) for {_described(origin)}")
        return redacted, others


def _described(origin: RedactedOrigin) -> str:
    return f"{KINDS[origin.kind]} {origin.name or '(unknown)'}"


def _payload(kind: ElementKind, elements: Any) -> bytes:
    if kind is ElementKind.COLUMNS:
        return bytes(encode_columns(elements))
    if isinstance(elements, TimedRows):
        return encode_timed_rows(elements.rows, elements.times)
    return encode_rows(elements)


def _section_of(name: str, deleted: list[Any], entries: list[tuple[Any, Any]]) -> Section:
    keys, values = [key for key, _ in entries], [value for _, value in entries]
    with keeping_types():
        return Section(name, column_of(deleted), column_of(keys), column_of(values))


def _entries(data: bytes) -> Iterator[tuple[bytes, d.Entry]]:
    """Yields the entries of a log, with their bytes."""
    reader, start = d.LogReader(data), 0
    while not reader.at_end:
        entry = reader.next()
        yield data[start : reader.offset_bytes], entry
        start = reader.offset_bytes


def _without_requests(data: bytes) -> bytes:
    """Returns a log that says which service was called, and not what it was asked."""
    found = []
    for entry, (tag, number, asked, rest) in _entries(data):
        if tag == d.CALL:
            found.append(d.call(without_request(asked), rest))
        elif tag == d.COMPLETION:
            found.append(d.completion(number, without_request(asked), rest))
        elif tag == d.INTENT:
            found.append(d.blob(d.INTENT, without_intent(rest)))
        else:
            found.append(entry)
    return b"".join(found)
