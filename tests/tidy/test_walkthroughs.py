"""Documents that lead to a place in a file name something that the file has: functions, classes and constants."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.tidy.source import ROOT, texts

pytestmark = pytest.mark.static

NAME = r"`[A-Za-z_]\w*`"
NAMES = rf"{NAME}(?:(?:, | and ){NAME})*"
LINK = r"\[`[\w./-]+`\]\((?P<path>(?:\.\./)+[\w/]+\.py)\)"
NAMED_AFTER = re.compile(rf"{LINK}(?:: |, )(?P<names>{NAMES})")
NAMED_BEFORE = re.compile(rf"(?P<names>{NAMES}) (?:in |\(){LINK}")


def _named_places(text: str) -> Iterator[tuple[str, str]]:
    """(path, name) of each name that stands beside a link to a source file."""
    flat = re.sub(r"\s+", " ", text)
    for pattern in (NAMED_AFTER, NAMED_BEFORE):
        for found in pattern.finditer(flat):
            for name in re.findall(r"`(\w+)`", found["names"]):
                yield found["path"], name


def test_names_beside_a_link_are_read_in_both_orders() -> None:
    text = "see [`a/b.py`](../a/b.py): `one`, `two`, or `three`\nin [`c.py`](../../c.py)"
    assert sorted(_named_places(text)) == [("../../c.py", "three"), ("../a/b.py", "one"), ("../a/b.py", "two")]


def test_a_file_has_what_a_document_sends_its_reader_to() -> None:
    places = [
        (document, (ROOT / document).parent / path, name)
        for document, text in texts()
        if document.endswith(".md")
        for path, name in _named_places(text)
    ]
    assert len(places) >= 20
    missing = [
        f"{document}: {file.name} has no {name}"
        for document, file, name in places
        if not re.search(rf"^\s*(?:(?:async )?def|class) {name}\b|^{name}\b", file.read_text("utf-8"), re.MULTILINE)
    ]
    assert missing == []
