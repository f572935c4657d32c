"""One name, one thing: no two public classes of the product have one name, nor do two modules.

A name that stands for several things for a good reason has an entry in shared_names.toml. The lists may only shrink.
"""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.tidy.source import Source, product

pytestmark = pytest.mark.static

SHARED: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("shared_names.toml").read_text("utf-8"))


def classes_of(source: Source) -> list[str]:
    """Public classes at the top of a file."""
    return [node.name for node in source.tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def modules_of(source: Source) -> list[str]:
    """Name of a public module."""
    stem = Path(source.path).stem
    return [] if stem.startswith("_") else [stem]


NAMES = {"classes": classes_of, "modules": modules_of}


def shared(kind: str, files: Iterable[Source]) -> dict[str, list[str]]:
    """Names that several files give to a thing of one kind, with these files."""
    owners: defaultdict[str, list[str]] = defaultdict(list)
    for source in files:
        for name in NAMES[kind](source):
            owners[name].append(source.path)
    return {name: paths for name, paths in owners.items() if len(paths) > 1}


@pytest.mark.parametrize("kind", NAMES)
def test_a_public_name_stands_for_one_thing(kind: str) -> None:
    found = [
        f"{name}: {', '.join(paths)}" for name, paths in shared(kind, product()).items() if name not in SHARED[kind]
    ]
    assert not found, f"give one of the {kind} a name of its own:\n" + "\n".join(found)


@pytest.mark.parametrize("kind", NAMES)
def test_each_listed_name_is_still_shared(kind: str) -> None:
    assert set(SHARED[kind]) - set(shared(kind, product())) == set()


def test_a_name_of_two_classes_or_two_modules_is_found() -> None:
    text = "class Position: ...\nclass _Own: ...\n"
    files = [
        Source("one/place.py", text),
        Source("two/place.py", text),
        Source("two/_own.py", ""),
        Source("_own.py", ""),
    ]
    assert shared("classes", files) == {"Position": ["one/place.py", "two/place.py"]}
    assert shared("modules", files) == {"place": ["one/place.py", "two/place.py"]}
