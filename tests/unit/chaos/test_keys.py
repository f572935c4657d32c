"""When a run requires that plain calls are repeated under the same key."""

from __future__ import annotations

import pytest

from clonos.status import RecoveryState
from clonos_chaos.scenario.run_record import RunRecord, judge
from clonos_chaos.scenario.scenario_file import find_scenario, read_scenarios
from clonos_chaos.scenario.scenario_oracle import Findings


def recovery(task: str, detected_ns: int, caught_up_ns: int) -> RecoveryState:
    return RecoveryState(task, 1, 2, "killed", {"detected": detected_ns, "caught_up": caught_up_ns})


@pytest.mark.parametrize(
    ("recoveries", "is_demanded"),
    [
        ([], True),
        ([recovery("ask/0", 5, 9), recovery("window/0", 5, 9)], True),
        ([recovery("read/0", 5, 9), recovery("ask/0", 20, 30)], True),
        ([recovery("read/0", 5, 9), recovery("ask/0", 5, 9)], False),
        ([recovery("ask/0", 1, 6), recovery("read/1", 5, 9)], False),
        ([recovery("window/1", 5, 9), recovery("merge/0", 5, 9)], False),
        ([recovery("window/1", 5, 9), recovery("merge/0", 20, 30)], True),
        ([recovery("merge/0", 5, 9), recovery("table/0", 5, 9)], True),
    ],
)
def test_call_keys_must_repeat_unless_a_source_or_window_recovered_with_a_downstream_step(
    recoveries: list[RecoveryState], is_demanded: bool
) -> None:
    record = RunRecord(
        read_scenarios(find_scenario("kill-each-step"))[0], 1, "processes", failure="", recoveries=recoveries
    )
    record.findings = Findings(records=1, calls=2, keys_changed=1)
    judge(record)
    assert ("idempotency keys changed" in {check.name for check in record.checks}) is is_demanded


@pytest.mark.parametrize("left_out", [0, 1])
def test_a_run_reports_how_many_faults_of_the_scenario_were_injected(left_out: int) -> None:
    scenario = read_scenarios(find_scenario("kill-each-step"))[0]
    record = RunRecord(scenario, 1, "processes", failure="", not_injected=left_out)
    judge(record)
    check = next(check for check in record.checks if check.name == "faults injected")
    planned = len(scenario.faults)
    assert (check.found, check.wanted) == (str(planned - left_out), str(planned))
    assert check.is_good is (not left_out)
