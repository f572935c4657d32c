"""Registry of user classes that may travel: dataclasses, NamedTuples, msgspec.Structs and enums, each under a name.

Bytes name a class and never import one, so an unknown name is an error and a sender cannot choose code to run. Objects
are read field by field and rebuilt exactly, without ``__init__`` and ``__post_init__``. Only a Struct is rebuilt by its
constructor, so its ``__post_init__`` runs again, as it does with pickle.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, TypeVar, overload

import msgspec

from clonos.core.model.wrong_calls import explains_calls
from clonos.core.values.value_errors import RegistrationRefused

AnyType = TypeVar("AnyType", bound=type)
Build = Callable[[Sequence[Sequence[object]], int], list[Any]]

hashable_records: set[type] = set()
"""Registered classes that have a hash of their own, although their objects, or what these hold, may change in place."""

NEVER_STATE = frozenset({"__orig_class__"})
"""Attributes that typing leaves on an object and that are no part of its value."""


@dataclasses.dataclass(frozen=True, slots=True)
class RegisteredRecord:
    """Registered class with named fields: how its objects are read and rebuilt."""

    name: str
    cls: type
    fields: tuple[str, ...]
    signature: str
    """Fields in their order, separated by blanks."""
    build: Build
    """Builds objects from the columns of the fields and the number of objects."""
    has_dict: bool
    attributes: frozenset[str]
    """Names allowed in an object's ``__dict__``: fields and cached properties."""

    def read(self, value: object) -> tuple[object, ...]:
        """Returns the fields of an object. An unset field raises AttributeError."""
        return tuple([getattr(value, field) for field in self.fields])

    def columns(self, values: Sequence[object]) -> list[list[object]]:
        """Returns the fields of many objects, one list per field. An unset field raises AttributeError."""
        return [list(map(attrgetter(field), values)) for field in self.fields]

    def extras(self, values: Sequence[object]) -> set[str]:
        """Returns the attributes that are not fields and would be lost."""
        if not self.has_dict or self.attributes.issuperset(chain.from_iterable(map(vars, values))):
            return set()
        return set(chain.from_iterable(map(vars, values))) - self.attributes

    def order(self, fields: Sequence[str]) -> list[int]:
        """Returns the position of each field of this class in ``fields``, the order that a sender used.

        Raises: ValueError, if the sender's class has other fields.
        """
        if sorted(fields) != sorted(self.fields):
            there, here = list(fields), list(self.fields)
            raise ValueError(f"objects of {self.name!r} were written with the fields {there}, and its class has {here}")
        return [fields.index(field) for field in self.fields]


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Registered enum. A member travels by its name, a combination of flags by its value."""

    name: str
    cls: type[enum.Enum]
    is_flag: bool


Entry = RegisteredRecord | Choice

by_type: dict[type, Entry] = {}
by_name: dict[str, Entry] = {}


@overload
def register(cls: AnyType, *, name: str | None = None) -> AnyType: ...


@overload
def register(cls: None = None, *, name: str) -> Callable[[AnyType], AnyType]: ...


@explains_calls
def register(cls: type | None = None, *, name: str | None = None) -> Any:
    """Registers a class, so that its objects may travel between tasks and be kept in state: ``@register`` above the
    class.

    The class travels under ``name``, by default its module and qualified name. Give a name if the class may move to
    another module while stored state must stay readable. Every process has to register the class. A class that is
    defined anew (in a notebook, by a reload, as a copy that came with a job) replaces the earlier one.

    Raises: RegistrationRefused, if the class is of no supported kind, keeps state outside its fields, or the name is
    taken.
    """
    if cls is None:
        return functools.partial(register, name=name)
    name = name or class_name(cls)
    earlier = by_name.get(name)
    if earlier is not None and class_name(earlier.cls) != class_name(cls):
        raise RegistrationRefused(class_name(cls), f"the name {name!r} is taken by {class_name(earlier.cls)}")
    entry = _entry(cls, name)
    by_name[name] = entry
    by_type[cls] = entry
    own_hash: Any = cls.__hash__
    if isinstance(entry, RegisteredRecord) and own_hash not in (None, tuple.__hash__):
        hashable_records.add(cls)
    return cls


def registered() -> dict[str, type]:
    """Returns all registered classes by name. A plan carries them to processes that do not import the job's modules."""
    return {name: entry.cls for name, entry in sorted(by_name.items())}


def record_of(name: object) -> RegisteredRecord:
    """Returns the record type with this name.

    Raises: ValueError, if no record type is registered under it here.
    """
    entry = by_name.get(name) if isinstance(name, str) else None
    if not isinstance(entry, RegisteredRecord):
        raise ValueError(_unknown(name))
    return entry


def choice_of(name: object) -> Choice:
    """Returns the enum with this name.

    Raises: ValueError, if no enum is registered under it here.
    """
    entry = by_name.get(name) if isinstance(name, str) else None
    if not isinstance(entry, Choice):
        raise ValueError(_unknown(name))
    return entry


def class_name(cls: type) -> str:
    """Returns module and qualified name of a class; builtins without module."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def is_registrable(cls: type) -> bool:
    """Returns whether ``register`` supports this kind of class."""
    return issubclass(cls, (enum.Enum, msgspec.Struct)) or _is_named_tuple(cls) or dataclasses.is_dataclass(cls)


def _unknown(name: object) -> str:
    return f"no class is registered as {str(name)[:200]!r} (put @register above it, in a module that is imported here)"


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _entry(cls: type, name: str) -> Entry:
    if not isinstance(cls, type):
        raise RegistrationRefused(repr(cls), "it is not a class")
    if issubclass(cls, enum.Enum):
        return Choice(name, cls, issubclass(cls, enum.Flag))
    if issubclass(cls, msgspec.Struct):
        return _record(cls, name, cls.__struct_fields__, functools.partial(_call, cls, cls.__struct_fields__))
    if _is_named_tuple(cls):
        return _record(cls, name, cls._fields, functools.partial(_zip, cls))  # type: ignore[attr-defined, arg-type]
    if not dataclasses.is_dataclass(cls):
        raise RegistrationRefused(class_name(cls), "it has no declared fields")
    try:
        object.__new__(cls)
    except TypeError as error:
        raise RegistrationRefused(
            class_name(cls), f"its objects cannot be built from fields alone ({error})"
        ) from error
    fields = tuple(field.name for field in dataclasses.fields(cls))
    return _record(cls, name, fields, functools.partial(_assign, cls, fields))


def _record(cls: type, name: str, fields: tuple[str, ...], build: Build) -> RegisteredRecord:
    bodies = [vars(base) for base in cls.__mro__ if base is not object]
    slots = {slot for body in bodies if "_fields" not in body for slot in _slots(body)}
    hidden = slots - set(fields) - {"__dict__", "__weakref__"}
    if hidden:
        raise RegistrationRefused(class_name(cls), f"its slots {sorted(hidden)} are not fields and would be lost")
    cached = {key for body in bodies for key, item in body.items() if isinstance(item, functools.cached_property)}
    return RegisteredRecord(
        name=name,
        cls=cls,
        fields=fields,
        signature=" ".join(fields),
        build=build,
        has_dict=cls.__dictoffset__ != 0,
        attributes=NEVER_STATE.union(fields, cached),
    )


def _slots(body: Any) -> tuple[str, ...]:
    slots = body.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _assign(cls: type, fields: tuple[str, ...], columns: Sequence[Sequence[object]], count: int) -> list[Any]:
    """Builds dataclasses, frozen ones too, without their ``__init__``."""
    made: list[Any] = list(map(object.__new__, repeat(cls, count)))
    for field, column in zip(fields, columns, strict=True):
        deque(map(object.__setattr__, made, repeat(field), column), maxlen=0)
    return made


def _zip(cls: type[tuple[Any, ...]], columns: Sequence[Sequence[object]], count: int) -> list[Any]:
    """Builds NamedTuples."""
    rows = zip(*columns, strict=True) if columns else repeat((), count)
    return list(map(tuple.__new__, repeat(cls), rows))


def _call(cls: type, fields: tuple[str, ...], columns: Sequence[Sequence[object]], count: int) -> list[Any]:
    """Builds Structs."""
    rows = zip(*columns, strict=True) if columns else repeat((), count)
    return [cls(**dict(zip(fields, row, strict=True))) for row in rows]
