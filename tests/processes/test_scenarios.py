"""Scenarios on real processes: a small one of each way in which faults are made; all others are for `clonos chaos`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from clonos_chaos.cli import run
from clonos_chaos.report import write_report
from clonos_chaos.runner_processes import ProcessRun
from clonos_chaos.runner_record import Record
from clonos_chaos.scenario import Kind, Scenario
from clonos_chaos.scenario_file import find_scenario, parse_scenarios, read_scenarios
from clonos_chaos.toxiproxy_server import CACHE_VARIABLE, ToxiproxyMissing, find_server

pytestmark = pytest.mark.processes

SMALL = """
name = "small"
about = "A small run."
job = "described"
[options]
spare_slots = 0
parallelism = 1
[job_options]
records = 900
per_second = 240
[limits]
seconds = 50
[[faults]]
"""


def _run(faults: str, folder: Path) -> Record:
    (scenario,) = parse_scenarios(SMALL + faults, "small.toml")
    return ProcessRun(scenario, 1, folder).run()


def _bad(record: Record) -> list[str]:
    return [f"{check.name}: {check.found}, wanted {check.wanted}" for check in record.checks if not check.is_good]


def test_a_worker_killed_between_a_call_and_its_replication_leaves_the_output_exactly_once_and_the_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL + 'kind = "kill_worker"\nvictim = "tell"\nat = { point = "called", nth = 2 }\n', "utf-8")
    code = run([str(file), "--json", str(tmp_path / "all.json"), "--html", str(tmp_path / "all.html")])
    assert code == 0, capsys.readouterr().out
    (found,) = json.loads((tmp_path / "all.json").read_text("utf-8"))
    assert (found["verdict"], found["oracle"]["lost"]) == ("good", 0)
    assert found["oracle"]["calls_repeated"] >= 1
    assert [(strike["tasks"], strike["detail"]) for strike in found["strikes"]] == [(["tell/0"], "at called 2")]
    assert all(0 < time_ms < 10_000 for time_ms in found["recovery_ms"].values())
    page = (tmp_path / "all.html").read_text("utf-8")
    assert page.count("<svg") == 1
    assert "src=" not in page
    assert "http://localhost" not in page


def test_the_driver_is_killed_and_another_one_resumes(tmp_path: Path) -> None:
    record = _run('kind = "kill_driver"\nat = { point = "checkpoint" }\n[expected]\noutcome = "rollback"\n', tmp_path)
    assert not _bad(record)
    assert len(record.generations) == 2


def test_a_service_that_hangs_flipped_bits_a_pause_a_failing_disk_and_an_error_cost_nothing(tmp_path: Path) -> None:
    service = 'kind = "service_hang"\nat = { seconds = 0.2 }\nlasts = "300ms"\n'
    bits = (
        '[[faults]]\nkind = "corrupt"\nvictim = "window"\nat = { seconds = 0.6 }\nlasts = "300ms"\nevery_bytes = 500\n'
    )
    pause = '[[faults]]\nkind = "pause"\nvictim = "tell"\nat = { seconds = 0.8 }\nlasts = "500ms"\n'
    disk = '[[faults]]\nkind = "disk_failing"\nvictim = "ask"\nat = { seconds = 1.0 }\nlasts = "400ms"\n'
    error = '[[faults]]\nkind = "user_error"\nvictim = "window"\nat = { seconds = 1.2 }\n'
    record = _run(service + bits + pause + disk + error, tmp_path)
    assert not _bad(record)
    assert record.checks[0].name == "bits flipped"


def test_a_connection_that_is_reset_costs_nothing_or_the_scenario_fails_and_names_three_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = 'kind = "reset"\nvictim = "window"\nat = { seconds = 0.2 }\nlasts = "300ms"\n'
    try:
        find_server(may_fetch=False)
    except ToxiproxyMissing:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
        monkeypatch.setattr("clonos_chaos.toxiproxy_server.RELEASES", tmp_path.as_uri())
        with pytest.raises(ToxiproxyMissing, match=r"on the PATH.*go install.*put the server of"):
            _run(faults, tmp_path)
    else:
        assert not _bad(_run(faults, tmp_path))


def test_what_is_not_as_expected_is_told_in_the_verdict_and_on_the_page(tmp_path: Path) -> None:
    scenario: Scenario = read_scenarios(find_scenario("kill-each-step"))[0]
    record = Record(replace(scenario, faults=()), 1, "processes", began_ns=1, ended_ns=2, failure="it broke <here>")
    assert not record.is_good
    write_report(tmp_path / "bad.html", [record])
    page = (tmp_path / "bad.html").read_text("utf-8")
    assert "NOT as expected" in page
    assert Kind.KILL_WORKER not in page
