"""Steps with two inputs: joins and connected streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clonos.api.common import Common
from clonos.api.graph_errors import InvalidJob
from clonos.api.step import StepInput
from clonos.api.steps import GraphBuilder
from clonos.operators.operator import Operator


def two_input_step(
    first: GraphBuilder,
    second: GraphBuilder,
    kind: str,
    make: Callable[[str], Callable[[], Operator]],
    common: Common,
    **rest: Any,
) -> tuple[StepInput, ...]:
    """Adds a step whose operator is a ``TwoInputOperator``, and returns the input that reads its results.

    ``make`` and ``rest`` are those of ``JobGraph.add``.

    Raises: InvalidJob: the streams belong to two jobs, or an option cannot be used.
    """
    graph = first._graph
    if second._graph is not graph:
        raise InvalidJob(common.get("name") or kind, "joins streams of two jobs", "Both must come from one Job.")
    inputs = (*first._inputs, *second._inputs)
    step = graph.add(kind, inputs, common, make=make, second_from=len(first._inputs), **rest)
    return (StepInput(step.number),)
