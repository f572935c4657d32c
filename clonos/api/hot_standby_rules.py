"""Which steps may have hot standbys: those of which nothing leaves the job but along its channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clonos.api.graph_errors import GraphRefused
from clonos.core.model.options import StandbyKind
from clonos.operators.connector_contract import PushedSource

if TYPE_CHECKING:
    from clonos.api.graph import Step


def check_standby(name: str, *, standby: Any = None, has_effects: bool = False, source: Any = None, **_: Any) -> None:
    """GraphRefused: a step cannot be followed like this."""
    kinds = [kind.value for kind in StandbyKind]
    if standby is not None and standby not in kinds:
        raise GraphRefused(name, f"has the standby {standby!r:.80}", f"It is one of {kinds}, or left to the job.")
    if standby != StandbyKind.HOT:
        return
    if has_effects:
        raise GraphRefused(
            name,
            "has effects outside, and a hot standby does again all that its task does",
            'Leave out standby="hot": what changes the outside is followed by a passive standby and a keeper.',
        )
    if isinstance(source, PushedSource):
        raise GraphRefused(
            name,
            "reads what nobody can be asked for again, so a hot standby cannot read it too",
            'Leave out standby="hot"; steps behind it may have it.',
        )


def may_be_hot(step: Step) -> bool:
    """Whether nothing that it does leaves the job, or comes from where nobody can ask again."""
    return step.sink is None and not step.has_effects and not isinstance(step.source, PushedSource)


def is_hot(step: Step, of_job: StandbyKind) -> bool:
    """Whether the standbys of a step shall follow it step by step."""
    return may_be_hot(step) and (step.standby or of_job) == StandbyKind.HOT
