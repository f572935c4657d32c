"""Scenarios on real processes: a small one for each way to inject faults; `clonos chaos` runs all others."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from clonos_chaos.real.runner_processes import ProcessRun
from clonos_chaos.real.toxiproxy_server import CACHE_VARIABLE, ToxiproxyMissing, find_server
from clonos_chaos.runs.cli import run
from clonos_chaos.runs.report import write_report
from clonos_chaos.scenario.run_record import RunRecord
from clonos_chaos.scenario.scenario import FaultKind, Scenario
from clonos_chaos.scenario.scenario_file import find_scenario, parse_scenarios, read_scenarios
from tests.speed import scaled

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

# A task has recovered when it has worked off its backlog: on a busy machine that takes as long as the job.
SMALL = f"""
name = "small"
about = "A small run."
job = "described"
[options]
spare_slots = 0
parallelism = 1
heartbeat = "500ms"
[job_options]
records = 3_000
per_second = 120
[limits]
seconds = {scaled(150):g}
recovery = "{scaled(150):g}s"
[[faults]]
"""


def _in_turn(kinds: Iterable[str], every_ms: int, lasts_ms: int, more: str = "") -> str:
    """Faults one after the other, in the window's process."""
    return "".join(
        f'[[faults]]\nkind = "{kind}"\n{more}lasts = "{lasts_ms}ms"\nat = {{ seconds = {0.2 + n * every_ms / 1000} }}\n'
        for n, kind in enumerate(kinds)
    ).removeprefix("[[faults]]\n")


OF_CONNECTIONS = _in_turn(("cut", "half_open", "reset", "delay", "throttle", "slice"), 400, 250, 'victim = "window"\n')
OF_EXTERNAL_SYSTEMS = (
    _in_turn(("service_error", "service_slow", "service_down", "clock_step"), 350, 250)
    + '[[faults]]\nkind = "disk_slow"\nvictim = "window"\nlasts = "400ms"\nat = { seconds = 1.6 }\n'
    + '[[faults]]\nkind = "disk_full"\nvictim = "ask"\nlasts = "600ms"\nat = { seconds = 2.0 }\n'
    + '[[faults]]\nkind = "kill_worker"\nvictim = "ask"\nat = { point = "spilling", nth = 5 }\n'
    + '[[faults]]\nkind = "kill_worker"\nvictim = "read"\nat = { point = "aligning", task = "merge" }\n'
)
SPILLING = '[options]\ninflight_memory = "64KiB"\nspill_policy = "eager"\n'


def _run(faults: str, folder: Path) -> RunRecord:
    (scenario,) = parse_scenarios(SMALL + faults, "small.toml")
    return ProcessRun(scenario, 1, folder).run()


def _bad(record: RunRecord) -> list[str]:
    return [f"{check.name}: {check.found}, wanted {check.wanted}" for check in record.checks if not check.is_good]


def test_a_worker_killed_between_a_call_and_its_replication_keeps_the_output_exactly_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL + 'kind = "kill_worker"\nvictim = "merge"\nat = { point = "called", nth = 2 }\n', "utf-8")
    code = run([str(file), "--json", str(tmp_path / "all.json"), "--html", str(tmp_path / "all.html")])
    assert code == 0, capsys.readouterr().out
    (found,) = json.loads((tmp_path / "all.json").read_text("utf-8"))
    assert (found["verdict"], found["oracle"]["lost"]) == ("good", 0)
    assert found["oracle"]["calls_repeated"] >= 1
    assert [(injection["tasks"], injection["detail"]) for injection in found["injections"]] == [
        (["merge/0"], "at called 2")
    ]
    assert all(0 < time_ms < scaled(30_000) for time_ms in found["recovery_ms"].values())
    page = (tmp_path / "all.html").read_text("utf-8")
    assert page.count("<svg") == 1
    assert "src=" not in page
    assert "http://localhost" not in page


def test_a_killed_driver_is_replaced_and_its_successor_resumes_the_job(tmp_path: Path) -> None:
    record = _run('kind = "kill_driver"\nat = { point = "checkpoint" }\n[expected]\noutcome = "rollback"\n', tmp_path)
    assert not _bad(record)
    assert len(record.generations) == 2


def test_a_hanging_service_flipped_bits_a_pause_a_failing_disk_and_an_error_lose_no_record(tmp_path: Path) -> None:
    service = 'kind = "service_hang"\nat = { seconds = 0.2 }\nlasts = "300ms"\n'
    bits = (
        '[[faults]]\nkind = "corrupt"\nvictim = "window"\nat = { seconds = 0.6 }\nlasts = "300ms"\nevery_bytes = 500\n'
    )
    pause = '[[faults]]\nkind = "pause"\nvictim = "merge"\nat = { seconds = 0.8 }\nlasts = "500ms"\n'
    disk = '[[faults]]\nkind = "disk_failing"\nvictim = "ask"\nat = { seconds = 1.0 }\nlasts = "400ms"\n'
    error = '[[faults]]\nkind = "user_error"\nvictim = "window"\nat = { seconds = 1.2 }\n'
    record = _run(service + bits + pause + disk + error, tmp_path)
    assert not _bad(record)
    assert record.checks[0].name == "bits flipped"


def test_connections_disturbed_in_six_ways_lose_no_record_or_the_missing_proxy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        find_server(may_fetch=False)
    except ToxiproxyMissing:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # so nothing is downloaded
        with pytest.raises(ToxiproxyMissing, match=r"on the PATH.*go install.*put the server of"):
            _run(OF_CONNECTIONS, tmp_path)
    else:
        assert not _bad(_run(OF_CONNECTIONS, tmp_path))


def test_a_failing_service_a_set_clock_bad_disks_and_kills_at_fault_points_lose_no_record(
    tmp_path: Path,
) -> None:
    text = SMALL.replace("[options]\n", SPILLING) + OF_EXTERNAL_SYSTEMS
    record = ProcessRun(parse_scenarios(text, "writer.toml")[0], 1, tmp_path).run()
    assert not _bad(record)
    assert {injection.kind for injection in record.injections} >= {
        "disk_full",
        "disk_slow",
        "clock_step",
        "service_down",
    }


def test_a_result_that_is_not_expected_is_named_in_the_verdict_and_on_the_page(tmp_path: Path) -> None:
    scenario: Scenario = read_scenarios(find_scenario("kill-each-step"))[0]
    record = RunRecord(replace(scenario, faults=()), 1, "processes", began_ns=1, ended_ns=2, failure="it broke <here>")
    assert not record.is_good
    write_report(tmp_path / "bad.html", [record])
    page = (tmp_path / "bad.html").read_text("utf-8")
    assert "NOT as expected" in page
    assert FaultKind.KILL_WORKER not in page


OWN = """
from pathlib import Path
from clonos import Job, clock, files
from tests.speed import scaled

def make(folder, fails=False):
    if fails:
        raise LookupError("no such table")
    job = Job("own")
    rows = job.source(files.lines(folder.parent / "numbers", watch="50ms"), name="read")
    rows.map(lambda number: (clock.time(), number)[1]).sink(files.jsonl(folder / "out"))
    return job

def judged(folder):
    texts = [Path(part.path).read_text() for part in files.committed(folder / "out")]
    rows = "".join(texts).split()
    return {"records": len(rows), "lost": 300 - len(set(rows)), "duplicated": len(rows) - len(set(rows))}

def blind(folder):
    return {"losses": 0}
"""


@pytest.mark.parametrize(
    ("more", "numbers", "complaint"),
    [
        ('oracle = "own_job:judged"', 300, "^$"),
        ('oracle = "own_job:judged"', 290, "^lost: 10, wanted 0$"),
        ('oracle = "own_job:blind"', 300, "the oracle own_job:blind has raised TypeError: .*losses"),
        ("[job_options]\nfails = true", 0, "its last output: LookupError: no such table"),
    ],
)
def test_a_users_own_job_is_killed_stopped_and_judged_by_its_own_oracle(
    more: str, numbers: int, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_job.py").write_text(OWN, "utf-8")
    (tmp_path / "numbers").mkdir()
    (tmp_path / "numbers" / "all").write_text("\n".join(map(str, range(numbers))), "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_job", raising=False)
    fault = f'[[faults]]\nkind = "kill_worker"\nquiescent = false\nat = {{ records = {numbers or 1} }}\n'  # all of them
    text = f'name = "own"\njob = "own_job:make"\n{more}\n[limits]\nstop_after = 0.1\n{fault}'
    (scenario,) = parse_scenarios(text, "own.toml")
    folder = tmp_path / "run"
    folder.mkdir()
    assert re.search(complaint, "; ".join(_bad(ProcessRun(scenario, 1, folder).run())))
