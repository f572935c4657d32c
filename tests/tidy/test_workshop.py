"""Rules of the tests themselves, as tests/README.md states them: names, limits, private attributes, harnesses."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stages import STAGES
from tests.tidy.source import ROOT, sources

pytestmark = pytest.mark.static

README = (ROOT / "tests" / "README.md").read_text("utf-8")
HARNESSES = ("harnesses", "processes/harness")
SENTENCE_WORDS_MIN = 3
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


def test_a_test_name_is_a_sentence() -> None:
    """Situation, step and outcome."""
    assert [f"{path}::{name}" for path, name in _test_names() if name.count("_") < SENTENCE_WORDS_MIN] == []


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
        for node in source.nodes
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


PRIVATE_ACCESS: dict[str, dict[str, str]] = tomllib.loads(
    (ROOT / "tests" / "tidy" / "private_access.toml").read_text("utf-8")
)
"""By file, the private attributes that its tests read, each with the reason; the list may only shrink."""
API_OF_NAMED_TUPLES = frozenset({"_replace", "_asdict", "_fields", "_make"})
API_OF_NOTEBOOKS = frozenset({"_render_traceback_", "_repr_html_"})


def _private_accesses() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for source in sources():
        if source.is_under("tests"):
            read = {node.attr for node in source.nodes if isinstance(node, ast.Attribute) and _is_foreign(node)}
            own = {name for _, name in source.identifiers()} | {
                name.rpartition(".")[2] for name, _ in source.functions()
            }
            if private := read - own - API_OF_NAMED_TUPLES - API_OF_NOTEBOOKS:
                found[source.path] = private
    return found


def _is_foreign(node: ast.Attribute) -> bool:
    is_private = node.attr.startswith("_") and not node.attr.startswith("__")
    return is_private and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "os"))


def test_a_test_reads_no_private_attribute() -> None:
    """A test that reads one breaks with a change that nobody can observe."""
    listed = {path: set(attributes) for path, attributes in PRIVATE_ACCESS.items()}
    assert _private_accesses() == listed


# ---------------------------------------------------------------------- tests/README.md


def test_the_readme_lists_every_harness() -> None:
    shared = [f"tests/{folder}/{file.name}" for folder in HARNESSES for file in (ROOT / "tests" / folder).glob("*.py")]
    assert [path for path in shared if f"`{path}`" not in README] == []


def test_the_readme_states_the_budget_and_limit_of_each_stage() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \|", README, re.MULTILINE)
    assert rows == [(stage.name, str(stage.budget_s), str(stage.timeout_s)) for stage in STAGES]


def test_the_stage_of_a_test_is_that_of_its_folder() -> None:
    """``make check`` collects the stages by their folders."""
    stages = {"tests/worlds": {"worlds", "controls"}, "tests/fuzz": {"fuzz"}, "tests/unit": set[str]()}
    found = []
    for source in sources():
        for folder, names in stages.items():
            if source.is_under(folder) and Path(source.path).name.startswith("test_"):
                marked = set(re.findall(r"pytest\.mark\.(static|worlds|controls|fuzz)\b", source.text))
                if not marked <= names or (
                    names and not re.search(r"^pytestmark = \[?pytest\.mark\.", source.text, re.M)
                ):
                    found.append(f"{source.path}: {', '.join(sorted(marked)) or 'no stage'}")
    assert found == []
