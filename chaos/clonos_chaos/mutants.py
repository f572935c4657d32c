"""All wrong rules by name: ``with planted("no_fencing"): World(seed).run()`` must fail for some seed."""

from __future__ import annotations

from clonos_chaos import (
    mutants_of_channels,
    mutants_of_coordinators,
    mutants_of_coverage,
    mutants_of_hot_standbys,
    mutants_of_recovery,
    mutants_of_tasks,
)
from clonos_chaos.planting import MUTANTS, Mutant, planted

PLANTED_IN = (
    mutants_of_channels,
    mutants_of_coverage,
    mutants_of_coordinators,
    mutants_of_hot_standbys,
    mutants_of_recovery,
    mutants_of_tasks,
)

__all__ = ["MUTANTS", "PLANTED_IN", "Mutant", "planted"]
