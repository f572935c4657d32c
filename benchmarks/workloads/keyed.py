"""Workloads of records with integer keys and a running result for each: what is read, what is kept, what comes out.

Both sides of a comparison read the same records and apply the same ``fold``; a sink answers for the last result of all
its keys with one checksum, which is compared with one of plain dictionaries.
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
"""Coprime to the number of keys: updates go to all keys in turn, far from each other."""

Fold = Callable[[int, Any, Any], tuple[Any, Any]]
"""(key, state or None, record) -> (state, (key, result))."""


def fold_bid(auction: int, state: tuple[int, int, int] | None, bid: tuple[int, int, int]) -> tuple[Any, Any]:
    """How many bids an auction has had, their sum, the highest."""
    price = bid[2]
    if state is None:
        state = (1, price, price)
    else:
        count, total, highest = state
        state = (count + 1, total + price, price if price > highest else highest)
    return state, (auction, state)


def fold_profiled(auction: int, state: tuple[int, int] | None, bid: tuple[int, int, str]) -> tuple[Any, Any]:
    """How many bids an auction has had, and the sum of what their bidders are rated."""
    rating = int(bid[2][-2:])
    count, total = state or (0, 0)
    state = (count + 1, total + rating)
    return state, (auction, state)


def fold_value(key: int, state: tuple[int, bytes] | None, record: tuple[int, bytes]) -> tuple[Any, Any]:
    """The last value of a key, and how many it has had."""
    count = 1 if state is None else state[0] + 1
    return (count, record[1]), (key, (count, record[1][0]))


def profile(bidder: int) -> str:
    """A hundred bytes about a bidder, the last two their rating: what the world answers when it is asked."""
    return f"{bidder:098}{bidder * 7 % 100:02}"


@cache
def bids(records: int) -> list[tuple[int, int, int]]:
    """(auction, bidder, price), as Nexmark has them: some auctions are hot."""
    stream = random.Random(SEED)
    weights = [1 / rank for rank in range(1, AUCTIONS + 1)]
    auctions = stream.choices(range(AUCTIONS), weights, k=records)
    return [(auction, stream.randrange(BIDDERS), stream.randrange(1, PRICE_MAX)) for auction in auctions]


@dataclass(frozen=True, slots=True)
class Kind:
    """``asks``: each record is enriched by a call on its way to its key."""

    name: str
    fold: Fold
    asks: bool = False


KINDS: Final = {
    kind.name: kind
    for kind in (Kind("bids", fold_bid), Kind("enrichment", fold_profiled, True), Kind("large_state", fold_value))
}


@dataclass(frozen=True, slots=True)
class KeyedWorkload:
    """So many ``records`` of a kind, dealt out to the readers. ``keys``: of a large state."""

    folder: str
    kind: str
    records: int
    keys: int = LARGE_KEYS
    readers: int = 2
    is_staged: bool = False

    def of_words(self, records: float) -> KeyedWorkload:
        """The same kind of work, with about so many records."""
        return replace(self, records=max(self.readers, int(records) // self.readers * self.readers))

    @property
    def words(self) -> int:
        """Results that will come out."""
        return self.records

    def share(self, reader: int) -> BidShare | ValueShare:
        """What one reader reads."""
        size = self.records // self.readers
        if self.kind == "large_state":
            return ValueShare(reader, self.readers, size, self.keys)
        return BidShare(bids(min(POOL_RECORDS, self.records))[reader :: self.readers], size)

    def expected(self, target_of: Callable[[int], int]) -> tuple[list[int], Counter[str]]:
        """Results of each sink, and its checksum, as plain dictionaries have them."""
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
            checksums[checksum_name(rows[at])] += checksum(of_sink[at])  # added up where two get equally many
        return rows, checksums


def checksum_name(rows: int) -> str:
    """Sinks are told apart by what they get."""
    return f"checksum of {rows} results"


def checksum(finals: dict[int, Any]) -> int:
    """Of the last result of each key, which must not depend on how readers interleave."""
    return zlib.crc32(repr(sorted(finals.items())).encode("ascii"))


def enriched(records: Iterable[Any]) -> list[Any]:
    """With the profile in place of the price."""
    return [(auction, bidder, profile(bidder)) for auction, bidder, _ in records]


class BidShare:
    """A pool of bids, read over and over: taken in slices."""

    def __init__(self, pool: list[Any], size: int) -> None:
        self._pool, self.size = pool, size

    def after(self, position: int, records_max: int) -> list[Any]:
        """At least one from a position on; [] at the end."""
        at = position % len(self._pool)
        return self._pool[at : at + min(records_max, self.size - position)]


class ValueShare:
    """(key, value) pairs: each key once, then updates all over."""

    def __init__(self, reader: int, readers: int, size: int, keys: int) -> None:
        self.size = size
        self._first, self._step, self._keys = reader, readers, keys
        self._blob = random.Random(SEED).randbytes(LARGE_VALUE_BYTES + 256)

    def after(self, position: int, records_max: int) -> list[Any]:
        """At least one from a position on; [] at the end."""
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
