"""What a job compiles to. The driver sends it to every slot by cloudpickle when the slot is born.

It carries all that a slot needs to run any task, so that a promotion ships no code.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import msgspec
from xxhash import xxh3_128_hexdigest

from clonos.core.options import Options
from clonos.core.plan import Plan
from clonos.core.values import register, registered
from clonos.operators.chain import OperatorChain, VertexImage
from clonos.operators.connect import ImmediateSink, PushedSource, TransactionalSink
from clonos.operators.state import StateImage


@dataclass(frozen=True)
class JobImage:
    """A job as a plan and what its vertices run, in the order of the plan.

    ``splits``: per source vertex its splits, by its name; they are kept in the store, since a resumed job goes on with
    the ones that it began with. ``pushed``: per vertex, its source where that cannot be re-read. ``classes``:
    registered by the job's modules, by the name under which they travel.
    """

    plan: Plan
    vertices: tuple[VertexImage, ...]
    sinks: Mapping[int, TransactionalSink | ImmediateSink]
    options: Options
    splits: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    classes: Mapping[str, type] = field(default_factory=registered)
    pushed: Mapping[int, PushedSource[Any]] = field(default_factory=dict)

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
        """On its way to a slot. A class that cannot travel stays behind: another module may have registered it, and a
        value of it that this job does use is refused by name where it arrives."""
        return {**self.__dict__, "classes": {name: cls for name, cls in self.classes.items() if _travels(cls)}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In a slot: values of the job's classes can be decoded from now on."""
        self.__dict__.update(state)
        for name, cls in self.classes.items():
            register(cls, name=name)


def _travels(cls: type) -> bool:
    try:
        cloudpickle.dumps(cls)
    except (pickle.PickleError, TypeError, AttributeError, ValueError, OSError, RecursionError):
        return False
    return True
