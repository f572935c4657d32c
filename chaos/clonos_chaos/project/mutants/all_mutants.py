"""Mutants by name: ``with mutated("no_fencing"): World(seed).run()`` must fail for some seed."""

from __future__ import annotations

from clonos_chaos.project.mutants import (
    channel_mutants,
    coordinator_mutants,
    coverage_mutants,
    flush_mutants,
    hot_standby_mutants,
    recovery_mutants,
    rescale_mutants,
    task_mutants,
    watermark_mutants,
    window_mutants,
)
from clonos_chaos.project.mutants.mutation import MUTANTS, Mutant, mutated

MUTANT_MODULES = (
    channel_mutants,
    coverage_mutants,
    coordinator_mutants,
    flush_mutants,
    hot_standby_mutants,
    recovery_mutants,
    rescale_mutants,
    task_mutants,
    watermark_mutants,
    window_mutants,
)

__all__ = ["MUTANTS", "MUTANT_MODULES", "Mutant", "mutated"]
