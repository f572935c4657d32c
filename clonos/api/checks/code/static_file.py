"""A look at the file of a job that does not run it: for editors and hooks where its libraries are not installed.

Functions and methods are made from the syntax tree, without decorators and defaults; no line of the file runs. Modules
of the standard library and of clonos are imported, those of the user beside the file are read in the same way, and of
all others only the names are known.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import io
import itertools
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

from clonos.api.checks.code.code_scope import LIBRARY, UNKNOWN, Reached, full_name
from clonos.api.checks.code.code_walk import findings_from
from clonos.api.checks.code.job_findings import JobFinding, finding_of
from clonos.api.checks.code.step_checks import key_findings
from clonos.api.checks.function_checks import EMITTING_METHODS
from clonos.core.model.errors import JobError

METHODS: Final = frozenset(
    (
        *("map", "filter", "flat_map", "map_batches", "map_async", "key_by", "process", "reduce", "aggregate"),
        *(
            "stateful_map",
            "stateful_map_async",
            "peek",
            "with_timestamps",
            "partition_custom",
            "divide",
            "side_output",
            "connect",
            "join",
        ),
    )
)
"""Methods of streams that take functions of the user."""

RECORDED: Final = frozenset({"map_async", "stateful_map_async"})
"""Methods whose calls have one outcome each in the log."""

MAKERS: Final[dict[str, Callable[[], Any]]] = {
    "builtins.list": list,
    "builtins.dict": dict,
    "builtins.set": set,
    "builtins.bytearray": bytearray,
    "builtins.open": io.StringIO,
    "builtins.iter": lambda: iter(()),
    "itertools.count": itertools.count,
    "itertools.cycle": lambda: itertools.cycle(()),
    "collections.deque": deque,
    "collections.defaultdict": defaultdict,
    "collections.Counter": Counter,
    "collections.OrderedDict": OrderedDict,
}
"""What stands for an object that the file makes at its top level, by what it calls."""


class _Named:
    """Object of a library that was not imported: only its name is known."""

    def __init__(self, module: str, name: str) -> None:
        self.__module__, self.__qualname__ = module, name

    def __call__(self) -> None:
        """Makes it look like a function."""


class StaticFile:
    """Names of a file at its top level, as far as they show without running it."""

    def __init__(self, path: Path, known: dict[Path, StaticFile] | None = None) -> None:
        """Reads the file. Raises: JobError: it is not Python."""
        self.path, self._known = path, {} if known is None else known
        self._known[path] = self
        try:
            self.tree = ast.parse(path.read_text("utf-8"), str(path))
        except (SyntaxError, UnicodeDecodeError) as error:
            raise JobError(f"{path} is not Python: {error}. Correct it.") from error
        self.names: dict[str, Any] = {"__name__": "__main__"}
        for node in self.tree.body:
            self._read(node)

    def findings(self) -> Iterator[JobFinding]:
        """Yields what the functions do that the file gives to methods of streams."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        for call in calls:
            if not isinstance(call.func, ast.Attribute) or call.func.attr not in METHODS:
                continue
            method = call.func.attr
            options = {each.arg: each.value for each in call.keywords}
            has_effects, intercepts = _is_true(options.get("effects")), _is_true(options.get("intercept"))
            logs_calls = _is_true(options.get("log_calls"))
            name = options.get("name")
            step = str(name.value) if isinstance(name, ast.Constant) else method
            for argument in (*call.args, *options.values()):
                for reached in self._functions(argument):
                    function = reached.function
                    for of_frames in (False, True) if method == "map_batches" else (False,):
                        found = findings_from(
                            reached,
                            is_recorded=method in RECORDED and not logs_calls,
                            has_effects=has_effects,
                            intercepts=intercepts,
                            logs_calls=logs_calls,
                            of_frames=of_frames,
                        )
                        shown = [each for each in found if not each.is_silenced]
                        yield from (finding_of(step, function.__qualname__, each, str(self.path)) for each in shown)
                    for source, finding in key_findings(function) if method == "key_by" else ():
                        yield finding_of(step, source.name, finding, str(self.path))

    def _functions(self, node: ast.expr) -> Iterator[Reached]:
        """Yields the functions that an argument names."""
        if isinstance(node, ast.Call):
            is_partial = ast.unparse(node.func).endswith("partial") and bool(node.args)
            yield from self._functions(node.args[0] if is_partial else node.func)
        elif isinstance(node, ast.Lambda):
            yield Reached(self._function_of(node))
        elif isinstance(node, (ast.Name, ast.Attribute)):
            value = self._value(node)
            if isinstance(value, FunctionType):
                yield Reached(value)
            elif isinstance(value, type):
                members = (vars(value).get(name) for name in (*EMITTING_METHODS, "__call__"))
                yield from (Reached(each, value, True) for each in members if isinstance(each, FunctionType))

    def _value(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name):
            return self.names.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            value = self._value(node.value)
            if isinstance(value, (ModuleType, type)):
                return getattr(value, node.attr, UNKNOWN)
            return (
                _Named(value.__module__, f"{value.__qualname__}.{node.attr}") if isinstance(value, _Named) else UNKNOWN
            )
        return UNKNOWN

    # ------------------------------------------------------------------ names

    def _read(self, node: ast.stmt) -> None:
        match node:
            case ast.Import(names=names):
                for each in names:
                    top = each.name.partition(".")[0]
                    self.names[each.asname or top] = self._module(each.name if each.asname else top)
            case ast.ImportFrom(module=module, names=names, level=level):
                found = self._module("." * level + (module or ""))
                for each in names:
                    self.names[each.asname or each.name] = _member(found, each.name)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                is_service = any("service" in ast.unparse(each) for each in node.decorator_list)
                self.names[node.name] = _Named("clonos", node.name) if is_service else self._function_of(node)
            case ast.ClassDef():
                self.names[node.name] = self._class_of(node)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                self.names[name] = self._object_of(value)
            case ast.If(body=body, orelse=other):
                for inner in (*body, *other):
                    self._read(inner)
            case ast.Try(body=body, handlers=handlers):
                for inner in (*[each for handler in handlers for each in handler.body], *body):
                    self._read(inner)

    def _module(self, name: str) -> Any:
        """Returns a module of the standard library or of clonos, one of the user's beside the file, or a name."""
        top = name.partition(".")[0]
        beside = self.path.parent.joinpath(*name.lstrip(".").split("."))
        for file in (beside.with_suffix(".py"), beside / "__init__.py"):
            if file.is_file():
                found = self._known.get(file) or StaticFile(file, self._known)
                module = ModuleType(name)
                vars(module).update(found.names)
                return module
        if top in sys.stdlib_module_names or top in LIBRARY:
            try:
                return importlib.import_module(name)
            except ImportError:
                return UNKNOWN
        return _Named(name.rpartition(".")[0] or name, name.rpartition(".")[2]) if name.lstrip(".") else UNKNOWN

    def _function_of(self, node: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) -> FunctionType:
        """Makes a function without its decorators and defaults: nothing of the file runs."""
        if isinstance(node, ast.Lambda):
            bare = ast.copy_location(ast.Lambda(_without_defaults(node.args), node.body), node)
            made = eval(compile(ast.Expression(bare), str(self.path), "eval"), self.names)  # noqa: S307  only makes it
            assert isinstance(made, FunctionType)
            return made
        made = self._definition(node)
        exec(compile(ast.Module([made], []), str(self.path), "exec"), self.names)  # noqa: S102  only makes it
        function = self.names[node.name]
        assert isinstance(function, FunctionType)
        return function

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Any:
        return ast.copy_location(
            type(node)(name=node.name, args=_without_defaults(node.args), body=node.body, decorator_list=[]), node
        )

    def _class_of(self, node: ast.ClassDef) -> type:
        bases = [each for each in map(self._value, node.bases) if isinstance(each, type)]
        methods = [each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
        members: dict[str, Any] = {"__module__": "__main__", "__qualname__": node.name}
        body = [self._definition(each) for each in methods]
        exec(compile(ast.Module(body, []), str(self.path), "exec"), self.names, members)  # noqa: S102  only makes them
        try:
            return type(node.name, tuple(bases), members)
        except TypeError:  # bases of libraries that are more than classes
            return type(node.name, (), members)

    def _object_of(self, value: ast.expr | None) -> Any:
        match value:
            case ast.List() | ast.ListComp():
                return []
            case ast.Dict() | ast.DictComp():
                return {}
            case ast.Set() | ast.SetComp():
                return set()
            case ast.Constant(value=constant):
                return constant
            case ast.Name() | ast.Attribute():
                return self._value(value)
            case ast.Call(func=function):
                made = self._value(function)
                if made is UNKNOWN and isinstance(function, ast.Name):
                    made = getattr(builtins, function.id, UNKNOWN)
                name = "" if made is UNKNOWN else full_name(made)
                if name in MAKERS:
                    return MAKERS[name]()
                if isinstance(made, _Named):
                    return made
                if name.startswith(("time.", "clonos_services.clock.")):
                    return 0.0
        return UNKNOWN


def _member(module: Any, name: str) -> Any:
    if isinstance(module, ModuleType):
        return getattr(module, name, UNKNOWN)
    return _Named(full_name(module), name) if isinstance(module, _Named) else UNKNOWN


def _without_defaults(arguments: ast.arguments) -> ast.arguments:
    """Returns the parameters of a function with None as each default, and without annotations."""

    def bare(each: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(each.arg), each)

    return ast.arguments(
        posonlyargs=[bare(each) for each in arguments.posonlyargs],
        args=[bare(each) for each in arguments.args],
        vararg=arguments.vararg and bare(arguments.vararg),
        kwonlyargs=[bare(each) for each in arguments.kwonlyargs],
        kw_defaults=[each and ast.copy_location(ast.Constant(None), each) for each in arguments.kw_defaults],
        kwarg=arguments.kwarg and bare(arguments.kwarg),
        defaults=[ast.copy_location(ast.Constant(None), each) for each in arguments.defaults],
    )


def _is_true(option: ast.expr | None) -> bool:
    return isinstance(option, ast.Constant) and option.value is True
