"""A parameter of several methods of the API is written once: in a ``TypedDict`` that they unpack."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import Final

import pytest

from clonos.api.common import CommonWithEffects
from clonos.api.step import FACTS
from tests.tidy.source import Source, sources, type_of_function

pytestmark = pytest.mark.static

PACKAGES: Final = ("clonos/api", "clonos/connectors", "clonos/job")

SHARED_MAX: Final = 2
"""Keywords that all overloads of a method may repeat: fewer lines than a ``TypedDict`` for them."""

GIVEN_BY_METHODS: Final = {
    ("clonos/api/aggregating.py", "runs_user_code"),
    ("clonos/api/graph.py", "is_one_to_one"),
    ("clonos/api/keyed_stream.py", "key_field"),
    ("clonos/api/keyed_stream.py", "state"),
    ("clonos/api/transforms/keyed_choosing.py", "runs_user_code"),
    ("clonos/api/transforms/keyed_choosing.py", "selects_rows"),
    ("clonos/api/transforms/routing.py", "runs_user_code"),
}
"""Facts that a method gives of several operators at once, and those of a source and of a route."""


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


def _is_constant(value: ast.expr) -> bool:
    """Returns whether an argument is the same in each call, and not the default."""
    is_empty = isinstance(value, ast.Tuple) and not value.elts
    return is_empty or (isinstance(value, ast.Constant) and value.value not in (None, False))


def test_a_constant_fact_of_an_operator_is_an_attribute_of_its_class() -> None:
    given = {
        (source.path, keyword.arg)
        for source in sources()
        if source.is_under(*PACKAGES)
        for node in source.nodes
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg in FACTS and _is_constant(keyword.value)
    }
    assert given == GIVEN_BY_METHODS, "make it an attribute of the operator's class, which the graph asks"
