"""Docstrings of the product begin with a verb or with the noun that the thing is, and name the errors it raises."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.source import Source, sources

pytestmark = pytest.mark.static

PRODUCT = ("clonos", "services", "standby", "chaos", "benchmarks")
OPENING = re.compile(
    r"(Of|It|One that|One who|Whoever|Whose|Who|What|Where|All that|All|That of|That|As of|Nothing|Nobody|They|This|So|"
    r"For it|In order|Soon|Behind|Beside|Without)\b"
)
"""A pronoun, a genitive or half a sentence: the reader has to find the subject."""
PROTOCOL_PACKAGES = (
    *("wire", "checkpoint", "log", "channel", "coordinator"),
    *("recovery", "external", "standby", "slot", "task"),
)
NOT_DOCUMENTED = ("AssertionError", "InternalError", "NotImplementedError", "StopIteration", "SystemExit")
"""Errors of which no caller needs to know: bugs, and the ends of loops and of the process."""
DocumentedNode = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _documented() -> Iterator[tuple[Source, DocumentedNode, str]]:
    for source in sources():
        if source.is_under(*PRODUCT):
            for node in source.nodes:
                if isinstance(node, DocumentedNode) and (text := ast.get_docstring(node)) is not None:
                    yield source, node, text


def _where(source: Source, node: DocumentedNode) -> str:
    return f"{source.path}:{getattr(node, 'lineno', 1)} {getattr(node, 'name', 'module')}"


def _raised_by(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Names of the error classes that the function's own statements raise."""
    found = set()
    inner = {
        id(each)
        for part in ast.walk(node)
        if part is not node and isinstance(part, DocumentedNode)
        for each in ast.walk(part)
    }
    for each in ast.walk(node):
        if isinstance(each, ast.Raise) and id(each) not in inner and isinstance(each.exc, ast.Call):
            name = each.exc.func
            if isinstance(name, ast.Name) and name.id[0].isupper():
                found.add(name.id)
    return found


def test_a_docstring_begins_with_a_verb_or_a_noun() -> None:
    found = [
        f"{_where(source, node)}: {text.splitlines()[0]}" for source, node, text in _documented() if OPENING.match(text)
    ]
    assert not found, "\n".join(found)


def test_a_public_docstring_names_the_errors_that_the_function_raises() -> None:
    found = [
        f"{_where(source, node)}: {error}"
        for source, node, text in _documented()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
        for error in sorted(_raised_by(node))
        if error not in text and error not in NOT_DOCUMENTED
    ]
    assert not found, "\n".join(found)


def test_a_file_of_the_protocol_names_the_section_that_it_implements() -> None:
    folders = [f"clonos/core/{name}" for name in PROTOCOL_PACKAGES]
    found = [
        _where(source, node)
        for source, node, text in _documented()
        if isinstance(node, ast.Module) and source.is_under(*folders) and not source.path.endswith("__init__.py")
        if not re.search(r"\bprotocol \d+(\.\d+)?", text)
    ]
    assert not found, "say '(protocol N)' in the first docstring:\n" + "\n".join(found)
