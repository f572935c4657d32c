"""Aimed cases by name: worlds in which faults strike at named transitions of the protocol.

The numbers are those of the conformance list: part G (transitions that random kills rarely reach), part E (several
failures) and part F (output). A scene is a world that has not run; ``tests/worlds`` runs it, sees that every aim has
struck, and looks at what came of it. Wrong rules are planted in them too.
"""

from __future__ import annotations

from clonos_chaos import (
    scenes_of_checkpoints,
    scenes_of_endings,
    scenes_of_failures,
    scenes_of_hot_standbys,
    scenes_of_losses,
    scenes_of_output,
)
from clonos_chaos.stage import SCENES

WRITTEN_IN = (
    scenes_of_failures,
    scenes_of_checkpoints,
    scenes_of_losses,
    scenes_of_endings,
    scenes_of_output,
    scenes_of_hot_standbys,
)

__all__ = ["SCENES", "WRITTEN_IN"]
