"""Queries in rows that keep no state, or a running result for each key."""

from __future__ import annotations

from decimal import Decimal
from operator import itemgetter
from typing import Any, Final

from benchmarks.nexmark.jobs.house import BID_COLUMNS, House, Row
from clonos import Stream
from clonos.agg import count, count_if, max_, min_, sum_

Result = Stream[tuple[Any, ...]]

RATE: Final = Decimal("0.908")
HOT_MIN, HOT_MAX = Decimal(1_000_000), Decimal(50_000_000)
LOW, HIGH = 10_000, 1_000_000
"""Prices from which a bid has the second and the third rank."""

TOP: Final = 10
NEW_PART = (0,) * 3


def q0(house: House) -> Result:
    """Passes bids on."""
    names = ("auction", "bidder", "price", "date_time", "extra")
    return house.bids(*names).map(itemgetter(*names))


def q1(house: House) -> Result:
    """Converts prices."""
    bids = house.bids("auction", "bidder", "price", "date_time", "extra")
    return bids.map(lambda bid: (bid["auction"], bid["bidder"], RATE * bid["price"], bid["date_time"], bid["extra"]))


def q2(house: House) -> Result:
    """Selects the bids for some auctions."""
    chosen = house.bids("auction", "price").filter(lambda bid: bid["auction"] % 123 == 0, name="chosen")
    return chosen.map(lambda bid: (bid["auction"], bid["price"]))


def q14(house: House) -> Result:
    """Computes columns of bids in a range of prices."""
    bids = house.bids("auction", "bidder", "price", "date_time", "extra")
    return bids.flat_map(calculated)


def calculated(bid: Row) -> list[tuple[Any, ...]]:
    """Returns the row of a bid, none if its price is outside the range."""
    price = RATE * bid["price"]
    if not HOT_MIN < price < HOT_MAX:
        return []
    time, extra = bid["date_time"], bid["extra"]
    part = "dayTime" if 8 <= time.hour <= 18 else "nightTime" if time.hour <= 6 or time.hour >= 20 else "otherTime"
    return [(bid["auction"], bid["bidder"], price, part, time, extra, extra.count("c"))]


def q22(house: House) -> Result:
    """Splits URLs."""
    bids = house.bids("auction", "bidder", "price", "channel", "url")
    return bids.map(
        lambda bid: (bid["auction"], bid["bidder"], bid["price"], bid["channel"], *bid["url"].split("/", 6)[3:6])
    )


def day_of(bid: Row) -> str:
    """Returns the day of a bid."""
    return str(bid["date_time"].date())


def rank_of(price: int) -> int:
    """Returns the rank of a price: 0, 1 or 2."""
    return 0 if price < LOW else 1 if price < HIGH else 2


def q16(house: House) -> Result:
    """Counts bids, bidders and auctions of each channel and day, by rank of the price.

    The first bid of a bidder in a channel, day and rank is news, and likewise for auctions: state is small per key.
    """
    bids = house.bids("auction", "bidder", "price", "channel", "date_time")
    news = bids.flat_map(parts_of).key_by(lambda part: part[:4], name="by_part").stateful_map(news_of, name="news")
    changes = news.filter(lambda change: change is not None, name="changes")
    return changes.key_by(lambda change: change[0]).stateful_map(totals_of, name="totals")


Part = tuple[str, str, int, int, str, int]


def parts_of(bid: Row) -> list[Part]:
    """Returns the parts of a bid: (channel, day, number of the part, id, minute, rank). Part 0 is the bid."""
    channel, day, minute = bid["channel"], day_of(bid), f"{bid['date_time']:%H:%M}"
    rank = rank_of(bid["price"])
    auction, bidder = bid["auction"], bid["bidder"]
    return [(channel, day, part, id_, minute, rank) for part, id_ in enumerate((bidder % 16, bidder, auction))]


def news_of(key: Any, seen: int | None, part: Part) -> tuple[int, Any]:
    """Returns ((channel, day), part, minute, rank, is new at all) if the part is new in its rank; a bid always is."""
    channel, day, number, _, minute, rank = part
    before = seen or 0
    if number and before >> rank & 1:
        return before, None
    return before | 1 << rank, ((channel, day), number, minute, rank, not before)


def totals_of(key: tuple[str, str], state: Any, change: Any) -> tuple[Any, tuple[Any, ...]]:
    """Adds a change to the totals of a channel and day."""
    minute, counts = state or ("", (0,) * 12)
    _, number, at, rank, is_new = change
    first = number * 4
    counts = (
        *counts[:first],
        counts[first] + (1 if number == 0 or is_new else 0),
        *(count + (place == rank) for place, count in enumerate(counts[first + 1 : first + 4])),
        *counts[first + 4 :],
    )
    minute = max(minute, at)
    return (minute, counts), (*key, minute, *counts)


def q17(house: House) -> Result:
    """Gives statistics of each auction and day."""
    bids = house.bids("auction", "price", "date_time")
    totals = bids.key_by(lambda bid: (bid["auction"], day_of(bid))).aggregate(
        n=count(),
        low=count_if(lambda bid: bid["price"] < LOW),
        middle=count_if(lambda bid: LOW <= bid["price"] < HIGH),
        high=count_if(lambda bid: bid["price"] >= HIGH),
        least=min_("price"),
        most=max_("price"),
        total=sum_("price"),
        name="totals",
    )
    return totals.map(statistics_row)


def statistics_row(result: tuple[tuple[int, str], dict[str, Any]]) -> tuple[Any, ...]:
    """Makes a row of the statistics of an auction and day."""
    key, found = result
    n, low, middle, high, least, most, total = found.values()
    return (*key, n, low, middle, high, least, most, total // n, total)


def q18(house: House) -> Result:
    """Keeps the last bid of each bidder and auction."""
    last = house.bids(*BID_COLUMNS).key_by(lambda bid: (bid["bidder"], bid["auction"])).reduce(later, name="last")
    return last.map(lambda result: tuple(result[1][name] for name in BID_COLUMNS))


def later(one: Row, other: Row) -> Row:
    """Returns the later bid, of equal ones the first."""
    return other if other["date_time"] > one["date_time"] else one


def q19(house: House) -> Result:
    """Keeps the ten highest bids of each auction; a change gives all of them."""
    bids = house.bids(*BID_COLUMNS)
    return bids.key_by("auction").top_k(TOP, "price", name="top")
