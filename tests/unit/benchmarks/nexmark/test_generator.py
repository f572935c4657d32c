"""Events of Nexmark: their proportions, hot keys, disorder and files, and that they follow from the seed."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

from benchmarks.nexmark import generator
from benchmarks.nexmark.generator import FIRST_ID, SCHEMA, Events, last_auction, prepared
from benchmarks.nexmark.queries import AUCTION, BID, PERSON

COUNT = 50_000


@pytest.fixture(scope="module")
def events() -> pa.Table:
    return Events(COUNT).table()


def of_kind(events: pa.Table, kind: int) -> pa.Table:
    return events.filter(pc.equal(events["kind"], kind))


def share(column: pa.ChunkedArray, rows: int = 1) -> float:
    """The share of the `rows` most frequent values of each hundred ids."""
    counts = np.sort(np.unique(column.to_numpy(), return_counts=True)[1])[::-1]
    return float(counts[:rows].sum() / counts.sum())


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids(events: pa.Table) -> None:
    assert [of_kind(events, kind).num_rows for kind in (PERSON, AUCTION, BID)] == [1_000, 3_000, 46_000]
    assert events.schema == SCHEMA


def test_an_event_has_the_columns_of_its_kind_and_no_others(events: pa.Table) -> None:
    bids, persons = of_kind(events, BID), of_kind(events, PERSON)
    for name in ("auction", "bidder", "price", "channel", "url", "extra", "date_time"):
        assert bids[name].null_count == 0
    for name in ("id", "name", "auction_id", "seller", "expires"):
        assert bids[name].null_count == bids.num_rows
    assert persons["auction"].null_count == persons.num_rows
    assert persons["email_address"].null_count == 0


def test_ids_are_given_in_the_order_of_the_events(events: pa.Table) -> None:
    assert sorted(of_kind(events, PERSON)["id"].to_pylist()) == list(range(FIRST_ID, FIRST_ID + 1_000))
    assert sorted(of_kind(events, AUCTION)["auction_id"].to_pylist()) == list(range(FIRST_ID, FIRST_ID + 3_000))
    assert last_auction(np.arange(52)).tolist()[:5] == [-1, 0, 1, 2, 2]
    assert last_auction(np.arange(52)).tolist()[-3:] == [2, 2, 3]


def test_half_of_the_bids_are_for_hot_auctions_and_three_quarters_by_hot_bidders(events: pa.Table) -> None:
    bids, auctions = of_kind(events, BID), of_kind(events, AUCTION)
    hot_auctions = np.mean(bids["auction"].to_numpy() % 100 == 0)
    hot_bidders = np.mean(bids["bidder"].to_numpy() % 100 == 1)
    hot_sellers = np.mean(auctions["seller"].to_numpy() % 100 == 0)
    # Beside the hot ones there are those that chance chooses, about a hundredth.
    assert [hot_auctions, hot_bidders, hot_sellers] == pytest.approx([0.505, 0.7525, 0.7525], abs=0.02)


def test_prices_are_spread_evenly_over_six_powers_of_ten(events: pa.Table) -> None:
    powers = np.log10(of_kind(events, BID)["price"].to_numpy() / 100)
    assert (powers.min() >= 0, powers.max() <= 6) == (True, True)
    found = np.histogram(powers, bins=6, range=(0, 6))[0] / len(powers)
    assert found.tolist() == pytest.approx([1 / 6] * 6, abs=0.01)


def test_events_arrive_less_than_two_seconds_late_and_a_tenth_of_them_much_later_than_others(events: pa.Table) -> None:
    times = events["date_time"].cast(pa.int64()).to_numpy()
    behind_ms = np.maximum.accumulate(times) - times
    assert 1_000 < behind_ms.max() <= generator.DISORDER_S * 1000
    assert times[-1] - times[0] == pytest.approx(COUNT / generator.EVENTS_PER_S * 1000, abs=2_500)
    assert 0.02 < np.mean(behind_ms < 0.1) < 0.98
    assert np.mean(behind_ms > 2_000 - 100) < 0.02


def test_bids_follow_the_auctions_that_are_open(events: pa.Table) -> None:
    bids = of_kind(events, BID)
    numbers = (bids["date_time"].cast(pa.int64()).to_numpy() - generator.times_ms(np.array(0), 10_000)) * 10
    ahead = bids["auction"].to_numpy() - FIRST_ID - last_auction(numbers)
    assert -201 <= ahead.min() < -90
    assert 0 < ahead.max() <= generator.LEAD + 3  # timestamps are cut to milliseconds, in which three auctions begin


def test_the_files_alternate_and_are_equal_for_equal_seeds(tmp_path: Path) -> None:
    few = Events(2_000, seed=3)
    for name in ("one", "two", "other"):
        (tmp_path / name).mkdir()
    one, two = few.write(tmp_path / "one"), few.write(tmp_path / "two")
    other = Events(2_000, seed=4).write(tmp_path / "other")
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]
    assert one[0].read_bytes() != other[0].read_bytes()
    table = few.table()
    for number, file in enumerate(one):
        assert pyarrow.parquet.read_table(file) == table.take(np.arange(number, 2_000, 2))


def test_chunks_continue_each_other() -> None:
    table = Events(2_000, chunk=333).table()
    assert of_kind(table, BID).num_rows == 1_840
    assert sorted(of_kind(table, AUCTION)["auction_id"].to_pylist()) == list(range(FIRST_ID, FIRST_ID + 120))


def test_files_that_are_there_are_used_again(tmp_path: Path) -> None:
    folder = prepared(Events(100), tmp_path)
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert len(before) == 2
    assert prepared(Events(100), tmp_path) == folder
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
