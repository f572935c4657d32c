"""A partition of hosts is run for real or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos.core.errors import JobError
from clonos_chaos.hosts import Hosts, HostsRefused
from clonos_chaos.runner_processes import ProcessRun
from clonos_chaos.runner_record import Record, judge
from clonos_chaos.scenario_file import find_scenario, read_scenarios
from clonos_chaos.scenario_oracle import Findings


def test_a_machine_that_cannot_be_divided_says_that_the_scenario_was_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostsRefused, match=r"it was not run\. It needs Linux, root"):
        Hosts(tmp_path, {})


def test_a_partition_without_spark_is_refused(tmp_path: Path) -> None:
    scenario = read_scenarios(find_scenario("partition"))[0]
    with pytest.raises(JobError, match="Run it with --spark"):
        ProcessRun(scenario, 1, tmp_path).run()


def test_keys_are_demanded_of_all_but_those_who_are_cut_off_together() -> None:
    for name, is_demanded in (("partition", False), ("kill-each-step", True)):
        record = Record(read_scenarios(find_scenario(name))[0], 1, "spark", failure="")
        record.findings = Findings(records=1, calls=2, keys_changed=1)
        judge(record)
        assert ("idempotency keys changed" in {check.name for check in record.checks}) is is_demanded
