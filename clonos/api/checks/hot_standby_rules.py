"""Steps that may have hot standbys: those that exchange data with the rest of the job only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clonos.api.graph_errors import InvalidJob
from clonos.core.model.options import StandbyKind
from clonos.operators.connector_contract import PushSource

if TYPE_CHECKING:
    from clonos.api.step import Step


def check_standby(name: str, standby: Any, has_effects: bool, source: Any) -> None:
    """Checks the ``standby`` of a step.

    Raises: InvalidJob: it is unknown, or a hot standby cannot repeat what the step does.
    """
    kinds = [kind.value for kind in StandbyKind]
    if standby is not None and standby not in kinds:
        raise InvalidJob(name, f"has the standby {standby!r:.80}", f"Give one of {kinds}, or leave it out.")
    if standby != StandbyKind.HOT:
        return
    if has_effects:
        raise InvalidJob(
            name,
            "has effects outside the job, and a hot standby would repeat them",
            'Leave out standby="hot": a step with effects has passive standbys and a keeper.',
        )
    if isinstance(source, PushSource):
        raise InvalidJob(
            name,
            "reads a source that cannot be replayed, so a hot standby cannot read it too",
            'Leave out standby="hot" here; the steps after it may have it.',
        )


def may_be_hot(step: Step) -> bool:
    """Returns whether the step has no effects outside the job, no sink and no source that cannot be replayed."""
    return step.sink is None and not step.has_effects and not isinstance(step.source, PushSource)


def is_hot(step: Step, of_job: StandbyKind) -> bool:
    """Returns whether the standbys of a step are hot, given the setting ``of_job``."""
    return may_be_hot(step) and (step.standby or of_job) == StandbyKind.HOT
