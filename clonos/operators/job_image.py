"""Compiled job, which the driver sends to every slot by cloudpickle when the slot starts.

It holds everything that a slot needs to run any task, so promoting a standby ships no code.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from clonos.core.checkpoint.snapshot import StateUnion
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.ports.task_snapshot import Snapshot, StateSource
from clonos.core.values import register, registered
from clonos.io.process.pickling import pickled
from clonos.operators.chain import OperatorChain, VertexImage
from clonos.operators.chain_outputs import ToImmediateSink
from clonos.operators.connector_contract import ImmediateSink, PushSource, TransactionalSink
from clonos.operators.journal_source import end_in
from clonos.operators.split_source import AcknowledgedSource, marks_of
from clonos.operators.state.declared_state import DeclaredState
from clonos.operators.state.dividing import Division
from clonos.operators.state.keyed_state import StateImage
from clonos_services.http_settings import SessionConfig, common_settings

logger = logging.getLogger("clonos.slot")


class OrderDescription(NamedTuple):
    """Sentences about the order of records.

    ``few_tasks``: sources that fewer tasks read, because their order matters. ``ends``: the step that ends the order of
    each source.
    """

    few_tasks: tuple[str, ...]
    ends: tuple[str, ...]


NO_ORDER = OrderDescription((), ())


@dataclass(frozen=True)
class JobImage:
    """Plan of a job with the program of each vertex, in the order of the plan.

    - ``splits``: splits of each source by the name of its step; stored, because a resumed job uses those of its first
      start.
    - ``pushed``: sources that cannot be replayed, by number of the vertex.
    - ``acknowledged``: sources that are told what no restart reads again, with their step, by number of the vertex.
    - ``classes``: classes registered by the modules of the job, by the name under which their values are encoded.
    - ``has_columns``: whether some step gives columns.
    - ``order``: sentences for users about the order of records.
    - ``acting``: names of the steps with effects.
    - ``http``: settings of ``http.configure`` when the job was compiled, which a slot uses.
    """

    plan: Plan
    vertices: tuple[VertexImage, ...]
    sinks: Mapping[int, TransactionalSink | ImmediateSink]
    options: Options
    splits: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    classes: Mapping[str, type] = field(default_factory=registered)
    pushed: Mapping[int, PushSource[Any]] = field(default_factory=dict)
    acknowledged: Mapping[int, tuple[str, AcknowledgedSource]] = field(default_factory=dict)
    has_columns: bool = False
    order: OrderDescription = NO_ORDER
    acting: tuple[str, ...] = ()
    http: SessionConfig = field(default_factory=common_settings)

    def new_chain(self, vertex: int) -> OperatorChain:
        """Creates the chain of one incarnation of a task of the vertex."""
        return self.vertices[vertex].new_chain()

    def new_mirror(self, vertex: int) -> StateImage:
        """Creates an empty image of the state of a task of the vertex."""
        return StateImage()

    def declared_state(self) -> DeclaredState:
        """Returns the declarations of all state of the job."""
        return DeclaredState(pair for vertex in self.vertices for pair in vertex.declared_state())

    def union_of(self, head: Snapshot) -> StateUnion:
        """Returns the union of the state that a task takes from tasks of another plan."""
        return self.new_union(head.task)

    def new_union(self, task: TaskId) -> StateUnion:
        """Returns the empty union of the state that a task takes from tasks of another plan."""
        plan, vertex = self.plan, self.plan.vertex_of[task]
        declared, width = self.vertices[vertex].declared_state(), plan.vertices[vertex].parallelism
        return UnitedState(declared, plan.index_of(task), width, plan.max_parallelism)

    def sink_of(self, vertex: int) -> TransactionalSink | ImmediateSink | None:
        """Returns the sink of a vertex, None if it has none."""
        return self.sinks.get(vertex)

    def sink_step(self, vertex: int) -> str:
        """Returns the name of the step that writes to the immediate sink of a vertex, "" if it has none."""
        nodes = self.vertices[vertex].nodes
        return next((node.step for node in nodes if getattr(node.make, "func", None) is ToImmediateSink), "")

    def acknowledge(self, vertex: int, position: bytes) -> None:
        """Tells the source of a vertex that no restart reads its splits before a position."""
        step, source = self.acknowledged[vertex]
        if vertex in self.pushed:
            source.acknowledge(b"", b"%d" % end_in(position))
            return
        for split, mark in marks_of(position, self.splits[step]):
            source.acknowledge(split, mark)

    def __getstate__(self) -> dict[str, Any]:
        """Pickles each class separately and leaves out those that cannot be pickled.

        Another module of the process may have registered such a class; a value of it is refused by name where it
        arrives.
        """
        packed = {name: _pickled_class(cls) for name, cls in self.classes.items()}
        return {**self.__dict__, "classes": {name: data for name, data in packed.items() if data is not None}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Registers the classes, so that the slot can decode their values."""
        classes = {name: _unpickled_class(name, data) for name, data in state["classes"].items()}
        self.__dict__.update(state)
        self.__dict__["classes"] = {name: cls for name, cls in classes.items() if cls is not None}


def _pickled_class(cls: type) -> bytes | None:
    try:
        return pickled(cls)
    except (pickle.PickleError, TypeError, AttributeError, ValueError, OSError, RecursionError) as error:
        logger.debug("the class %s cannot be pickled: %s", cls.__qualname__, error)
        return None


def _unpickled_class(name: str, data: bytes) -> type | None:
    try:
        cls: type = pickle.loads(data)  # noqa: S301 the driver is trusted
        return register(cls, name=name)
    except Exception as error:  # noqa: BLE001 importing an unrelated class may raise anything, which must not stop the job
        logger.warning("values of the class %s cannot be used here: %s: %s", name, type(error).__name__, error)
        return None


class UnitedState:
    """State that a task takes over from tasks of another plan: that of its steps, see ``snapshot.StateUnion``.

    The state of a vertex of its width it takes as it is, that of one with another width divided.
    """

    def __init__(self, declared: DeclaredState, index: int, width: int, max_parallelism: int) -> None:
        """``declared``: the state of the steps of task ``index`` of ``width``."""
        self._declared, self._index, self._width = declared, index, width
        self._max_parallelism = max_parallelism
        self._image = StateImage()
        self._divisions: dict[str, Division] = {}  # by vertex of the earlier plan

    def union_of(self, source: StateSource) -> StateUnion:
        """Returns the union for a source that has not stored yet what it takes from tasks of another plan."""
        return UnitedState(self._declared, source.index, source.width, self._max_parallelism)

    def new_mirror(self, source: StateSource) -> StateImage:
        """Returns an empty image for the state of a source. Raises: StateUndivided."""
        if source.width == self._width:
            return StateImage()
        return self._division(source).new_image(source.index, source.width)

    def add(self, source: StateSource, mirror: Any) -> None:
        """Takes over the state of a source. Raises: StateUndivided."""
        if source.width == self._width:
            self._take(mirror)
        else:
            self._division(source).add(mirror)

    def _division(self, source: StateSource) -> Division:
        found = self._divisions.get(source.vertex)
        if found is None:
            found = Division(self._declared, self._index, self._width, self._max_parallelism)
            self._divisions[source.vertex] = found
        return found

    def united(self) -> StateImage:
        """Returns the state of the task. Raises: StateUndivided."""
        for division in self._divisions.values():
            self._take(division.result())
        return self._image

    def _take(self, image: StateImage) -> None:
        places: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
            (self._image.tables, image.tables),
            (self._image.columns, image.columns),
            (self._image.stores, image.stores),
        )
        for own, taken in places:
            own.update({name: state for name, state in taken.items() if self._declared.find(name) is not None})
