"""Source lines in a record: a replay shows those that ran, whether the files are there or have changed since."""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos import Job, collect, values
from clonos.io.epochs.record_reader import EpochRecord
from clonos.io.process.pickling import source_files
from clonos.replay.loading import load_epoch
from clonos.testing import replay
from tests.harnesses.recorded_jobs import record_job

LINE = "return rates[row]  # the line that ran"
CODE = f"rates = {{'usd': 1.0}}\n\n\ndef price(row):\n    {LINE}\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (found := tmp_path / "recorded_pricing.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield found
    sys.modules.pop("recorded_pricing", None)
    linecache.cache.pop(str(found), None)


def recorded(tmp_path: Path) -> Path:
    """The record of a task whose code is in the file, and raises."""
    job = Job("prices")
    price = importlib.import_module("recorded_pricing").price
    shop = job.source(values(["usd", "eur"]), name="shop").rebalance()
    shop.map(price, name="priced").rebalance().sink(collect(), name="out")
    return record_job(job, tmp_path / "records")["priced/0"]


def test_a_replay_shows_the_lines_of_a_file_that_is_not_there(file: Path, tmp_path: Path) -> None:
    record = recorded(tmp_path)
    assert load_epoch(record).sources[str(file)] == CODE
    file.unlink()
    assert f'File "{file}", line 5, in price\n    {LINE}' in str(replay(record))


def test_a_replay_shows_the_lines_that_ran_in_place_of_those_of_a_changed_file(file: Path, tmp_path: Path) -> None:
    record = recorded(tmp_path)
    file.write_text("\n\n\n\nnothing = 'of this ran'\n")
    assert f'File "{file}", line 5, in price\n    {LINE}' in str(replay(record))


def test_a_replay_of_changed_code_shows_the_lines_of_its_file(file: Path, tmp_path: Path) -> None:
    record = recorded(tmp_path)
    file.write_text(CODE.replace("the line that ran", "the changed line"))
    job = Job("prices")
    sys.modules.pop("recorded_pricing")
    linecache.checkcache()
    price = importlib.import_module("recorded_pricing").price
    shop = job.source(values(["usd", "eur"]), name="shop").rebalance()
    shop.map(price, name="priced").rebalance().sink(collect(), name="out")
    assert "the changed line" in str(replay(record, code=job))


def test_a_large_source_file_is_left_out(file: Path, tmp_path: Path) -> None:
    packed = EpochRecord(recorded(tmp_path)).job()
    assert dict(source_files(packed, len(CODE)))[str(file)] == CODE
    assert str(file) not in dict(source_files(packed, len(CODE) - 1))
