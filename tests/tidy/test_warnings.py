"""The warnings that the documents explain are ones that the code logs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.source import ROOT, Source, sources

pytestmark = pytest.mark.static

PLACEHOLDER = "\0"
OMITTED = re.compile(r"\.\.\.|\ba to b\b|\bN\b|\b(?:ObjectCorrupt|clonos_task|clonos_number)\b")
"""What stands in the documents for text that differs from case to case."""


def _explained() -> list[str]:
    section = (ROOT / "docs" / "operations.md").read_text("utf-8").partition("## Warnings")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def _messages(source: Source) -> Iterator[str]:
    """Texts of a file but for docstrings, with a placeholder for each value in them."""
    docstrings = {id(node.value) for node in source.nodes if isinstance(node, ast.Expr)}
    for node in source.nodes:
        if id(node) in docstrings:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else PLACEHOLDER for part in node.values]
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[srd]", PLACEHOLDER, node.value)


def _pattern(text: str) -> re.Pattern[str]:
    pieces = [re.escape(piece.strip(" :,")) for piece in OMITTED.split(text)]
    return re.compile(".*".join(pieces), re.DOTALL)


def test_a_value_in_a_message_stands_for_what_the_documents_omit() -> None:
    message = f"slot {PLACEHOLDER} is gone: {PLACEHOLDER}"
    assert _pattern("... is gone: ...").search(message)
    assert not _pattern("... was gone: ...").search(message)


def test_each_warning_of_the_documents_is_one_of_the_code() -> None:
    messages = [text for source in sources() if source.is_under("clonos", "standby") for text in _messages(source)]
    explained = _explained()
    assert len(explained) > 20
    assert [text for text in explained if not any(map(_pattern(text).search, messages))] == []
