"""No modules import each other in a circle, not even inside functions or for their types, but those of listed knots."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.tidy.source import PACKAGE_FOLDERS, ROOT, Source, sources

pytestmark = pytest.mark.static

KNOTS: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("knots.toml").read_text("utf-8"))

KNOTS_MAX = 1


@functools.cache
def _modules() -> dict[str, Source]:
    found = {}
    for source in sources():
        for package, folder in PACKAGE_FOLDERS.items():
            if source.is_under(folder.relative_to(ROOT).as_posix()):
                parts = (ROOT / source.path).relative_to(folder).with_suffix("").parts
                found[".".join((package, *parts)).removesuffix(".__init__")] = source
    return found


def _imports(nodes: Iterable[ast.AST], known: Collection[str]) -> set[str]:
    """Modules that a module imports anywhere: a name of ``from a import b`` may be the module ``a.b``."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in known else str(node.module) for name in names}
    return found & set(known)


def _knots(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """The largest sets of modules each of which imports each other one, perhaps by way of others."""
    left = {name: imported - {name} for name, imported in imports.items()}
    found: list[set[str]] = []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            member = error.args[1][0]
            knot = _reached(member, left) & _reached(member, _turned(left))
            found.append(knot)
            left = {name: imported - knot for name, imported in left.items() if name not in knot}
        else:
            return sorted(found, key=min)


def _reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    found, waiting = {start}, [start]
    while waiting:
        new = edges[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def _turned(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    turned: dict[str, set[str]] = {name: set() for name in edges}
    for name, others in edges.items():
        for other in others:
            turned[other].add(name)
    return turned


def test_modules_import_each_other_in_the_listed_knots_only() -> None:
    modules = _modules()
    knots = _knots({name: _imports(source.nodes, modules) for name, source in modules.items()})
    listed = sorted(map(set, KNOTS.values()), key=min)
    assert [sorted(knot) for knot in knots] == [sorted(knot) for knot in listed], (
        "cut the circle: move what both modules need into one below them; the list may only shrink"
    )
    assert len(listed) <= KNOTS_MAX


def test_a_circle_through_an_import_inside_a_function_or_for_types_is_found() -> None:
    lazy = tuple(ast.walk(ast.parse("def load():\n    from package import b")))
    typed = tuple(ast.walk(ast.parse("if TYPE_CHECKING:\n    from package.c import Name")))
    known = ("package.a", "package.b", "package.c")
    assert _imports(lazy, known) == {"package.b"}
    imports = {"package.a": _imports(lazy, known), "package.b": _imports(typed, known), "package.c": {"package.a"}}
    assert _knots(imports) == [set(known)]
    assert _knots({**imports, "package.c": set()}) == []
