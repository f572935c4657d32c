"""Rules for what a function does that a replay would not repeat, where a name alone does not tell it."""

from __future__ import annotations

import ast
import io
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from clonos.api.checks.code.code_scope import (
    CONTAINERS,
    UNKNOWN,
    CodeScope,
    Reached,
    factories_of,
    full_name,
    is_of_library,
    is_of_user,
)
from clonos.api.checks.code.replacements import (
    ATTRIBUTES,
    CALL_IN_STEP,
    CONTAINERS_CHANGED,
    DECLARE_EFFECT,
    ENCLOSING,
    FRAMES,
    GLOBALS,
    JOIN_IT,
    KEEP_IN_STATE,
    MAKE_A_LIST,
    MUTATORS,
    OPEN_IN_SLOT,
    SURE_MUTATORS,
    USE_SORTED,
    Replacement,
    replacement_of,
)
from clonos.api.checks.frame_calls import advice_for_frames
from clonos.api.steps import GraphBuilder

WITHOUT_ORDER: Final = frozenset(
    f"builtins.{name}" for name in ("sorted", "min", "max", "any", "all", "sum", "len", "set", "frozenset")
)
"""Functions whose result does not depend on the order of what they get."""

IN_ORDER: Final = frozenset(
    (
        *(
            f"builtins.{name}"
            for name in ("list", "tuple", "enumerate", "iter", "zip", "map", "filter", "str", "repr", "dict")
        ),
        *("builtins.list.extend", "builtins.dict.update", "builtins.dict.fromkeys"),
        *("collections.Counter", "collections.Counter.update", "collections.Counter.subtract"),
        *("collections.OrderedDict", "collections.OrderedDict.fromkeys", "collections.OrderedDict.update"),
        *("collections.deque", "collections.deque.extend", "collections.deque.extendleft"),
    )
)
"""Functions that give, or retain, what they get in its order."""

ADDRESS: Final = Replacement(
    "CLN602", "give the class a __repr__, or use its fields: an address differs between processes"
)
INSTANTS: Final = re.compile(r"numpy\.datetime64|pandas\.(?:[\w.]+\.)?(?:Timestamp|to_datetime)")
"""Functions that take "now" for the present time."""

OPEN_MODE: Final = frozenset("wax+")
HTTP_EFFECTS: Final = frozenset(
    f"clonos_services.http_session.Session.{name}" for name in ("post", "put", "patch", "delete")
)
"""Functions of the causal HTTP client whose requests change something."""


class Finding(NamedTuple):
    """Something that a function does: what, what to write instead, and where.

    ``line`` and ``column`` begin at 1. ``helper``: the name of the function that does it, if another one calls it.
    ``is_silenced``: a comment in the function, or in its caller, silences the finding.
    """

    what: str
    replacement: Replacement
    file: str
    line: int
    column: int
    helper: str = ""
    is_silenced: bool = False

    @property
    def code(self) -> str:
        """Code of the rule."""
        return self.replacement.code

    @property
    def text(self) -> str:
        """Text of what is done, and in which helper."""
        return f"{self.what} in {self.helper}()" if self.helper else self.what


class FunctionLook(NamedTuple):
    """Result of a look at one function: what it does, and the functions that it may run."""

    findings: list[tuple[ast.AST, str, Replacement]]
    reached: list[Reached]


def look_at(scope: CodeScope) -> FunctionLook:
    """Returns what a function does, and the functions of the user that it may run."""
    looking = _Looking(scope)
    placed = [node for node in ast.walk(scope.node) if isinstance(node, (ast.expr, ast.stmt))]
    for node in sorted(placed, key=lambda node: (node.lineno, node.col_offset)):
        looking.node(node)
    return FunctionLook(looking.findings, looking.reached)


def look_at_frames(scope: CodeScope) -> FunctionLook:
    """Returns the calls that handle a batch as if it were all records, and the functions that a function may run."""
    calls = [node for node in ast.walk(scope.node) if isinstance(node, ast.Call)]
    found: list[tuple[ast.AST, str, Replacement]] = []
    reached: list[Reached] = []
    for call in sorted(calls, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0)):
        if isinstance(call.func, (ast.Name, ast.Attribute)):
            reached += scope.reached_by(call.func)
        is_known = isinstance(call.func, ast.Attribute) and scope.value_of(call.func.value) is not UNKNOWN
        if advice := advice_for_frames(call, scope.name_of(call.func), is_known):
            what = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
            found.append((call, f"calls {what}()", Replacement(FRAMES, advice)))
    return FunctionLook(found, reached)


class _Looking:
    """A look at one function, node by node."""

    def __init__(self, scope: CodeScope) -> None:
        self.findings: list[tuple[ast.AST, str, Replacement]] = []
        self.reached: list[Reached] = []
        self._scope = scope
        self._parents = {id(child): node for node in ast.walk(scope.node) for child in ast.iter_child_nodes(node)}
        self._calls = {id(node.func): node for node in ast.walk(scope.node) if isinstance(node, ast.Call)}
        self._annotations = _annotation_nodes(scope.node)

    def node(self, node: ast.AST) -> None:
        """Looks at one node."""
        if id(node) in self._annotations:
            return
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            self.reached += self._scope.reached_by(node)
        self.findings += [(node, what, replacement) for what, replacement in self._found(node)]

    def _found(self, node: ast.AST) -> Iterator[tuple[str, Replacement]]:
        scope = self._scope
        yield from self._order(node)
        match node:
            case ast.Call(func=ast.Attribute(value=holder, attr=method)):
                yield from self._change(holder, method)
                if method == "sample" and _draws_rows(node):
                    yield (
                        f"calls {method}()",
                        Replacement("CLN202", "give random_state=, or choose by a hash of the key"),
                    )
            case ast.Call(func=ast.Name() as function, args=[value]) if self._has_address(function, value):
                yield f"gives the {ast.unparse(function)} of an object, which has its address", ADDRESS
            case ast.FormattedValue(value=value) if self._has_address(None, value):
                yield "gives the text of an object, which has its address", ADDRESS
            case ast.Subscript(value=value, ctx=ast.Load()) if isinstance(scope.value_of(value), defaultdict):
                yield f"adds to the defaultdict {ast.unparse(value)}", Replacement(CONTAINERS_CHANGED, KEEP_IN_STATE)
            case ast.Constant(value="now" | "today") if self._is_instant(node):
                yield "takes the present time", Replacement("CLN101", "use clock.now() of clonos")
            case ast.Attribute(value=ast.Call(func=function), ctx=ast.Store()) if scope.name_of(function) in (
                "decimal.getcontext",
                "_decimal.getcontext",
            ):
                yield (
                    f"sets {ast.unparse(node)}",
                    Replacement(ATTRIBUTES, "it outlives the call: use decimal.localcontext()"),
                )
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
                yield from self._change(value, "")
            case ast.AugAssign(target=ast.Name(id=name) as target) if scope.container(target):
                yield f"changes the default of its parameter {name}", Replacement(CONTAINERS_CHANGED, KEEP_IN_STATE)
            case ast.Global(names=names):
                yield f"changes the global {' and '.join(names)}", Replacement(GLOBALS, KEEP_IN_STATE)
            case ast.Nonlocal(names=names) if scope.free.keys() & set(names):
                what = f"changes {' and '.join(names)} of the function around it"
                yield what, Replacement(ENCLOSING, KEEP_IN_STATE)
            case ast.Attribute(value=holder, ctx=ast.Store() | ast.Del()) if scope.is_myself(holder):
                if scope.is_retained:
                    yield f"changes {ast.unparse(node)}", Replacement(ATTRIBUTES, KEEP_IN_STATE)
            case ast.Attribute(value=ast.Name() as holder, ctx=ast.Store() | ast.Del()) if scope.outlives(holder):
                yield f"sets {ast.unparse(node)}", Replacement(ATTRIBUTES, KEEP_IN_STATE)
            case ast.Attribute(value=ast.Attribute() as holder, ctx=ast.Store()) if _is_object_of_module(scope, holder):
                yield f"sets {ast.unparse(node)}", Replacement(ATTRIBUTES, KEEP_IN_STATE)
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                yield from self._loaded(node)

    def _loaded(self, node: ast.Name | ast.Attribute) -> Iterator[tuple[str, Replacement]]:
        scope = self._scope
        if held := _held(scope, node):
            yield held
            return
        call = self._calls.get(id(node))
        name = scope.name_of(node)
        if call is not None and name in HTTP_EFFECTS and not any(each.arg == "intent" for each in call.keywords):
            yield f"calls {ast.unparse(node)}, which has an effect", DECLARE_EFFECT
            return
        if call is not None and (writes := _opened_to_write(name, call)):
            yield f"calls {ast.unparse(node)}", writes
            return
        places = 0 if call is None else len(call.args)
        arguments = 0 if call is None else places + len(call.keywords)
        value = scope.value_of(node)
        is_called = call is not None or isinstance(value, partial)
        found = replacement_of(name, is_called=is_called, arguments=arguments, places=places)
        is_meant = not _is_exception(value) and not self._is_in_memory(name, call) and not self._is_instant_of(call)
        if found is not None and is_meant:
            yield f"{'uses' if call is None else 'calls'} {ast.unparse(node)}", found
        for field, factory in factories_of(value) if isinstance(value, type) and is_of_user(value) else ():
            if made := replacement_of(full_name(factory), is_called=True, arguments=0):
                yield f"makes {value.__name__}, whose {field} is what {full_name(factory)} gives", made

    def _is_instant_of(self, call: ast.Call | None) -> bool:
        """Returns whether a local time becomes an instant at once, which is the same in every time zone."""
        parent = self._parents.get(id(call))
        return isinstance(parent, ast.Attribute) and parent.attr in ("astimezone", "timestamp")

    def _is_in_memory(self, name: str, call: ast.Call | None) -> bool:
        """Returns whether a call opens a database or a file that is in memory only."""
        if call is None or not call.args:
            return False
        first = call.args[0]
        if "sqlite3" in name:
            return isinstance(first, ast.Constant) and first.value == ":memory:"
        cls = self._scope.type_of(first)
        return cls is not None and issubclass(cls, io.IOBase)

    def _change(self, node: ast.AST, method: str) -> Iterator[tuple[str, Replacement]]:
        """Yields which container a call of ``method``, or an assignment to an item without one, changes."""
        scope = self._scope
        if method and method not in MUTATORS:
            return
        if what := scope.container(node):
            yield f"changes {what}", Replacement(CONTAINERS_CHANGED, KEEP_IN_STATE)
        elif isinstance(node, ast.Attribute) and scope.is_myself(node.value) and scope.is_retained:
            is_sure = not method or method in SURE_MUTATORS or scope.is_made_in_init(node.attr, *CONTAINERS)
            value = scope.value_of(node)
            if (value is UNKNOWN and is_sure) or isinstance(value, CONTAINERS):
                yield f"changes {ast.unparse(node)}", Replacement(CONTAINERS_CHANGED, KEEP_IN_STATE)

    def _has_address(self, function: ast.Name | None, node: ast.expr) -> bool:
        """Returns whether the text of an object of the user's is the default one. ``function``: repr, str or None."""
        name = "" if function is None else self._scope.name_of(function)
        if function is not None and name not in ("builtins.repr", "builtins.str"):
            return False
        cls: Any = self._scope.type_of(node)
        if cls is None or not is_of_user(cls) or cls.__repr__ is not object.__repr__:
            return False
        return name == "builtins.repr" or bool(cls.__str__ is object.__str__)

    def _is_instant(self, node: ast.Constant) -> bool:
        """Returns whether a text is the argument of a function that takes it for an instant."""
        parent = self._parents.get(id(node))
        if not isinstance(parent, ast.Call) or node not in parent.args[:1]:
            return False
        return bool(INSTANTS.fullmatch(self._scope.name_of(parent.func)))

    # ------------------------------------------------------------------ the order of sets

    def _order(self, node: ast.AST) -> Iterator[tuple[str, Replacement]]:
        scope = self._scope
        match node:
            case ast.For(iter=iterated, body=body) if scope.is_set(iterated) and not _is_without_order(body):
                yield "iterates over a set", USE_SORTED
            case (
                ast.ListComp(generators=generators)
                | ast.GeneratorExp(generators=generators)
                | ast.DictComp(generators=generators)
            ):
                if any(scope.is_set(each.iter) for each in generators) and not self._is_sorted(node):
                    yield "iterates over a set", USE_SORTED
            case ast.Call(func=function, args=arguments) if any(map(scope.is_set, arguments)):
                name = scope.name_of(function)
                is_join = isinstance(function, ast.Attribute) and function.attr == "join"
                is_dumps = name in ("json.dumps", "json.dump")
                is_given_on = is_join or is_dumps or name in IN_ORDER
                if is_given_on and not self._is_sorted(node):
                    yield "gives a set an order", USE_SORTED
            case ast.Call(func=ast.Attribute(value=holder, attr="pop"), args=[]) if scope.is_set(holder):
                yield "takes any element of a set", USE_SORTED
            case ast.Starred(value=value, ctx=ast.Load()) if scope.is_set(value) and not self._is_sorted(node):
                yield "gives a set an order", USE_SORTED
            case ast.FormattedValue(value=value) if scope.is_set(value):
                yield "gives a set an order", USE_SORTED
            case ast.Assign(targets=[ast.Tuple() | ast.List()], value=value) if scope.is_set(value):
                yield "gives a set an order", USE_SORTED
            case ast.YieldFrom(value=value) if scope.is_set(value):
                yield "iterates over a set", USE_SORTED

    def _is_sorted(self, node: ast.AST) -> bool:
        """Returns whether what an expression gives is at once put in order, or counted."""
        parent = self._parents.get(id(node))
        if isinstance(parent, ast.Call) and node in parent.args:
            return self._scope.name_of(parent.func) in WITHOUT_ORDER or self._is_frozen(parent)
        return isinstance(parent, ast.Set)

    def _is_frozen(self, call: ast.Call) -> bool:
        return (
            isinstance(call.func, ast.Attribute)
            and call.func.attr in ("update", "union")
            and (self._scope.is_set(call.func.value))
        )


def _held(scope: CodeScope, node: ast.Name | ast.Attribute) -> tuple[str, Replacement] | None:
    """Returns what is wrong with a value that a function has from outside; None if nothing is."""
    value, text = scope.value_of(node), ast.unparse(node)
    if isinstance(value, GraphBuilder) or (hasattr(type(value), "source") and is_of_library(value)):
        return f"uses the {type(value).__name__} {text}", JOIN_IT
    if getattr(value, "effect", False) is True and is_of_library(value):
        return f"calls the service {text}, which has an effect", DECLARE_EFFECT
    if isinstance(value, io.IOBase):
        return f"uses the open file {text}", OPEN_IN_SLOT
    if isinstance(value, Iterator):
        return f"takes from the iterator {text}", MAKE_A_LIST
    if isinstance(node, ast.Name) and (call := scope.drawn_into(node.id)):
        return f"uses {text}, which {call}() has set while the file was loaded", CALL_IN_STEP
    is_own = isinstance(node, ast.Attribute) and scope.is_myself(node.value) and scope.is_retained
    if is_own and value is UNKNOWN and scope.is_made_in_init(text.rpartition(".")[2], Iterator):
        return f"takes from the iterator {text}", MAKE_A_LIST
    return None


def _opened_to_write(name: str, call: ast.Call) -> Replacement | None:
    """Returns what to do instead of opening a file to write to it; None for anything else."""
    if name not in ("builtins.open", "io.open", "_io.open"):
        return None
    modes = [each.value for each in call.keywords if each.arg == "mode"] + call.args[1:2]
    is_written = any(isinstance(each, ast.Constant) and OPEN_MODE & set(str(each.value)) for each in modes)
    return replacement_of("shutil.move", is_called=True, arguments=2) if is_written else None


def _draws_rows(call: ast.Call) -> bool:
    """Returns whether a call of ``sample`` is one of a frame that draws rows without a seed."""
    names = {each.arg for each in call.keywords}
    return bool(names & {"n", "frac", "fraction", "weights"}) and not names & {"random_state", "seed"}


def _is_without_order(body: list[ast.stmt]) -> bool:
    """Returns whether a loop gives the same in any order: it counts, collects into sets, or looks for one."""
    for each in body:
        match each:
            case ast.If(body=inner, orelse=other):
                if not _is_without_order(inner) or not _is_without_order(other):
                    return False
            case ast.AugAssign(op=ast.Add() | ast.BitOr() | ast.BitAnd(), target=ast.Name(), value=ast.Constant()):
                continue
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="add" | "discard"))):
                continue
            case ast.Return(value=ast.Constant()) | ast.Pass() | ast.Continue():
                continue
            case _:
                return False
    return True


def _is_object_of_module(scope: CodeScope, node: ast.Attribute) -> bool:
    """Returns whether an attribute of a module is an object of the user's."""
    value = scope.value_of(node)
    return value is not UNKNOWN and not isinstance(value, property)


def _annotation_nodes(node: Any) -> set[int]:
    """Returns the nodes that are annotations: they name classes and run nothing."""
    found = [
        each.annotation for each in ast.walk(node) if isinstance(each, (ast.arg, ast.AnnAssign)) and each.annotation
    ]
    found += [each.returns for each in ast.walk(node) if isinstance(each, ast.FunctionDef) and each.returns]
    return {id(inner) for each in found for inner in ast.walk(each)}


def _is_exception(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)
