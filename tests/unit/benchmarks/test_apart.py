"""A benchmark in a process of its own: what it finds is taken over, and why it failed is told."""

from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import apart
from benchmarks.comparing import Session


def test_what_one_session_writes_another_takes_over(tmp_path: Path) -> None:
    inner, outer = Session(("bare",)), Session(("bare",))
    inner.compared("bids/bare", [1.0], [2.0])
    inner.figure("latency", 3.0, "ms")
    inner.leave_out("rows/spark", "no Java")
    inner.failed["failover: one case"] = "Overdue"
    inner.write(tmp_path / "found.json")
    outer.add(tmp_path / "found.json")
    assert (outer.comparisons, outer.figures) == (inner.comparisons, inner.figures)
    assert (outer.not_run, outer.failed) == (inner.not_run, inner.failed)


def test_a_benchmark_that_does_not_end_in_time_is_ended_and_named() -> None:
    session = Session(("bare",))
    apart.run(session, "footprint", 0.01)
    assert session.failed == {"footprint": "it has not ended within 0 s"}


def test_spark_stands_for_all_its_kinds_and_other_sides_for_themselves() -> None:
    assert command.sides(["spark", "bare"]) == (*(name for name in command.SIDES if "spark" in name), "bare")
    assert command.sides(["abacus"]) == ("abacus",)


def test_an_unknown_benchmark_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "abacus"])
    with pytest.raises(SystemExit):
        command.main()
    assert "there is no benchmark 'abacus'" in capsys.readouterr().err
