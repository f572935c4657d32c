"""Rules of the tests themselves: a name is a claim about a named subject, and a limit is a parameter."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.source import sources

pytestmark = pytest.mark.static

CLAIM_WORDS_MIN = 3
VAGUE = re.compile(
    r"^test_(?:[a-g]\d+_)*(?:what|who|whoever|whom|it|they|he|so|such|afterwards|none|one_that|others)_"
    r"|_(?:whoever|nobody|somebody|everybody|one_that|so_many|so_much|is_none|told|anew|luck|heirs?|crumbs?|befell)(?:_|$)"
)
"""A pronoun as the subject, or a word that leaves the subject or the outcome open."""


def _test_names() -> Iterator[tuple[str, str]]:
    for source in sources():
        if source.is_under("tests"):
            for name, _ in source.functions():
                if name.rpartition(".")[2].startswith("test_"):
                    yield source.path, name.rpartition(".")[2]


def test_a_test_name_is_a_claim() -> None:
    """Situation, step and outcome."""
    assert [f"{path}::{name}" for path, name in _test_names() if name.count("_") < CLAIM_WORDS_MIN] == []


def test_a_test_name_states_its_subject_and_outcome() -> None:
    assert [f"{path}::{name}" for path, name in _test_names() if VAGUE.search(name)] == []


CONSTANTS_REPLACED = {
    ("tests/unit/coordinator/test_random_schedules.py", "REPEAT"): "plants a wrong rule, which the checks must catch",
}
"""Constants of the product that a test may replace, with the reason."""


def test_a_test_passes_a_limit_as_a_parameter() -> None:
    """Replacing a module's constant couples the test to where the code reads it."""
    found = [
        f"{source.path}:{node.lineno} {name}"
        for source in sources()
        if source.is_under("tests")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr"
        if (name := _replaced_constant(node)) and (source.path, name) not in CONSTANTS_REPLACED
    ]
    assert found == []


def _replaced_constant(call: ast.Call) -> str:
    """The constant that ``monkeypatch.setattr(module, "LIMIT", ...)`` or ``setattr("module.LIMIT", ...)`` replaces."""
    for argument in call.args[:2]:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            name = argument.value.rpartition(".")[2]
            return name if re.fullmatch(r"_?[A-Z][A-Z0-9_]+", name) else ""
    return ""
