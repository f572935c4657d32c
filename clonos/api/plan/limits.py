"""Limits of a plan: which sources each of them ends, and how far these have read by then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from clonos.api.plan.explanation import LimitInfo
from clonos.api.step import Step
from clonos.core.model.plan import LIMIT_KIND

ONE_RESULT_AT_MOST: Final = frozenset({"map", "filter", "map_async", "fold", "aggregate"})
"""Kinds of steps that give at most one result per record, besides those with ``is_one_to_one`` or ``selects_rows``."""


def limit_of(step: Step, steps: Sequence[Step], vertex_of: Sequence[int]) -> LimitInfo | None:
    """Returns what a limit means for the sources in front of it; None for another step."""
    if step.kind != LIMIT_KIND or not isinstance(step.make, partial):
        return None
    before = {each.number: each for each in _before(step, steps)}
    sources = sorted(number for number, each in before.items() if each.source is not None)
    is_in_chain = all(vertex_of[number] == vertex_of[step.number] for number in before)
    return LimitInfo(
        step.make.keywords["count"],
        tuple(steps[number].name for number in sources),
        "checkpoint" if not is_in_chain else "record" if all(map(_gives_one, before.values())) else "step",
    )


def _before(step: Step, steps: Sequence[Step]) -> Iterator[Step]:
    for each in step.inputs:
        yield steps[each.step]
        yield from _before(steps[each.step], steps)


def _gives_one(step: Step) -> bool:
    return step.is_one_to_one or step.selects_rows or step.kind in ONE_RESULT_AT_MOST
