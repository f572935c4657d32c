"""Mutants of a source file: every kind is found, each is valid Python, and a seed names one of them."""

from __future__ import annotations

import ast
from pathlib import Path
from random import Random

import pytest

from tests.mutation.sites import KINDS, Choice, Site, imported_as, sites_of

ROOT = Path(__file__).parents[3]
SOURCE = '''
"""A docstring, 1 of them: not min(1, 2)."""
if TYPE_CHECKING:
    from x import Y
LIMIT, LARGE = 3, 1_000


def find(größe: int = 0, *, names: tuple[str, ...] = ()) -> int | None:
    """And 2."""
    assert größe >= 0 and names, größe
    log("ä", größe)
    if größe <= 7 and not (
        names is None
        or names not in KNOWN
    ):
        return min(größe, LARGE)
    return [name for name in names if name == "x"] if names else None
'''


def _changes(source: str) -> list[tuple[str, int, str, str]]:
    return [(site.kind, site.line, " ".join(site.before.split()), site.after) for site in sites_of(source)]


def test_mutation_sites_cover_every_kind_of_change_except_untestable_ones() -> None:
    assert _changes(SOURCE) == [
        ("off by one", 5, "3", "2"),
        ("off by one", 5, "3", "4"),
        ("off by one", 8, "0", "(-1)"),
        ("off by one", 8, "0", "1"),
        ("dropped call", 11, 'log("ä", größe)', "pass"),
        ("condition true", 12, "größe <= 7 and not ( names is None or names not in KNOWN )", "True"),
        ("comparison", 12, "<=", "<"),
        ("off by one", 12, "7", "6"),
        ("off by one", 12, "7", "8"),
        ("boolean", 12, "and", "or"),
        ("boolean", 12, "not", ""),
        ("comparison", 13, "is", "is not"),
        ("boolean", 14, "or", "and"),
        ("comparison", 14, "not in", "in"),
        ("min/max", 16, "min", "max"),
        ("condition true", 17, 'name == "x"', "True"),
        ("comparison", 17, "==", "!="),
        ("condition true", 17, "names", "True"),
    ]
    assert {kind for kind, *_ in _changes(SOURCE)} == set(KINDS)


def test_a_mutation_leaves_the_rest_of_the_file_unchanged() -> None:
    (dropped,) = [site for site in sites_of(SOURCE) if site.kind == "dropped call"]
    assert dropped.mutate(SOURCE) == SOURCE.replace('log("ä", größe)', "pass")
    diff = dropped.diff("a.py", SOURCE).splitlines()
    assert [line for line in diff if line[0] in "+-"][2:] == ['-    log("ä", größe)', "+    pass"]


@pytest.mark.slow
def test_every_mutant_of_the_core_is_valid_python() -> None:
    """A sample of the thousands of mutants."""
    found: list[tuple[str, Site]] = []
    for file in sorted((ROOT / "clonos" / "core").rglob("*.py")):
        source = file.read_text("utf-8")
        found += [(source, site) for site in sites_of(source)]
    assert len(found) > 3_000
    for source, site in Random(1).sample(found, 100):
        ast.parse(site.mutate(source))


def test_a_seed_names_one_mutant_that_differs_from_the_source() -> None:
    sources = {"b.py": SOURCE, "a.py": "if True:\n    x = f(1)\n"}
    drawn = [Choice(sources).draw(seed) for seed in range(200)]
    assert drawn == [Choice(sources).draw(seed) for seed in range(200)]
    assert {site.kind for _, site in drawn} == set(KINDS)
    assert {path for path, _ in drawn} == {"a.py", "b.py"}
    assert not [site for path, site in drawn if (path, site.kind) == ("a.py", "condition true")]  # it is true already


def test_tests_of_a_module_are_found_by_their_imports() -> None:
    patterns = list(imported_as("clonos/core/channel/sender.py"))
    for text in ("from clonos.core.channel.sender import Sender", "from clonos.core.channel import receiver, sender"):
        assert any(pattern.search(text) for pattern in patterns), text
    assert any(pattern.search("from clonos.core.channel import Sender") for pattern in patterns)  # by its package
    for text in ("from clonos.core.channel.senders import x", "from clonos.core import channels"):
        assert not any(pattern.search(text) for pattern in patterns), text
    assert not any(
        pattern.search("from clonos.core import slot") for pattern in imported_as("clonos/core/task/task.py")
    )
