"""Fields of records by their names: the value of a key in a dict, or an attribute of an object."""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import attrgetter, itemgetter
from typing import Any

from clonos.operators.row_errors import field_missing
from clonos.operators.user_errors import MISSING, Guard, lacks


class Field:
    """Function that returns the field ``name`` of a record.

    Records with ``__getitem__``, such as dicts, have it as an item; NamedTuples, dataclasses and other objects have it
    as an attribute.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._item, self._attribute = itemgetter(name), attrgetter(name)

    def __call__(self, record: Any) -> Any:
        """Returns the field. Raises: FieldMissing: the record has no such field."""
        try:
            return self._attribute(record) if _is_object(type(record)) else self._item(record)
        except MISSING:
            if lacks(record, self.name):
                raise field_missing(self.name, record) from None
            raise

    def of_each(self, records: list[Any], guard: Guard) -> tuple[list[Any], Collection[int]]:
        """Returns the field of each record, and the indexes of the records that failed and are routed.

        Raises: StepFailed: a record lacks the field, and there is no error output.
        """
        try:
            return list(map(self._item, records)), ()  # no Python per record, if all have items
        except Exception:  # noqa: BLE001  the guard treats the record that raises
            has_items = any(not _is_object(cls) for cls in set(map(type, records)))
            return guard.each(self if has_items else self._attribute, records)


class Fields:
    """Function that returns the tuple of several fields of a record, each as ``Field`` does."""

    def __init__(self, names: tuple[str, ...]) -> None:
        """Takes at least two names."""
        self._items = itemgetter(*names)
        self._fields = tuple(map(Field, names))

    def __call__(self, record: Any) -> Any:
        return tuple([field(record) for field in self._fields])

    def of_each(self, records: list[Any], guard: Guard) -> tuple[list[Any], Collection[int]]:
        """Returns the fields of each record as ``Field.of_each`` does."""
        try:
            return list(map(self._items, records)), ()  # no Python per record, if all have items
        except Exception:  # noqa: BLE001  the guard treats the record that raises
            return guard.each(self, records)


def function_of(key: Callable[[Any], Any] | str | tuple[str, ...]) -> Callable[[Any], Any]:
    """Returns the function that gives the key of a record: ``key``, or that of its field or fields."""
    if isinstance(key, str):
        return Field(key)
    return Fields(key) if isinstance(key, tuple) else key


def _is_object(cls: type) -> bool:
    return issubclass(cls, tuple) or not hasattr(cls, "__getitem__")


def itself(record: Any) -> Any:
    """Returns the record, for a comparison of whole records."""
    return record


def compared(by: str | Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns the function of a record that gives what is compared: the field of this name, or ``by``."""
    return Field(by) if isinstance(by, str) else by


def compared_text(by: str | Callable[[Any], Any] | None) -> tuple[str, str]:
    """Returns the property of state that says what is compared."""
    if by is None or isinstance(by, str):
        return "field", "none" if by is None else repr(by)
    return "field", "the record" if by is itself else "a function"
