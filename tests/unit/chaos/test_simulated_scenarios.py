"""The same scenario files in the simulated world."""

from __future__ import annotations

import pytest

from clonos.core.errors import JobError
from clonos_chaos.runner_simulated import run_simulated
from clonos_chaos.scenario_file import find_scenario, parse_scenarios, read_scenarios

HERE = ("kill-each-step", "kill-patterns", "kill-at-points", "recovery-in-recovery", "driver", "domain")


@pytest.mark.parametrize("name", HERE)
def test_a_shipped_scenario_comes_to_what_it_expects_in_a_simulated_world(name: str) -> None:
    for scenario in read_scenarios(find_scenario(name)):
        record = run_simulated(scenario, 7)
        assert record.is_good, (scenario.name, [check for check in record.checks if not check.is_good])
        assert record.strikes


def test_moments_of_the_protocol_are_those_of_real_processes() -> None:
    """But for two that no simulated world tells."""
    for scenario in read_scenarios(find_scenario("matrix-moments")):
        last = scenario.faults[-1]
        if last.victim == "ask" and last.at.point not in ("spilling", "aligning"):
            record = run_simulated(scenario, 7)
            assert record.is_good, (scenario.name, [check for check in record.checks if not check.is_good])


def test_one_seed_gives_the_same_world_again() -> None:
    (scenario,) = read_scenarios(find_scenario("recovery-in-recovery"))
    assert run_simulated(scenario, 3).notes == run_simulated(scenario, 3).notes


def test_a_fault_that_no_simulated_world_knows_is_refused() -> None:
    (scenario,) = parse_scenarios(
        'name = "n"\njob = "described"\n[[faults]]\nkind = "disk_full"\nat = { seconds = 1 }\n', "n.toml"
    )
    with pytest.raises(JobError, match=r"disk_full does not exist .* --processes"):
        run_simulated(scenario, 1)


def test_an_unknown_point_is_refused() -> None:
    (scenario,) = parse_scenarios(
        'name = "n"\njob = "described"\n[[faults]]\nkind = "pause"\nat = { point = "caled" }\n', "n.toml"
    )
    with pytest.raises(JobError, match=r"no point 'caled'"):
        run_simulated(scenario, 1)
