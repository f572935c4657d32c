"""Negative controls of coverage (``replicas``): worlds of the swarm with a replica or two show each."""

from __future__ import annotations

import pytest

from clonos_chaos.mutants import planted
from clonos_chaos.world import World

pytestmark = pytest.mark.controls

SHOWN_BY: dict[str, int] = {
    "tasks_count_instead_of_domains": 120,
    "logs_stop_before_they_are_acknowledged": 1,
    "keepers_that_have_died_count": 1,
    "one_piece_is_the_log": 1,
    "holes_pass": 113,
}


def is_well(seed: int) -> bool:
    """Any exception is a complaint."""
    try:
        World(seed).run()
    except Exception:  # noqa: BLE001  an assertion or an error of the core is how a wrong rule shows
        return False
    return True


@pytest.mark.parametrize("mutant", SHOWN_BY)
def test_a_wrong_rule_of_coverage_is_caught(mutant: str) -> None:
    seed = SHOWN_BY[mutant]
    assert World(seed).plan.replicas is not None
    assert is_well(seed)
    with planted(mutant):
        assert not is_well(seed)
