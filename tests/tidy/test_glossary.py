"""The glossary has an entry for every message, and no word twice."""

import re
from collections import Counter

import pytest

from tests.tidy.source import ROOT

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text("utf-8")

pytestmark = pytest.mark.static


def test_every_message_is_in_the_glossary() -> None:
    wire = ROOT / "clonos" / "core" / "wire"
    messages = "".join(path.read_text("utf-8") for path in sorted(wire.glob("*messages.py")))
    names = re.findall(r"^class (\w+)\(msgspec\.Struct,[^)]*\btag=", messages, re.MULTILINE)
    assert len(names) >= 20
    missing = [name for name in names if f"`{name}`" not in GLOSSARY]
    assert not missing, f"say in docs/glossary.md what these messages mean: {missing}"


def test_the_glossary_is_in_alphabetical_order() -> None:
    words = [word.casefold().replace("-", "") for word in re.findall(r"^\| ([^|]+) \|", GLOSSARY, re.MULTILINE)[2:]]
    assert words == sorted(words)


def test_no_word_of_the_glossary_has_two_entries() -> None:
    words = Counter(
        word.strip()
        for entry in re.findall(r"^\| ([^|]+) \|", GLOSSARY, re.MULTILINE)
        for word in entry.split(",")
        if word.strip() not in ("word", "---")
    )
    assert [word for word, count in words.items() if count > 1] == []
