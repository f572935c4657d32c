"""Mutation sites of a source file: a site is one position and one change of its text.

Left out is what no test could see: annotations, docstrings, the conditions of assertions, imports for typing only, and
changes that compile to the same code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from itertools import pairwise
from random import Random
from types import CodeType

KINDS = ("comparison", "boolean", "dropped call", "off by one", "min/max", "condition true")

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
SMALL_MAX = 16
"""A larger constant is a size or a duration: off by one it is as good."""


@dataclass(frozen=True, slots=True)
class Site:
    """``start`` and ``end``: offsets in the UTF-8 bytes of the file."""

    kind: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def mutate(self, source: str) -> str:
        """The source with this change."""
        data = source.encode()
        assert data[self.start : self.end].decode() == self.before, self
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()

    def diff(self, path: str, source: str) -> str:
        """The change as a unified diff."""
        lines = source.splitlines(keepends=True), self.mutate(source).splitlines(keepends=True)
        return "".join(unified_diff(*lines, path, path, n=2))


def sites_of(source: str) -> list[Site]:
    """Returns all sites of a file, in the order of their positions."""
    finder = _Finder(source)
    finder.visit(finder.tree)
    return sorted(finder.found, key=lambda site: (site.start, site.end, site.kind, site.after))


class Choice:
    """All sites of some files, by path."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = sources
        self._by_kind: dict[str, list[tuple[str, Site]]] = {kind: [] for kind in KINDS}
        for path, source in sorted(sources.items()):
            for site in sites_of(source):
                self._by_kind[site.kind].append((path, site))

    def draw(self, seed: int) -> tuple[str, Site]:
        """The file and the site of a seed: each kind is as likely as the others, then each of its sites."""
        randomness = Random(seed)
        kinds = [kind for kind in KINDS if self._by_kind[kind]]
        while True:
            path, site = randomness.choice(self._by_kind[randomness.choice(kinds)])
            source = self._sources[path]
            if _compiled(site.mutate(source)) != _compiled(source):
                return path, site


def _compiled(source: str) -> CodeType:
    return compile(source, "", "exec", dont_inherit=True)


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)
        self.found: list[Site] = []
        self._data = source.encode()
        self._lines = [0]
        for line in self._data.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    # ------------------------------------------------------------------ positions

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None, node
        assert node.end_col_offset is not None, node
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def _add(self, kind: str, start: int, end: int, after: str) -> None:
        line = self._data.count(b"\n", 0, start) + 1
        self.found.append(Site(kind, line, start, end, self._data[start:end].decode(), after))

    def _add_node(self, kind: str, node: ast.expr | ast.stmt, after: str) -> None:
        self._add(kind, self._start(node), self._end(node), after)

    def _between(self, kind: str, left: ast.expr, right: ast.expr, before: str, after: str) -> None:
        """The operator that stands between two operands; brackets and line ends may stand there too."""
        start = self._end(left)
        gap = self._data[start : self._start(right)].decode()
        edge = r"\b" if before[0].isalpha() else ""
        place = re.search(edge + re.escape(before).replace(r"\ ", r"\s+") + edge, gap)
        assert place is not None, (before, gap)
        offset = start + len(gap[: place.start()].encode())
        self._add(kind, offset, offset + len(place[0].encode()), after)

    # ------------------------------------------------------------------ exclusions

    def visit_Assert(self, node: ast.Assert) -> None:
        """An assertion that says less is seen by nobody."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """An annotation."""

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for child in (*node.decorator_list, node.args, *node.body):
            self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    # ------------------------------------------------------------------ sites

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            before, after = COMPARISONS[type(operator)]
            self._between("comparison", left, right, before, after)
        self.generic_visit(node)

    def visit(self, node: ast.AST) -> None:
        match node:
            case ast.BoolOp(ast.And(), values):
                self._flip(values, "and", "or")
            case ast.BoolOp(ast.Or(), values):
                self._flip(values, "or", "and")
            case ast.UnaryOp(ast.Not()):
                self._add("boolean", self._start(node), self._start(node) + len("not "), "")
        super().visit(node)

    def _flip(self, values: list[ast.expr], before: str, after: str) -> None:
        for left, right in pairwise(values):
            self._between("boolean", left, right, before, after)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._add_node("dropped call", node, "pass")
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is int and node.value <= SMALL_MAX:
            for other in (node.value - 1, node.value + 1):
                self._add_node("off by one", node, f"({other})" if other < 0 else str(other))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text for people, whose places are not reliable before Python 3.12."""

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            self._add_node("min/max", node.func, "max" if node.func.id == "min" else "min")
        self.generic_visit(node)

    def _visit_condition(self, condition: ast.expr) -> None:
        if not (isinstance(condition, ast.Name) and condition.id == "TYPE_CHECKING"):
            self._add_node("condition true", condition, "True")

    def visit_If(self, node: ast.If) -> None:
        self._visit_condition(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._visit_condition(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._visit_condition(condition)
        self.generic_visit(node)


def imported_as(path: str) -> Iterator[re.Pattern[str]]:
    """Patterns in a test's text that show that it uses the module at this path."""
    parent, _, name = path.removesuffix(".py").replace("/", ".").rpartition(".")
    yield re.compile(rf"\b{re.escape(f'{parent}.{name}')}\b")
    yield re.compile(rf"from {re.escape(parent)} import [^\n]*\b{re.escape(name)}\b")
    if parent.count(".") > 1:  # of a package of the core its tests import names, whatever module has them
        yield re.compile(rf"from {re.escape(parent)} import")
