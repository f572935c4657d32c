"""The input of the jobs: one source over the files of events, with the columns that a query reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.nexmark.queries import AUCTION, BID, PERSON
from clonos import Job, Stream, Timestamps, files

Row = dict[str, Any]

OUT_OF_ORDER: Final = "2s"
BID_COLUMNS: Final = ("auction", "bidder", "price", "channel", "url", "date_time", "extra")


@dataclass(frozen=True, slots=True)
class House:
    """Auction house: the job and the folder with the files of events."""

    job: Job
    folder: Path

    def events(self, *columns: str, is_timed: bool = False) -> Stream[Any]:
        """Returns all events with these columns and their kind; ``is_timed``: with event time."""
        names = ["kind", *columns, *(["date_time"] if is_timed and "date_time" not in columns else [])]
        timestamps = Timestamps("date_time", out_of_order=OUT_OF_ORDER) if is_timed else None
        source = files.parquet(str(self.folder / "*.parquet"), columns=names)
        return self.job.source(source, name="events", timestamps=timestamps)

    def bids(self, *columns: str, is_timed: bool = False) -> Stream[Row]:
        """Returns the bids in rows."""
        return self.events(*columns, is_timed=is_timed).filter(is_bid, name="bids")


def is_person(event: Row) -> bool:
    """Returns whether an event is a person."""
    return bool(event["kind"] == PERSON)


def is_auction(event: Row) -> bool:
    """Returns whether an event is an auction."""
    return bool(event["kind"] == AUCTION)


def is_bid(event: Row) -> bool:
    """Returns whether an event is a bid."""
    return bool(event["kind"] == BID)
