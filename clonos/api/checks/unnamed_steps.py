"""Steps with state and without a name: a later version of the job may not find their state."""

from __future__ import annotations

import logging
from typing import Final

from clonos.api.step_graph import StepGraph

logger = logging.getLogger("clonos.run")

NAMES_SHOWN: Final = 8


def warn_of_unnamed_steps(graph: StepGraph) -> None:
    """Logs one warning that names the steps with state to which the user gave no name."""
    if text := unnamed_warning(graph):
        logger.warning("%s", text)


def unnamed_warning(graph: StepGraph) -> str:
    """Returns the warning about steps with state and without a name; "" if there are none."""
    names = [step.name for step in graph.steps if step.state is not None and not step.is_named]
    if not names:
        return ""
    shown = ", ".join(names[:NAMES_SHOWN])
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    what = "the step" if len(names) == 1 else "the steps"
    return (
        f"{what} {shown}{more} {'keeps' if len(names) == 1 else 'keep'} state under a name made from the place in the"
        ' job: a changed job may not find it when it resumes. Give each a name, as in .count(name="clicks").'
    )
