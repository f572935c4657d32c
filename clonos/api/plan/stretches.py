"""Stretches of a plan over which records stay in columns."""

from __future__ import annotations

from collections.abc import Sequence

from clonos.api.plan.explanation import StepInfo, StretchInfo


def stretches_of(steps: Sequence[StepInfo]) -> tuple[StretchInfo, ...]:
    """Returns the longest stretches of steps that pass columns to each other, longest first."""
    place_of = {step.name: place for place, step in enumerate(steps)}
    found: dict[int, list[int]] = {}  # places by the first one of their stretch
    stretch_of: dict[int, int] = {}
    ends: dict[int, list[str]] = {}
    for place, step in enumerate(steps):
        givers = [place_of[each.step] for each in step.inputs if not each.side_output]
        before = sorted({stretch_of[giver] for giver in givers if _passes_columns(steps[giver])})
        for each in step.inputs:
            if each.side_output and place_of[each.step] in stretch_of:  # its records leave the columns there
                ends[stretch_of[place_of[each.step]]].append(step.name)
        if step.takes == "columns" and step.row_reason:
            for stretch in before:
                ends[stretch].append(step.name)
            before = []
        if step.takes != "columns" or step.row_reason:
            before = []
        if not before and step.gives != "columns":
            continue
        first, *others = before or [place]
        found.setdefault(first, []).append(place)
        ends.setdefault(first, [])
        for other in others:  # a step of several inputs joins their stretches
            found[first] = sorted({*found[first], *found.pop(other)})
            ends[first] += ends.pop(other)
        stretch_of |= dict.fromkeys(found[first], first)
    long = [first for first in found if len(found[first]) > 1 or ends[first]]
    return tuple(
        StretchInfo(tuple(steps[place].name for place in found[first]), tuple(dict.fromkeys(ends[first])))
        for first in sorted(long, key=lambda first: -len(found[first]))
    )


def _passes_columns(step: StepInfo) -> bool:
    return step.gives == "columns" and not (step.takes == "columns" and step.row_reason)
