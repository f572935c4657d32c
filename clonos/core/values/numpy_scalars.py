"""Scalars of numpy, which travel as Python's. numpy is imported only if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

KINDS: Final = "biufUS"
"""Kinds of scalars that have a counterpart in Python: bool, int, float, str and bytes."""

keeps_types: ContextVar[bool] = ContextVar("keeps_types", default=False)
"""Whether numpy scalars are refused, which otherwise become Python's: state must be the same after a restore."""


@contextmanager
def keeping_types() -> Iterator[None]:
    """Refuses numpy scalars inside the context."""
    token = keeps_types.set(True)
    try:
        yield
    finally:
        keeps_types.reset(token)


def python_scalar(value: Any) -> Any:
    """Returns a numpy scalar as a Python bool, int, float, str or bytes of the same value; anything else as it is."""
    if type(value).__module__ != "numpy" or keeps_types.get():
        return value
    import numpy  # it is loaded, since the value is one of its own

    if isinstance(value, str):
        return str.__str__(value)  # item() would cut zeros off its end
    if isinstance(value, bytes):
        return bytes.__add__(value, b"")
    if isinstance(value, numpy.generic) and value.dtype.kind in KINDS:
        scalar = value.item()
        return scalar if type(scalar).__module__ == "builtins" else value
    return value
