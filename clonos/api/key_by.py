"""Keys of partitioned streams, as users give them: a function of the record, or the names of fields or columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clonos.api.checks.function_checks import check_function
from clonos.api.graph_errors import InvalidJob

AnyKey = Callable[[Any], Any] | str | tuple[str, ...]
"""Function of the record, the name of a field, or the names of several, whose values form a tuple."""


@dataclass(frozen=True, slots=True)
class KeyBy:
    """Key of a partitioned stream. ``name`` is the name of the step."""

    name: str
    key: AnyKey
    is_named: bool

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields or columns whose values are the key; () if a function gives it."""
        if isinstance(self.key, str):
            return (self.key,)
        return self.key if isinstance(self.key, tuple) else ()


def fields_text(fields: tuple[str, ...]) -> str:
    """Returns the text of a key that fields give."""
    if len(fields) == 1:
        return f"the field {fields[0]!r}"
    return f"the fields {', '.join(map(repr, fields[:-1]))} and {fields[-1]!r}"


def checked_key(step: str, keys: tuple[Any, ...]) -> AnyKey:
    """Returns the key that the arguments of ``key_by`` give.

    Raises: InvalidJob: they are neither one function nor names of fields.
    """
    if len(keys) == 1:
        (key,) = keys
        if not isinstance(key, str):
            check_function("key_by", step, key, ("record",))
        return key  # type: ignore[no-any-return]
    if not all(isinstance(each, str) for each in keys):
        advice = "Give the names of the fields, or one function that returns a tuple."
        raise InvalidJob(step, f"gets {keys!r:.100}: several keys are names of fields", advice)
    if len({*keys}) < len(keys):
        twice = next(each for place, each in enumerate(keys) if each in keys[:place])
        raise InvalidJob(step, f"gets the field {twice!r} twice in its key", "Name each field once.")
    return keys
