"""Outputs of a plan, in words, which a resume compares: the kind of each sink, and where it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from clonos.api.plan.vertices import PlannedVertex
from clonos.api.step_graph import ERRORS_STEP
from clonos.core.model.plan import StatefulStep


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
