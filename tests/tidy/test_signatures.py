"""A parameter of several methods of the API is written once: in a ``TypedDict`` that they unpack."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from dataclasses import fields
from typing import Any, Final

import pytest

from clonos.api.common import CommonWithEffects
from clonos.api.step_graph import StepGraph
from clonos.api.steps import GraphBuilder
from clonos.operators.facts import Facts, facts_of, with_form
from tests.tidy.source import Source, sources, type_of_function

pytestmark = pytest.mark.static

PACKAGES: Final = ("clonos/api", "clonos/connectors", "clonos/job")

SHARED_MAX: Final = 2
"""Keywords that all overloads of a method may repeat: fewer lines than a ``TypedDict`` for them."""

DESCRIBING: Final = {"clonos/api/step.py", "clonos/api/step_graph.py", "clonos/api/window_step.py"}
"""Modules of the API that ask for facts of operators; the last one has the kinds of windows, which say them."""


def _spelled_out(function: type_of_function) -> bool:
    """Whether a function names the options of all steps although it could unpack them: it has no ``**`` of its own."""
    names = {argument.arg for argument in function.args.kwonlyargs}
    return len(names & set(CommonWithEffects.__annotations__)) > SHARED_MAX and function.args.kwarg is None


def _repeated(source: Source) -> dict[str, set[str]]:
    """Keywords that all overloads of a function have with the same type and default, by the function's name."""
    found: dict[str, list[set[str]]] = defaultdict(list)
    for name, function in source.functions():
        if any(ast.unparse(decorator) == "overload" for decorator in function.decorator_list):
            arguments = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
            found[name].append(
                {f"{ast.unparse(each)} = {default and ast.unparse(default)}" for each, default in arguments}
            )
    return {name: set.intersection(*overloads) for name, overloads in found.items()}


def test_the_options_of_all_steps_are_spelled_out_by_no_method_of_the_api() -> None:
    again = [
        f"{source.path}: {name}"
        for source in sources()
        if source.is_under(*PACKAGES)
        for name, function in source.functions()
        if _spelled_out(function)
    ]
    assert again == [], "take **common: Unpack[Common]"


def test_the_overloads_of_a_method_repeat_no_keywords() -> None:
    again = {
        f"{source.path}: {name}": sorted(shared)
        for source in sources()
        if source.is_under(*PACKAGES)
        for name, shared in _repeated(source).items()
        if len(shared) > SHARED_MAX
    }
    assert again == {}, "give them a TypedDict, which each overload unpacks"


@pytest.mark.parametrize("method", [StepGraph.add, vars(GraphBuilder)["_step"]], ids=lambda method: method.__qualname__)
def test_a_method_that_adds_a_step_takes_no_fact_of_its_operator(method: Any) -> None:
    parameters = inspect.signature(method).parameters
    assert all(each.kind is not each.VAR_KEYWORD for each in parameters.values()), "facts would pass as keywords"
    assert not parameters.keys() & {each.name for each in fields(Facts)}, "the definition says them"


def test_no_method_of_the_api_makes_facts_of_an_operator() -> None:
    makers = {Facts.__name__, facts_of.__name__, with_form.__name__}
    found = {
        source.path
        for source in sources()
        if source.is_under("clonos/api")
        for node in source.nodes
        if isinstance(node, ast.ImportFrom) and makers & {alias.name for alias in node.names}
    }
    assert found == DESCRIBING, "let the class of the operator say them: its classmethod facts, which the graph asks"
