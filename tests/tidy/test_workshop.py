"""Rules of the tests themselves: a name is a claim about a named subject."""

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
