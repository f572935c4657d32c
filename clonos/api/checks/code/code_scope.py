"""Names of a function as they are when it runs: through its closure, its globals and its own variables."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import io
import sys
import sysconfig
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from datetime import date
from functools import cached_property, partial
from pathlib import PurePath
from queue import Queue, SimpleQueue
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from clonos.api.checks.code.function_source import calls_for_globals, source_of
from clonos.api.checks.code.replacements import replacement_of
from clonos.io.interception.answers import original_of
from clonos.io.system.entropy import stdlib_random

LIBRARY: Final = frozenset({"clonos", "clonos_chaos", "clonos_services", "clonos_standby"})
INSTALLED: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
CONTAINERS: Final = (list, dict, set, bytearray, deque)
HOLDERS: Final = (*CONTAINERS, Queue, SimpleQueue)
SIMPLE: Final = (int, float, date, str, bytes, UUID)
CAUSAL: Final = ("clonos_services.clock.", "clonos_services.random.", "clonos_services.identity.")
"""Modules of services that read clocks and draw at random."""
SETS: Final = (set, frozenset)
GIVE_SETS: Final = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
VIEWS: Final = frozenset({"keys", "items"})
GIVE_PATHS: Final = frozenset({"parent", "joinpath", "with_suffix", "with_name", "with_stem", "resolve", "absolute"})
SHARED_RANDOM: Final = stdlib_random()
"""Generator that the functions of ``random`` are methods of."""
SEEDED: Final = ("random", "numpy.random")
"""Modules whose generators a function may make for itself: with a seed they repeat themselves."""

MEMBERS_MAX: Final = 100
"""Members of a container that are looked at."""

DEPTH_MAX: Final = 8
"""Names that are followed from one to the next within a function."""


class _Unknown:
    pass


UNKNOWN: Final = _Unknown()


class Reached(NamedTuple):
    """Function of the user (a ``FunctionType``) that another one calls or passes on.

    ``owner``: the object or class that it is a method of. ``is_retained``: the owner outlives the call.
    """

    function: Any
    owner: Any = UNKNOWN
    is_retained: bool = False


class CodeScope:
    """Names of a function, and what they are as far as that is known before it runs."""

    def __init__(self, reached: Reached, node: Any) -> None:
        self.node: Any = node
        self.owner, self.is_retained = reached.owner, reached.is_retained
        self._function = function = reached.function
        code = function.__code__
        self.free = dict(zip(code.co_freevars, map(_content, function.__closure__ or ()), strict=True))
        parameters = code.co_varnames[: code.co_argcount]
        given = function.__defaults__ or ()
        self.defaults = dict(zip(parameters[len(parameters) - len(given) :], given, strict=True))
        self.defaults |= function.__kwdefaults__ or {}
        self.myself = parameters[0] if parameters and self.owner is not UNKNOWN else ""
        self.imported = dict(_imports_in(node))
        self._bound = _bound_in(node)
        self._local = (self._bound.keys() | self.imported.keys()) - self.free.keys() - _outer_names(node)
        self._depth = 0

    # ------------------------------------------------------------------ values

    def value_of(self, node: ast.AST) -> Any:
        """Returns what a name or a dotted name is, ``UNKNOWN`` if that shows only when the function runs."""
        if isinstance(node, ast.Name):
            if node.id in self._local:
                given = self._given_once(node.id)
                is_alias = isinstance(given, (ast.Name, ast.Attribute))
                return self._deeper(self.value_of, given, UNKNOWN) if is_alias else UNKNOWN
            found = self.free.get(node.id, self._function.__globals__.get(node.id, UNKNOWN))
            return getattr(builtins, node.id, UNKNOWN) if found is UNKNOWN else found
        if isinstance(node, ast.Attribute):
            if self.is_myself(node.value):
                return self._own(node.attr)
            value = self.value_of(node.value)
            if isinstance(value, (ModuleType, type)):
                return getattr(value, node.attr, UNKNOWN)
        return UNKNOWN

    def _own(self, name: str) -> Any:
        """Returns an attribute of the object that the method belongs to, or of its class."""
        found = inspect.getattr_static(self.owner, name, UNKNOWN)
        return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found

    def _is_static(self, name: str) -> bool:
        return isinstance(inspect.getattr_static(self.owner, name, None), staticmethod)

    def type_of(self, node: ast.AST | None) -> type | None:
        """Returns the class of what an expression gives; None if it does not show."""
        if node is None or self._depth > DEPTH_MAX:
            return None
        self._depth += 1
        try:
            return self._type_of(node)
        finally:
            self._depth -= 1

    def _type_of(self, node: ast.AST) -> type | None:
        match node:
            case ast.Set() | ast.SetComp():
                return set
            case ast.List() | ast.ListComp():
                return list
            case ast.Dict() | ast.DictComp():
                return dict
            case ast.Constant(value=value):
                return type(value)
            case ast.Call(func=ast.Attribute(value=holder, attr="get" | "pop" | "setdefault")) if self._is_dict(holder):
                return self._type_of_member(holder)
            case ast.Call(func=function):
                return self._type_of_call(function)
            case ast.Subscript(value=holder):
                return self._type_of_member(holder)
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
                is_set = any(self.is_set(each) or self._is_view(each) for each in (left, right))
                return set if is_set else None
            case ast.BinOp(left=left, op=ast.Div()):
                of_left = self.type_of(left)
                return of_left if of_left is not None and issubclass(of_left, PurePath) else None
            case ast.IfExp(body=one, orelse=other):
                return self.type_of(one) or self.type_of(other)
            case ast.BoolOp(values=values):
                return next(filter(None, map(self.type_of, values)), None)
            case ast.Name() | ast.Attribute():
                return self._type_of_name(node)
        return None

    def _type_of_name(self, node: ast.Name | ast.Attribute) -> type | None:
        value = self.value_of(node)
        if value is not UNKNOWN and not isinstance(value, (property, FunctionType, type)):
            return type(value)
        if isinstance(node, ast.Name):
            if (annotation := self._annotations.get(node.id)) is not None:
                return self._class_of(annotation)
            return self.type_of(self._given_once(node.id)) if node.id in self._local else None
        if self.is_myself(node.value):
            return next((scope.type_of(given) for scope, given in self._given_to_myself(node.attr)), None)
        of_holder = self.type_of(node.value)
        is_path = of_holder is not None and issubclass(of_holder, PurePath) and node.attr in GIVE_PATHS
        return of_holder if is_path else None

    def _type_of_call(self, function: ast.AST) -> type | None:
        value = self._made_by(function)
        if isinstance(value, type):
            return value
        if value is iter or value is open:
            return type(iter(())) if value is iter else io.TextIOWrapper
        if isinstance(value, FunctionType):
            annotation = value.__annotations__.get("return")
            return self._class_of(annotation, value.__globals__) or self._type_returned(value)
        if isinstance(function, ast.Attribute):
            of_holder = self.type_of(function.value)
            if of_holder is not None and issubclass(of_holder, SETS) and function.attr in GIVE_SETS:
                return set
            if of_holder is not None and issubclass(of_holder, PurePath) and function.attr in GIVE_PATHS:
                return of_holder
        return None

    def _made_by(self, function: ast.AST) -> Any:
        """Returns what a called expression is: the class of ``Counter[str]``, too."""
        return self.value_of(function.value if isinstance(function, ast.Subscript) else function)

    def _is_dict(self, node: ast.AST) -> bool:
        cls = self.type_of(node)
        return cls is not None and issubclass(cls, dict)

    def _type_of_member(self, node: ast.AST) -> type | None:
        """Returns the class of all members of a container; None if it does not show."""
        value = self.value_of(node)
        if isinstance(value, (dict, list, tuple)):
            types = {type(each) for each in list(value.values() if isinstance(value, dict) else value)[:MEMBERS_MAX]}
            types |= {each for each in (getattr(value, "default_factory", None),) if isinstance(each, type)}
            return types.pop() if len(types) == 1 else None
        if isinstance(node, ast.Attribute) and self.is_myself(node.value):
            found = (scope._type_given(given) for scope, given in self._given_to_myself(node.attr))
            return next(filter(None, found), None)
        return self._type_given(self._given_once(node.id)) if isinstance(node, ast.Name) else None

    def _type_given(self, node: ast.AST | None) -> type | None:
        """Returns the class of the members of a container that an expression makes."""
        match node:
            case ast.Dict(values=members) | ast.List(elts=members) | ast.Tuple(elts=members):
                types = {self.type_of(each) for each in members}
                return types.pop() if len(types) == 1 else None
            case ast.DictComp(value=member) | ast.ListComp(elt=member):
                return self.type_of(member)
            case ast.Call(func=function, args=[factory, *_]) if self._made_by(function) is defaultdict:
                made = self.value_of(factory)
                return made if isinstance(made, type) else None
        return None

    def _type_returned(self, function: FunctionType) -> type | None:
        """Returns the class of what a function of the user returns in all places; None if it does not show."""
        source = source_of(function) if is_user_function(function) else None
        if source is None or isinstance(source.node, ast.Lambda):
            return None
        scope = CodeScope(Reached(function), source.node)
        scope._depth = self._depth + 1
        given = [
            each.value for each in ast.walk(source.node) if isinstance(each, ast.Return) and each.value is not None
        ]
        types = {scope.type_of(each) for each in given}
        return types.pop() if len(types) == 1 else None

    def _class_of(self, annotation: Any, members: dict[str, Any] | None = None) -> type | None:
        """Returns the class that an annotation names, as an object, a text or a syntax tree."""
        if isinstance(annotation, str):
            try:
                annotation = ast.parse(annotation, mode="eval").body
            except SyntaxError:
                return None
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            return self._class_of(annotation.value, members)
        if isinstance(annotation, ast.Subscript):
            return self._class_of(annotation.value, members)
        if isinstance(annotation, ast.Name) and members is not None:
            annotation = members.get(annotation.id, getattr(builtins, annotation.id, None))
        elif isinstance(annotation, ast.AST):
            annotation = self.value_of(annotation)
        annotation = getattr(annotation, "__origin__", annotation)
        return annotation if isinstance(annotation, type) and annotation is not Any else None

    @cached_property
    def _annotations(self) -> dict[str, ast.AST]:
        arguments = self.node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        found = {each.arg: each.annotation for each in every if each.annotation is not None}
        for each in ast.walk(self.node):
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                found[each.target.id] = each.annotation
        return found

    def _given_once(self, name: str) -> ast.AST | None:
        """Returns the expression that a name gets in the only place where it gets one; None if there is none."""
        given = self._bound.get(name, ())
        return given[0] if len(given) == 1 else None

    def _deeper(self, look: Callable[[Any], Any], node: Any, otherwise: Any) -> Any:
        if self._depth > DEPTH_MAX:
            return otherwise
        self._depth += 1
        try:
            return look(node)
        finally:
            self._depth -= 1

    def is_set(self, node: ast.AST | None) -> bool:
        """Returns whether an expression gives a set."""
        cls = self.type_of(node)
        return cls is not None and issubclass(cls, SETS)

    def _is_view(self, node: ast.AST) -> bool:
        """Returns whether an expression is a view of a dict, whose operators give sets."""
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS

    def name_of(self, node: ast.AST) -> str:
        """Returns the full name of what a name or a dotted name is: ``datetime.datetime.now``; empty if unknown."""
        if isinstance(node, ast.Name) and node.id in self.imported:
            return self.imported[node.id]
        value = self.value_of(node)
        while isinstance(value, partial):
            value = value.func
        if value is not UNKNOWN and not isinstance(value, CONTAINERS):
            return full_name(value)
        if isinstance(node, ast.Attribute):
            if owner := self.name_of(node.value) or self._maker_of(node.value):
                return f"{owner}.{node.attr}"
            cls = self.type_of(node.value)
            if cls is not None and not is_of_user(cls) and not cls.__module__.startswith(SEEDED):
                return f"{full_name(cls)}.{node.attr}"
        return ""

    def _maker_of(self, node: ast.AST) -> str:
        """Returns the full name of what ``__init__`` or ``open`` calls to make an attribute of the object, such as
        ``sqlite3.connect``."""
        if not isinstance(node, ast.Attribute) or not self.is_myself(node.value):
            return ""
        calls = ((scope, given) for scope, given in self._given_to_myself(node.attr) if isinstance(given, ast.Call))
        names = (scope.name_of(given.func) for scope, given in calls if scope.type_of(given) is None)
        return next((name for name in names if not name.startswith(SEEDED)), "")

    # ------------------------------------------------------------------ what outlives a call

    def is_myself(self, node: ast.AST) -> bool:
        """Returns whether a node is the object that the method belongs to."""
        return bool(self.myself) and isinstance(node, ast.Name) and node.id == self.myself

    def outlives(self, node: ast.Name) -> bool:
        """Returns whether an object of the user's outlives a call: one of the closure or of the module's globals."""
        value = self.value_of(node)
        return value is not UNKNOWN and not isinstance(value, ModuleType)

    def container(self, node: ast.AST) -> str:
        """Returns what a node is if it is a container that outlives a call, in words; empty if it is none."""
        value = self.value_of(node)
        if isinstance(node, ast.Name) and isinstance(self.defaults.get(node.id), CONTAINERS):
            return f"the default of its parameter {node.id}"
        if isinstance(value, CONTAINERS):
            return f"the {type(value).__name__} {ast.unparse(node)}"
        return ""

    def is_made_in_init(self, name: str, *classes: type) -> bool:
        """Returns whether ``__init__`` or ``open`` of the object's class gives an attribute such an object."""
        types = (scope.type_of(given) for scope, given in self._given_to_myself(name))
        return any(cls is not None and issubclass(cls, classes) for cls in types)

    def _given_to_myself(self, name: str) -> Iterator[tuple[CodeScope, ast.AST]]:
        cls = self.owner if isinstance(self.owner, type) else type(self.owner)
        for method in ("__init__", "open"):
            function = inspect.getattr_static(cls, method, None)
            source = source_of(function) if isinstance(function, FunctionType) else None
            if source is None or self._depth > DEPTH_MAX:
                continue
            scope = CodeScope(Reached(function, cls), source.node)
            scope._depth = self._depth + 1
            for node in ast.walk(source.node):
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                    attributes = [each.attr for each in targets if isinstance(each, ast.Attribute)]
                    yield from ((scope, node.value) for attribute in attributes if attribute == name)

    def drawn_into(self, name: str) -> str:
        """Returns which call has read a clock, or drawn at random, what a global of the module is; "" if none has."""
        code, members = self._function.__code__, self._function.__globals__
        if name in self._local or name in self.free or not isinstance(members.get(name), SIMPLE):
            return ""
        calls = calls_for_globals(code.co_filename).get(name, ())
        return next((call for call in calls if _is_drawn(_resolved(call, members))), "")

    # ------------------------------------------------------------------ functions that are reached

    def reached_by(self, node: ast.Name | ast.Attribute) -> Iterator[Reached]:
        """Yields the functions of the user that a name in a load may run."""
        if isinstance(node, ast.Attribute):
            if _is_super(node.value) and self.owner is not UNKNOWN:
                yield from self._of_bases(node.attr)
                return
            yield from self._methods(node)
        value = self.value_of(node)
        if value is not UNKNOWN:
            is_own = isinstance(node, ast.Attribute) and self.is_myself(node.value) and not self._is_static(node.attr)
            owner = self.owner if is_own else UNKNOWN
            for each in _members(value):
                yield from _functions(each, owner, self.is_retained and owner is not UNKNOWN)

    def _methods(self, node: ast.Attribute) -> Iterator[Reached]:
        """Yields the method of an object of the user's: it outlives the call, or the function has made it."""
        if self.is_myself(node.value):
            return
        value = self.value_of(node.value)
        if value is not UNKNOWN and not isinstance(value, (ModuleType, type)):
            if is_of_user(type(value)):
                yield from _functions(inspect.getattr_static(value, node.attr, None), value, True)
            return
        cls = self.type_of(node.value)
        if cls is not None and is_of_user(cls):
            yield from _functions(inspect.getattr_static(cls, node.attr, None), cls, False)

    def _of_bases(self, name: str) -> Iterator[Reached]:
        cls = self.owner if isinstance(self.owner, type) else type(self.owner)
        own = [each for each in cls.__mro__ if self._function in vars(each).values()]
        after = cls.__mro__[cls.__mro__.index(own[0]) + 1 :] if own else cls.__mro__[1:]
        found = next((vars(each)[name] for each in after if name in vars(each)), None)
        yield from _functions(found, self.owner, self.is_retained)


def _members(value: Any) -> Iterator[Any]:
    """Yields a value, and the members of a container: functions may lie in a table."""
    yield value
    if isinstance(value, (list, tuple)):
        yield from value[:MEMBERS_MAX]
    elif isinstance(value, dict):
        yield from list(value.values())[:MEMBERS_MAX]


def _functions(value: Any, owner: Any, is_retained: bool) -> Iterator[Reached]:
    """Yields the functions of the user that run when a value is called."""
    while isinstance(value, partial):
        value = value.func
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, functools.cached_property):
        value = value.func
    if isinstance(value, MethodType):
        value, owner, is_retained = value.__func__, value.__self__, not isinstance(value.__self__, type)
    if isinstance(value, functools._lru_cache_wrapper):
        value = value.__wrapped__
    if isinstance(value, type) and is_of_user(value) and not issubclass(value, BaseException):
        makers = (vars(value).get(name) for name in ("__new__", "__init__", "__post_init__"))
        yield from (
            Reached(each, value) for each in makers if isinstance(each, FunctionType) and is_user_function(each)
        )
    elif isinstance(value, FunctionType) and is_user_function(value):
        yield Reached(value, owner, is_retained)
    elif not isinstance(value, (type, ModuleType)) and is_of_user(type(value)):
        called = inspect.getattr_static(type(value), "__call__", None)
        if isinstance(called, FunctionType) and is_user_function(called):
            yield Reached(called, value, True)


def factories_of(cls: type) -> list[tuple[str, Any]]:
    """Returns the fields of a class to which a function gives their default, with these functions."""
    fields = getattr(cls, "__dataclass_fields__", None)
    if isinstance(fields, dict):
        return [(name, each.default_factory) for name, each in fields.items() if callable(each.default_factory)]
    if issubclass(cls, msgspec.Struct):
        return [
            (each.name, each.default_factory) for each in msgspec.structs.fields(cls) if callable(each.default_factory)
        ]
    return []


def is_user_function(function: FunctionType) -> bool:
    """Returns whether a function is code of the user, neither of the library nor installed."""
    return not is_of_library(function) and not function.__code__.co_filename.startswith((*INSTALLED, "<"))


def is_of_user(cls: type) -> bool:
    """Returns whether a class is one of the user."""
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    is_library = cls.__module__.partition(".")[0] in LIBRARY
    return cls.__module__ == "__main__" or (bool(file) and not is_library and not str(file).startswith(INSTALLED))


def is_of_library(function: Any) -> bool:
    """Returns whether a callable is one of clonos, such as a service, whose calls are recorded."""
    module = function.__globals__.get("__name__") if isinstance(function, FunctionType) else type(function).__module__
    return str(module).partition(".")[0] in LIBRARY


def full_name(value: Any) -> str:
    """Returns module and name of a module, class or function; of any other object those of its class."""
    value = original_of(value)
    if isinstance(value, ModuleType):
        return value.__name__
    bound = getattr(value, "__self__", None) if isinstance(value, (BuiltinFunctionType, MethodType)) else None
    if bound is SHARED_RANDOM:
        return f"random.{value.__name__}"
    if bound is not None and not isinstance(bound, ModuleType):
        return f"{full_name(bound)}.{value.__name__}"
    if callable(value) and isinstance(getattr(value, "__qualname__", None), str):
        return f"{getattr(value, '__module__', '')}.{value.__qualname__}"
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _is_drawn(name: str) -> bool:
    """Returns whether a call gives something else each time that a file is loaded."""
    found = replacement_of(name, is_called=True, arguments=0)
    return name.startswith(CAUSAL) or (found is not None and found.code.startswith(("CLN1", "CLN2")))


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


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _outer_names(node: ast.AST) -> set[str]:
    """Returns the names that a function declares as those of its module or of a function around it."""
    return {name for each in ast.walk(node) if isinstance(each, (ast.Global, ast.Nonlocal)) for name in each.names}


def _bound_in(node: ast.AST) -> dict[str, list[ast.AST | None]]:
    """Returns the names that a function binds, each with what it gets in each place; None: that does not show."""
    bound: dict[str, list[ast.AST | None]] = {}
    seen: set[int] = set()

    def bind(target: ast.AST | None, given: ast.AST | None) -> None:
        if isinstance(target, ast.Name):
            seen.add(id(target))
            bound.setdefault(target.id, []).append(given)

    for each in ast.walk(node):
        match each:
            case ast.Assign(targets=[target], value=value):
                bind(target, value)
            case ast.AnnAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
                bind(target, value)
            case ast.withitem(context_expr=value, optional_vars=target):
                bind(target, value)
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                bound.setdefault(name, []).append(None)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if each is not node:
                    bound.setdefault(name, []).append(None)
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load) and id(each) not in seen:
            bound.setdefault(each.id, []).append(None)
    return bound


def _imports_in(node: ast.AST) -> Iterator[tuple[str, str]]:
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            for name in each.names:
                top = name.name.partition(".")[0]
                yield (name.asname, name.name) if name.asname else (top, top)
        elif isinstance(each, ast.ImportFrom) and not each.level:
            yield from ((name.asname or name.name, f"{each.module}.{name.name}") for name in each.names)
