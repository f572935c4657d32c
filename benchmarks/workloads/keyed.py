"""Keyed workloads: records with integer keys and a running result for each key.

Both sides of a comparison read the same records and apply the same ``fold``. A checksum of the last results of all keys
of a sink is compared with the checksum of plain dictionaries.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

SEED: Final = 30
POOL_RECORDS: Final = 100_000
AUCTIONS: Final = 10_000
BIDDERS: Final = 20_000
PRICE_MAX: Final = 10_000

LARGE_KEYS: Final = 1_000_000
LARGE_VALUE_BYTES: Final = 500
STRIDE: Final = 611_953
"""Distance of updated keys, coprime to their number: updates visit all keys, far from each other."""

Fold = Callable[[int, Any, Any], tuple[Any, Any]]
"""(key, state or None, record) -> (state, (key, result))."""


def fold_bid(auction: int, state: tuple[int, int, int] | None, bid: tuple[int, int, int]) -> tuple[Any, Any]:
    """Aggregates bids of an auction: count, sum and maximum."""
    price = bid[2]
    if state is None:
        state = (1, price, price)
    else:
        count, total, highest = state
        state = (count + 1, total + price, price if price > highest else highest)
    return state, (auction, state)


def fold_profiled(auction: int, state: tuple[int, int] | None, bid: tuple[int, int, str]) -> tuple[Any, Any]:
    """Aggregates bids of an auction: count, and sum of the bidders' ratings."""
    rating = int(bid[2][-2:])
    count, total = state or (0, 0)
    state = (count + 1, total + rating)
    return state, (auction, state)


def fold_value(key: int, state: tuple[int, bytes] | None, record: tuple[int, bytes]) -> tuple[Any, Any]:
    """Keeps the last value of a key, and the number of its values."""
    count = 1 if state is None else state[0] + 1
    return (count, record[1]), (key, (count, record[1][0]))


def profile(bidder: int) -> str:
    """Returns a profile of a bidder: a hundred bytes that end with a rating of two digits."""
    return f"{bidder:098}{bidder * 7 % 100:02}"


@cache
def bids(records: int) -> list[tuple[int, int, int]]:
    """Returns (auction, bidder, price) as in Nexmark: some auctions are hot."""
    stream = random.Random(SEED)
    weights = [1 / rank for rank in range(1, AUCTIONS + 1)]
    auctions = stream.choices(range(AUCTIONS), weights, k=records)
    return [(auction, stream.randrange(BIDDERS), stream.randrange(1, PRICE_MAX)) for auction in auctions]


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of workload. ``asks``: each record is enriched by a call before it is keyed."""

    name: str
    fold: Fold
    asks: bool = False


KINDS: Final = {
    kind.name: kind
    for kind in (Kind("bids", fold_bid), Kind("enrichment", fold_profiled, True), Kind("large_state", fold_value))
}


@dataclass(frozen=True, slots=True)
class KeyedWorkload:
    """Keyed workload: ``records`` of a kind, distributed over the readers. ``keys``: of the large state."""

    folder: str
    kind: str
    records: int
    keys: int = LARGE_KEYS
    readers: int = 2
    is_staged: bool = False

    def of_words(self, records: float) -> KeyedWorkload:
        """Returns the same workload with about ``records`` records."""
        return replace(self, records=max(self.readers, int(records) // self.readers * self.readers))

    @property
    def words(self) -> int:
        """Returns the number of expected results."""
        return self.records

    def columns(self) -> Any:
        """Returns the schema of the bids as columns."""
        return BidColumns([(0, 0, 0)], 1).schema

    def share(self, reader: int) -> BidShare | ValueShare:
        """Returns the records of one reader."""
        size = self.records // self.readers
        if self.kind == "large_state":
            return ValueShare(reader, self.readers, size, self.keys)
        return BidShare(bids(min(POOL_RECORDS, self.records))[reader :: self.readers], size)

    def expected(self, target_of: Callable[[int], int]) -> tuple[list[int], Counter[str]]:
        """Computes the number of results of each sink and their checksums with plain dictionaries."""
        kind = KINDS[self.kind]
        states: dict[int, Any] = {}
        finals: dict[int, Any] = {}
        rows = [0] * self.readers
        for reader in range(self.readers):
            share, position = self.share(reader), 0
            while records := share.after(position, POOL_RECORDS):
                position += len(records)
                for record in enriched(records) if kind.asks else records:
                    key = record[0]
                    states[key], (_, finals[key]) = kind.fold(key, states.get(key), record)
        of_sink: list[dict[int, Any]] = [{} for _ in range(self.readers)]
        for key, result in finals.items():
            of_sink[target_of(key)][key] = result
            rows[target_of(key)] += result[0]
        checksums: Counter[str] = Counter()
        for at in range(self.readers):
            checksums[checksum_name(rows[at])] += checksum(of_sink[at])  # added up where two sinks get equally many
        return rows, checksums


def checksum_name(rows: int) -> str:
    """Returns the name of a checksum: sinks differ by their number of results."""
    return f"checksum of {rows} results"


def checksum(finals: dict[int, Any]) -> int:
    """Returns the checksum of the last result of each key, which must not depend on how readers interleave."""
    return zlib.crc32(repr(sorted(finals.items())).encode("ascii"))


def enriched(records: Iterable[Any]) -> list[Any]:
    """Replaces the price of each bid by the bidder's profile."""
    return [(auction, bidder, profile(bidder)) for auction, bidder, _ in records]


class BidShare:
    """Share of a reader: a pool of bids, read repeatedly, in slices."""

    def __init__(self, pool: list[Any], size: int) -> None:
        self._pool, self.size = pool, size

    def after(self, position: int, records_max: int) -> list[Any]:
        """Returns at least one record from a position on; [] at the end."""
        at = position % len(self._pool)
        return self._pool[at : at + min(records_max, self.size - position)]

    def columns(self) -> BidColumns:
        """Returns the share as record batches."""
        return BidColumns(self._pool, self.size)


class BidColumns:
    """Share of a reader as record batches with the columns of a bid."""

    def __init__(self, pool: list[tuple[int, int, int]], size: int) -> None:
        import pyarrow

        columns = [pyarrow.array(column, pyarrow.int64()) for column in zip(*pool, strict=True)]
        self._pool, self.size = pyarrow.record_batch(columns, names=("auction", "bidder", "price")), size
        self.schema: Any = self._pool.schema

    def after(self, position: int, records_max: int) -> Any:
        """Returns at least one record from a position on; an empty batch at the end."""
        at = position % self._pool.num_rows
        return self._pool.slice(at, min(records_max, self.size - position))


class ValueShare:
    """Share of a reader: (key, value) pairs, each key once, then updates of all keys."""

    def __init__(self, reader: int, readers: int, size: int, keys: int) -> None:
        self.size = size
        self._first, self._step, self._keys = reader, readers, keys
        self._blob = random.Random(SEED).randbytes(LARGE_VALUE_BYTES + 256)

    def after(self, position: int, records_max: int) -> list[Any]:
        """Returns at least one record from a position on; [] at the end."""
        blob, keys, bytes_each = self._blob, self._keys, LARGE_VALUE_BYTES
        numbers = range(
            self._first + position * self._step,
            self._first + min(position + records_max, self.size) * self._step,
            self._step,
        )
        found = []
        for number in numbers:
            key = number if number < keys else number * STRIDE % keys
            at = key & 0xFF
            found.append((key, blob[at : at + bytes_each]))
        return found
