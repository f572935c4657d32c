"""Depth of decoded values: what is deeper than a value may be is an error of its record, not of the job.

A task can send, keep and write no such value. It is found where bytes become values, in time for the error output.
"""

from __future__ import annotations

import re
from typing import Any, Final

from clonos.core.values.value_limits import VALUE_DEPTH_MAX

TOO_DEEP: Final = f"it is nested in more than {VALUE_DEPTH_MAX} containers"

_CONTAINERS: Final = frozenset({dict, list, tuple})
_SIGNS: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]', re.DOTALL)
"""Texts of JSON, whose brackets open nothing, and brackets."""
_OPENED: Final = bytes.maketrans(b"{", b"[")
_NOT_OPENED: Final = bytes(set(range(256)) - set(b"{[\n"))
_MANY_OPENED: Final = b"[" * (VALUE_DEPTH_MAX + 1)


class NotAValue(ValueError):
    """Bytes or a text have the right format, and what they say cannot be a value of a record."""


def problem_of(error: ValueError) -> str:
    """Says of a text that was parsed as JSON what is wrong with it."""
    if isinstance(error, NotAValue):
        return f"cannot be a value: {error}"
    text = getattr(error, "doc", "")
    array = ". It begins an array: give each object a line of its own, without [ and ]"
    return f"is not JSON: {error}{array if text.lstrip().startswith('[') else ''}"


def may_be_deep(lines: bytes) -> bool:
    """Returns whether one of many lines of JSON has enough opening brackets to be too deep. It reads 2 GB a second."""
    return _MANY_OPENED in lines.translate(_OPENED, _NOT_OPENED)


def check_depth(text: str | bytes) -> None:
    """Checks a text of JSON.

    Raises: NotAValue: it is too deep.
    """
    if is_deep(text):
        raise NotAValue(TOO_DEEP)


def is_deep(text: str | bytes) -> bool:
    """Returns whether a text of JSON is too deep."""
    data = text if isinstance(text, str) else bytes(text)
    opened = data.count("{") + data.count("[") if isinstance(data, str) else data.count(b"{") + data.count(b"[")
    if opened <= VALUE_DEPTH_MAX:
        return False
    depth = 0
    for sign in _SIGNS.finditer(data if isinstance(data, str) else data.decode("utf-8", "replace")):
        depth += sign[0] in "{[" or -(sign[0] in "]}")
        if depth > VALUE_DEPTH_MAX:
            return True
    return False


def is_too_deep(value: Any, size_bytes: int) -> bool:
    """Returns whether dicts and lists are too deep in each other. ``size_bytes``: of the data, not less than levels."""
    if size_bytes <= VALUE_DEPTH_MAX:
        return False
    level = [value]
    for _ in range(VALUE_DEPTH_MAX + 1):
        found = [each for each in level if type(each) in _CONTAINERS]
        if not found:
            return False
        level = [item for each in found for item in (each.values() if type(each) is dict else each)]
    return True
