"""``history.then(live)``: a source that ends, then another that goes on from there.

One task reads both, and the splits of ``live`` when all those of ``history`` have ended: each key has one order. The
driver fixes where ``live`` begins, the cut, before it lists the history: at the first start, and once.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed
from clonos.connectors.kit.external_system import InputLost
from clonos.connectors.kit.splits import decoded_split
from clonos.core.model.errors import JobError
from clonos.operators.column_contract import (
    Bound,
    DescribedSource,
    NarrowableSource,
    PlannedSource,
    SampledSource,
    gives_columns,
)
from clonos.operators.connector_contract import (
    PendingInput,
    PendingSource,
    PushSource,
    Source,
    SplitReader,
    TimedSource,
    check_split,
    discovery_interval_ns,
    in_order,
    pending_of,
)
from clonos.operators.lineage import Dataset, datasets_of
from clonos.operators.split_source import AcknowledgedSource

CONNECTOR: Final = "then"


class LateCut(JobError):
    """A live source cannot begin where the history before it ends. ``source`` is the source, ``reason`` a clause."""

    source: str
    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{self.source} cannot begin where the history ends: {self.reason}. {self.advice}."


LATER_ADVICE: Final = "Take a history that ends later, and start afresh with --overwrite"


@runtime_checkable
class CutSource(Protocol):
    """``Source`` that knows whether it can begin where a history ends."""

    def check_cut(self) -> None:
        """Checks in the driver that it begins at one place, before which the history may end, and that no record after
        that place is gone.

        Raises: LateCut: it does not, or some are.
        """


class HistorySource:
    """Base of sources that may end, which others continue."""

    def then(self, live: Any) -> HistoryThenLive:
        """Returns a source of these records and then those of ``live``, which begins where these end.

        Raises: InvalidConnector: one of the two cannot be part of such a source.

        Example::

            files.jsonl("orders/*.jsonl").then(kafka.source("orders", servers="localhost:9092", start=midnight))
        """
        return HistoryThenLive(self, live)


class _Part(msgspec.Struct, frozen=True, array_like=True):
    """Split of the source at a place of the sequence."""

    place: int
    split: bytes


_decoder: Final = msgspec.msgpack.Decoder(_Part)
_encode: Final = msgspec.msgpack.Encoder().encode


def part_of(split: bytes) -> _Part:
    """Returns the place of the source that a split is of, and its split. Raises: SplitMalformed."""
    return decoded_split(_decoder, "split of a history or of what follows", split)


def parts_of(place: int, splits: Sequence[bytes]) -> list[bytes]:
    """Returns the splits of the source at a place as those of the whole."""
    return [_encode(_Part(place, split)) for split in splits]


class HistoryThenLive(HistorySource):
    """Source of several in their order, mostly a history and a live one (``PhasedSource``, ``WatchedSource``,
    ``CheckingSource``, ``AcknowledgedSource``). It gives columns if all of them do, with the contracts of columns.
    """

    routes_malformed = True

    def __init__(self, history: Any, live: Any) -> None:
        for each, name in ((history, "the history"), (live, "the live source")):
            _check_part(each, name)
        if discovery_interval_ns(history) or not getattr(history, "is_bounded", True):
            problem = f"the history {history!r:.80} does not end"
            raise InvalidConnector(CONNECTOR, problem, 'Leave out watch=, or give until="latest".')
        self.own_timestamps = _own_timestamps(history, live)
        self.sources: tuple[Any, ...] = (*_sources_of(history), *_sources_of(live))
        rows = [source for source in self.sources if not gives_columns(source)]
        self.gives_columns = not rows
        is_mixed = 0 < len(rows) < len(self.sources)
        self.row_reason = (
            f"{rows[0]!r:.80} gives rows, and columns of the other half become rows too" if is_mixed else ""
        )
        self.discovery_interval_ns = discovery_interval_ns(live)
        self.is_bounded = bool(getattr(live, "is_bounded", not self.discovery_interval_ns))

    def __repr__(self) -> str:
        first, *others = self.sources
        return repr(first) + "".join(f".then({each!r})" for each in others)

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [each for source in self.sources for each in datasets_of(source)]

    def splits(self, parallelism: int) -> list[bytes]:
        """Lists the splits of all sources. The last one begins: its place is fixed before the history is listed.

        Raises: LateCut: a source cannot begin where the one before it ends. What ``splits`` of the sources raises.
        """
        found: list[bytes] = []
        for place, source in reversed([*enumerate(self.sources)]):
            if place:
                _check_cut(source)
            found = parts_of(place, source.splits(parallelism)) + found
        return found

    def phase_of(self, split: bytes) -> int:
        """See ``connector_contract.PhasedSource``."""
        return part_of(split).place

    def check_split(self, split: bytes) -> None:
        """Checks a split from the store.

        Raises: SplitMalformed: it is of no source here. What ``check_split`` of its source raises.
        """
        part = part_of(split)
        if not 0 <= part.place < len(self.sources):
            raise SplitMalformed("split of a history or of what follows", split, f"{self!r} has no such source")
        check_split(self.sources[part.place], part.split)

    def discover(self, known: Sequence[bytes], index: int, parallelism: int) -> list[bytes]:
        """See ``connector_contract.WatchedSource``: in the last source, which alone may not end."""
        place = len(self.sources) - 1
        parts = [part.split for part in map(part_of, known) if part.place == place]
        return parts_of(place, self.sources[place].discover(parts, index, parallelism))

    def acknowledge(self, split: bytes, mark: bytes) -> None:
        """See ``split_source.AcknowledgedSource``."""
        part = part_of(split)
        source = self.sources[part.place]
        if isinstance(source, AcknowledgedSource):
            source.acknowledge(part.split, mark)

    def column_schema(self) -> Any | None:
        """See ``column_contract.DescribedSource``: what all sources have."""
        return self._common(
            [source.column_schema() if isinstance(source, DescribedSource) else None for source in self.sources]
        )

    def sampled_schema(self, splits: Sequence[bytes]) -> Any | None:
        """See ``column_contract.SampledSource``: what all sources have had when the job began."""
        parts = [part_of(split) for split in splits]
        return self._common(
            [
                source.sampled_schema([part.split for part in parts if part.place == place])
                if isinstance(source, SampledSource)
                else source.column_schema()
                if isinstance(source, DescribedSource)
                else None
                for place, source in enumerate(self.sources)
            ]
        )

    def _common(self, schemas: Sequence[Any | None]) -> Any | None:
        if not self.gives_columns or any(schema is None for schema in schemas):
            return None
        from clonos.operators.columnar.plain_columns import plain_schema  # loads pyarrow

        first, *others = map(plain_schema, schemas)
        return first if all(first.equals(other) for other in others) else None

    def narrowed(self, columns: Collection[str] | None, bounds: Sequence[Bound]) -> HistoryThenLive:
        """See ``column_contract.NarrowableSource``."""
        return self._with(
            source.narrowed(columns, bounds) if isinstance(source, NarrowableSource) else source
            for source in self.sources
        )

    def planned(self, schema: Any) -> HistoryThenLive:
        """See ``column_contract.PlannedSource``."""
        return self._with(
            source.planned(schema) if isinstance(source, PlannedSource) else source for source in self.sources
        )

    def _with(self, sources: Iterable[Any]) -> HistoryThenLive:
        both = copy.copy(self)
        both.sources = tuple(sources)
        return both

    def pending(self, split: bytes, mark: bytes | None) -> PendingInput | None:
        """See ``connector_contract.PendingSource``."""
        part = part_of(split)
        source = self.sources[part.place]
        return source.pending(part.split, mark) if isinstance(source, PendingSource) else None

    def reader(self) -> PartReader:
        """Creates a reader."""
        return PartReader(self.sources)


class PartReader:
    """Reader of a split of any of the sources; marks are those of its reader."""

    def __init__(self, sources: Sequence[Any]) -> None:
        self._sources = sources
        self._source: Any = None
        self._reader: SplitReader[Any] | None = None
        self._is_at_cut = False

    def open(self, split: bytes, mark: bytes | None) -> None:
        """See ``connector_contract.SplitReader``.

        Raises: LateCut: what follows the cut is gone.
        """
        part = part_of(split)
        self._is_at_cut = mark is None and part.place > 0
        self._source = self._sources[part.place]
        self._reader = self._source.reader()
        try:
            self._reader.open(part.split, mark)
        except InputLost as error:
            raise self._late(error) from None

    def read(self, records_max: int) -> Any:
        """See ``connector_contract.SplitReader``.

        Raises: LateCut: what follows the cut is gone.
        """
        assert self._reader is not None, "a split is opened before it is read"
        try:
            found = self._reader.read(records_max)
        except InputLost as error:
            raise self._late(error) from None
        self._is_at_cut = False
        return found

    def pending(self) -> PendingInput | None:
        """See ``connector_contract.PendingReader``."""
        return pending_of(self._reader)

    def mark(self) -> bytes:
        """See ``connector_contract.SplitReader``."""
        assert self._reader is not None, "a split is opened before it is read"
        return self._reader.mark()

    def close(self) -> None:
        """See ``connector_contract.SplitReader``."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _late(self, error: InputLost) -> Exception:
        return LateCut(repr(self._source), error.loss(), LATER_ADVICE) if self._is_at_cut else error


def _sources_of(source: Any) -> tuple[Any, ...]:
    return source.sources if isinstance(source, HistoryThenLive) else (in_order(source),)


def _check_cut(source: Any) -> None:
    if getattr(source, "start", None) == "latest":
        reason = 'start="latest" is not a fixed place, and records between the history and it would be missing'
        raise LateCut(repr(source), reason, "Give start= the time or the offsets at which the history ends")
    if isinstance(source, CutSource):
        source.check_cut()


def _check_part(part: Any, name: str) -> None:
    if isinstance(part, PushSource):
        advice = "Use a source that can be read again from a place, such as kafka.source or postgres.changes."
        raise InvalidConnector(CONNECTOR, f"{name} {part!r:.80} cannot be read again", advice)
    if not isinstance(part, Source):
        raise InvalidConnector(CONNECTOR, f"{name} is a {type(part).__qualname__}, not a source", "Give a source.")
    if isinstance(part, TimedSource):
        advice = "Give job.source timestamps=, which hold for both halves."
        raise InvalidConnector(CONNECTOR, f"{name} {part!r:.80} makes watermarks of its own", advice)


def _own_timestamps(history: Any, live: Any) -> Any:
    own = [getattr(part, "own_timestamps", None) for part in (history, live)]
    if all(own) or not any(own):
        return own[1]
    advice = "Leave out out_of_order=, and give job.source timestamps=, which hold for both halves."
    raise InvalidConnector(CONNECTOR, "only one of the halves has the timestamps of its messages", advice)
