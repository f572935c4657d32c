"""Source of a function: its syntax tree, its lines, and the comments that silence findings in it."""

from __future__ import annotations

import ast
import linecache
import re
from functools import cache
from types import FunctionType
from typing import Any, Final, NamedTuple

SILENCE: Final = re.compile(r"#\s*clonos:\s*ok\b[\s:,-]*(?P<codes>CLN\d+(?:[\s,]+CLN\d+)*)?[\s:,-]*(?P<reason>.*)")

LAMBDA: Final = "a lambda"
CODE: Final = re.compile(r"CLN\d+")


class FunctionSource(NamedTuple):
    """Syntax tree of a function, and its lines in its file."""

    file: str
    line: int
    node: Any
    text: str

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self.node, "name", LAMBDA)

    def is_silent(self, code: str) -> bool:
        """Returns whether a comment in the function, with a reason, silences findings of a code; "": of all codes."""
        found = [each for each in map(SILENCE.search, self.text.splitlines()) if each is not None]
        return any(
            each["reason"].strip() and (not each["codes"] or code in CODE.findall(each["codes"])) for each in found
        )

    @property
    def has_silence(self) -> bool:
        """Whether a comment in the function would silence something."""
        return SILENCE.search(self.text) is not None


def source_of(function: FunctionType) -> FunctionSource | None:
    """Finds a function in its file: among those that begin in its first line, the one around its instructions."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename)
    name = "" if code.co_name == "<lambda>" else code.co_name
    positions = [where for where in code.co_positions() if None not in where and where[2] != where[3]]
    candidates = [
        node
        for node in _named_functions(code.co_filename, "".join(lines)).get(name, ())
        if positions and all(_contains(node, where) for where in positions)
    ]
    best: Any = max(candidates, key=lambda node: (node.lineno, node.col_offset), default=None)
    if best is None:
        return None
    first = min([best.lineno, *(each.lineno for each in getattr(best, "decorator_list", ()))])
    return FunctionSource(code.co_filename, best.lineno, best, "".join(lines[first - 1 : best.end_lineno]))


def tree_of(function: Any) -> ast.AST | None:
    """Returns the syntax tree of a function; None if its file does not show it."""
    source = source_of(function) if isinstance(function, FunctionType) else None
    return None if source is None else source.node


def calls_for_globals(file: str) -> dict[str, list[str]]:
    """Returns what a file calls at its top level to set each global: dotted names."""
    return _calls_for_globals(file, "".join(linecache.getlines(file)))


@cache
def _named_functions(file: str, text: str) -> dict[str, list[ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Returns the functions of a file by their names; "" for lambdas."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    found: dict[str, list[ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.setdefault(getattr(node, "name", ""), []).append(node)
    return found


@cache
def _calls_for_globals(file: str, text: str) -> dict[str, list[str]]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    found: dict[str, list[str]] = {}
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            calls = [ast.unparse(each.func) for each in ast.walk(node.value) if isinstance(each, ast.Call)]
            targets = node.targets if isinstance(node, ast.Assign) else (node.target,)
            found |= {target.id: calls for target in targets if isinstance(target, ast.Name)}
    return found


def _contains(node: Any, where: Any) -> bool:
    line, _, column, _ = where
    return bool((node.lineno, node.col_offset) <= (line, column) <= (node.end_lineno, node.end_col_offset))
