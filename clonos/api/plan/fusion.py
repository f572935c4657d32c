"""Fusion of steps: the reasons for which a step begins a new vertex."""

from __future__ import annotations

from typing import Final

from clonos.api.checks.hot_standby_rules import is_hot, may_be_hot
from clonos.api.graph import Exchange, Step
from clonos.api.plan.vertices import PlannedVertex
from clonos.core.model.options import StandbyKind
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


def reason_to_begin(step: Step, parallelism: int, upstream: PlannedVertex | None, standby: StandbyKind) -> str:
    """Returns why a step cannot run in the vertex of the step before it, "" if it can.

    ``upstream``: that vertex; None for a step without inputs. ``standby``: the kind of standbys of the job.
    """
    if upstream is None:
        return SOURCE
    if len(step.inputs) > 1 or step.second_from is not None:
        return f"it has {len(step.inputs)} inputs"
    if step.inputs[0].exchange is not Exchange.FORWARD:
        return EXCHANGES[step.inputs[0].exchange]
    if upstream.parallelism != parallelism:
        return f"it has the parallelism {parallelism}, the step before it {upstream.parallelism}"
    has_sinks = upstream.immediate_sink is not None or (isinstance(step.sink, ImmediateSink) and upstream.sinks)
    if step.sink is not None and has_sinks:
        return "a vertex has one immediate sink and no other sink"
    if upstream.is_hot and not may_be_hot(step):
        return "the steps before it have hot standbys, and it cannot have them"
    if is_hot(step, standby) and not all(map(may_be_hot, upstream.steps)):
        return "it has hot standbys, and a step before it cannot have them"
    return ""
