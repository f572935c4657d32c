"""Directed tests by name: worlds with faults injected at named transitions of the protocol.

Numbers refer to the conformance list: part G (transitions that random kills rarely reach), part E (several failures)
and part F (output). A directed test makes a world; ``tests/worlds`` runs it, checks that every fault was injected, and
judges the result. Mutants are tested in them too.
"""

from __future__ import annotations

from clonos_chaos.project.directed import (
    checkpoint_cases,
    ending_cases,
    failure_cases,
    hot_standby_cases,
    loss_cases,
    move_cases,
    rescale_cases,
    watermark_cases,
)
from clonos_chaos.project.directed.building_blocks import DIRECTED_TESTS

CASE_MODULES = (
    failure_cases,
    checkpoint_cases,
    loss_cases,
    ending_cases,
    hot_standby_cases,
    move_cases,
    rescale_cases,
    watermark_cases,
)

__all__ = ["DIRECTED_TESTS", "CASE_MODULES"]
