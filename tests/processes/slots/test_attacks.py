"""Attacks on a running job over TCP with CURVE: its output is exact, no task moves, and memory is bounded.

A second of each weapon, or until it has had an effect; ``clonos chaos run attack`` has more of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_chaos.real.runner_processes import ProcessRun
from clonos_chaos.scenario.run_record import RunRecord
from clonos_chaos.scenario.scenario_file import parse_scenarios
from tests.speed import scaled

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

ATTACKED = f"""
name = "attacked"
job = "described"
[options]
spare_slots = 1
heartbeat = "500ms"
[job_options]
records = 40_000
per_second = 120
[limits]
seconds = {scaled(240):g}
recovery = "{scaled(30):g}s"
[[faults]]
kind = "attack"
at = {{ seconds = 0.2 }}
"""


def _attack(more: str, folder: Path) -> RunRecord:
    (scenario,) = parse_scenarios(ATTACKED + more, "attacked.toml")
    record = ProcessRun(scenario, 1, folder).run()
    bad = [f"{check.name}: {check.found}, wanted {check.wanted}" for check in record.checks if not check.is_good]
    assert not bad, bad
    return record


def _check_names(record: RunRecord) -> set[str]:
    return {check.name for check in record.checks}


def test_unknown_peers_crowds_floods_and_a_lying_slot_do_not_change_the_result(tmp_path: Path) -> None:
    record = _attack('lasts = "8s"\n', tmp_path)
    assert {"memory taken by a process while attacked", "healthy tasks disturbed", "lost"} <= _check_names(record)
    log = (tmp_path / "driver.log").read_text("utf-8")
    assert "malformed" in log
    forged = [line for line in log.splitlines() if line.startswith("2026-01-01 00:00:00,000 CRITICAL")]
    assert not forged
    assert "\x1b" not in log


def test_a_driver_that_ran_out_of_file_descriptors_recovers(tmp_path: Path) -> None:
    _attack('weapon = "full_table"\nlasts = "4s"\n', tmp_path)
    assert "Too many open files" in (tmp_path / "driver.log").read_text("utf-8")
