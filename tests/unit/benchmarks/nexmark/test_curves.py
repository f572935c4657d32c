"""When results of the curves are due, and the stages of the synthetic job."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet
import pytest

from benchmarks.nexmark.generator import Events, prepared
from benchmarks.nexmark.oracle import Oracle
from benchmarks.nexmark.paced_events import WINDOW_S, Arrivals
from benchmarks.nexmark.queries import AUCTION, PERSON, QUERIES
from benchmarks.workloads.staged_job import Stages


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(Events(6_000, per_s=100), tmp_path_factory.mktemp("events"))


def read_up_to(events: Path, row: int) -> list[dict[str, object]]:
    """The persons and auctions in the first rows of both files."""
    tables = [pyarrow.parquet.read_table(path).slice(0, row + 1) for path in sorted(events.glob("*.parquet"))]
    return [each for table in tables for each in table.to_pylist() if each["kind"] in (PERSON, AUCTION)]


def test_a_sold_auction_is_due_with_the_later_of_auction_and_seller(events: Path) -> None:
    arrivals = Arrivals.of(events)
    for *_, auction in Oracle(events).rows(QUERIES["q3"])[:10]:
        due = arrivals.of_sold(auction)
        for row, is_there in ((due, True), (due - 1, False)):
            read = read_up_to(events, row)
            sellers = [each["seller"] for each in read if each["auction_id"] == auction]
            assert any(each["id"] in sellers for each in read if each["id"] is not None) is is_there


def test_a_new_seller_is_due_with_its_first_auction_in_the_window_of_the_person(events: Path) -> None:
    arrivals = Arrivals.of(events)
    for person, _, begins in Oracle(events).rows(QUERIES["q8"])[:10]:
        due = arrivals.of_seller(person)
        for row, is_there in ((due, True), (due - 1, False)):
            read = read_up_to(events, row)
            in_window = [
                each
                for each in read
                if 0 <= (each["date_time"].replace(tzinfo=None) - begins).total_seconds() < WINDOW_S  # type: ignore[attr-defined]
            ]
            persons = {each["id"] for each in in_window} - {None}
            sellers = {each["seller"] for each in in_window} - {None}
            assert (person in persons & sellers) is is_there


def test_stages_are_read_from_an_option() -> None:
    assert Stages.of("4,100,plain") == Stages(4, 100, is_shuffled=False)
    assert Stages.of("3,50,shuffled") == Stages()
    for wrong in ("", "3,50", "0,50,plain", "3,-1,plain", "3,50,mixed", "a,1,plain"):
        with pytest.raises(ValueError, match="is not like 3,50,shuffled"):
            Stages.of(wrong)
