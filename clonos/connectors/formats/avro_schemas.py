"""Schemas of Avro: given as a dict or JSON, or derived from the fields of a class."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from clonos.connectors.codecs.avro import checked_schema
from clonos.connectors.codecs.codec import InvalidCodec
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.typed_records import RECORDS

kinds = msgspec.inspect

_PLAIN: Final[dict[type[Any], Any]] = {
    kinds.BoolType: "boolean",
    kinds.IntType: "long",
    kinds.FloatType: "double",
    kinds.StrType: "string",
    kinds.BytesType: "bytes",
    kinds.NoneType: "null",
    kinds.DateTimeType: {"type": "long", "logicalType": "timestamp-micros"},
    kinds.DateType: {"type": "int", "logicalType": "date"},
    kinds.TimeType: {"type": "long", "logicalType": "time-micros"},
    kinds.UUIDType: {"type": "string", "logicalType": "uuid"},
}
_LISTS: Final = (kinds.ListType, kinds.SetType, kinds.FrozenSetType, kinds.VarTupleType)


def avro_schema(connector: str, schema: Any) -> Any:
    """Returns a schema as JSON values. A class gives a record of its fields.

    Raises: InvalidConnector: it is no schema of Avro, or the class has a field that Avro cannot hold.
    """
    try:
        if isinstance(schema, type):
            schema = _schema_of_class(connector, schema)
        found = checked_schema(connector, schema)
    except InvalidCodec as error:
        raise InvalidConnector(connector, error.problem, error.advice) from None
    return found


def _schema_of_class(connector: str, schema: type[Any]) -> Any:
    try:
        found = kinds.type_info(schema)
    except (TypeError, NameError) as error:
        raise InvalidConnector(connector, f"schema={schema.__qualname__} cannot be read: {error}", _ADVICE) from None
    if not isinstance(found, RECORDS):
        raise InvalidConnector(connector, f"schema={schema.__qualname__} is not a class with fields", _ADVICE)
    return _type_of(connector, schema.__name__, found, set())


_ADVICE: Final = "Give a schema of Avro, or a dataclass, NamedTuple, TypedDict or msgspec.Struct."


def _type_of(connector: str, place: str, found: Any, known: set[str]) -> Any:
    """Returns the schema of a type. ``known`` are the names of records that are defined already."""
    if (plain := _PLAIN.get(type(found))) is not None:
        return plain
    if isinstance(found, RECORDS):
        name = found.cls.__name__
        if name in known:
            return name
        known.add(name)
        return {
            "type": "record",
            "name": name,
            "fields": [_field(connector, name, field, known) for field in found.fields],
        }
    if isinstance(found, _LISTS):
        return {"type": "array", "items": _type_of(connector, place, found.item_type, known)}
    if isinstance(found, kinds.DictType) and isinstance(found.key_type, kinds.StrType):
        return {"type": "map", "values": _type_of(connector, place, found.value_type, known)}
    if isinstance(found, kinds.UnionType):
        return [_type_of(connector, place, one, known) for one in sorted(found.types, key=_none_first)]
    kind = type(found).__name__.removesuffix("Type")
    problem = f"the field {place} is of a type ({kind}) for which Avro has no single one"
    raise InvalidConnector(connector, problem, "Give the whole schema of Avro as a dict.")


def _field(connector: str, record: str, field: Any, known: set[str]) -> dict[str, Any]:
    described = {"name": field.name, "type": _type_of(connector, f"{record}.{field.name}", field.type, known)}
    if field.required:
        return described
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if default is None or type(default) in (bool, int, float, str) or default in ([], {}):
        is_first = not isinstance(described["type"], list) or default is None
        if is_first:  # a default is of the first type of a union
            described["default"] = default
    return described


def _none_first(found: Any) -> bool:
    return not isinstance(found, kinds.NoneType)
