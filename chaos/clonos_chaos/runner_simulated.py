"""Runs a scenario in the simulated world, as far as its faults exist there."""

from __future__ import annotations

from clonos.core.errors import JobError
from clonos_chaos.runner_record import Record
from clonos_chaos.scenario import Scenario


def run_simulated(scenario: Scenario, seed: int) -> Record:
    """One world."""
    raise JobError(f"{scenario.name} cannot be simulated yet.")
