"""Vertices of a physical plan while the compiler builds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from clonos.api.graph import Step
from clonos.operators.chain import Input, Node, VertexImage
from clonos.operators.connector_contract import ImmediateSink, PushSource, TransactionalSink
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.operator import Operator


@dataclass(slots=True)
class PlannedNode:
    """Node of a vertex under construction."""

    step: str
    make: Callable[[], Operator]
    is_aligned: bool
    timestamp_column: TimestampColumn | None = None
    children: list[int] = field(default_factory=list)
    tagged: dict[str, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class PlannedVertex:
    """Vertex under construction."""

    number: int
    parallelism: int
    begins: str
    """Why its first step does not run in the vertex of the step before it."""

    steps: list[Step] = field(default_factory=list)
    names: list[tuple[str, bool]] = field(default_factory=list)
    nodes: list[PlannedNode] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    sinks: list[TransactionalSink] = field(default_factory=list)
    immediate_sink: ImmediateSink | None = None
    pushed: PushSource[Any] | None = None
    runs_user_code: bool = False
    is_hot: bool = False
    error_port: int | None = None
    ports: int = 0

    def allocate_port(self) -> int:
        """Allocates the next output port."""
        self.ports += 1
        return self.ports - 1

    def add(self, node: PlannedNode, parent: int | None, tag: str = "") -> int:
        """Adds a node below ``parent``, at its output or the side output ``tag``, and returns its number."""
        self.nodes.append(node)
        number = len(self.nodes) - 1
        if parent is not None:
            followed = self.nodes[parent]
            (followed.tagged.setdefault(tag, []) if tag else followed.children).append(number)
        return number

    def image(self, name: str) -> VertexImage:
        """Returns the program of its tasks."""
        nodes = tuple(
            Node(
                node.step,
                node.make,
                tuple(node.children),
                node.is_aligned,
                node.timestamp_column,
                tuple((tag, tuple(children)) for tag, children in node.tagged.items()),
            )
            for node in self.nodes
        )
        return VertexImage(name, nodes, tuple(self.inputs), self.error_port)
