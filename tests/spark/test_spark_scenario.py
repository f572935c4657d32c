"""One scenario on Spark; `clonos chaos` runs all others of `spark.toml` and `partition.toml`."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_chaos.real.runner_processes import ProcessRun
from clonos_chaos.scenario.scenario_file import parse_scenarios
from tests.speed import scaled

pytestmark = [pytest.mark.spark, pytest.mark.keeps_sockets]

BOTH_KILLS = f"""
name = "spark"
about = "A worker is killed, then an executor with all its workers."
job = "described"
[options]
master = "local-cluster[2,5,1024]"
spare_slots = 3
parallelism = 1
[job_options]
records = 900
per_second = 150
[limits]
seconds = {scaled(300):g}
recovery = "{scaled(40):g}s"
[[faults]]
kind = "kill_worker"
victim = "window"
at = {{ records = 90 }}
[[faults]]
kind = "kill_domain"
victim = "ask"
at = {{ records = 180 }}
"""


@pytest.mark.timeout(400)
def test_a_killed_worker_and_a_killed_executor_cause_no_loss_no_repeat_and_no_contradiction(tmp_path: Path) -> None:
    (scenario,) = parse_scenarios(BOTH_KILLS, "spark.toml")
    record = ProcessRun(scenario, 1, tmp_path, "spark").run()
    assert not [f"{check.name}: {check.found}" for check in record.checks if not check.is_good]
    findings = record.findings
    assert findings is not None
    assert (findings.lost, findings.duplicated, findings.contradicted) == (0, 0, 0)
    assert findings.records > 180
    assert [injection.kind for injection in record.injections] == ["kill_worker", "kill_domain"]
    assert len(record.recovery_ms()) >= 2
