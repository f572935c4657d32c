"""Classes of objects of the user whose attributes cannot be set: the values would be lost when a process dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def frozen(original: type, error_of: Callable[[str], Exception]) -> type:
    """Creates a subclass that raises ``error_of(attribute)`` when an attribute of an instance is set or deleted.

    It has the layout of ``original``, so that an object can be given this class.
    """

    def set_attribute(self: Any, name: str, value: object) -> None:
        raise error_of(name)

    def delete_attribute(self: Any, name: str) -> None:
        raise error_of(name)

    body = {
        "__slots__": (),
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__setattr__": set_attribute,
        "__delattr__": delete_attribute,
    }
    return type(original)(original.__name__, (original,), body)
