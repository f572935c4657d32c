"""A scenario on Spark: its driver, a process of its own with its own session, is killed, and another one resumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_chaos.runner_processes import ProcessRun
from clonos_chaos.scenario_file import parse_scenarios

pytestmark = [pytest.mark.spark, pytest.mark.keeps_sockets]

DRIVER_DIES = """
name = "driver"
about = "The driver is killed and another one resumes."
job = "described"
[options]
parallelism = 1
spare_slots = 0
standbys = 0
[job_options]
per_second = 100
[[faults]]
kind = "kill_driver"
at = { point = "checkpoint" }
[expected]
outcome = "rollback"
"""


@pytest.mark.timeout(150)
def test_a_driver_on_spark_dies_and_another_one_resumes_and_alarms_number_what_may_come_again(tmp_path: Path) -> None:
    (scenario,) = parse_scenarios(DRIVER_DIES, "driver.toml")
    record = ProcessRun(scenario, 1, tmp_path, "spark").run()
    assert not [f"{check.name}: {check.found}" for check in record.checks if not check.is_good]
    assert len(record.generations) == 2
