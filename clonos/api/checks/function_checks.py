"""Checks of the functions that a job gives to its steps, made when a step is added: what a function shows by its kind.

What shows only in a result is checked when the step runs (``clonos.operators.steps.function_results``).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from inspect import getattr_static
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from clonos.api.graph_errors import InvalidJob
from clonos.expressions.expression import Expr
from clonos.operators.steps.call_attempts import KEY_PARAMETER
from clonos.operators.steps.function_results import advice_for

OPTIONAL_METHODS: Final = ("open", "on_timer", "on_event_timer", "close")
"""Methods of a process function besides ``process``."""

EMITTING_METHODS: Final = ("process", "process_first", "process_second", "on_timer", "on_event_timer")
"""Methods of a process function that may yield results."""

TIMER_METHODS: Final = {"set_timer": "on_timer", "set_event_timer": "on_event_timer"}
"""Method of a process function that is called when a timer fires, by the method of the context that sets it."""


HOOK: Final = re.compile(r"on(_|[A-Z])")
"""Beginning of names of methods that look as if a runtime called them, such as ``on_end`` and ``onTimer``."""

BY_NAME: Final = frozenset({"getattr", "methodcaller", "attrgetter"})
"""Functions that find a method by a name that the code may compose."""


METHOD_PARAMETERS: Final = {
    **dict.fromkeys(("process", "process_first", "process_second"), ("value", "context")),
    "on_timer": ("timestamp", "context"),
    "on_event_timer": ("timestamp", "context"),
    "open": ("context",),
    "close": (),
}
"""Arguments that the methods of a process function are called with."""

METHODS_OF_OTHERS: Final = (
    *("process_element", "processElement", "on_item", "on_batch", "handle", "map", "flat_map", "handleInputRows"),
    *("on_data", "on_record", "__call__"),
)
"""Methods by which other libraries give records to a class."""

AWAITING: Final = frozenset({"map_async", "stateful_map_async", "enrich", "enrich_batch"})
"""Methods that await ``async def`` functions."""

COMPUTE_FIRST: Final = (
    'Give the name of a column; compute a new one in front of the step: with_columns(a=col("b") % 2).'
)
"""Advice for an expression where the name of a column is meant."""

TAKES_FIELD: Final = frozenset({"key_by", "timestamps", "window_sum"})
"""Methods that take the name of a field in place of a function."""


def check_function(method: str, step: str, function: Any, arguments: tuple[str, ...] | None = None) -> None:
    """Checks that a function of a step can be called, and for a result, not for a generator or a coroutine.

    ``arguments``: what it is called with; None if that is not checked.

    Raises: InvalidJob: it is no function, has other parameters than the step has arguments, is a generator function
        outside of ``flat_map``, or ``async def`` in a step that awaits nothing.
    """
    if not callable(function):
        raise _no_function(method, step, function)
    called = _called(function)
    is_generator = inspect.isgeneratorfunction(called)
    if is_generator and method != "flat_map":
        what = "a generator function, and a call of it returns a generator, not a result"
    elif (inspect.iscoroutinefunction(called) and method not in AWAITING) or inspect.isasyncgenfunction(called):
        what = "an async function, and nothing here would await it"
    else:
        if arguments is not None:
            _check_parameters(step, function, arguments)
        return
    raise InvalidJob(step, f"gets {_name_of(function)}, {what}", advice_for(method, is_generator))


def _no_function(method: str, step: str, given: Any) -> InvalidJob:
    fields = given if isinstance(given, list | tuple) else ()
    if method == "key_by" and fields and all(isinstance(each, str) for each in fields):
        names = ", ".join(map(repr, fields)).replace("'", '"')
        advice = f"Give the names without brackets: key_by({names})."
        return InvalidJob(step, f"gets {given!r:.100}, which is neither a function nor the name of a field", advice)
    if method == "key_by" and type(given) is int:
        advice = f"Give a function: key_by(lambda record: record[{given}])."
        return InvalidJob(step, f"gets {given!r}, which is neither a function nor the name of a field", advice)
    if method in TAKES_FIELD:
        what = "which is neither a function nor the name of a field"
        advice = COMPUTE_FIRST if isinstance(given, Expr) else "Give it a function of the record, or a str."
        return InvalidJob(step, f"gets {given!r:.100}, {what}", advice)
    advice = "Give it the function itself, without calling it." if given is None else "Give it a function."
    if isinstance(given, Expr):
        advice = "An expression computes columns: use it in select, with_columns or filter."
    if method == "filter" and isinstance(given, str):
        advice = 'Give it a function, or an expression over columns: filter(col("price") > 1).'
    elif method == "map" and isinstance(given, dict):
        advice = "Give it a function that looks into the dict: map(lambda record: table[record]), or table.get."
    elif method == "filter" and isinstance(given, bool):
        advice = "Python has computed the condition at once: write col(...).is_null() in place of is None."
    return InvalidJob(step, f"gets {given!r:.100}, which is no function", advice)


def _check_parameters(step: str, function: Any, arguments: tuple[str, ...], called_as: str = "", skip: int = 0) -> None:
    """Refuses a function of Python code that cannot be called with these arguments.

    ``called_as``: how the step calls it, by default by its own name. ``skip``: its parameters that are bound later.
    """
    if not isinstance(_called(function), FunctionType | MethodType) or hasattr(function, "__signature__"):
        return  # the signatures of built-in functions and of classes do not show everything that they take
    signature = inspect.signature(function, follow_wrapped=False)
    try:
        signature.bind(*(None,) * (skip + len(arguments)), **_optional(signature))
    except TypeError:
        name = _name_of(function)
        taken = list(signature.parameters.values())[skip:]
        positional = [each.name for each in taken if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        keywords = [f"{each.name}=" for each in taken if each.kind is each.KEYWORD_ONLY and each.default is each.empty]
        takes = f"needs {' and '.join(keywords)}" if keywords else f"takes {_counted(len(positional))}"
        call = f"{called_as or name}({', '.join(arguments)})"
        raise InvalidJob(
            step,
            f"calls {call}, but {name}({', '.join(positional + keywords)}) {takes}",
            f"Give it a function with {_counted(len(arguments))}.",
        ) from None


def _optional(signature: inspect.Signature) -> dict[str, None]:
    """Returns the keyword arguments that a step gives to functions that have a parameter for it."""
    return {KEY_PARAMETER: None} if KEY_PARAMETER in signature.parameters else {}


def _counted(arguments: int) -> str:
    return "no argument" if not arguments else "1 argument" if arguments == 1 else f"{arguments} arguments"


def check_process(step: str, function: Any, required: tuple[str, ...] = ("process",)) -> None:
    """Checks the methods of a process function, a class or an instance of it. ``required``: those that take records.

    Raises: InvalidJob: it lacks one of these, its class needs arguments, one of its methods is no method or is
        ``async def``, nothing calls a method whose name looks like a hook, or it sets timers without ``on_timer``.
    """
    for name in required:
        if not callable(getattr(function, name, None)):
            raise InvalidJob(
                step,
                f"gets {function!r:.100}, which has no method {name}(value, context)",
                _advice_for_process(function, name),
            )
    if isinstance(function, type):
        _check_creation(step, function)
    for name in OPTIONAL_METHODS:
        if hasattr(function, name) and not callable(getattr(function, name)):
            raise InvalidJob(
                step,
                f"has a {type(getattr(function, name)).__qualname__} as its attribute {name}, the name of a method",
                f"Rename it: {name}() of a process function is called by the runtime.",
            )
    for name in (*required, *OPTIONAL_METHODS):
        if hasattr(function, name):
            _check_method(step, name, getattr(function, name))
            is_unbound = isinstance(function, type) and isinstance(getattr_static(function, name), FunctionType)
            _check_parameters(step, getattr(function, name), METHOD_PARAMETERS[name], name, int(is_unbound))
    _check_hooks(step, function)
    for setting, method in TIMER_METHODS.items():
        if not hasattr(function, method) and uses(function, setting):
            raise InvalidJob(
                step,
                f"sets timers and has no method {method}(timestamp, context)",
                "Add it: the runtime calls it when a timer fires.",
            )


def _advice_for_process(function: Any, wanted: str) -> str:
    """Returns what to write in place of something without the method that takes records."""
    if isinstance(function, FunctionType):
        return "A function of the record is for map, filter or flat_map; state needs a class with that method."
    meant = next((name for name in METHODS_OF_OTHERS if callable(getattr(function, name, None))), "")
    if meant and wanted == "process":
        return f"Rename {meant}: def process(self, value, context). Results are yielded, or given to context.emit."
    return "Give it a class with that method, or an instance of one."


def uses(function: Any, name: str) -> bool:
    """Returns whether a method of a process function uses an attribute of this name."""
    return any(name in code.co_names for code in _codes_of(function))


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """Yields a code object and those of the functions, lambdas and comprehensions that it contains."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_within(constant)


def methods_of(function: Any) -> Iterator[tuple[str, FunctionType]]:
    """Yields the methods that the class of a process function and its bases define, by name; overridden ones too."""
    cls = function if isinstance(function, type) else type(function)
    for base in cls.__mro__[:-1]:
        for name, member in vars(base).items():
            if isinstance(member, FunctionType):
                yield name, member


def _codes_of(function: Any) -> Iterator[CodeType]:
    for _, method in methods_of(function):
        yield from codes_within(method.__code__)


def _check_hooks(step: str, function: Any) -> None:
    """Refuses methods such as ``on_end``, unless a method of the class refers to them or finds methods by name."""
    used = {name for code in _codes_of(function) for name in code.co_names}
    if used & BY_NAME:
        return
    for name, _ in methods_of(function):
        if HOOK.match(name) and name not in used and name not in OPTIONAL_METHODS:
            raise InvalidJob(
                step,
                f"has a method {name}(), which nothing calls",
                "The runtime calls process, on_timer, on_event_timer, open and close."
                " Call it from one of these, or rename it.",
            )


def _check_creation(step: str, cls: type) -> None:
    try:
        inspect.signature(cls).bind()
    except TypeError as error:
        raise InvalidJob(
            step,
            f"gets the class {cls.__qualname__}, which cannot be created without arguments ({error})",
            "Give it an instance: each incarnation of a task gets a copy of it.",
        ) from error


def _check_method(step: str, name: str, method: Any) -> None:
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        what, advice = "an async method", "Write it with def: the runtime awaits nothing."
    elif inspect.isgeneratorfunction(method) and name not in EMITTING_METHODS:
        what, advice = "a generator", "It cannot yield results: do that in process() or a timer's method."
    else:
        return
    raise InvalidJob(step, f"has {what} as {name}()", advice)


def _called(function: Any) -> Callable[..., Any]:
    """Returns the function whose code runs: of a partial that which it calls, of an object its ``__call__``."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type) or not callable(function):
        return function  # type: ignore[no-any-return]
    return type(function).__call__


def _name_of(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__)).rpartition("<locals>.")[2]
