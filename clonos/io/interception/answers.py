"""Answers in place of intercepted functions, in the context in which user code runs and in no other.

An intercepted function is the original one, unless its context has an answer for its name, such as ``time.time``. Calls
that come from this library, or from a module of Python that only measures or logs, always get the original. So does
what runs in a garbage collection, such as a finalizer: a collection comes at another place in each life.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from threading import get_ident
from types import FrameType, FunctionType
from typing import Any, Final, TypeVar

T = TypeVar("T")

Answer = Callable[..., Any]
"""Takes the original function, and the arguments of the call."""

Answers = Mapping[str, Answer]
"""Answers by the dotted names of functions."""

OWN_PACKAGES: Final = frozenset({"clonos", "clonos_services", "clonos_standby"})
"""Packages of this library that call user code."""

EXEMPT: Final = frozenset(
    (
        *(
            "asyncio",
            "concurrent",
            "http",
            "importlib",
            "logging",
            "multiprocessing",
            "queue",
            "selectors",
            "socket",
            "ssl",
        ),
        *("subprocess", "tempfile", "threading", "traceback", "warnings", "linecache", "bdb", "cmd", "pdb"),
    )
)
"""Packages that get the originals: they measure, wait, log, or belong to the debugger."""

PASSING: Final = frozenset({"random", "secrets", "uuid", "_strptime"})
"""Modules that take a value for their caller."""

IMPORTING: Final = "importlib._bootstrap"
"""Module of the frames in which a module is loaded."""

_answers: ContextVar[Answers | None] = ContextVar("clonos_answers", default=None)


def answer_with(answers: Answers | None) -> Token[Answers | None]:
    """Sets the answers of this context; None for the originals. ``restore`` reverts it."""
    return _answers.set(answers)


restore: Final = _answers.reset
"""Reverts ``answer_with``."""


@contextmanager
def answered_with(answers: Answers | None) -> Iterator[None]:
    """Answers with ``answers`` inside a ``with`` block."""
    token = _answers.set(answers)
    try:
        yield
    finally:
        _answers.reset(token)


def strand() -> object:
    """Returns what tells apart the coroutines and threads of this process: the thread, and its present coroutine."""
    asyncio = sys.modules.get("asyncio")
    try:
        return get_ident(), None if asyncio is None else asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return get_ident(), None


async def in_thread(function: Callable[[], T]) -> T:
    """Returns what a function that blocks returns, for an answer that is awaited: the event loop goes on."""
    import asyncio  # user code that awaits has loaded it

    return await asyncio.to_thread(function)


def intercepted(name: str, original: Callable[..., Any], *, exempts: bool = True) -> Callable[..., Any]:
    """Returns a function that is ``original``, or the answer for ``name`` where the context has one.

    ``exempts``: whether the packages that are exempt get the original.
    """

    @functools.wraps(original, updated=())
    def function(*args: Any, **named: Any) -> Any:
        answers = _answers.get()
        if answers is None or (answer := answers.get(name)) is None or _is_exempt(sys._getframe(1), exempts):
            return original(*args, **named)
        return answer(original, *args, **named)

    return function


_PATCHED: Final = intercepted("", lambda: None).__code__


def original_of(value: Any) -> Any:
    """Returns the function that an intercepted one replaces; any other value as it is."""
    is_patched = isinstance(value, FunctionType) and value.__code__ is _PATCHED
    return value.__wrapped__ if is_patched else value


_collecting_thread = 0


def watch_collections() -> None:
    """Lets ``is_collecting`` know of finalizers; others may call this again."""
    if _note_collection not in gc.callbacks:
        gc.callbacks.append(_note_collection)


def _note_collection(phase: str, _info: dict[str, int]) -> None:
    global _collecting_thread
    _collecting_thread = get_ident() if phase == "start" else 0


def is_collecting(frame: FrameType | None) -> bool:
    """Returns whether a garbage collection has called the code of a frame of this thread: a finalizer, or one of
    ``gc.callbacks``."""
    if _collecting_thread == get_ident():
        return True
    codes = [getattr(each, "__code__", None) for each in gc.callbacks if each is not _note_collection]
    while codes and frame is not None:  # most processes have no other callback
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def _is_exempt(frame: FrameType | None, exempts: bool) -> bool:
    """Returns whether the code of a frame gets the originals. What is imported does: a process imports it once."""
    is_caller = True  # whether the frame is that of the code which wants the value
    while frame is not None:
        module: str = frame.f_globals.get("__name__") or ""
        package = module.partition(".")[0]
        if package in OWN_PACKAGES:
            return is_caller
        if module == IMPORTING:
            return True
        if is_caller and package not in PASSING:
            if exempts and package in EXEMPT:
                return True
            if is_collecting(frame):
                return True
            is_caller = False
        frame = frame.f_back
    return False
