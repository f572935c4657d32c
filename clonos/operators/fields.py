"""Field of records by its name: the value of a key in a dict, or an attribute of an object."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter, itemgetter
from typing import Any

from clonos.operators.user_errors import Guard


class Field:
    """Function that returns the field ``name`` of a record.

    Records with ``__getitem__``, such as dicts, have it as an item; NamedTuples, dataclasses and other objects have it
    as an attribute.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._item, self._attribute = itemgetter(name), attrgetter(name)

    def __call__(self, record: Any) -> Any:
        return self._attribute(record) if _is_object(type(record)) else self._item(record)

    def of_each(self, records: list[Any], guard: Guard) -> tuple[list[Any], Collection[int]]:
        """Returns the field of each record, and the indexes of the records that failed and are routed.

        Raises: StepFailed: a record lacks the field, and there is no error output.
        """
        try:
            return list(map(self._item, records)), ()  # no Python per record, if all have items
        except Exception:  # noqa: BLE001  the guard treats the record that raises
            has_items = any(not _is_object(cls) for cls in set(map(type, records)))
            return guard.each(self if has_items else self._attribute, records)


def _is_object(cls: type) -> bool:
    return issubclass(cls, tuple) or not hasattr(cls, "__getitem__")
