"""Shape of a plan: what stored state depends on, in words. A checkpoint's metadata holds it (protocol 5).

A resumed job must have the shape of the job that wrote the checkpoint. New steps with state, in tasks that existed, are
allowed, because their state begins empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from clonos.core.model.plan import Plan, StatefulStep

FLAGS: Final = {
    "is_source": "a source",
    "has_effects": "effects outside the job",
    "is_transactional": "a transactional sink",
    "is_journalled": "a journal of its input",
}
"""Properties of tasks that decide what is stored of them, in words."""


class StepShape(msgspec.Struct, frozen=True, array_like=True):
    """Step with state: its kind, and what else decides whether state fits it, such as ``("window", "5s")``."""

    name: str
    kind: str
    properties: tuple[tuple[str, str], ...]


class VertexShape(msgspec.Struct, frozen=True, array_like=True):
    """Vertex by name. ``flags`` are those of ``FLAGS`` that it has. ``outputs`` are its sinks by number. ``declared``:
    the number of tasks that the code gave it.
    """

    name: str
    parallelism: int
    flags: tuple[str, ...]
    steps: tuple[StepShape, ...]
    outputs: tuple[StepShape, ...]
    declared: int


class EdgeShape(msgspec.Struct, frozen=True, array_like=True):
    """Edge between two vertices, by name; ``target`` is empty if it leaves the job."""

    source: str
    target: str
    partitioning: str
    port: int


class PlanShape(msgspec.Struct, frozen=True, array_like=True):
    """Shape of a plan."""

    max_parallelism: int
    vertices: tuple[VertexShape, ...]
    edges: tuple[EdgeShape, ...]


def shape_of(plan: Plan) -> PlanShape:
    """Returns the shape of a plan."""
    names = [vertex.name for vertex in plan.vertices]
    return PlanShape(
        plan.max_parallelism,
        tuple(
            VertexShape(
                vertex.name,
                vertex.parallelism,
                tuple(words for flag, words in FLAGS.items() if getattr(vertex, flag)),
                tuple(map(_step_shape, vertex.steps)),
                tuple(map(_step_shape, vertex.outputs)),
                vertex.declared or vertex.parallelism,
            )
            for vertex in plan.vertices
        ),
        tuple(
            EdgeShape(
                names[edge.source], "" if edge.target is None else names[edge.target], str(edge.partitioning), edge.port
            )
            for edge in plan.edges
        ),
    )


def state_shape_of(plan: Plan) -> list[object]:
    """Returns what the fingerprint covers: the shape without the outputs, on which no state depends."""
    shape = shape_of(plan)
    vertices = [(vertex.name, vertex.parallelism, vertex.flags, vertex.steps) for vertex in shape.vertices]
    return [shape.max_parallelism, vertices, shape.edges]


def _step_shape(step: StatefulStep) -> StepShape:
    return StepShape(step.name, step.kind, step.properties)


def differences(stored: PlanShape, current: PlanShape) -> tuple[str, ...]:
    """Returns each difference that keeps stored state from fitting, in words: ``step "total" was count, is reduce``."""
    return tuple(_differences(stored, current))


def _differences(stored: PlanShape, current: PlanShape) -> Iterator[str]:
    if stored.max_parallelism != current.max_parallelism:
        yield f"max_parallelism was {stored.max_parallelism}, is {current.max_parallelism}"
    before = {vertex.name: vertex for vertex in stored.vertices}
    now = {vertex.name: vertex for vertex in current.vertices}
    gone, new = [name for name in before if name not in now], [name for name in now if name not in before]
    regrouped = list(_regroupings(gone, new))
    yield from regrouped
    if not regrouped:
        yield from (f'the task "{name}" is gone' for name in gone)
        yield from (f'the task "{name}" is new' for name in new)
    for name, vertex in before.items():
        if name in now:
            yield from _vertex_differences(vertex, now[name])
    if before.keys() != now.keys():
        return
    edges_before, edges_now = Counter(stored.edges), Counter(current.edges)  # two steps may send to one task
    yield from (f"the exchange {_exchange(edge)} is gone" for edge in (edges_before - edges_now).elements())
    yield from (f"the exchange {_exchange(edge)} is new" for edge in (edges_now - edges_before).elements())
    if edges_before == edges_now and (list(before) != list(now) or stored.edges != current.edges):
        yield "the steps are in another order"


REGROUPED: Final = "the steps of the task "
"""Begin of the sentence about a task whose steps run in several tasks now, or the reverse."""


def _regroupings(gone: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yields each task whose steps run in several tasks now, or the reverse, if that is all that has changed."""
    if Counter(_steps_in(gone)) != Counter(_steps_in(new)):
        return
    for one, others, words in ((gone, new, "run in"), (new, gone, "ran in")):
        for name in one:
            parts = [f'"{other}"' for other in others if set(_steps_in([other])) & set(_steps_in([name]))]
            if len(parts) > 1:
                yield f'{REGROUPED}"{name}" {words} {" and ".join(parts)}'


def _steps_in(names: Sequence[str]) -> list[str]:
    """Returns the parts of names of tasks, which are the names of their steps."""
    return [part for name in names for part in name.split("-")]


def _vertex_differences(before: VertexShape, now: VertexShape) -> Iterator[str]:
    if before.parallelism != now.parallelism:
        yield f'the parallelism of "{before.name}" was {before.parallelism}, is {now.parallelism}'
    yield from (f'"{before.name}" had {flag}, and has none' for flag in before.flags if flag not in now.flags)
    yield from (f'"{before.name}" has {flag}, and had none' for flag in now.flags if flag not in before.flags)
    steps = {step.name: step for step in now.steps}
    for step in before.steps:
        found = steps.get(step.name)
        if found is None:
            yield f'the step "{step.name}" is gone, was {step.kind}'
        else:
            yield from step_differences(step, found)
    yield from _output_differences(before.outputs, now.outputs)


def _output_differences(before: tuple[StepShape, ...], now: tuple[StepShape, ...]) -> Iterator[str]:
    """Compares sinks by number: what they have prepared carries it."""
    for was, sink in zip(before, now, strict=False):
        yield from step_differences(was, sink)
    yield from (f'the sink "{sink.name}" is gone, was {sink.kind}' for sink in before[len(now) :])
    yield from (f'the sink "{sink.name}" is new' for sink in now[len(before) :])


def step_differences(before: StepShape, now: StepShape) -> Iterator[str]:
    """Yields each difference between two steps of one name that keeps stored state from fitting, in words."""
    if now.kind != before.kind:
        yield f'the step "{now.name}" was {before.kind}, is {now.kind}'
        return
    current = dict(now.properties)
    for what, was in before.properties:
        if current.get(what, was) != was:
            yield f'the {what} of the step "{now.name}" was {was}, is {current[what]}'


def _exchange(edge: EdgeShape) -> str:
    target = f'"{edge.target}"' if edge.target else "an external system"
    return f'from "{edge.source}" to {target} ({edge.partitioning})'
