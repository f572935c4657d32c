"""Aimed cases by name: worlds in which faults strike at named transitions of the protocol.

The numbers are those of the conformance list: part G (transitions that random kills rarely reach), part E (several
failures) and part F (output). A scene is a world that has not run; ``tests/worlds`` runs it, sees that every aim has
struck, and looks at what came of it. Wrong rules are planted in them too.
"""

from __future__ import annotations

from clonos_chaos.directed import (
    checkpoint_cases,
    ending_cases,
    failure_cases,
    hot_standby_cases,
    loss_cases,
    output_cases,
)
from clonos_chaos.directed.building_blocks import DIRECTED_TESTS

CASE_MODULES = (
    failure_cases,
    checkpoint_cases,
    loss_cases,
    ending_cases,
    output_cases,
    hot_standby_cases,
)

__all__ = ["DIRECTED_TESTS", "CASE_MODULES"]
