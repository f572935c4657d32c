"""Vertices of a physical plan while the compiler builds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from clonos.api.columns.forms import has_named_columns
from clonos.api.step import Exchange, Step
from clonos.api.step_graph import ERRORS_STEP
from clonos.core.model.plan import StatefulStep
from clonos.core.model.suspect import Suspect
from clonos.operators.chain import Input, Node, VertexImage
from clonos.operators.chain_outputs import DropKeys, KeyInPlace
from clonos.operators.columnar.by_names import ByNames
from clonos.operators.connector_contract import ImmediateSink, PhasedSource, PushSource, TransactionalSink
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.operator import Operator
from clonos.operators.split_source import AcknowledgedSource
from clonos.operators.state.declared_state import DeclaredState
from clonos.operators.state.state_spec import StateScope
from clonos.operators.transforms.sink_rows import ToSinkRows, takes_keys_and_times

NAME_CHARACTERS_MAX: Final = 64


@dataclass(slots=True)
class PlannedNode:
    """Node of a vertex under construction."""

    step: str
    make: Callable[[], Operator]
    is_aligned: bool
    timestamp_column: TimestampColumn | None = None
    children: list[int] = field(default_factory=list)
    tagged: dict[str, list[int]] = field(default_factory=dict)
    intercepts: bool = False


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
    acknowledged: tuple[str, AcknowledgedSource] | None = None
    runs_user_code: bool = False
    is_hot: bool = False
    error_port: int | None = None
    ports: int = 0

    @property
    def name(self) -> str:
        """Joins the names that the user gave to the steps, sinks excepted; without any, the names of all steps."""
        parts = [name for name, is_named in self.names if is_named] or [name for name, _ in self.names]
        joined = "-".join(parts)
        return joined if len(joined) <= NAME_CHARACTERS_MAX else f"{parts[0]}-to-{parts[-1]}"

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

    def image(self, name: str, suspects: Mapping[str, tuple[Suspect, ...]]) -> VertexImage:
        """Returns the program of its tasks. ``suspects``: of each step of the job."""
        nodes = tuple(
            Node(
                node.step,
                node.make,
                tuple(node.children),
                node.is_aligned,
                node.timestamp_column,
                tuple((tag, tuple(children)) for tag, children in node.tagged.items()),
                node.intercepts,
            )
            for node in self.nodes
        )
        own = {step: suspects[step] for step in dict.fromkeys(node.step for node in nodes) if step in suspects}
        return VertexImage(name, nodes, tuple(self.inputs), self.error_port, own)


def has_event_time(giver: Step, reader: Step) -> bool:
    """Returns whether the watermarks of a step's results count for a step that reads them: not for a lookup in a table
    without timestamps, whose results have those of the other stream."""
    return giver.has_times or not reader.takes_untimed or not reader.has_times


def why_fixed(vertex: PlannedVertex, declared: DeclaredState) -> str:
    """Returns why the number of tasks of a vertex cannot change, as the end of a sentence; "" if it can.

    ``declared``: the declarations of its state.
    """
    unkeyed = {step.name for step in vertex.steps if step.inputs and not _has_key(step)}
    for step, spec in declared:
        if spec.scope is StateScope.FIXED:
            return f"{step} cannot be divided, because {spec.reason}"
        if spec.scope is StateScope.KEYED and step in unkeyed:
            return f"{step} has state without a key"
    for each in vertex.steps:
        source: object = each.source
        if isinstance(source, PhasedSource):
            return f"one task of {each.name} reads a history and what follows, in one order"
    return ""


def _has_key(step: Step) -> bool:
    """Returns whether the state of a step is of the keys of its inputs. Records of a broadcast input have none, and
    only change the state that is equal in all tasks."""
    own = [each for each in step.inputs if each.exchange is not Exchange.BROADCAST]
    return bool(own) and all(each.key for each in own)


def preparations(step: Step, steps: Sequence[Step], is_head: bool) -> Iterator[Callable[[], Operator]]:
    """Yields what makes the operators in front of that of a step, which change the shape of its input.

    ``is_head``: the step is the first one of its vertex. Only a key whose records are in its task already is not.
    """
    key = step.inputs[0].key if len(step.inputs) == 1 else None
    is_context_taken = takes_keys_and_times(step.sink)
    if is_head and step.sink is not None and key is not None and not is_context_taken:
        yield DropKeys
    if not is_head and key is not None:
        yield partial(KeyInPlace, key.fields)
    if is_context_taken:
        yield partial(ToSinkRows, key is not None)
    if has_named_columns(steps, step):
        yield ByNames


def outputs_of(vertex: PlannedVertex, errors: Any) -> tuple[StatefulStep, ...]:
    """Returns the sinks of a vertex in the order of their numbers. A vertex without steps is that of ``errors``."""
    if not vertex.steps:
        return (_output(ERRORS_STEP, errors),)
    return tuple(_output(step.name, step.sink) for step in vertex.steps if step.sink is not None)


def _output(step: str, sink: Any) -> StatefulStep:
    describe: Callable[[], Iterable[tuple[str, str]]] | None = getattr(sink, "describe_output", None)
    return StatefulStep(step, _kind_of(sink), tuple(describe()) if callable(describe) else ())


def _kind_of(sink: Any) -> str:
    """Returns the name of a connector of the library; of another sink, the name of its class."""
    name = getattr(sink, "connector", None)
    return name if isinstance(name, str) and name else type(sink).__qualname__.rpartition("<locals>.")[2]
