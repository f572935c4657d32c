"""Queries in rows that join two kinds of events."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from benchmarks.nexmark.jobs.house import BID_COLUMNS, House, Row, is_auction, is_bid, is_person
from clonos import Stream, Tumbling, TwoInputContext, ValueState

Result = Stream[tuple[Any, ...]]

STATES: Final = frozenset({"OR", "ID", "CA"})
CATEGORY: Final = 10
LONG: Final = "365d"
AUCTION_COLUMNS: Final = (
    *("item_name", "description", "initial_bid", "reserve", "date_time"),
    *("expires", "seller", "category", "extra"),
)


def _split(events: Stream[Row], *kinds: Callable[[Row], bool]) -> tuple[Stream[Row], ...]:
    return events.branch(*kinds)


def q3(house: House) -> Result:
    """Joins auctions of a category with sellers of some states."""
    events = house.events("id", "name", "city", "state", "auction_id", "seller", "category")
    auctions, persons = _split(
        events,
        lambda event: is_auction(event) and event["category"] == CATEGORY,
        lambda event: is_person(event) and event["state"] in STATES,
    )
    return auctions.join(persons, on=("seller", "id"), ttl=LONG, select=sold, name="sold")


def sold(auction: Row, person: Row | None) -> tuple[Any, ...]:
    """Makes a row of an auction and its seller."""
    assert person is not None, "the join is an inner one"
    return person["name"], person["city"], person["state"], auction["auction_id"]


Bids = TwoInputContext[int, tuple[Any, ...]]


class Winning:
    """Emits each better bid of an auction, which has one record: bids wait for it, or are compared at once.

    An auction emits (auction id, auction row, bid, price of the bid that it replaces or None).
    """

    auction = ValueState[tuple[Any, ...] | None]("auction", default=None)
    pending = ValueState[tuple[Any, ...]]("pending", default=())
    best = ValueState[tuple[Any, ...] | None]("best", default=None)

    def process_first(self, auction: Row, context: Bids) -> None:
        """Takes the auction."""
        row = (
            auction["date_time"],
            auction["expires"],
            *(auction[name] for name in ("item_name", "seller", "category") if name in auction),
        )
        context.state(self.auction).value = row
        waiting = context.state(self.pending)
        for bid in waiting.value:
            self._compare(row, bid, context)
        waiting.clear()

    def process_second(self, bid: Row, context: Bids) -> None:
        """Takes a bid."""
        row = (bid["date_time"], bid["price"], *(bid[name] for name in ("bidder", "extra") if name in bid))
        auction = context.state(self.auction).value
        if auction is None:
            waiting = context.state(self.pending)
            waiting.value = (*waiting.value, row)
        else:
            self._compare(auction, row, context)

    def _compare(self, auction: tuple[Any, ...], bid: tuple[Any, ...], context: Bids) -> None:
        time, price, *_ = bid
        begins, expires, *_ = auction
        best = context.state(self.best)
        before = best.value
        if begins <= time <= expires and (before is None or (before[1], time) < (price, before[0])):
            best.value = bid
            context.emit((context.key, auction, bid, None if before is None else before[1]))


def _winning(house: House, *columns: str) -> Stream[tuple[Any, ...]]:
    events = house.events("auction_id", "expires", "category", "auction", "price", "date_time", *columns)
    auctions, bids = _split(events, is_auction, is_bid)
    connected = auctions.key_by("auction_id", name="of_auction").connect(bids.key_by("auction", name="of_bid"))
    return connected.process(Winning, name="winning")


def q4(house: House) -> Result:
    """Averages the winning prices of each category."""
    return _winning(house).key_by(category_of, name="by_category").stateful_map(average, name="average")


def category_of(change: tuple[Any, ...]) -> int:
    """Returns the category of a changed auction."""
    return int(change[1][-1])


def average(category: int, state: tuple[int, int] | None, change: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """Replaces the price of an auction in the average of its category."""
    auctions, total = state or (0, 0)
    _, _, (_, price, *_), before = change
    auctions, total = (auctions + 1, total + price) if before is None else (auctions, total + price - before)
    return (auctions, total), (category, total // auctions)


def q9(house: House) -> Result:
    """Gives the winning bid of each auction."""
    return _winning(house, "item_name", "seller", "bidder", "extra").map(winner)


def winner(change: tuple[Any, ...]) -> tuple[Any, ...]:
    """Makes a row of an auction and its best bid so far."""
    auction, (_, _, item, seller, category), (time, price, bidder, extra), _ = change
    return auction, item, seller, category, bidder, price, time, extra


def q8(house: House) -> Result:
    """Gives the persons that have opened auctions in the ten seconds in which they came."""
    events = house.events("id", "name", "seller", is_timed=True)
    persons, auctions = _split(events, is_person, is_auction)
    sellers = persons.join(auctions, on=("id", "seller"), window=Tumbling("10s"), how="semi", name="sellers")
    return sellers.map(lambda person: (person["id"], person["name"], window_of(person["date_time"])))


def window_of(time: datetime) -> datetime:
    """Returns the begin of the ten seconds of a time."""
    return time.replace(second=time.second // 10 * 10, microsecond=0)


class Expanded:
    """Joins the bids of an auction with it. A bid of another category is forgotten when its auction is known."""

    auction = ValueState[tuple[Any, ...] | None]("auction", default=None)
    pending = ValueState[tuple[Any, ...]]("pending", default=())

    def process_first(self, auction: Row, context: Bids) -> None:
        """Takes the auction."""
        row = tuple(auction[name] for name in AUCTION_COLUMNS) if auction["category"] == CATEGORY else ()
        context.state(self.auction).value = row
        waiting = context.state(self.pending)
        if row:
            for bid in waiting.value:
                context.emit((*bid, *row))
        waiting.clear()

    def process_second(self, bid: Row, context: Bids) -> None:
        """Takes a bid."""
        row = tuple(bid[name] for name in BID_COLUMNS)
        auction = context.state(self.auction).value
        if auction is None:
            waiting = context.state(self.pending)
            waiting.value = (*waiting.value, row)
        elif auction:
            context.emit((*row, *auction))


def q20(house: House) -> Result:
    """Joins bids with their auctions of a category."""
    names = dict.fromkeys(("auction_id", *AUCTION_COLUMNS, *BID_COLUMNS))
    auctions, bids = _split(house.events(*names), is_auction, is_bid)
    connected = auctions.key_by("auction_id", name="of_auction").connect(bids.key_by("auction", name="of_bid"))
    return connected.process(Expanded, name="expanded")
