"""A soak as a scenario, and its result in a few figures."""

from __future__ import annotations

from clonos.status import RecoveryState
from clonos_chaos.runs.soak import Soak, figures, scenario_of
from clonos_chaos.scenario.run_record import Injection, RunRecord
from clonos_chaos.scenario.scenario import FaultKind
from clonos_chaos.scenario.scenario_oracle import Findings


def test_a_soak_kills_at_each_interval_with_a_network_fault_halfway() -> None:
    faults = scenario_of(Soak(minutes=2, kill_every_s=20)).faults
    kills = [fault.at.seconds for fault in faults if fault.kind is FaultKind.KILL_WORKER]
    troubles = [fault for fault in faults if fault.kind is not FaultKind.KILL_WORKER]
    assert kills == [5, 25, 45, 65, 85, 105]
    assert [fault.at.seconds for fault in troubles] == [15, 35, 55, 75, 95, 115]
    assert len({fault.kind for fault in troubles}) == 6


def test_a_users_own_job_is_stopped_when_the_time_has_passed() -> None:
    own = scenario_of(Soak(job="mine:job", minutes=1, has_network_faults=False))
    assert (own.limits.stop_after, own.job_options, own.needs_toxiproxy) == (60, {}, False)
    assert not scenario_of(Soak()).limits.stop_after


def test_a_recovery_is_measured_from_the_last_injection_before_its_detection() -> None:
    scenario = scenario_of(Soak(minutes=1))
    record = RunRecord(scenario, 1, "processes", findings=Findings(records=1_000, calls=10))
    for number in range(3):
        before = number * 10_000_000_000
        life = {"ask/0": number}
        record.injections.append(Injection("delay", ["ask/0"], before, incarnations=life))
        record.injections.append(Injection("kill_worker", ["ask/0"], before + 5_000_000_000, incarnations=life))
        reached = {"detected": before + 5_100_000_000, "caught_up": before + 5_000_000_000 + (number + 1) * 100_000_000}
        record.recoveries.append(RecoveryState("ask/0", number, number + 1, "killed", reached))
    first, second, third = figures(record)
    assert first == "3 kills, 3 network faults, 0 checkpoints"
    assert second.startswith("3 recoveries: median 200 ms")
    assert "1,000 records: 0 lost" in third


def test_a_successor_that_dies_as_well_hands_over_to_the_next_one() -> None:
    record = RunRecord(scenario_of(Soak(minutes=1)), 1, "processes", generations={1})
    record.injections = [Injection("kill_worker", ["ask/0"], 1_000_000, incarnations={"ask/0": 1})]
    record.recoveries = [
        RecoveryState("ask/0", 1, 2, "killed", {"detected": 2_000_000, "view": 3_000_000}),
        RecoveryState("ask/0", 2, 3, "killed too", {"detected": 4_000_000, "caught_up": 9_000_000}),
    ]
    assert record.recovery_ms() == {"ask/0 1": 8.0}
    record.recoveries.pop()
    assert record.recovery_ms() == {"ask/0 1": -1.0}
    record.generations.add(2)  # a rollback has ended it
    assert record.recovery_ms() == {}
