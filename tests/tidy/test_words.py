"""Names and prose use the terms of the field: no private word in an identifier, a document, a comment or a message."""

import ast
import functools
import re
import tomllib
from collections.abc import Iterator

import pytest

from tests.tidy.source import ROOT, Source, sources, texts

pytestmark = pytest.mark.static

TABLE = tomllib.loads((ROOT / "tests" / "tidy" / "words.toml").read_text("utf-8"))
IDENTIFIERS: dict[str, str] = TABLE["identifiers"]
STANDARD: dict[str, str] = TABLE["standard"]
PHRASES = {re.compile(phrase): instead for phrase, instead in TABLE["phrases"].items()}
MESSAGES = {re.compile(phrase): instead for phrase, instead in TABLE["messages"].items()}
ANY_PHRASE = re.compile("|".join(TABLE["phrases"]))
"""One search of a text tells whether one of them is there."""
ABOUT_WORDS = (
    "tests/tidy/words.toml",
    "tests/tidy/test_docstrings.py",
    "tests/tidy/test_words.py",
    "tests/tidy/test_workshop.py",
)
"""They list the words."""
PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


@functools.cache
def private_words(identifier: str) -> list[str]:
    """The words of an identifier that only this project uses. The name of a test is a sentence, with prepositions."""
    parts = [found.lower() for found in PART.findall(identifier)]
    return [part for part in parts if part in IDENTIFIERS and not (part == "outside" and parts[0] == "test")]


def test_an_identifier_is_cut_into_words() -> None:
    assert private_words("SendingHeirs") == ["sending"]
    assert private_words("on_kept_to") == ["kept"]
    assert private_words("restated_kit") == []
    assert private_words("open_outside") == ["outside"]
    assert private_words("test_outside_a_job_the_clock_is_the_real_one") == []


def test_an_identifier_has_no_private_word() -> None:
    found = [
        f"{source.path}:{line} {name}: use {IDENTIFIERS[word]}"
        for source in sources()
        if source.path not in ABOUT_WORDS
        for line, name in source.identifiers()
        for word in private_words(name)
        if word not in STANDARD or not source.path.startswith(STANDARD[word])
    ]
    assert not found, "\n".join(found)


def test_no_text_has_a_private_phrase() -> None:
    found = [
        f"{path}:{number} {match.group()}: {instead}"
        for path, text in texts()
        if path not in ABOUT_WORDS and ANY_PHRASE.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        for phrase, instead in PHRASES.items()
        if (match := phrase.search(line))
    ]
    assert not found, "\n".join(found)


def _messages(source: Source) -> Iterator[tuple[int, str]]:
    """The string literals that are no docstrings."""
    alone = {id(node.value) for node in source.nodes if isinstance(node, ast.Expr)}
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def test_no_message_has_a_word_of_the_protocol_that_users_do_not_know() -> None:
    found = [
        f"{source.path}:{number} {match.group()}: {instead}"
        for source in sources()
        if source.is_under("clonos", "standby", "services")
        for number, text in _messages(source)
        for phrase, instead in MESSAGES.items()
        if (match := phrase.search(text))
    ]
    assert not found, "\n".join(found)
