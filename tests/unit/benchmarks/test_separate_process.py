"""A benchmark in its own process: its results are taken over, and its failure is reported."""

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.harness import isolated_run
from benchmarks.harness.ab_session import Session


def test_a_session_takes_over_the_results_of_an_earlier_one(tmp_path: Path) -> None:
    inner, outer = Session(("bare",)), Session(("bare",))
    inner.compared("bids/bare", [1.0], [2.0], ">= 0.4")
    inner.figure("latency", 3.0, "ms")
    inner.leave_out("rows/spark", "no Java")
    inner.failed["failover: one case"] = "Overdue"
    inner.write(tmp_path / "found.json")
    outer.add(tmp_path / "found.json")
    assert (outer.comparisons, outer.figures) == (inner.comparisons, inner.figures)
    assert (outer.not_run, outer.failed) == (inner.not_run, inner.failed)


def test_a_benchmark_beyond_its_time_limit_is_killed_and_named() -> None:
    session = Session(("bare",))
    isolated_run.run(session, "footprint", 0.01)
    assert session.failed == {"footprint": "it has not ended within 0 s"}


def test_spark_selects_all_its_variants_and_every_other_name_selects_itself() -> None:
    assert command.sides(["spark", "bare"]) == (*(name for name in command.SIDES if "spark" in name), "bare")
    assert command.sides(["abacus"]) == ("abacus",)


def test_a_result_is_written_to_the_file_at_once(tmp_path: Path) -> None:
    session = Session(("bare",), file=tmp_path / "found.json")
    session.figure("latency", 3.0, "ms")
    assert [one["value"] for one in json.loads((tmp_path / "found.json").read_text("utf-8"))["figures"]] == [3.0]
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["abacus"], "there is no benchmark 'abacus'; there are: throughput"),
        (["bids", "--against", "abacus"], "there is no side 'abacus'; there are: bare"),
        (["bids", "--against", ""], "there is no side ''"),
        (["bids", "--pairs", "0"], "argument --pairs: 0 is too small: at least 1 is expected"),
        (["bids", "--pairs", "-1"], "argument --pairs: -1 is too small: at least 1 is expected"),
        (["bids", "--pairs", "two"], "argument --pairs: 'two' is not a number"),
        (["failover", "--kills", "0"], "argument --kills: 0 is too small: at least 1 is expected"),
        (["failover", "--cases", "abacus"], "there is no case 'abacus'; there are: count, count-half"),
        (["bids", "--cases", "count"], "--cases selects cases of failover, which does not run: name it, too"),
        (["bids", "--limit-minutes", "nan"], "argument --limit-minutes: nan is too small"),
        (["bids", "--json", "nowhere/found.json"], "--json nowhere/found.json cannot be written: No such file"),
    ],
)
def test_an_impossible_request_is_refused_before_anything_is_measured(
    arguments: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", *arguments])
    with pytest.raises(SystemExit) as refused:
        command.main()
    assert refused.value.code == 2
    assert complaint in capsys.readouterr().err
