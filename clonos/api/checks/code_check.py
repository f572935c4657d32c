"""Look at the functions of a job when it is compiled: what a replay would not repeat gets one warning per function.

Names are resolved through the closure, the globals and the builtins of a function, so an alias is recognised and a
function of the same name is not confused with it. Helpers of the same module are looked at too, one level deep. A
comment ``# clonos: ok`` with a reason, inside a function, silences its warning. A warning never stops a job.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import io
import linecache
import logging
import re
import sysconfig
from collections import deque
from collections.abc import Iterator
from datetime import date
from functools import cache, cached_property, partial
from pathlib import Path
from queue import Queue, SimpleQueue
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

from clonos.api.checks.frame_calls import advice_for_frames
from clonos.api.checks.function_checks import EMITTING_METHODS
from clonos.api.checks.replacements import (
    CALL_IN_STEP,
    JOIN_IT,
    KEEP_IN_STATE,
    MAKE_A_LIST,
    MUTATORS,
    OPEN_IN_SLOT,
    SURE_MUTATORS,
    USE_SORTED,
    advice_for,
)
from clonos.api.step_graph import StepGraph
from clonos.api.steps import GraphBuilder

logger = logging.getLogger("clonos.check")

SILENCE: Final = re.compile(r"#\s*clonos:\s*ok\b[\s:,-]*(.*)")
FINDINGS_MAX: Final = 4
"""Findings that one warning names."""

NOT_REPEATED: Final = "A replay would not repeat it."
ONE_BATCH: Final = "It sees one batch at a time, and where batches are cut is not fixed."

LIBRARY: Final = frozenset({"clonos", "clonos_chaos", "clonos_services", "clonos_standby"})
INSTALLED: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
CONTAINERS: Final = (list, dict, set, bytearray, deque)
CONTAINER_NAMES: Final = frozenset({"list", "dict", "set", "deque", "defaultdict", "Counter", "OrderedDict"})
TIMES: Final = (int, float, date, str)
CLOCKS: Final = re.compile(
    r"clonos_services\.clock\.\w+|time\.(time|monotonic)(_ns)?|datetime\.(datetime\.(now|utcnow|today)|date\.today)"
)
HOLDERS: Final = (*CONTAINERS, Queue, SimpleQueue)


class _Unknown:
    pass


UNKNOWN: Final = _Unknown()


class Finding(NamedTuple):
    """Something that a function does: what, and what to write instead."""

    what: str
    advice: str


class FunctionSource(NamedTuple):
    """Syntax tree of a function, and its lines in its file."""

    file: str
    line: int
    node: ast.AST
    text: str


_warned: set[CodeType | str] = set()
"""Functions that were warned of in this process, so that a graph that is compiled again stays silent."""


def warn_of_code(graph: StepGraph) -> None:
    """Logs one warning per function of the graph that does something a replay would not repeat."""
    for identity, text in warnings_of(graph):
        if identity not in _warned:
            _warned.add(identity)
            logger.warning("%s", text)


def warnings_of(graph: StepGraph) -> Iterator[tuple[CodeType | str, str]]:
    """Yields the warnings about the functions of a graph, each with the identity of the function."""
    for step in graph.steps:
        keys = [each.key.key for each in step.inputs if each.key is not None and callable(each.key.key)]
        for function in (*step.functions, *keys):
            is_recorded = step.has_calls and function is step.functions[0]
            for called, owner in _functions_of(function, is_process=step.kind == "process"):
                if text := _warning_of(step.name, called, owner, is_recorded=is_recorded):
                    yield called.__code__, text
                if step.kind == "map_batches" and (text := _warning_of(step.name, called, owner, of_frames=True)):
                    yield text, text
            if what := held_container(function):
                yield f"{step.name} {what}", f"the step {step.name} changes {what}. {_given(step.kind)}"
            name = full_name(function)
            if not is_recorded and (advice := advice_for(name, is_called=True, has_arguments=True)):
                yield name, f"the step {step.name} calls {name} ({advice}). {NOT_REPEATED}"


def held_container(function: Any) -> str:
    """Returns which container a function of the user changes that is a method of it, such as ``out.append``."""
    while isinstance(function, partial):
        function = function.func
    holder, method = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(holder, HOLDERS) and method in (*MUTATORS, "put", "put_nowait", "__setitem__"):
        return f"a {type(holder).__name__} by {method}"
    return ""


def _given(kind: str) -> str:
    results = " The results of the step are what the method returns, such as None." if kind == "map" else ""
    return (
        f"Each process has a copy of it, and {KEEP_IN_STATE}. To get the rows, end the stream with .sink(rows), where"
        f" rows = collect().{results}"
    )


def findings_in(
    function: FunctionType, owner: Any = UNKNOWN, *, is_recorded: bool = False, of_frames: bool = False
) -> list[Finding]:
    """Returns what a function and the helpers that it calls do.

    ``owner``: the object or class that it is a method of. ``is_recorded``: its result is recorded, so it may read
    clocks and make calls. ``of_frames``: only what is wrong with a batch that is a part of the records.
    """
    looked_at = _frame_calls if of_frames else _looked_at
    place = _place_of(function)
    if place is None:
        return []
    scope = _Scope(function, owner, place.node)
    found = dict.fromkeys(looked_at(scope))
    for helper, its_owner in scope.helpers:
        inside = _place_of(helper)
        if helper is not function and inside is not None and not _reason(inside.text):
            of_helper = looked_at(_Scope(helper, its_owner, inside.node))
            found |= {Finding(f"{each.what} in {helper.__name__}()", each.advice): None for each in of_helper}
    counted = [each for each in found if not is_recorded or each.advice == KEEP_IN_STATE]
    return [] if _reason(place.text) else counted


def _warning_of(
    step: str, function: FunctionType, owner: Any, *, is_recorded: bool = False, of_frames: bool = False
) -> str:
    try:
        found = findings_in(function, owner, is_recorded=is_recorded, of_frames=of_frames)
        place = _place_of(function)
    except Exception as error:  # noqa: BLE001  objects of the user may raise anything, and a look never stops a job
        logger.debug("%s of the step %s was not looked at: %r", function.__qualname__, step, error)
        return ""
    if not found or place is None:
        return ""
    name = "a lambda" if function.__name__ == "<lambda>" else function.__qualname__.rpartition("<locals>.")[2]
    has_comment = SILENCE.search(place.text) is not None
    needs = "needs a reason after it" if has_comment else "with a reason, in the function, silences this"
    where = f"{Path(place.file).name}:{place.line}"
    what = f"{name} of the step {step} {_parts_of(found)}"
    return f"{where}: {what}. {ONE_BATCH if of_frames else NOT_REPEATED} A comment # clonos: ok {needs}."


def _parts_of(found: list[Finding]) -> str:
    """Joins findings: those with the same advice together, at most ``FINDINGS_MAX`` of them."""
    by_advice: dict[str, list[str]] = {}
    for what, advice in found[:FINDINGS_MAX]:
        by_advice.setdefault(advice, []).append(what)
    parts = [f"{' and '.join(whats)} ({advice})" for advice, whats in by_advice.items()]
    if len(found) > FINDINGS_MAX:
        parts.append(f"and {len(found) - FINDINGS_MAX} more")
    return "; ".join(parts)


def _functions_of(function: Any, *, is_process: bool) -> Iterator[tuple[FunctionType, Any]]:
    """Yields the functions of the user that run when a step calls ``function``, with the owner of each method."""
    if is_process:
        cls = function if isinstance(function, type) else type(function)
        for name in EMITTING_METHODS:
            member = inspect.getattr_static(cls, name, None)
            if isinstance(member, FunctionType) and _is_of_user(member):
                yield member, function
        return
    while isinstance(function, partial):
        function = function.func
    owner: Any = UNKNOWN
    if isinstance(function, MethodType):
        function, owner = function.__func__, function.__self__
    elif not isinstance(function, FunctionType) and not inspect.isroutine(function):
        owner, function = function, inspect.getattr_static(type(function), "__call__", None)
    if _is_of_library(function):
        return
    original = inspect.unwrap(function) if callable(function) else function
    for each in dict.fromkeys((function, original)):
        if isinstance(each, FunctionType) and _is_of_user(each):
            yield each, owner


def _is_of_user(function: FunctionType) -> bool:
    return not _is_of_library(function) and not function.__code__.co_filename.startswith(INSTALLED)


def _is_of_library(function: Any) -> bool:
    """Returns whether a callable is one of clonos, such as a service, whose calls are recorded."""
    module = function.__globals__.get("__name__") if isinstance(function, FunctionType) else type(function).__module__
    return str(module).partition(".")[0] in LIBRARY


def _reason(text: str) -> str:
    return next((found[1].strip() for found in map(SILENCE.search, text.splitlines()) if found), "")


# ------------------------------------------------------------------ source


@cache
def _named_functions(file: str, text: str) -> dict[str, list[ast.Lambda | ast.FunctionDef]]:
    """Returns the functions of a file by their names; "" for lambdas."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    found: dict[str, list[ast.Lambda | ast.FunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Lambda, ast.FunctionDef)):
            found.setdefault(getattr(node, "name", ""), []).append(node)
    return found


@cache
def _calls_for_globals(file: str, text: str) -> dict[str, list[str]]:
    """Returns what a file calls at its top level to set each global: dotted names."""
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


def _place_of(function: FunctionType) -> FunctionSource | None:
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
    place = _place_of(function) if isinstance(function, FunctionType) else None
    return None if place is None else place.node


def _contains(node: Any, where: Any) -> bool:
    line, _, column, _ = where
    return (node.lineno, node.col_offset) <= (line, column) <= (node.end_lineno, node.end_col_offset)


# ------------------------------------------------------------------ findings


def _looked_at(scope: _Scope) -> Iterator[Finding]:
    """Yields what a function does, and notes the helpers that it calls."""
    calls = {id(node.func): node for node in ast.walk(scope.node) if isinstance(node, ast.Call)}
    placed = [node for node in ast.walk(scope.node) if isinstance(node, (ast.expr, ast.stmt))]
    for node in sorted(placed, key=lambda node: (node.lineno, node.col_offset)):
        match node:
            case ast.Call(func=function):
                scope.note_helper(function)
                if isinstance(function, ast.Attribute) and (what := _changed(scope, function.value, function.attr)):
                    yield Finding(what, KEEP_IN_STATE)
                if _is_builtin(scope, function, "list", "tuple") and any(_is_set(scope, each) for each in node.args):
                    yield Finding("gives a set an order", USE_SORTED)
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
                if what := _changed(scope, value, ""):
                    yield Finding(what, KEEP_IN_STATE)
            case ast.Global(names=names):
                yield Finding(f"changes the global {' and '.join(names)}", KEEP_IN_STATE)
            case ast.Nonlocal(names=names) if scope.free.keys() & set(names):
                yield Finding(f"changes {' and '.join(names)} of the function around it", KEEP_IN_STATE)
            case ast.For(iter=iterated) if _is_set(scope, iterated):
                yield Finding("iterates over a set", USE_SORTED)
            case ast.AugAssign(target=ast.Attribute(value=holder) as target) if scope.is_myself(holder):
                yield Finding(f"changes {ast.unparse(target)}", KEEP_IN_STATE)
            case ast.Name(id=name, ctx=ast.Load()) if held := _held(scope, node, name):
                yield held
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                call = calls.get(id(node))
                has_arguments = call is not None and bool(call.args or call.keywords)
                advice = advice_for(scope.name_of(node), is_called=call is not None, has_arguments=has_arguments)
                if advice and not _is_exception(scope.value_of(node)):
                    yield Finding(f"{'uses' if call is None else 'calls'} {ast.unparse(node)}", advice)
            case ast.Attribute(value=ast.Name() as holder, ctx=ast.Store()) if scope.outlives(holder):
                yield Finding(f"sets {ast.unparse(node)}", KEEP_IN_STATE)


def _held(scope: _Scope, node: ast.AST, name: str) -> Finding | None:
    """Returns what is wrong with a value that a function has from outside; None if nothing is."""
    value = scope.value_of(node)
    if isinstance(value, GraphBuilder) or (hasattr(type(value), "source") and _is_of_library(value)):
        return Finding(f"uses the {type(value).__name__} {name}", JOIN_IT)
    if isinstance(value, io.IOBase):
        return Finding(f"uses the open file {name}", OPEN_IN_SLOT)
    if isinstance(value, Iterator):
        return Finding(f"takes from the iterator {name}", MAKE_A_LIST)
    if call := scope.time_read_into(name):
        return Finding(f"uses {name}, which {call}() has set while the file was loaded", CALL_IN_STEP)
    return None


def _frame_calls(scope: _Scope) -> Iterator[Finding]:
    """Yields the calls that handle a batch as if it were all records, and notes the helpers that a function calls."""
    calls = [node for node in ast.walk(scope.node) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0)):
        scope.note_helper(call.func)
        is_known = isinstance(call.func, ast.Attribute) and scope.value_of(call.func.value) is not UNKNOWN
        if advice := advice_for_frames(call, scope.name_of(call.func), is_known):
            what = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
            yield Finding(f"calls {what}()", advice)


def _changed(scope: _Scope, node: ast.AST, method: str) -> str:
    """Returns which container a call of ``method``, or an assignment to an item without one, changes, in words."""
    if method and method not in MUTATORS:
        return ""
    what = scope.container(node)
    if not what and isinstance(node, ast.Attribute) and scope.is_myself(node.value):
        is_sure = not method or method in SURE_MUTATORS or node.attr in scope.containers_of_myself
        what = ast.unparse(node) if is_sure and scope.value_of(node) is UNKNOWN else ""
    return f"changes {what}" if what else ""


def _makes_container(node: ast.AST | None) -> bool:
    if isinstance(node, ast.Call):
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        return name in CONTAINER_NAMES
    return isinstance(node, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp))


def _is_set(scope: _Scope, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return _is_builtin(scope, node.func, "set", "frozenset")
    return isinstance(node, (ast.Set, ast.SetComp))


def _is_builtin(scope: _Scope, node: ast.AST, *names: str) -> bool:
    return scope.name_of(node) in {f"builtins.{name}" for name in names}


def _is_exception(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


# ------------------------------------------------------------------ names


class _Scope:
    """Names of one function: what each of them is, as far as that is known before the function runs."""

    def __init__(self, function: FunctionType, owner: Any, node: ast.AST) -> None:
        self.node: Any = node
        self.helpers: list[tuple[FunctionType, Any]] = []
        self._function, self._owner = function, owner
        code = function.__code__
        self.free = dict(zip(code.co_freevars, map(_content, function.__closure__ or ()), strict=True))
        parameters = code.co_varnames[: code.co_argcount]
        given = function.__defaults__ or ()
        self.defaults = dict(zip(parameters[len(parameters) - len(given) :], given, strict=True))
        self.defaults |= function.__kwdefaults__ or {}
        self.myself = parameters[0] if parameters and owner is not UNKNOWN else ""
        self._local = _names_bound_in(node) - self.free.keys()
        self.imported = dict(_imports_in(node))

    def value_of(self, node: ast.AST) -> Any:
        """Returns what a name or a dotted name is, ``UNKNOWN`` if that shows only when the function runs."""
        if isinstance(node, ast.Name):
            if node.id in self._local:
                return UNKNOWN
            module_globals = self._function.__globals__
            found = self.free.get(node.id, module_globals.get(node.id, UNKNOWN))
            return getattr(builtins, node.id, UNKNOWN) if found is UNKNOWN else found
        if isinstance(node, ast.Attribute):
            if self.is_myself(node.value):
                return inspect.getattr_static(self._owner, node.attr, UNKNOWN)
            value = self.value_of(node.value)
            if isinstance(value, (ModuleType, type)):
                return getattr(value, node.attr, UNKNOWN)
        return UNKNOWN

    def name_of(self, node: ast.AST) -> str:
        """Returns the full name of what a name or a dotted name is: ``datetime.datetime.now``; empty if unknown."""
        if isinstance(node, ast.Name) and node.id in self.imported:
            return self.imported[node.id]
        value = self.value_of(node)
        if value is not UNKNOWN and not isinstance(value, CONTAINERS):
            return full_name(value)
        if isinstance(node, ast.Attribute) and (owner := self.name_of(node.value)):
            return f"{owner}.{node.attr}"
        return ""

    @cached_property
    def containers_of_myself(self) -> frozenset[str]:
        """The attributes to which ``__init__`` or ``open`` of the object's class gives a new container."""
        cls = self._owner if isinstance(self._owner, type) else type(self._owner)
        methods = (inspect.getattr_static(cls, name, None) for name in ("__init__", "open"))
        places = [_place_of(method) for method in methods if isinstance(method, FunctionType)]
        nodes = (node for place in places if place is not None for node in ast.walk(place.node))
        made = (node for node in nodes if isinstance(node, (ast.Assign, ast.AnnAssign)))
        return frozenset(
            target.attr
            for node in made
            for target in (node.targets if isinstance(node, ast.Assign) else (node.target,))
            if isinstance(target, ast.Attribute) and _makes_container(node.value)
        )

    def time_read_into(self, name: str) -> str:
        """Returns which call has read a clock into a global of the module; "" if none has."""
        code, members = self._function.__code__, self._function.__globals__
        if name in self._local or name in self.free or not isinstance(members.get(name), TIMES):
            return ""
        calls = _calls_for_globals(code.co_filename, "".join(linecache.getlines(code.co_filename))).get(name, ())
        return next((call for call in calls if CLOCKS.fullmatch(_resolved(call, members))), "")

    def is_myself(self, node: ast.AST) -> bool:
        """Returns whether a node is the object that the method belongs to."""
        return bool(self.myself) and isinstance(node, ast.Name) and node.id == self.myself

    def outlives(self, node: ast.Name) -> bool:
        """Returns whether an object of the user's outlives a call: one of the closure or of the module's globals."""
        value = self.value_of(node)
        return value is not UNKNOWN and not isinstance(value, ModuleType)

    def note_helper(self, node: ast.AST) -> None:
        """Notes a called function if it is one of the same module."""
        value = self.value_of(node)
        if isinstance(value, FunctionType) and value.__globals__ is self._function.__globals__:
            is_method = isinstance(node, ast.Attribute) and self.is_myself(node.value)
            self.helpers.append((value, self._owner if is_method else UNKNOWN))

    def container(self, node: ast.AST) -> str:
        """Returns what a node is if it is a container that outlives a call, in words; empty if it is none."""
        value = self.value_of(node)
        if isinstance(node, ast.Name) and isinstance(self.defaults.get(node.id), CONTAINERS):
            return f"the default of its parameter {node.id}"
        if isinstance(value, CONTAINERS):
            return f"the {type(value).__name__} {ast.unparse(node)}"
        return ""


def full_name(value: Any) -> str:
    """Returns module and name of a module, class or function; of any other object those of its class."""
    if isinstance(value, ModuleType):
        return value.__name__
    bound = getattr(value, "__self__", None) if isinstance(value, (BuiltinFunctionType, MethodType)) else None
    if bound is not None and not isinstance(bound, ModuleType):
        return f"{full_name(bound)}.{value.__name__}"
    if callable(value) and isinstance(getattr(value, "__qualname__", None), str):
        return f"{getattr(value, '__module__', '')}.{value.__qualname__}"
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _resolved(dotted: str, members: dict[str, Any]) -> str:
    """Returns the full name of what a dotted name is among the globals of a module; "" if it is not there."""
    first, *attributes = dotted.split(".")
    value = members.get(first, UNKNOWN)
    for attribute in attributes:
        value = getattr(value, attribute, UNKNOWN) if isinstance(value, (ModuleType, type)) else UNKNOWN
    return "" if value is UNKNOWN else full_name(value)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return UNKNOWN


def _names_bound_in(node: ast.AST) -> set[str]:
    bound, outer = {name for name, _ in _imports_in(node)}, set[str]()
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if each is not node:
                bound.add(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                outer.update(names)
    return bound - outer


def _imports_in(node: ast.AST) -> Iterator[tuple[str, str]]:
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            for name in each.names:
                top = name.name.partition(".")[0]
                yield (name.asname, name.name) if name.asname else (top, top)
        elif isinstance(each, ast.ImportFrom) and not each.level:
            yield from ((name.asname or name.name, f"{each.module}.{name.name}") for name in each.names)
