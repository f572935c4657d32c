"""Field of records by its name: the value of a key in a dict, or an attribute of an object."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final

DICTS: Final = frozenset({dict})


class Field:
    """Function that returns the field ``name`` of a record.

    Records with ``__getitem__``, such as dicts, have it as an item; NamedTuples, dataclasses and other objects have it
    as an attribute.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._item = itemgetter(name)

    def __call__(self, record: Any) -> Any:
        is_object = isinstance(record, tuple) or not hasattr(type(record), "__getitem__")
        return getattr(record, self.name) if is_object else record[self.name]

    def getter(self, records: list[Any]) -> Callable[[Any], Any]:
        """Returns the fastest function that returns the field of each of these records."""
        return self._item if DICTS.issuperset(map(type, records)) else self
