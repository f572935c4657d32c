"""Recipes of examples/ are short, listed, and shown in the documents as they are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.source import ROOT, texts

pytestmark = pytest.mark.static

EXAMPLES = ROOT / "examples"
RECIPES = sorted(EXAMPLES.glob("*.py"))
LINES_MAX = 125
EXCERPTS = [
    (path, name, block)
    for path, text in texts()
    if path.endswith(".md")
    for name, block in re.findall(r"^```python examples/(\S+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
]
"""Blocks of the documents whose fence names a recipe."""


def _named(path: Path) -> str:
    return path.stem


def test_the_overview_lists_every_recipe() -> None:
    text = (EXAMPLES / "README.md").read_text("utf-8")
    assert sorted(set(re.findall(r"\]\((\w+)\.py\)", text))) == [path.stem for path in RECIPES]


@pytest.mark.parametrize("path", RECIPES, ids=_named)
def test_a_recipe_is_short_and_gives_the_command_that_runs_it(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.count("\n") <= LINES_MAX
    role = ast.get_docstring(ast.parse(text)) or ""
    file = rf"examples/{path.name}"
    assert re.search(rf"^ *(clonos run {file}|python {file}|pytest {file})$", role, re.MULTILINE)


@pytest.mark.parametrize(("document", "name", "block"), EXCERPTS)
def test_an_excerpt_in_a_document_is_a_part_of_its_recipe(document: str, name: str, block: str) -> None:
    recipe = (EXAMPLES / name).read_text("utf-8")
    assert _dedented(block) in _dedented(recipe), f"{document} shows something else than examples/{name}"


def _dedented(text: str) -> str:
    """A document shows a method without the indentation of its class, with other empty lines."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())
