"""The queries: what they do, how a result is checked, and where it differs from that of Flink's SQL."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

SQL: Final = Path(__file__).parent / "sql"
PERSON, AUCTION, BID = 0, 1, 2
"""Kinds of events."""


class Check(Enum):
    """How the result of a run is compared with that of DuckDB."""

    SUMS = "the number of rows, the sum of each column of numbers, the length of each column of texts"
    ROWS = "all rows"
    LAST = "the last row of each key"
    ONE_OF_TIES = "the last row of each key, which is one of those that are equal in the order of the query"
    TOTALS = "the sum of the last column for each key"


@dataclass(frozen=True, slots=True)
class Query:
    """One query. ``key``: the number of its first columns that are its key, for checks by key.

    ``is_ranked``: in rows a result is a key and the list of its records, the first of which has rank 1.
    ``rule_of_flink``: a part of the query for DuckDB, and what stands there to give what Flink gives.
    """

    name: str
    does: str
    check: Check
    key: int = 0
    differs: str = ""
    is_ranked: bool = False
    rule_of_flink: tuple[str, str] = ("", "")

    @property
    def oracle_sql(self) -> str:
        """Returns the query for DuckDB, over the views person, auction and bid."""
        return (SQL / "oracle" / f"{self.name}.sql").read_text("utf-8")

    @property
    def oracle_sql_of_flink(self) -> str:
        """Returns the same with the rule of Flink."""
        return self.oracle_sql.replace(*self.rule_of_flink) if any(self.rule_of_flink) else self.oracle_sql

    @property
    def spark_sql(self) -> str:
        """Returns the query for Spark."""
        return (SQL / "spark" / f"{self.name}.sql").read_text("utf-8")

    @property
    def flink_sql(self) -> str:
        """Returns the query for Flink."""
        return (SQL / "flink" / f"{self.name}.sql").read_text("utf-8")


ONE_AUCTION: Final = (
    "an auction has one record; a bid is forgotten when it is compared, in columns an auction after 400 s of event"
    " time. Flink keeps all bids"
)
PER_CHANGE: Final = "Flink: two changes a bid, -U and +U; in columns one a key and batch"

QUERIES: Final = {
    query.name: query
    for query in (
        Query("q0", "passes bids on", Check.SUMS),
        Query("q1", "converts prices, in decimals", Check.SUMS),
        Query("q2", "selects bids by auction", Check.SUMS),
        Query("q3", "joins auctions with persons", Check.ROWS),
        Query(
            "q4",
            "averages the winning bids of categories",
            Check.LAST,
            key=1,
            differs=ONE_AUCTION,
        ),
        Query("q5", "finds hot auctions in sliding windows", Check.ROWS),
        Query("q7", "finds the highest bids of windows", Check.ROWS, differs="Flink: window top-1, one of equal bids"),
        Query("q8", "finds new sellers of windows", Check.ROWS),
        Query(
            "q9",
            "finds the winning bids of auctions",
            Check.ONE_OF_TIES,
            key=1,
            differs=ONE_AUCTION,
        ),
        Query(
            "q11",
            "counts the bids of sessions",
            Check.ROWS,
            differs="Flink: bids exactly 10 s apart are in one session",
            rule_of_flink=(">= INTERVAL 10", "> INTERVAL 10"),
        ),
        Query(
            "q12",
            "counts bids by the clock",
            Check.TOTALS,
            key=1,
            differs="by the clock: only totals are checked; Flink drops the windows that are open at the end",
        ),
        Query("q14", "computes columns of bids", Check.SUMS),
        Query("q16", "gives statistics of channels", Check.LAST, key=2, differs=PER_CHANGE),
        Query("q17", "gives statistics of auctions", Check.LAST, key=2, differs=PER_CHANGE),
        Query("q18", "keeps the last bid of each bidder and auction", Check.ONE_OF_TIES, key=2, differs=PER_CHANGE),
        Query(
            "q19",
            "keeps the ten highest bids of each auction",
            Check.LAST,
            key=2,
            is_ranked=True,
            differs="in rows a change gives all ten bids of an auction; in columns each shifted rank, once a batch, as"
            " Flink does for each bid",
        ),
        Query(
            "q20",
            "joins bids with auctions of a category",
            Check.SUMS,
            differs="in rows an auction has one record, and a bid is forgotten when it is joined; in columns a bid is"
            " kept for 30 s of event time and an auction for 400 s. Flink keeps all",
        ),
        Query("q22", "splits URLs", Check.SUMS),
    )
}

LEFT_OUT: Final = {
    "q6": "Flink's SQL cannot express it: an OVER window on rows that are retracted",
    "q10": "it writes files by the clock: the files would be measured",
    "q13": "it looks keys up in a file of the host",
    "q15": "it is q16 without channels",
    "q21": "it is q22 with a regular expression",
    "q23": "it joins three unbounded streams: the state is all of the input",
}
