"""Steps with ``intercept=True``: their operators run with answers for the functions that are intercepted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from types import FunctionType, MethodType
from typing import Any, Final

from clonos.io.interception.answers import OWN_PACKAGES, Answers, answer_with, restore
from clonos.io.interception.patches import install, replace_in
from clonos.operators.operator import Operator
from clonos_services.interception import ANSWERS

ENTRIES: Final = (
    *("rows", "keys", "columns", "keyed_columns", "timed_columns", "first", "second", "first_columns"),
    *("second_columns", "fire", "fire_events", "on_watermark", "end_of_time", "drain", "complete"),
)
"""Methods of operators that may run user code. In ``open`` the functions are the originals."""


def intercept(operators: Sequence[Operator], is_intercepting: Sequence[bool]) -> None:
    """Lets the user code of some operators of a chain get recorded values, and that of the others the originals."""
    install()
    for operator, intercepts in zip(operators, is_intercepting, strict=True):
        if intercepts:
            for names in _namespaces(operator):
                replace_in(names)
        for name in ENTRIES:
            method = getattr(operator, name, None)
            if callable(method):
                setattr(operator, name, _answered(method, ANSWERS if intercepts else None))
        if intercepts:
            operator.answer_calls(ANSWERS)


def _answered(method: Callable[..., None], answers: Answers | None) -> Callable[..., None]:
    @wraps(method)
    def entered(*args: Any, **named: Any) -> None:
        token = answer_with(answers)
        try:
            method(*args, **named)
        finally:
            restore(token)

    return entered


def _namespaces(operator: Operator) -> Iterator[dict[str, Any]]:
    """Yields the globals of the functions of the user that an operator may call.

    A function that was sent to a slot has globals of its own, which the patches of modules do not reach.
    """
    waiting: list[Any] = list(vars(operator).values())
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, (tuple, list)):
            waiting += value
        elif isinstance(value, partial):
            waiting += (value.func, *value.args)
        elif isinstance(value, MethodType):
            waiting += (value.__func__, value.__self__)
        elif isinstance(value, FunctionType):
            names = value.__globals__
            waiting += [each.cell_contents for each in value.__closure__ or () if _is_filled(each)]
            if id(names) not in seen and _is_of_user(value.__module__):
                seen.add(id(names))
                yield names
                waiting += [each for each in names.values() if isinstance(each, (FunctionType, type))]
        else:
            cls = value if isinstance(value, type) else type(value)
            if id(cls) not in seen and _is_of_user(cls.__module__):
                seen.add(id(cls))
                waiting += [each for base in cls.__mro__ for each in vars(base).values()]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  raises if a name has no value yet
    except ValueError:
        return False
    return True


def _is_of_user(module: str | None) -> bool:
    package = (module or "").partition(".")[0]
    return package not in sys.stdlib_module_names and package not in OWN_PACKAGES and package != "builtins"
