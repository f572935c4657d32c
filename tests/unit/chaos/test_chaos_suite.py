"""The suite of all scenarios: which runs it has, how impossible runs are reported, how a stopped run resumes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clonos.core.model.errors import EnvironmentFault
from clonos_chaos.project import chaos_suite
from clonos_chaos.project.chaos_suite import RUNS_FILE, SUMMARY_FILE, SuiteOptions, run_chaos_suite, tasks_of
from clonos_chaos.runs.cli import chaos_suite as run_command
from clonos_chaos.runs.runner import Where
from clonos_chaos.scenario.run_record import RunRecord
from clonos_chaos.scenario.scenario_file import SHIPPED_FOLDER

pytestmark = pytest.mark.slow


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / RUNS_FILE).read_text("utf-8").splitlines()]


def _run(wanted: SuiteOptions) -> tuple[bool, list[str], list[RunRecord]]:
    output: list[str] = []
    bad: list[RunRecord] = []
    return run_chaos_suite(wanted, output.append, bad.append), output, bad


def test_each_shipped_scenario_runs_in_each_world_that_supports_it(tmp_path: Path) -> None:
    tasks = tasks_of(SuiteOptions(tmp_path))
    files = {where: {task.file for task in tasks if task.where is where} for where in Where}
    assert files[Where.PROCESSES] | files[Where.SPARK] == {path.stem for path in SHIPPED_FOLDER.glob("*.toml")}
    assert files[Where.SPARK] == {"spark", "partition"}
    assert files[Where.SIMULATED] == files[Where.SIMULATED] & files[Where.PROCESSES]
    assert {"matrix-points", "network", "driver"} <= files[Where.SIMULATED]
    counted = Counter((task.file, task.where) for task in tasks)
    assert [counted[name, Where.PROCESSES] for name in ("matrix-faults", "matrix-points", "matrix-patterns")] == [
        *(60, 45, 11)
    ]
    assert len({task.key for task in tasks}) == len(tasks)


def test_a_resumed_run_starts_after_the_cases_in_the_report(tmp_path: Path) -> None:
    wanted = SuiteOptions(
        tmp_path, worlds=1, processes=1, files=("recovery-in-recovery",), in_worlds=(Where.SIMULATED,)
    )
    assert _run(wanted)[0]
    scenario, worlds = _lines(tmp_path)
    assert (scenario["verdict"], scenario["name"]) == ("good", "recovery-in-recovery")
    assert (worlds["worlds"], worlds["last"], worlds["failed"]) == (1, 1, [])
    with open(tmp_path / RUNS_FILE, "a", encoding="utf-8") as report:
        report.write('{"cut": "sho')
    is_good, output, bad = _run(replace(wanted, worlds=2, is_resumed=True))
    assert (is_good, bad) == (True, [])
    assert not any("recovery-in-recovery" in reported for reported in output)
    assert [(line["seed"], line["worlds"]) for line in _lines(tmp_path)[1:]] == [(1, 1), (2, 1)]
    assert "| seeds 1 to 2 | simulated | 2 | 2 | 0 |" in (tmp_path / SUMMARY_FILE).read_text("utf-8")


def test_a_resumed_run_with_no_case_left_reports_the_earlier_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--only", "none", "--worlds", "0", "--report", str(tmp_path), "--resume"]
    assert run_command(arguments) == 0
    assert "| scenario | world |" in capsys.readouterr().out


def test_a_case_without_java_is_reported_as_neither_passed_nor_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise EnvironmentFault("there is no Java here")

    monkeypatch.setattr(chaos_suite, "check_java", refuse)
    is_good, output, _ = _run(SuiteOptions(tmp_path, worlds=0, files=("partition",), in_worlds=(Where.SPARK,)))
    assert is_good
    assert len(output) == 3
    assert "not run: partition victim=ask, spark" in output[0]
    assert "there is no Java here" in (tmp_path / SUMMARY_FILE).read_text("utf-8")


def test_a_failed_run_is_reported_and_fails_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_given: Any) -> RunRecord:
        raise EnvironmentFault("this scenario needs Toxiproxy, and there is none")

    monkeypatch.setattr(chaos_suite, "run_once", fail)
    arguments = ["--only", "network", "--in", "processes", "--worlds", "0", "--report", str(tmp_path)]
    assert run_command(arguments) == 1
    reported = capsys.readouterr().out
    assert "| `network` | processes | 30 | 0 | 30 | 0 | 0 |" in reported
    assert "there is none" in reported
