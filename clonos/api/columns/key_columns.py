"""Key columns of a plan: which steps may work on columns by key."""

from __future__ import annotations

from clonos.api.step import StepInput
from clonos.api.step_graph import StepGraph


def key_columns(graph: StepGraph, inputs: tuple[StepInput, ...]) -> tuple[str, ...]:
    """Returns the columns of the key of inputs that all give columns and have the same key; else ()."""
    keys = {each.key.fields if each.key is not None and graph.gives_columns(each) else () for each in inputs}
    return keys.pop() if len(keys) == 1 else ()
