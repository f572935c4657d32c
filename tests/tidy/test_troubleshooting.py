"""Messages on the page about troubleshooting are messages of the code."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.tidy.source import ROOT, sources

pytestmark = pytest.mark.static

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE.partition("## No message")[0], re.MULTILINE)
PRODUCT = ("clonos", "services", "standby")
PIECE_CHARACTERS_MIN = 11


@cache
def _texts_of_the_code() -> str:
    """Returns all strings of the product, one per line; an inserted value is the character NUL."""
    found = []
    for source in sources():
        if source.is_under(*PRODUCT):
            for node in source.nodes:
                if isinstance(node, ast.JoinedStr):
                    parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in node.values]
                    found.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return "\n".join(text.replace("\n", " ") for text in found)


def _pieces(message: str) -> list[str]:
    return [piece.strip() for piece in message.split("...") if piece.strip(" .,:")]


def test_the_page_has_messages() -> None:
    assert len(MESSAGES) >= 40
    assert len(set(MESSAGES)) == len(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_on_the_page_is_a_message_of_the_code(message: str) -> None:
    pieces = _pieces(message)
    assert max(map(len, pieces)) >= PIECE_CHARACTERS_MIN, "quote more of it"
    pattern = "[^\n]*".join(map(re.escape, pieces))
    assert re.search(pattern, _texts_of_the_code()), f"no string of the code has the pieces {pieces}"


def test_a_message_that_no_code_has_would_be_found() -> None:
    assert not re.search(re.escape("the job has run out of patience"), _texts_of_the_code())
