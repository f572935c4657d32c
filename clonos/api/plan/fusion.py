"""Fusion of steps: vertices under construction, and the reasons for which a step begins a new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from clonos.api.checks.hot_standby_rules import is_hot, may_be_hot
from clonos.api.graph import Exchange, Step
from clonos.core.model.options import StandbyKind
from clonos.operators.chain import Input
from clonos.operators.connector_contract import ImmediateSink, PushSource, TransactionalSink
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.operator import Operator

SOURCE: Final = "it is a source"

EXCHANGES: Final = {
    Exchange.HASH: "all records of a key go to one task",
    Exchange.REBALANCE: "rebalance() distributes the records",
    Exchange.BROADCAST: "broadcast() sends each record to every task",
}
"""Reasons for a new vertex by exchange."""


@dataclass(slots=True)
class NodeDraft:
    """Node of a vertex under construction."""

    step: str
    make: Callable[[], Operator]
    is_aligned: bool
    timestamp_column: TimestampColumn | None = None
    children: list[int] = field(default_factory=list)


@dataclass(slots=True)
class VertexDraft:
    """Vertex under construction."""

    number: int
    parallelism: int
    steps: list[Step] = field(default_factory=list)
    names: list[tuple[str, bool]] = field(default_factory=list)
    nodes: list[NodeDraft] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    sinks: list[TransactionalSink] = field(default_factory=list)
    immediate_sink: ImmediateSink | None = None
    pushed: PushSource[Any] | None = None
    runs_user_code: bool = False
    is_hot: bool = False
    error_port: int | None = None
    ports: int = 0
    begins: str = ""
    """Why its first step does not run in the vertex of the step before it."""

    def allocate_port(self) -> int:
        """Allocates the next output port."""
        self.ports += 1
        return self.ports - 1

    def add(self, node: NodeDraft, parent: int | None) -> int:
        """Adds a node below ``parent`` and returns its number."""
        self.nodes.append(node)
        if parent is not None:
            self.nodes[parent].children.append(len(self.nodes) - 1)
        return len(self.nodes) - 1


def reason_to_begin(step: Step, parallelism: int, upstream: VertexDraft | None, standby: StandbyKind) -> str:
    """Returns why a step cannot run in the vertex of the step before it, "" if it can.

    ``upstream``: that vertex; None for a step without inputs. ``standby``: the kind of standbys of the job.
    """
    if upstream is None:
        return SOURCE
    if len(step.inputs) > 1:
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
