"""Records of a class: JSON lines are checked against its fields and become its objects.

The class is a dataclass, a NamedTuple, a msgspec.Struct or a TypedDict, whose records stay dicts. Fields may be of the
types of JSON, of other such classes, datetime, date, time, timedelta, UUID, Decimal, bytes (base64) and enums. A field
with a default may be missing; a key without a field is left out. A NamedTuple inside a field is an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar, cast, get_type_hints

import msgspec

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.json_keys import check_keys
from clonos.connectors.json_text import parse_json, parse_json_lines
from clonos.connectors.value_depth import check_depth
from clonos.core.values import register
from clonos.core.values.type_registry import is_registrable
from clonos.kernels.texts import keys_max

T = TypeVar("T")

CACHE: Final = "__msgspec_cache__"

RECORDS: Final = (
    msgspec.inspect.DataclassType,
    msgspec.inspect.NamedTupleType,
    msgspec.inspect.StructType,
    msgspec.inspect.TypedDictType,
)

_UNTYPED: Final = (msgspec.inspect.AnyType, msgspec.inspect.RawType)
_OBJECTS: Final = (*RECORDS, msgspec.inspect.DictType, *_UNTYPED)


def check_schema(connector: str, schema: Any) -> None:
    """Checks that lines can become objects of a class, and registers it and the classes of its fields, so that they may
    travel between tasks.

    Raises: InvalidConnector: they cannot. RegistrationRefused: the class keeps state outside its fields.
    """
    try:
        found = msgspec.inspect.type_info(schema)
    except (TypeError, NameError) as error:
        raise InvalidConnector(connector, f"schema={_name_of(schema)} cannot be read: {error}", _ADVICE) from error
    if not isinstance(found, RECORDS):
        raise InvalidConnector(connector, f"schema={_name_of(schema)} is not a class with fields", _ADVICE)
    seen: dict[type, None] = {}
    parts = list(_parts_of(found, seen))
    _forget_caches(seen)
    for part in parts:
        cls = getattr(part, "cls", None)
        if isinstance(part, msgspec.inspect.CustomType):
            raise InvalidConnector(
                connector, f"schema={_name_of(schema)} has a field of the type {_name_of(cls)}", _ADVICE
            )
        if isinstance(cls, type) and is_registrable(cls):
            register(cls)


class Unfit(ValueError):
    """A line is JSON and no object of the class."""


class LineDecoder(Generic[T]):
    """Decoder of JSON lines to objects of a class that ``check_schema`` has accepted."""

    def __init__(self, schema: type[T]) -> None:
        self.name = _name_of(schema)
        twin, self._build = _twin_of(schema)
        self._twin = twin
        self._decode = msgspec.json.Decoder(twin).decode
        self._classes: dict[type, None] = {}
        parts = list(_parts_of(msgspec.inspect.type_info(schema), self._classes))
        fields = parts[0].fields  # type: ignore[attr-defined]
        is_flat = all(field.required for field in fields) and not any(isinstance(part, _OBJECTS) for part in parts[1:])
        self._is_typed = not any(isinstance(part, _UNTYPED) for part in parts)
        self._keys = len(fields) if is_flat else 0  # of each line that has no others; 0: that cannot be told
        _forget_caches(self._classes)

    def decode_lines(self, lines: list[str]) -> list[T] | None:
        """Decodes lines at once; returns None if one needs ``decode``."""
        try:
            found = list(map(self._decode, lines))
        except (msgspec.DecodeError, RecursionError):
            return None
        if not self._has_all_keys(lines) and parse_json_lines(lines) is None:
            return None  # a key may be there twice
        return found if self._build is None else list(map(self._build, found))

    def decode(self, line: str) -> T:
        """Decodes one line.

        Raises: ValueError: the line is not JSON; the message says why. Unfit: it does not fit the class.
        """
        try:
            found = self._decoded(line)
        except msgspec.ValidationError as error:
            raise Unfit(f"does not fit {self.name}: {error}") from None
        finally:
            _forget_caches(self._classes)
        return cast("T", found if self._build is None else self._build(found))

    def _has_all_keys(self, lines: list[str]) -> bool:
        """Returns whether no key is there twice in lines of the class; False if that cannot be told at once."""
        return bool(self._keys) and keys_max(lines) == self._keys * len(lines)

    def _decoded(self, line: str) -> Any:
        if self._is_typed:  # a field of decimals gets all digits
            check_depth(line)
            with suppress(msgspec.DecodeError, RecursionError):
                found = self._decode(line)
                if not self._has_all_keys([line]):
                    check_keys(line, msgspec.json.decode(line))
                return found
        return msgspec.convert(parse_json(line), self._twin)


_ADVICE = (
    "Give a dataclass, NamedTuple, msgspec.Struct or TypedDict at the top level of a module, with fields that JSON can"
    " hold."
)


def _twin_of(schema: type[Any]) -> tuple[type[Any], Callable[[Any], Any] | None]:
    """Returns the class that msgspec decodes, and what makes the object: it takes a NamedTuple for an array, so that a
    Struct with the same fields is decoded in its place."""
    found = msgspec.inspect.type_info(schema)
    if not isinstance(found, msgspec.inspect.NamedTupleType):
        return schema, None
    hints = get_type_hints(schema, include_extras=True)
    defaults: dict[str, Any] = vars(schema)["_field_defaults"]
    fields = [(name, hints[name], defaults[name]) if name in defaults else (name, hints[name]) for name in hints]
    return msgspec.defstruct(schema.__name__, fields), lambda twin: schema(*msgspec.structs.astuple(twin))


def _forget_caches(classes: Iterable[type]) -> None:
    """Removes what msgspec keeps in the classes that it decodes: a class with it cannot be sent to the slots."""
    for cls in classes:
        if CACHE in vars(cls):
            delattr(cls, CACHE)


def _parts_of(found: Any, seen: dict[type, None]) -> Iterator[msgspec.inspect.Type]:
    """Yields a type and those of its fields and items, each class once."""
    cls = getattr(found, "cls", None)
    if isinstance(cls, type):
        if cls in seen:
            return
        seen[cls] = None
    yield found
    inner = [field.type for field in getattr(found, "fields", ())]
    inner += [*getattr(found, "types", ()), *getattr(found, "item_types", ())]
    inner += [each for name in ("item_type", "key_type", "value_type") if (each := getattr(found, name, None))]
    for each in inner:
        yield from _parts_of(each, seen)


def _name_of(schema: Any) -> str:
    return schema.__qualname__ if isinstance(schema, type) else f"{schema!r:.80}"
