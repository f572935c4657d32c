"""Place at which changed code differs from the recorded code: the line of the first instruction that is another one.

Comments, names of locals and moved lines are no change. Functions that a step's function calls are followed, and so are
plain globals.
"""

from __future__ import annotations

import dis
import os
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from types import CodeType, FunctionType
from typing import Any, Final

from clonos.core.model.code_location import INSTALLED, LIBRARY
from clonos.operators.chain import VertexImage
from clonos.replay.replaying import Replayed

PLAIN: Final = (int, float, str, bytes, tuple, list, dict, set, frozenset, type(None))
"""Types of globals that are compared."""

WITHOUT_EFFECT: Final = frozenset({"RESUME", "CACHE", "NOP", "EXTENDED_ARG"})
FUNCTIONS_MAX: Final = 500


def place_of_change(recorded: Replayed, changed: Replayed) -> str:
    """Returns the first line of the functions of the task that was changed, such as ``prices.py:33 in priced``, or the
    global, such as ``RATES of prices.py``; "" if none was found."""
    before = dict(_functions(_vertex_of(recorded)))
    pairs = deque((before.get(step), function) for step, function in _functions(_vertex_of(changed)))
    seen = set[CodeType]()
    while pairs and len(seen) < FUNCTIONS_MAX:
        was, now = pairs.popleft()
        if now.__code__ in seen:
            continue
        seen.add(now.__code__)
        if was is None:
            return _place(now.__code__, now.__code__.co_firstlineno)
        if place := _changed_line(was.__code__, now.__code__) or _changed_value(was, now):
            return place
        pairs += _called(was, now)
    return ""


def _vertex_of(replayed: Replayed) -> VertexImage:
    return replayed.image.vertices[replayed.image.plan.vertex_of[replayed.task]]


def _functions(vertex: VertexImage) -> Iterator[tuple[tuple[str, int], FunctionType]]:
    """Yields the user's functions in the steps of a vertex, by step and number."""
    seen = dict[str, int]()
    for node in vertex.nodes:
        made: Any = node.make
        for value in (*getattr(made, "args", ()), *getattr(made, "keywords", {}).values()):
            for function in _functions_of(value):
                number = seen[node.step] = seen.get(node.step, 0) + 1
                yield (node.step, number), function


def _functions_of(value: Any) -> Iterator[FunctionType]:
    while isinstance(value, partial):
        value = value.func
    value = getattr(value, "__func__", value)
    if isinstance(value, FunctionType):
        yield value
        return
    cls = value if isinstance(value, type) else type(value)
    if cls.__module__.partition(".")[0] not in (*LIBRARY, "builtins"):
        yield from (each for each in vars(cls).values() if isinstance(each, FunctionType))


def _called(was: FunctionType, now: FunctionType) -> Iterator[tuple[FunctionType, FunctionType]]:
    """Yields the functions of the user that both name, as they were and as they are."""
    for _, before, after in _named(was, now):
        if isinstance(before, FunctionType) and isinstance(after, FunctionType) and _is_users(after):
            yield before, after


def _changed_value(was: FunctionType, now: FunctionType) -> str:
    """Returns which plain value that both name is another one; "" for none."""
    for name, before, after in _named(was, now):
        if isinstance(after, PLAIN) and type(before) is type(after) and not _is_equal(before, after):
            return f"{name} of {os.path.basename(now.__code__.co_filename)}"
    return ""


def _named(was: FunctionType, now: FunctionType) -> Iterator[tuple[str, Any, Any]]:
    """Yields the globals, variables of functions around, and defaults that both functions have, by name."""
    before, after = _values_of(was), _values_of(now)
    yield from ((name, before[name], value) for name, value in after.items() if name in before)


def _values_of(function: FunctionType) -> dict[str, Any]:
    members = function.__globals__
    found = {name: members[name] for name in _names_in(function.__code__) if name in members}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    code = function.__code__
    defaults = function.__defaults__ or ()
    places = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    return {**found, **dict(zip(places, defaults, strict=True)), **(function.__kwdefaults__ or {})}


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names_in(each)


def _is_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001  values of libraries in it may not be comparable
        return True


def _is_users(function: FunctionType) -> bool:
    module = str(function.__globals__.get("__name__")).partition(".")[0]
    return module not in LIBRARY and not function.__code__.co_filename.startswith(("<frozen ", *INSTALLED))


def _changed_line(was: CodeType, now: CodeType, around: str = "") -> str:
    """Returns the place of the first instruction that differs, in inner functions too; "" if none does."""
    name = around if now.co_name.startswith("<") and around else now.co_name
    line = now.co_firstlineno
    for before, after in zip_longest(_instructions(was), _instructions(now)):
        line = (after and after.positions and after.positions.lineno) or line
        if before is None or after is None or _meaning(before) != _meaning(after):
            return _place(now, line, name)
        if isinstance(after.argval, CodeType) and (place := _changed_line(before.argval, after.argval, name)):
            return place
    return ""


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    return (each for each in dis.get_instructions(code) if each.opname not in WITHOUT_EFFECT)


def _meaning(instruction: dis.Instruction) -> tuple[Any, ...]:
    """Returns what an instruction does, whatever its place and the names of locals."""
    value = instruction.argval
    if isinstance(value, CodeType):
        return instruction.opname, CodeType
    if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
        return (instruction.opname,)
    if "FAST" in instruction.opname:
        return instruction.opname, instruction.arg
    return instruction.opname, type(value), value if isinstance(value, frozenset) else repr(value)


def _place(code: CodeType, line: int, name: str = "") -> str:
    return f"{os.path.basename(code.co_filename)}:{line} in {name or code.co_name}"
