"""What a job compiles to. The driver sends it to every slot by cloudpickle when the slot is born.

It carries all that a slot needs to run any task, so that a promotion ships no code.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from xxhash import xxh3_128_hexdigest

from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.values import register, registered
from clonos.io.process.pickling import pickled
from clonos.operators.chain import OperatorChain, VertexImage
from clonos.operators.connector_contract import ImmediateSink, PushedSource, TransactionalSink
from clonos.operators.state.keyed_state import StateImage

logger = logging.getLogger("clonos.slot")


@dataclass(frozen=True)
class JobImage:
    """A job as a plan and what its vertices run, in the order of the plan.

    ``splits``: per source vertex its splits, by its name; they are kept in the store, since a resumed job goes on with
    the ones that it began with. ``pushed``: per vertex, its source where that cannot be re-read. ``classes``:
    registered by the job's modules, by the name under which they travel. ``has_columns``: somewhere, not rows only.
    """

    plan: Plan
    vertices: tuple[VertexImage, ...]
    sinks: Mapping[int, TransactionalSink | ImmediateSink]
    options: Options
    splits: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    classes: Mapping[str, type] = field(default_factory=registered)
    pushed: Mapping[int, PushedSource[Any]] = field(default_factory=dict)
    has_columns: bool = False

    def new_chain(self, vertex: int) -> OperatorChain:
        """For one incarnation of a task of this vertex."""
        return self.vertices[vertex].new_chain()

    def new_mirror(self, vertex: int) -> StateImage:
        """An empty image of the state of a task of this vertex."""
        return StateImage()

    def sink_of(self, vertex: int) -> TransactionalSink | ImmediateSink | None:
        """The sink that a vertex ends in, if it does."""
        return self.sinks.get(vertex)

    @property
    def fingerprint(self) -> str:
        """Equal for two images just when the state of one fits the other: names of steps, parallelism, key groups."""
        shape = [
            (image.name, vertex.parallelism, [node.step for node in image.nodes])
            for image, vertex in zip(self.vertices, self.plan.vertices, strict=True)
        ]
        edges = [(edge.source, edge.target, edge.partitioning.value, edge.port) for edge in self.plan.edges]
        return xxh3_128_hexdigest(msgspec.json.encode([self.plan.max_parallelism, shape, edges]))

    def __getstate__(self) -> dict[str, Any]:
        """On its way to a slot. Classes travel one by one: one that cannot, which some other module of the process may
        have registered, hinders no job; a value of it is refused by name where it arrives."""
        packed = {name: _packed(cls) for name, cls in self.classes.items()}
        return {**self.__dict__, "classes": {name: data for name, data in packed.items() if data is not None}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In a slot: values of the job's classes can be decoded from now on."""
        classes = {name: _unpacked(name, data) for name, data in state["classes"].items()}
        self.__dict__.update(state)
        self.__dict__["classes"] = {name: cls for name, cls in classes.items() if cls is not None}


def _packed(cls: type) -> bytes | None:
    try:
        return pickled(cls)
    except (pickle.PickleError, TypeError, AttributeError, ValueError, OSError, RecursionError) as error:
        logger.debug("the class %s does not travel: %s", cls.__qualname__, error)
        return None


def _unpacked(name: str, data: bytes) -> type | None:
    try:
        cls: type = pickle.loads(data)  # noqa: S301 from the driver, which is trusted
        return register(cls, name=name)
    except Exception as error:  # noqa: BLE001 whatever an unrelated class does when it is made, the job goes on
        logger.warning("values of the class %s cannot be used here: %s: %s", name, type(error).__name__, error)
        return None
