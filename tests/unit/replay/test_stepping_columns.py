"""Steps through batches of columns: each batch is a place, with the entries of the state that it has changed."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clonos import Job, agg, col, collect, files
from clonos.replay.loading import load_epoch
from clonos.replay.shown_state import StateEntries, changes_text
from clonos.replay.stepping import Stepper
from tests.harnesses.recorded_jobs import record_job

NAMES = [("ann", "bob", "eve")[n % 3] for n in range(20)]


@pytest.fixture
def total(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"name": NAMES, "n": range(20)}), tmp_path / "in.parquet")
    job = Job("sums")
    rows = job.source(files.parquet(str(tmp_path / "in.parquet")), name="shop").rebalance()
    rows.filter(col("n") > 3, name="large").key_by("name").aggregate(sum=agg.sum_("n"), name="total").rebalance().sink(
        collect()
    )
    return record_job(job, tmp_path / "records")["total/0"]


def _stepped(folder: Path, commands: str) -> list[str]:
    output = io.StringIO()
    Stepper(load_epoch(folder), stdin=io.StringIO(commands), stdout=output).run()
    return output.getvalue().replace("(replay) ", "").splitlines()[1:]


FIRST = "1: a batch of the step total, from the records 1 to 8: {'name': 'bob', 'n': 4}, "


def test_a_batch_is_shown_with_the_entries_that_it_changes(total: Path) -> None:
    shown = _stepped(total, "next\nnext\nquit\n")
    assert shown[0].startswith(FIRST)
    assert shown[0].endswith(" and 5 more")
    assert shown[1] == "   state before: none"
    assert shown[2].startswith("   state after:  totals: 3 of 3 changed: {'bob': {'sum.sum': 21, ")
    assert shown[3].startswith("2: a batch of the step total, from the records 9 to 16: {'name': 'ann', 'n': 12}, ")
    assert shown[4].startswith("   state before: totals = {'bob': {'sum.sum': 21, ")
    assert shown[5].startswith("   state after:  totals: 3 of 3 changed: {'bob': {'sum.sum': 69, ")


def test_a_batch_is_found_by_its_records(total: Path) -> None:
    first = _stepped(total, "quit\n")
    for command in ("goto 8", "goto 1\nback"):
        assert _stepped(total, f"next\n{command}\nquit\n")[-2:] == first, command
    for command in ("goto 9", "find n == 12", "find step=total"):
        assert _stepped(total, f"{command}\nquit\n")[-2].startswith("2: a batch"), command
    looked = _stepped(total, "find name == 'nobody'\nfind n == 11\nquit\n")
    assert looked[-2:] == [
        "the end of the record; no further record is: name == 'nobody'",
        "the record has ended: goto 1 begins again",
    ]


def test_the_state_of_a_key_in_columns_is_shown(total: Path) -> None:
    shown = _stepped(total, "next\nstate bob\nstate fay\nquit\n")
    assert shown[-2].startswith("   totals = {'sum.sum': 21, ")
    assert shown[-1] == "   none"


def test_entries_that_have_changed_or_are_gone_are_named() -> None:
    before: StateEntries = {"totals": {"ann": 1, "bob": 2, "eve": 3}, "rows": {1: "a"}}
    assert changes_text(before, before) == "unchanged"
    after: StateEntries = {"totals": {"ann": 1, "bob": 5, "fay": 4}, "rows": {1: "a"}}
    assert changes_text(before, after) == "totals: 2 of 3 changed: {'bob': 5, 'fay': 4}; totals: 1 gone: ['eve']"
