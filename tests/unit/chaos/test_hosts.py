"""A partition of hosts is run for real or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos.core.model.errors import JobError
from clonos_chaos.real.network_namespaces import Hosts, HostsRefused
from clonos_chaos.real.runner_processes import ProcessRun
from clonos_chaos.scenario.scenario_file import find_scenario, read_scenarios


def test_a_machine_without_namespaces_reports_that_the_scenario_was_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostsRefused, match=r"it was not run\. It needs Linux, root"):
        Hosts(tmp_path, {})


def test_a_partition_without_spark_is_refused(tmp_path: Path) -> None:
    scenario = read_scenarios(find_scenario("partition"))[0]
    with pytest.raises(JobError, match="Run it with --spark"):
        ProcessRun(scenario, 1, tmp_path).run()
