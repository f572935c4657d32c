"""Fusion of steps: the reasons for which a step begins a new vertex."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from clonos.api.checks.hot_standby_rules import is_hot, may_be_hot
from clonos.api.plan.vertices import PlannedVertex
from clonos.api.step import Exchange, Step
from clonos.core.model.options import StandbyKind
from clonos.core.model.plan import ANYWHERE
from clonos.operators.connector_contract import ImmediateSink

SOURCE: Final = "it is a source"

EXCHANGES: Final = {
    Exchange.HASH: "all records of a key go to one task",
    Exchange.REBALANCE: "rebalance() distributes the records",
    Exchange.BROADCAST: "broadcast() sends each record to every task",
    Exchange.RESCALE: "rescale() distributes the records",
    Exchange.SHUFFLE: "shuffle() distributes the records",
    Exchange.GLOBAL: "global_() sends all records to one task",
    Exchange.CUSTOM: "a function chooses the task of each record",
}
"""Reasons for a new vertex by exchange."""


def join_of_same_key(step: Step, steps: Sequence[Step]) -> Step | None:
    """Returns the join that has brought the records of each key of a step to one task; None if there is none.

    Between both there are only steps over columns, which leave the columns of the key as they are.
    """
    key = step.inputs[0].key if len(step.inputs) == 1 else None
    if not step.may_be_in_place or key is None or not key.fields:
        return None
    (step_input,) = step.inputs
    stages, before = [], steps[step_input.step]
    while before.stage is not None and not step_input.tag and len(before.inputs) == 1:
        (step_input,) = before.inputs
        if step_input.exchange is not Exchange.FORWARD:
            return None
        stages.append(before.stage)
        before = steps[step_input.step]
    if step_input.tag or before.form is None or not before.form.keeps_key or not before.emits_columns:
        return None
    found: list[str | None] = list(before.inputs[0].key.fields) if before.inputs[0].key is not None else []
    for stage in reversed(stages):
        found = [None if name is None else stage.renamed(name) for name in found]
    return before if tuple(found) == key.fields else None


def reason_to_begin(
    step: Step, parallelism: int, upstream: PlannedVertex | None, standby: StandbyKind, is_in_place: bool
) -> str:
    """Returns why a step cannot run in the vertex of the step before it, "" if it can.

    ``upstream``: that vertex; None for a step without inputs. ``standby``: the kind of standbys of the job.
    ``is_in_place``: each record is in the task of its key already.
    """
    if upstream is None:
        return SOURCE
    if len(step.inputs) > 1 or step.second_from is not None:
        return f"it has {len(step.inputs)} inputs"
    if step.inputs[0].exchange is not Exchange.FORWARD and not is_in_place:
        return EXCHANGES[step.inputs[0].exchange]
    if upstream.parallelism != parallelism and is_in_place:
        return EXCHANGES[Exchange.HASH]
    if upstream.parallelism != parallelism:
        return f"it has the parallelism {parallelism}, the step before it {upstream.parallelism}"
    has_sinks = upstream.immediate_sink is not None or (isinstance(step.sink, ImmediateSink) and upstream.sinks)
    if step.sink is not None and has_sinks:
        return "a vertex has one immediate sink and no other sink"
    if step.rule != ANYWHERE and any(each.rule != step.rule for each in upstream.steps):
        return "it is to run where .on(...) says"
    if upstream.is_hot and not may_be_hot(step):
        return "the steps before it have hot standbys, and it cannot have them"
    if is_hot(step, standby) and not all(map(may_be_hot, upstream.steps)):
        return "it has hot standbys, and a step before it cannot have them"
    return ""
