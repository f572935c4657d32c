"""Changed code: the same input and choices with other code; and the same code in another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clonos import Job, clock, collect, random, values
from clonos.replay.replay_session import ChannelsChanged
from clonos.replay.replaying import TaskNotInJob
from clonos.testing import replay
from tests.harnesses.recorded_jobs import record_job
from tests.harnesses.recorded_prices import RATES, ROWS, UNKNOWN, job


@pytest.fixture
def recorded(tmp_path: Path) -> dict[str, Path]:
    return record_job(job(), tmp_path, barriers={3: 1}, epoch=1)


def dearer(row: dict[str, Any]) -> dict[str, Any]:
    rate = 1.25 if row["n"] == 41 else RATES[row["currency"]]
    return {"name": row["name"], "euros": row["n"] * rate, "at": clock.time_ns()}


def forgiving(row: dict[str, Any]) -> dict[str, Any]:
    return {"name": row["name"], "euros": row["n"] * RATES.get(row["currency"], 1.0), "at": clock.time_ns()}


def lucky(row: dict[str, Any]) -> dict[str, Any]:
    return {"name": row["name"], "euros": row["n"] * random.random(), "at": 0}


def doubled(name: str, so_far: float | None, row: dict[str, Any]) -> tuple[float, tuple[str, float]]:
    found = (so_far or 0) + row["euros"] * (2 if name == "eve" else 1)
    return found, (name, found)


def test_the_same_code_has_no_differences(recorded: dict[str, Path]) -> None:
    for folder in recorded.values():
        report = replay(folder, job())
        assert report.differences == [], report


def test_the_first_difference_has_its_record_key_values_and_line(recorded: dict[str, Path]) -> None:
    report = replay(recorded["priced/0"], job(price=dearer))
    [difference] = report.differences
    assert (difference.record, difference.last_record, difference.key) == (18, 18, "'eve'")
    assert difference.was.startswith("{'name': 'eve', 'euros': 61.5, 'at': 17")
    assert difference.now.startswith("{'name': 'eve', 'euros': 51.25, 'at': 17")
    assert difference.place == f"test_changed_code.py:{dearer.__code__.co_firstlineno} in dearer"
    text = str(report)
    assert "record 18 differs: key 'eve'\n  was  {'name': 'eve', 'euros': 61.5" in text
    assert "1 of 36 results differ; calls: 0 asked as before" in text


def test_state_carries_a_difference_on(recorded: dict[str, Path]) -> None:
    report = replay(recorded["total/0"], job(add=doubled))
    assert len(report.differences) == 12
    assert {each.was.partition(",")[0] for each in report.differences} == {"('eve'"}


def test_a_repaired_failure_is_a_difference(tmp_path: Path) -> None:
    folder = record_job(job([*ROWS, UNKNOWN]), tmp_path, barriers={3: 1}, epoch=1)["priced/0"]
    report = replay(folder, job(price=forgiving))
    [difference] = report.differences
    assert (difference.record, difference.was, difference.now) == (37, "KeyError: 'eur'", "no error")
    assert report.error is None


def test_a_failure_of_changed_code_is_a_difference_at_its_record(recorded: dict[str, Path]) -> None:
    def fails(row: dict[str, Any]) -> dict[str, Any]:
        return forgiving({**row, "n": {41: 1}[row["n"]] if row["n"] > 40 else row["n"], "currency": row["currency"]})

    report = replay(recorded["priced/0"], job(price=fails))
    assert isinstance(report.error, KeyError)
    assert any((each.record, each.now) == (19, "KeyError: 42") for each in report.differences), report


def test_a_question_that_the_log_does_not_answer_is_a_divergence(recorded: dict[str, Path]) -> None:
    report = replay(recorded["priced/0"], job(price=lucky))
    assert report.replayed.divergence is not None
    assert "its replay asks for random numbers" in report.differences[0].now


def test_other_steps_around_the_task_are_refused(recorded: dict[str, Path]) -> None:
    other = Job("prices")
    towns = other.source(values(["Ulm"]), name="towns").rebalance().map(str, name="town")
    towns.rebalance().sink(collect(), name="towns-out")
    shop = other.source(values(ROWS), name="shop").rebalance().map(forgiving, name="priced")
    shop.rebalance().sink(collect(), name="out")
    with pytest.raises(ChannelsChanged, match="the changed job has other channels at priced/0"):
        replay(recorded["priced/0"], other)
    renamed = Job("prices")
    renamed.source(values(ROWS), name="shop").rebalance().map(forgiving, name="price").rebalance().sink(collect())
    with pytest.raises(TaskNotInJob, match="the job has no task priced/0"):
        replay(recorded["priced/0"], renamed)


def ordered_by_hash(row: dict[str, Any]) -> list[str]:
    return list({row["name"], "town", "street", "house", "floor"})  # clonos: ok CLN601 a replay shall find it


def ordered(row: dict[str, Any]) -> list[str]:
    return sorted({row["name"], "town", "street", "house", "floor"})


@pytest.mark.parametrize(("function", "differs"), [(ordered_by_hash, True), (ordered, False)])
def test_a_replay_elsewhere_finds_the_order_of_a_set(function: Any, differs: bool, tmp_path: Path) -> None:
    made = Job("prices")
    named = made.source(values(ROWS), name="shop").rebalance().map(function, name="named")
    named.rebalance().sink(collect(), name="out")
    folder = record_job(made, tmp_path)["named/0"]
    assert replay(folder).differences == []
    report = replay(folder, elsewhere=True)
    assert bool(report.differences) is differs, report
    if differs:
        assert report.differences[0].record is not None
        assert "['" in report.differences[0].was
