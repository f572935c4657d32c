"""Checks of the graph of a job beside its functions: names that steps do not have, keys and records that fail."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final

from clonos.api.checks.code.code_rules import Finding
from clonos.api.checks.code.code_scope import CodeScope, Reached, is_of_user
from clonos.api.checks.code.function_source import FunctionSource, source_of
from clonos.api.checks.code.replacements import FLOAT_KEYS, UNNAMED, UNREGISTERED, Replacement
from clonos.api.step import Exchange, Step
from clonos.api.step_graph import StepGraph
from clonos.core.values import type_registry

GIVES_RECORDS: Final = frozenset({"map", "flat_map", "map_async"})
"""Kinds of steps whose functions return records."""


def unnamed_steps(graph: StepGraph) -> Iterator[tuple[Step, Finding]]:
    """Yields the steps with state to which the user gave no name."""
    advice = f"a changed job may not find it: give the step a name, as in .count(name={'clicks'!r})"
    for step in graph.steps:
        if step.state is not None and not step.is_named:
            yield step, Finding("keeps state under a name made from its place", Replacement(UNNAMED, advice), "", 0, 0)


def key_findings(function: Any) -> Iterator[tuple[FunctionSource, Finding]]:
    """Yields the results of a function of ``key_by`` that are floats."""
    advice = "a float is refused as a key: round it to an int, or use a Decimal or a text"
    for source, scope, result in _results(function):
        if _is_float(scope, result):
            yield source, _finding(source, result, "gives a float as key", Replacement(FLOAT_KEYS, advice))


def record_findings(graph: StepGraph, step: Step) -> Iterator[tuple[FunctionSource, Finding]]:
    """Yields the records that a function returns and that cannot go to another task."""
    if step.kind not in GIVES_RECORDS or not step.functions or not _leaves_task(graph, step):
        return
    for source, scope, result in _results(step.functions[0]):
        cls = scope.type_of(result)
        if cls is not None and is_of_user(cls) and cls not in type_registry.by_type:
            advice = (
                f"records go to other tasks as plain values: put @register of clonos above the class {cls.__name__}"
            )
            what = f"returns an object of {cls.__name__}, which is not registered"
            yield source, _finding(source, result, what, Replacement(UNREGISTERED, advice))


def _leaves_task(graph: StepGraph, step: Step) -> bool:
    """Returns whether records of a step go to other tasks."""
    edges = (each for reader in graph.steps for each in reader.inputs if each.step == step.number)
    return any(each.exchange is not Exchange.FORWARD for each in edges)


def _results(function: Any) -> Iterator[tuple[FunctionSource, CodeScope, ast.expr]]:
    """Yields the expressions that a function returns."""
    source = source_of(function) if isinstance(function, FunctionType) else None
    if source is None:
        return
    scope = CodeScope(Reached(function), source.node)
    if isinstance(source.node, ast.Lambda):
        yield source, scope, source.node.body
        return
    inner = {id(each) for node in ast.walk(source.node) if _is_function(node, source.node) for each in ast.walk(node)}
    for node in ast.walk(source.node):
        if isinstance(node, ast.Return) and node.value is not None and id(node) not in inner:
            yield source, scope, node.value


def _is_function(node: ast.AST, outer: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and node is not outer


def _is_float(scope: CodeScope, node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return any(_is_float(scope, each) for each in node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        return _is_float(scope, node.left) or _is_float(scope, node.right)
    if isinstance(node, ast.Call) and scope.name_of(node.func) == "builtins.round":
        return len(node.args) > 1 and _is_float(scope, node.args[0])
    is_quotient = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and scope.type_of(node.left) is None
    return is_quotient or scope.type_of(node) is float


def _finding(source: FunctionSource, node: ast.expr, what: str, replacement: Replacement) -> Finding:
    return Finding(what, replacement, source.file, node.lineno, node.col_offset + 1)
