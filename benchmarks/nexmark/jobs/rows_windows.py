"""Queries in rows with windows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from benchmarks.nexmark.jobs.house import House, Row
from clonos import Session, Sliding, Stream, Tumbling, Window, WindowResult

Result = Stream[tuple[Any, ...]]

SHARES: Final = 16
"""Keys over which the bids of a window are spread before the highest of all is found."""


def q5(house: House) -> Result:
    """Finds the auctions with the most bids of the last ten seconds, every two seconds."""
    counts = house.bids("auction", is_timed=True).key_by("auction").window(Sliding("10s", every="2s")).count()
    return counts.window(Tumbling("2s")).apply(most, name="most")


def most(_: None, window: Window, counts: list[WindowResult[int, int]]) -> Iterable[tuple[int, int]]:
    """Returns the auctions with the most bids of a window."""
    highest = max(count.value for count in counts)
    return [(count.key, count.value) for count in counts if count.value == highest]


def q7(house: House) -> Result:
    """Finds the highest bids of each ten seconds."""
    bids = house.bids("auction", "price", "bidder", "date_time", "extra", is_timed=True)
    shares = bids.key_by(lambda bid: bid["bidder"] % SHARES).window(Tumbling("10s"))
    best = shares.aggregate(list, add_best, merge=merge_best, name="best")
    of_all = best.window(Tumbling("10s")).aggregate(list, add_share, merge=merge_best, name="highest")
    return of_all.flat_map(
        lambda window: [
            (bid["auction"], bid["price"], bid["bidder"], bid["date_time"], bid["extra"]) for bid in window.value
        ]
    )


def add_best(best: list[Row], bid: Row) -> list[Row] | None:
    """Keeps the bids with the highest price."""
    if not best or bid["price"] > best[0]["price"]:
        return [bid]
    if bid["price"] == best[0]["price"]:
        best.append(bid)
    return None


def merge_best(best: list[Row], other: list[Row]) -> list[Row]:
    """Keeps the better bids of two lists."""
    for bid in other:
        best = add_best(best, bid) or best
    return best


def add_share(best: list[Row], share: WindowResult[int, list[Row]]) -> list[Row]:
    """Keeps the better bids of all shares."""
    return merge_best(best, share.value)


def q11(house: House) -> Result:
    """Counts the bids of each session of a bidder."""
    sessions = house.bids("bidder", is_timed=True).key_by("bidder").window(Session("10s")).count()
    return sessions.map(lambda session: (session.key, session.value, session.start, session.end))


def q12(house: House) -> Result:
    """Counts the bids of each bidder per ten seconds of the clock."""
    windows = house.bids("bidder").key_by("bidder").window(Tumbling("10s", time="processing")).count()
    return windows.map(lambda window: (window.key, window.value))
