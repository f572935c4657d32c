"""Generator of Nexmark events: persons, auctions and bids, 1 : 3 : 46, as one wide table in two Parquet files.

It follows the generator of the Nexmark project: ids, hot keys, prices, lengths of auctions and of texts. Everything
follows from the seed. Events are written in the order of their arrival, which differs from that of their timestamps by
less than ``DISORDER_S``, and alternate between the files: a watermark that takes both files for one is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.nexmark import texts
from benchmarks.nexmark.queries import AUCTION, BID, PERSON

VERSION: Final = 1
"""Of the generator: another one makes other events from the same seed."""

EVENTS: Final = 5_000_000
EVENTS_PER_S: Final = 10_000
FILES: Final = 2
CHUNK_EVENTS: Final = 1 << 17
"""Events that are made at a time, and the rows of a row group over both files."""

BEGIN: Final = datetime(2015, 7, 14, 23, 59, tzinfo=UTC)
"""Time of the first event: a minute before midnight, because some queries group by day."""

DISORDER_S: Final = 2.0
SHORT_DELAY_S: Final = 0.1
SHORT_DELAY_SHARE: Final = 0.9

CYCLE: Final = 50
AUCTIONS_PER_CYCLE: Final = 3
FIRST_ID: Final = 1_000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
HOT_AUCTIONS_RATIO: Final = 2
HOT_PERSONS_RATIO: Final = 4
HOT_EVERY: Final = 100
AUCTIONS_IN_FLIGHT: Final = 100
PERSONS_ACTIVE: Final = 1_000
LEAD: Final = 10
"""A bid may be for one of the next ten auctions, or by one of the next ten persons, that do not exist yet."""

PERSON_EXTRA, AUCTION_EXTRA, BID_EXTRA = 138, 388, 68
"""Mean length of the text that pads an event: 200, 500 and 100 bytes together with the other columns."""

_TIME: Final = pa.timestamp("ms", tz="UTC")
_COMMON: Final = {"kind": pa.int32(), "date_time": _TIME, "extra": pa.string()}
_PERSON: Final = {
    "id": pa.int64(),
    **dict.fromkeys(("name", "email_address", "credit_card", "city", "state"), pa.string()),
}
_AUCTION: Final = {
    "auction_id": pa.int64(),
    "item_name": pa.string(),
    "description": pa.string(),
    "initial_bid": pa.int64(),
    "reserve": pa.int64(),
    "expires": _TIME,
    "seller": pa.int64(),
    "category": pa.int64(),
}
_BID: Final = {
    "auction": pa.int64(),
    "bidder": pa.int64(),
    "price": pa.int64(),
    "channel": pa.string(),
    "url": pa.string(),
}
SCHEMA: Final = pa.schema(_COMMON | _PERSON | _AUCTION | _BID)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Events:
    """Events: how many, from which seed, how many of them per second of event time, and made at a time."""

    count: int = EVENTS
    seed: int = 1
    per_s: int = EVENTS_PER_S
    chunk: int = CHUNK_EVENTS

    @property
    def name(self) -> str:
        """Returns a name for the folder of these events."""
        return f"nexmark{VERSION}-{self.count}-{self.seed}-{self.per_s}"

    def table(self) -> pa.Table:
        """Makes all events, in the order of their arrival."""
        return pa.Table.from_batches(list(self._chunks()), SCHEMA)

    def write(self, folder: Path) -> list[Path]:
        """Writes the events to files in a folder, alternating between them; returns the files."""
        files = [folder / f"events-{number}.parquet" for number in range(FILES)]
        writers = [pyarrow.parquet.ParquetWriter(file, SCHEMA) for file in files]
        first = 0
        for chunk in self._chunks():
            for number, writer in enumerate(writers):
                writer.write_batch(chunk.take(np.arange((number - first) % FILES, chunk.num_rows, FILES)))
            first += chunk.num_rows
        for writer in writers:
            writer.close()
        return files

    def _chunks(self) -> Any:
        order = _arrival(np.random.default_rng([self.seed, 0]), self.count, self.per_s)
        for number, first in enumerate(range(0, self.count, self.chunk)):
            rng = np.random.default_rng([self.seed, 1, number])
            yield _chunk(rng, order[first : first + self.chunk], self.per_s)


def prepared(events: Events, root: Path) -> Path:
    """Returns the folder with these events, which are made if it is not there yet."""
    folder = root / events.name
    if not folder.exists():
        making = root / f"{events.name}.making"
        making.mkdir(parents=True, exist_ok=True)
        events.write(making)
        making.rename(folder)
    return folder


def times_ms(numbers: Array, per_s: int) -> Array:
    """Returns the timestamps of events, in milliseconds since the Unix epoch."""
    return int(BEGIN.timestamp()) * 1000 + numbers * 1000 // per_s


def _arrival(rng: np.random.Generator, count: int, per_s: int) -> Array:
    """Returns the numbers of the events in the order of their arrival."""
    delays = rng.random(count) * np.where(rng.random(count) < SHORT_DELAY_SHARE, SHORT_DELAY_S, DISORDER_S)
    return np.argsort(np.arange(count) / per_s + delays, kind="stable")


def last_person(numbers: Array) -> Array:
    """Returns the number of the last person up to each event."""
    return numbers // CYCLE


def last_auction(numbers: Array) -> Array:
    """Returns the number of the last auction up to each event; -1 before the first one."""
    found: Array = numbers // CYCLE * AUCTIONS_PER_CYCLE + np.minimum(numbers % CYCLE, AUCTIONS_PER_CYCLE) - 1
    return found


def _chunk(rng: np.random.Generator, numbers: Array, per_s: int) -> pa.RecordBatch:
    place = numbers % CYCLE
    kinds = np.where(place == 0, PERSON, np.where(place <= AUCTIONS_PER_CYCLE, AUCTION, BID)).astype(np.int32)
    columns: dict[str, Any] = {}
    extras: list[Any] = []
    for kind, make in ((PERSON, _persons), (AUCTION, _auctions), (BID, _bids)):
        rows = np.flatnonzero(kinds == kind)
        found, extra = make(rng, numbers[rows], per_s)
        extras.append(extra)
        places = np.full(len(numbers), -1, np.int32)
        places[rows] = np.arange(len(rows), dtype=np.int32)
        at = pa.array(places, mask=places < 0)  # null: an event of another kind
        columns |= {name: column.take(at) for name, column in found.items()}
    columns["kind"] = pa.array(kinds)
    columns["date_time"] = pa.array(times_ms(numbers, per_s)).cast(_TIME)
    back = np.argsort(np.argsort(kinds, kind="stable"), kind="stable")
    columns["extra"] = pa.concat_arrays(extras).take(pa.array(back))
    return pa.record_batch([columns[name].cast(SCHEMA.field(name).type) for name in SCHEMA.names], schema=SCHEMA)


def _below(rng: np.random.Generator, bounds: Array | int, count: int) -> Array:
    """Returns random ints of at least 0 and below each bound."""
    return (rng.random(count) * bounds).astype(np.int64)


def _prices(rng: np.random.Generator, count: int) -> Array:
    return np.round(10.0 ** (rng.random(count) * 6) * 100).astype(np.int64)


def _some_person(rng: np.random.Generator, numbers: Array) -> Array:
    people = last_person(numbers) + 1
    active = np.minimum(people, PERSONS_ACTIVE)
    found: Array = people - active + _below(rng, active + LEAD, len(numbers))
    return found


def _hot_or(rng: np.random.Generator, ratio: int, hot: Array, other: Array) -> Array:
    return np.where(rng.integers(0, ratio, len(hot)) > 0, hot, other) + FIRST_ID


def _persons(rng: np.random.Generator, numbers: Array, per_s: int) -> tuple[dict[str, Any], Any]:
    count = len(numbers)
    columns = {
        "id": pa.array(last_person(numbers) + FIRST_ID),
        "name": texts.pairs(rng, count, texts.FIRST_NAMES, texts.LAST_NAMES),
        "email_address": texts.joined(texts.words(rng, count, 7), "@", texts.words(rng, count, 5), ".com"),
        "credit_card": texts.digits(rng, count, 16),
        "city": texts.chosen(rng, count, texts.CITIES),
        "state": texts.chosen(rng, count, texts.STATES),
    }
    return columns, texts.padding(rng, count, PERSON_EXTRA)


def _auctions(rng: np.random.Generator, numbers: Array, per_s: int) -> tuple[dict[str, Any], Any]:
    count = len(numbers)
    initial = _prices(rng, count)
    times = times_ms(numbers, per_s)
    # As long as AUCTIONS_IN_FLIGHT further auctions take to begin, on average.
    ahead = numbers + AUCTIONS_IN_FLIGHT * CYCLE // AUCTIONS_PER_CYCLE
    length_max_ms = np.maximum((times_ms(ahead, per_s) - times) * 2, 1)
    hot = last_person(numbers) // HOT_EVERY * HOT_EVERY
    columns = {
        "auction_id": pa.array(last_auction(numbers) + FIRST_ID),
        "item_name": texts.words(rng, count, 20),
        "description": texts.words(rng, count, 100),
        "initial_bid": pa.array(initial),
        "reserve": pa.array(initial + _prices(rng, count)),
        "expires": pa.array(times + 1 + _below(rng, length_max_ms, count)).cast(_TIME),
        "seller": pa.array(_hot_or(rng, HOT_PERSONS_RATIO, hot, _some_person(rng, numbers))),
        "category": pa.array(FIRST_CATEGORY + _below(rng, CATEGORIES, count)),
    }
    return columns, texts.padding(rng, count, AUCTION_EXTRA)


def _bids(rng: np.random.Generator, numbers: Array, per_s: int) -> tuple[dict[str, Any], Any]:
    count = len(numbers)
    last = last_auction(numbers)
    first = np.maximum(last - AUCTIONS_IN_FLIGHT, 0)
    some_auction = first + _below(rng, last - first + 1 + LEAD, count)
    hot_bidder = last_person(numbers) // HOT_EVERY * HOT_EVERY + 1
    channel, url = texts.channels(rng, count)
    columns = {
        "auction": pa.array(_hot_or(rng, HOT_AUCTIONS_RATIO, last // HOT_EVERY * HOT_EVERY, some_auction)),
        "bidder": pa.array(_hot_or(rng, HOT_PERSONS_RATIO, hot_bidder, _some_person(rng, numbers))),
        "price": pa.array(_prices(rng, count)),
        "channel": channel,
        "url": url,
    }
    return columns, texts.padding(rng, count, BID_EXTRA)
