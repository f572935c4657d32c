"""The same scenario files in the simulated world."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos.core.model.errors import JobError
from clonos_chaos.real.runner_processes import ProcessRun
from clonos_chaos.runs.runner_simulated import refusal, run_simulated
from clonos_chaos.runs.simulated_options import options_of, with_hot_standbys
from clonos_chaos.scenario.scenario import Scenario
from clonos_chaos.scenario.scenario_file import find_scenario, parse_scenarios, read_scenarios
from clonos_chaos.swarm.world import World

HERE = (
    "kill-each-step",
    "kill-patterns",
    "kill-at-points",
    "recovery-in-recovery",
    "driver",
    "domain",
    "matrix-patterns",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_a_shipped_scenario_has_its_expected_outcome_in_a_simulated_world(name: str) -> None:
    for scenario in read_scenarios(find_scenario(name)):
        record = run_simulated(scenario, 7)
        assert record.is_good, (scenario.name, [check for check in record.checks if not check.is_good])
        assert record.injections


@pytest.mark.slow
def test_network_faults_are_injected_in_a_simulated_world() -> None:
    known = [each for each in read_scenarios(find_scenario("network")) if not refusal(each)]
    asking = [each for each in known if each.faults[0].victim == "ask"]
    assert [each.faults[0].kind for each in asking] == ["cut", "half_open", "reset", "delay"]
    assert all(run_simulated(each, 7).is_good for each in asking)


@pytest.mark.slow
def test_protocol_triggers_are_the_same_as_on_real_processes() -> None:
    """But for two that no simulated world tells."""
    for scenario in read_scenarios(find_scenario("matrix-points")):
        last = scenario.faults[-1]
        if last.victim == "ask" and last.at.point not in ("spilling", "aligning"):
            record = run_simulated(scenario, 7)
            assert record.is_good, (scenario.name, [check for check in record.checks if not check.is_good])


@pytest.mark.slow
def test_one_seed_gives_the_same_simulated_run_every_time() -> None:
    (scenario,) = read_scenarios(find_scenario("recovery-in-recovery"))
    assert run_simulated(scenario, 3).notes == run_simulated(scenario, 3).notes


def test_a_fault_that_cannot_be_simulated_is_refused() -> None:
    (scenario,) = parse_scenarios(
        'name = "n"\njob = "described"\n[[faults]]\nkind = "disk_full"\nat = { seconds = 1 }\n', "n.toml"
    )
    with pytest.raises(JobError, match=r"disk_full does not exist .* --processes"):
        run_simulated(scenario, 1)


@pytest.mark.parametrize("point", ["caled", "standby_updat delivered"])
def test_an_unknown_point_is_refused(point: str, tmp_path: Path) -> None:
    (scenario,) = parse_scenarios(
        f'name = "n"\njob = "described"\n[[faults]]\nkind = "pause"\nat = {{ point = "{point}" }}\n', "n.toml"
    )
    with pytest.raises(JobError, match=rf"no point '{point}'"):
        run_simulated(scenario, 1)
    with pytest.raises(JobError, match=rf"the point '{point}' is unknown; real processes have"):
        ProcessRun(scenario, 1, tmp_path)


def test_a_fault_point_of_simulated_worlds_only_is_refused_for_processes(tmp_path: Path) -> None:
    (scenario,) = parse_scenarios(
        'name = "n"\njob = "described"\n[[faults]]\nkind = "pause"\nat = { point = "view issued" }\n', "n.toml"
    )
    with pytest.raises(JobError, match="in the simulated world only"):
        ProcessRun(scenario, 1, tmp_path)


@pytest.mark.parametrize("records", ['"x"', "0", "-5", "inf", "true"])
def test_an_invalid_number_of_records_is_refused(records: str, tmp_path: Path) -> None:
    (scenario,) = parse_scenarios(f'name = "n"\njob = "described"\n[job_options]\nrecords = {records}\n', "n.toml")
    with pytest.raises(JobError, match="a number above 0 is expected"):
        run_simulated(scenario, 1)
    with pytest.raises(JobError, match="a number above 0 is expected"):
        ProcessRun(scenario, 1, tmp_path)


@pytest.mark.parametrize(("oracle", "complaint"), [("json:nothing", "no attribute"), ("math:pi", "a function")])
def test_an_invalid_oracle_is_refused_before_anything_runs(oracle: str, complaint: str, tmp_path: Path) -> None:
    (scenario,) = parse_scenarios(f'name = "n"\njob = "mine:job"\noracle = "{oracle}"\n', "n.toml")
    with pytest.raises(JobError, match=complaint):
        ProcessRun(scenario, 1, tmp_path)


def test_a_simulated_run_fills_every_field_of_a_report() -> None:
    record = run_simulated(read_scenarios(find_scenario("recovery-in-recovery"))[0], 7)
    assert {check.name for check in record.checks} >= {"lost", "duplicated", "contradicted", "slowest recovery"}
    assert record.findings is not None
    assert len(record.findings.rows) == 2 * record.findings.records
    assert all(read_ns < sink_ns <= record.ended_ns for sink_ns, read_ns in record.findings.rows)
    assert [injection.tasks for injection, _ in record.recoveries_by_injection()]
    assert 0 < max(record.recovery_ms().values()) < 1_000
    reported = record.data()
    assert [next(iter(one["reached_ms"])) for one in reported["recoveries"]] == ["detected", "detected"]
    assert sum(records for _, records, _, _ in reported["curves"]) == 2 * record.findings.records
    assert any(sample.live < 6 for sample in record.samples[10:])
    assert "logs and spill" not in {check.name for check in record.checks}  # a simulated run has no such check


def test_a_slow_recovery_fails_a_simulated_run() -> None:
    text = find_scenario("recovery-in-recovery").read_text("utf-8") + '[limits]\nrecovery = "1ms"\n'
    record = run_simulated(parse_scenarios(text, "slow.toml")[0], 7)
    assert [check.name for check in record.checks if not check.is_good] == ["slowest recovery"]


def _with_options(options: str, kind: str = "kill_worker") -> Scenario:
    text = f'name = "n"\njob = "described"\n[options]\n{options}\n[[faults]]\nkind = "{kind}"\nat = {{ seconds = 1 }}\n'
    return parse_scenarios(text, "n.toml")[0]


def test_hot_standbys_are_simulated_as_hot() -> None:
    record = run_simulated(_with_options('standby = "hot"'), 7)
    assert record.is_good
    assert not [note for note in record.notes if "without meaning" in note]
    hot, _ = options_of(_with_options('standbys = 2\nstandby = "hot"'))
    assert hot.standbys == 2
    plan = World(7).plan
    assert any(vertex.is_hot for vertex in with_hot_standbys(_with_options('standby = "hot"'), plan).vertices)


def test_options_that_a_simulated_world_ignores_are_named_and_misspelt_ones_refused() -> None:
    record = run_simulated(_with_options('heartbeat = "250ms"'), 7)
    assert "ignored by the simulated twin: the options heartbeat" in record.notes
    with pytest.raises(JobError, match="did you mean 'standbys'"):
        _with_options("standbies = 2")


@pytest.mark.slow
def test_a_task_that_dies_with_its_domain_is_not_counted_as_healthy() -> None:
    for seed in range(1, 4):
        assert run_simulated(_with_options("domains = 3", "kill_domain"), seed).is_good
