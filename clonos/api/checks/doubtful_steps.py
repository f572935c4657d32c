"""Steps whose results are hardly meant: functions that return nothing, windows by the clock over input that ends."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from typing import Any, Final

from clonos.api.checks.code.function_source import tree_of
from clonos.api.checks.growing_state import endless_sources
from clonos.api.step import Step
from clonos.api.step_graph import StepGraph
from clonos.operators.steps.function_results import returns_nothing

logger = logging.getLogger("clonos.run")

RESULTS: Final = {
    "map": "each of its results is None. Return the record; for a look use peek(function), and give effects=True for a"
    " call of an external system",
    "filter": "it leaves out every record. Return the condition",
    "reduce": "what it keeps is None. Return the new value",
    "key_by": "all records have the key None. Return the key",
}
"""What becomes of a function that returns nothing, by the kind of its step."""

RETURN_NONE: Final = frozenset({"update", "append", "extend", "sort", "insert", "clear", "reverse"})
"""Methods of dicts and lists that change them and return None."""


def warn_of_doubtful_steps(graph: StepGraph) -> None:
    """Logs a warning for each such step."""
    for text in doubts(graph):
        logger.warning("%s", text)


def doubts(graph: StepGraph) -> list[str]:
    """Returns a warning for each such step."""
    endless = endless_sources(graph)
    found = []
    for step in graph.steps:
        for kind, function in _functions_of(step):
            if (what := RESULTS.get(kind)) and not step.has_effects and _gives_none(function):
                name = getattr(function, "__name__", "a function")
                found.append(f"the step {step.name} calls {name}, which returns nothing, so {what}.")
        if step.follows_clock and step.number not in endless and _reads_fields(graph, step):
            found.append(
                f"the windows of {step.name} follow the clock, because the stream has no timestamps, and its input"
                " ends: each record counts in the window in which it is read. Give the source timestamps=, such as the"
                ' name of a field, or give the windows time="processing".'
            )
    return found


def _reads_fields(graph: StepGraph, step: Step) -> bool:
    """Returns whether a source of the step gives records with fields, one of which may be a time."""
    if step.source is not None:
        return step.emits_columns or bool(getattr(step.source, "has_fields", False))
    return any(_reads_fields(graph, graph.steps[each.step]) for each in step.inputs)


def _functions_of(step: Step) -> Iterator[tuple[str, Any]]:
    if step.functions:
        yield step.kind, step.functions[0]
    for each in step.inputs:
        if each.key is not None and callable(each.key.key):
            yield "key_by", each.key.key


def _gives_none(function: Any) -> bool:
    """Returns whether a function shows that it returns None: a lambda of None alone is meant."""
    if function is print:
        return True
    if getattr(function, "__name__", "") != "<lambda>":
        return returns_nothing(function)
    node = tree_of(function)
    call = node.body if isinstance(node, ast.Lambda) else None
    if not isinstance(call, ast.Call):
        return False
    if isinstance(call.func, ast.Name):
        return call.func.id == "print"
    parameters = {each.arg for each in node.args.args} if isinstance(node, ast.Lambda) else set()
    target = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_of_record = isinstance(target, ast.Name) and target.id in parameters
    return isinstance(call.func, ast.Attribute) and is_of_record and call.func.attr in RETURN_NONE
