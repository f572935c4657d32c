"""Changed code: the same input and choices with other code; and the same code in another process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from clonos import Job, clock, collect, random, values
from clonos.replay.change_place import place_of_change
from clonos.replay.elsewhere import other_processes
from clonos.replay.loading import load_epoch
from clonos.replay.output_comparison import RanLive
from clonos.replay.replay_session import ChannelsChanged, changed_image, report_on
from clonos.replay.replaying import TaskNotInJob, replay_epoch
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
    assert difference.place == f"test_changed_code.py:{dearer.__code__.co_firstlineno + 1} in dearer"
    assert difference.live is RanLive.WAS
    text = str(report)
    assert "record 18 differs: key 'eve'\n  was  {'name': 'eve', 'euros': 61.5" in text
    assert "\n  live 'was', by its digest in the record\n  at   test_changed_code.py:" in text
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
    report = report_on(load_epoch(folder), None, frozenset(), elsewhere=True, tries_max=2)
    assert bool(report.differences) is differs, report
    if differs:
        assert report.differences[0].record is not None
        assert "['" in report.differences[0].was
    else:
        assert any(note.startswith("equal in 2 other processes") for note in report.notes), report


def of_the_third(row: dict[str, Any]) -> tuple[int, bool]:
    return row["n"], os.environ.get("PYTHONHASHSEED") == other_processes("")[2].hash_seed  # clonos: ok CLN302 planted


def test_replays_elsewhere_go_on_until_one_differs(tmp_path: Path) -> None:
    report = replay(record_job(_one_row(of_the_third), tmp_path)["named/0"], elsewhere=True)
    [difference] = report.differences
    assert (difference.was, difference.now, difference.live) == ("(0, False)", "(0, True)", RanLive.WAS)
    assert any("PYTHONHASHSEED=3" in note and "process 3 of at most 8" in note for note in report.notes), report


def twice(row: dict[str, Any]) -> list[int]:
    return [row["n"], row["n"] + 1]


def twice_or_more(row: dict[str, Any]) -> list[int]:
    return [row["n"], row["n"] + 1, -1] if row["n"] in (5, 8) else [row["n"], row["n"] + 1]


def _one_row(function: Any, rows: int = 1) -> Job:
    made = Job("prices")
    made.source(values(ROWS[:rows]), name="shop").rebalance().map(function, name="named").rebalance().sink(collect())
    return made


def _flat(function: Any) -> Job:
    made = Job("prices")
    many = made.source(values(ROWS), name="shop").rebalance().flat_map(function, name="many")
    many.rebalance().sink(collect(), name="out")
    return made


def test_a_step_with_several_results_for_a_record_names_the_record(tmp_path: Path) -> None:
    report = replay(record_job(_flat(twice), tmp_path)["many/0"], _flat(twice_or_more))
    found = [(each.record, each.last_record, each.was, each.now, each.live) for each in report.differences]
    assert found == [(6, 6, "nothing", "-1", RanLive.WAS), (9, 9, "nothing", "-1", RanLive.WAS)], report


def counted_live(row: dict[str, Any]) -> int:
    return int(row["n"]) * int(os.environ["FACTOR"])  # clonos: ok CLN302 planted


def test_a_result_that_the_live_task_did_not_have_is_not_called_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTOR", "1")
    folder = record_job(_one_row(counted_live, 2), tmp_path)["named/0"]
    monkeypatch.setenv("FACTOR", "3")
    report = replay(folder, _one_row(lambda row: row["n"] * 2, 2))
    assert [each.live for each in report.differences] == [RanLive.NEITHER], report
    assert "'was' is a replay of the recorded code, which does not repeat what the live task did" in str(report)


def test_the_place_of_a_change_is_the_line_that_does_something_else(tmp_path: Path) -> None:
    """Comments, moved lines and names of locals are no change; functions and globals that a function uses are."""

    def place(text: str) -> str:
        was, now = (_loaded(each, tmp_path) for each in (SOURCE, text))
        replays = (replay_epoch(epoch, image=changed_image(epoch, _flat(each))) for each in (was, now))
        return place_of_change(*replays)

    epoch = load_epoch(record_job(_flat(twice), tmp_path / "records")["many/0"])
    assert place(SOURCE) == ""
    assert place(SOURCE.replace("return [", "# as it is\n    return [").replace("number", "other")) == ""
    assert place(SOURCE.replace("number - 1", "number - 2")) == "prices.py:9 in many"
    assert place(SOURCE.replace("rate * 2", "rate * 2 + 1")) == "prices.py:4 in scaled"
    assert place(SOURCE.replace("RATE = 2", "RATE = 3")) == "RATE of prices.py"
    assert place(SOURCE.replace("if each", "if each > 1")) == "prices.py:10 in many"


SOURCE = """RATE = 2

def scaled(rate):
    return rate * 2

def many(row):
    number = row["n"]
    rate = scaled(RATE)
    less = number - 1
    return [each * rate for each in (number, less) if each]
"""


def _loaded(text: str, folder: Path) -> Any:
    names: dict[str, Any] = {"__name__": "prices"}
    exec(compile(text, str(folder / "prices.py"), "exec"), names)  # noqa: S102  the text of this test
    return names["many"]
