"""Pickling of ``msgspec.Struct`` classes by value, because a slot cannot import the file that the job was written in.

The class is created with its fields first, and gets its methods and field types afterwards, because these may refer to
it. However often it is unpickled, a process has it once; the process that pickled it gets the original class.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

CONFIGURED: Final = (
    "frozen",
    "eq",
    "order",
    "array_like",
    "gc",
    "repr_omit_defaults",
    "omit_defaults",
    "forbid_unknown_fields",
    "weakref",
    "dict",
    "cache_hash",
    "tag",
    "tag_field",
)
MADE_ANEW: Final = ("__slots__", "__annotations__", "__dict__", "__weakref__", "__match_args__")

Reduced = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], None, None, Callable[[Any, Any], None]]

_name_of: WeakKeyDictionary[type, str] = WeakKeyDictionary()
_named: WeakValueDictionary[str, type] = WeakValueDictionary()


def reduce_struct(cls: type[msgspec.Struct]) -> Reduced:
    """Returns the reduced form of a class for a pickler: how to create it, and the members to set on it then."""
    types = _types(cls)
    without = len(cls.__struct_fields__) - len(cls.__struct_defaults__)
    defaults = dict(zip(cls.__struct_fields__[without:], cls.__struct_defaults__, strict=True))
    fields = {name: _default(defaults.get(name, msgspec.NODEFAULT)) for name in types}
    config = {name: getattr(cls.__struct_config__, name) for name in CONFIGURED}
    config["rename"] = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
    parameters = inspect.signature(cls).parameters
    config["kw_only"] = any(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in types)
    members = {
        name: member
        for name, member in cls.__dict__.items()
        if name not in types and name not in MADE_ANEW and not name.startswith("__struct_")
    }
    identity = _name_of.setdefault(cls, uuid.uuid4().hex)
    _named[identity] = cls
    arguments = (identity, type(cls), cls.__name__, cls.__bases__, fields, config)
    return _make, arguments, {**members, "__annotations__": types}, None, None, _complete


def _types(cls: type[msgspec.Struct]) -> dict[str, Any]:
    """Returns the types of the class's own fields, resolved to classes, because a slot lacks the module to look names
    up in."""
    types = inspect.get_annotations(cls)
    with suppress(NameError):
        types.update((field.name, field.type) for field in msgspec.structs.fields(cls) if field.name in types)
    return types


def _default(default: Any) -> tuple[str, Any]:
    if default is msgspec.NODEFAULT:
        return "required", None
    factory = getattr(default, "factory", None) if type(default).__module__ == "msgspec._core" else None
    return ("default", default) if factory is None else ("default_factory", factory)


def _make(
    identity: str, kind: Any, name: str, bases: tuple[type, ...], fields: dict[str, tuple[str, Any]], config: Any
) -> type:
    if identity in _named:
        return _named[identity]
    namespace: dict[str, Any] = {"__annotations__": dict.fromkeys(fields, Any)}
    for field, (how, default) in fields.items():
        if how != "required":
            namespace[field] = msgspec.field(**{how: default})
    cls: type = kind(name, bases, namespace, **config)
    _named[_name_of.setdefault(cls, identity)] = cls
    return cls


def _complete(cls: Any, members: dict[str, Any]) -> None:
    for name, member in members.items():
        setattr(cls, name, member)
