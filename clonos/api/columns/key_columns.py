"""Key columns of a plan: which steps may work on columns by key."""

from __future__ import annotations

from clonos.api.graph import JobGraph, StepInput


def key_columns(graph: JobGraph, inputs: tuple[StepInput, ...]) -> tuple[str, ...]:
    """Returns the columns of the key of inputs that all give columns and have the same one; else ()."""
    keys = {each.key.key if each.key is not None and graph.gives_columns(each) else None for each in inputs}
    (key,) = keys if len(keys) == 1 else (None,)
    return (key,) if isinstance(key, str) else ()
