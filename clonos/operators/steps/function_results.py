"""Checks of what the functions of steps return: generators, coroutines and strings in place of results.

``map`` and ``filter`` check the first result of each batch, which costs nothing per record; what slips through cannot
travel. ``flat_map`` checks each result, because the characters of a str would be records like others, unless its
function shows what it returns.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Generator
from types import (
    AsyncGeneratorType,
    CodeType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodDescriptorType,
    NoneType,
)
from typing import Any, Final

from clonos.core.model.errors import JobError

NEVER_RESULTS: Final[frozenset[type]] = frozenset({GeneratorType, CoroutineType, AsyncGeneratorType})
"""Types of a call that has not run yet: such a value can neither travel nor be stored."""

ONE_RECORD: Final[dict[type, str]] = {str: "characters", bytes: "bytes", dict: "keys"}
"""Iterables that are one record each, and their items, which are hardly ever meant as results."""

SINGLE: Final[frozenset[type]] = frozenset({NoneType, int, float, bool})
"""Types of values that are not several results, which functions of ``flat_map`` return by mistake."""

USE_LIST: Final = "Return a list of results: [result] for one, [] for none."

CALLED_LATER: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Flags of the code of functions whose call returns an object that has not run yet."""

USE_FLAT_MAP: Final = "Use flat_map, which gives every item that the function yields."
USE_RETURN: Final = "Return the result instead of yielding it."
USE_DEF: Final = "Write it with def and a blocking client: steps call plain functions."
USE_MAP_ASYNC: Final = "Use map_async, which awaits up to capacity= of these calls at once, or write it with def."


class ResultRefused(JobError):
    """A function returned something that cannot be the result of its step."""

    method: str
    returned: str
    advice: str

    def __str__(self) -> str:
        return f"the function of {self.method} returned {self.returned}. {self.advice}"


class ValueReturned(JobError):
    """A method of a process function returned a value, which nothing would emit."""

    method: str
    type_name: str

    def __str__(self) -> str:
        return (
            f"{self.method}() returned a {self.type_name}, and a returned value is not emitted."
            " Call context.emit(result) for each result, or yield it."
        )


def advice_for(method: str, is_generator: bool) -> str:
    """Returns what to write instead of a generator, or else of a coroutine, in a step of this kind."""
    if is_generator:
        return USE_FLAT_MAP if method == "map" else USE_RETURN
    return USE_MAP_ASYNC if method in ("map", "flat_map") else USE_DEF


def refusal(method: str, result: object) -> ResultRefused:
    """Creates the error for a result of one of the types ``NEVER_RESULTS``."""
    is_generator = type(result) is GeneratorType
    close_call(result)
    what = "a generator" if is_generator else "a coroutine, which has not run"
    return ResultRefused(method, what, advice_for(method, is_generator))


def checked(method: str, result: Any) -> Any:
    """Returns ``result``.

    Raises: ResultRefused: it is a generator or a coroutine.
    """
    if type(result) in NEVER_RESULTS:
        raise refusal(method, result)
    return result


def checked_items(items: Any) -> Any:
    """Returns the items of ``flat_map``.

    Raises: ResultRefused: they are a str, bytes or a dict, or a coroutine. TypeError: they are None or a number.
    """
    cls = type(items)
    if cls in ONE_RECORD:
        pieces = ONE_RECORD[cls]
        advice = f"Return a list of results: [result] for one, [] for none, list(...) if its {pieces} are meant."
        raise ResultRefused("flat_map", f"a {cls.__name__}, whose {pieces} would each be a result", advice)
    if cls in NEVER_RESULTS and cls is not GeneratorType:
        raise refusal("flat_map", items)
    if cls in SINGLE:
        what = "None" if items is None else f"{items!r:.80}, which is not several results"
        raise TypeError(f"the function of flat_map returned {what}. {USE_LIST}")
    return items


def not_a_pair(method: str, found: object) -> TypeError:
    """Creates the error for what a function has returned in place of a state and a result."""
    what = "None" if found is None else f"{found!r:.80}, which is not a pair"
    return TypeError(f"the function of {method} returned {what}. Return the new state and the result, as a pair.")


SPLITTING: Final[frozenset[Any]] = frozenset(
    {str.split, str.rsplit, str.splitlines, bytes.split, bytes.rsplit, bytes.splitlines}
)


def gives_items(function: Any) -> bool:
    """Returns whether a function always returns a list or a generator, so that no result of it needs a check."""
    if isinstance(function, MethodDescriptorType):
        return function in SPLITTING
    return isinstance(function, FunctionType) and bool(function.__code__.co_flags & inspect.CO_GENERATOR)


def returns_nothing(function: Any) -> bool:
    """Returns whether the code of a function shows that it returns None only, so that no call of it needs a check."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or code.co_flags & CALLED_LATER:
        return False
    before = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "RETURN_CONST" and instruction.argval is not None:
            return False
        if instruction.opname == "RETURN_VALUE":
            is_none = before is not None and before.opname == "LOAD_CONST" and before.argval is None
            if not is_none or instruction.is_jump_target:
                return False
        before = instruction
    return True


def emit_yielded(method: str, returned: Any, emit: Callable[[Any], None]) -> None:
    """Emits what a method of a process function yields.

    Raises: ValueReturned: the method returned something else than a generator, or its generator returned a value.
    """
    if type(returned) is GeneratorType:
        returned = _drained(returned, emit)
    if returned is not None:
        close_call(returned)
        raise ValueReturned(method, type(returned).__qualname__)


def close_call(result: object) -> None:
    """Closes a coroutine that will not run, so that Python does not warn about it."""
    if type(result) is CoroutineType:
        result.close()


def _drained(results: Generator[Any, Any, Any], emit: Callable[[Any], None]) -> Any:
    try:
        while True:
            emit(next(results))
    except StopIteration as end:
        return end.value
