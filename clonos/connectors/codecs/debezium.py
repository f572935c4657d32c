"""Debezium's envelope of a change: ``before``, ``after``, ``op``, ``source`` and ``ts_ms``, with a schema or without.

A tombstone is no envelope: it is a message without a value, which sources give as None.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal

import msgspec

from clonos.connectors.codecs.codec import Codec, InvalidCodec
from clonos.connectors.codecs.debezium_values import TYPES, ColumnType, type_named, types_of
from clonos.core.values import register

Kind = Literal["insert", "update", "delete", "read", "truncate"]
KINDS: Final[Mapping[str, Kind]] = {"c": "insert", "u": "update", "d": "delete", "r": "read", "t": "truncate"}
OPERATIONS: Final[Mapping[str, str]] = {kind: operation for operation, kind in KINDS.items()}
NOT_SENT: Final = "__debezium_unavailable_value"
NOT_SENT_FORMS: Final = (NOT_SENT, [NOT_SENT], b64encode(NOT_SENT.encode()).decode())
"""What Debezium puts in the place of a large value that an update has left alone: a text, an array, bytes."""


@register(name="clonos.codecs.DebeziumChange")
class DebeziumChange(msgspec.Struct, frozen=True):
    """Change of a row, as Debezium tells it.

    ``kind`` is "read" for a row of a snapshot. ``row`` is the row as it is now, a dict by column, or None if it is
    gone; ``old`` is what is known of the row before, or None. ``source`` has Debezium's own fields, such as ``table``
    and ``lsn``. ``ts_ms`` is the time at which Debezium has processed the change, in milliseconds since the Unix epoch.
    """

    kind: Kind
    row: Any
    old: Any
    source: Any = None
    ts_ms: int | None = None

    @property
    def table(self) -> str:
        """Returns the table with its schema, or its database if there are no schemas, before a dot."""
        source: Mapping[str, Any] = self.source or {}
        above = source.get("schema") or source.get("db")
        table = str(source.get("table") or source.get("collection") or "")
        return f"{above}.{table}" if above else table


class DebeziumCodec(Codec[Any, DebeziumChange]):
    """Envelope as the dict that a codec in front of it gives."""

    def __init__(self, columns: Mapping[str, Any] | None) -> None:
        given: object = columns
        if not isinstance(given, Mapping | None):
            problem = f"columns is {columns!r:.60}"
            raise InvalidCodec("codecs.debezium", problem, 'Give a dict, such as {"price": "Decimal(2)"}.')
        self.columns = dict(columns or {})
        self.name = "debezium()"
        for column, kind in self.columns.items():
            if not isinstance(kind, str) or type_named(kind) is None:
                names = ", ".join(["Decimal(scale)", *TYPES])
                problem = f"columns says {kind!r:.60} of {column!r}"
                raise InvalidCodec("codecs.debezium", problem, f"Give one of Debezium's types: {names}.")

    @cached_property
    def _types(self) -> dict[str, ColumnType]:
        found = {column: type_named(kind) for column, kind in self.columns.items()}
        return {column: kind for column, kind in found.items() if kind is not None}

    def decode(self, data: Any) -> DebeziumChange:
        """See ``Codec``."""
        payload, schemas = data, {}
        if isinstance(data, Mapping) and "payload" in data and "schema" in data:
            payload = data["payload"]
            schemas = self._schemas(data["schema"])
        if not isinstance(payload, Mapping) or "op" not in payload:
            raise self.undecodable("it is no envelope with the field op; a flattened row is decoded by codecs.json()")
        operation = payload["op"]
        if not isinstance(operation, str) or operation not in KINDS:
            raise self.undecodable(f"its op {operation!r:.60} is none of {', '.join(KINDS)}")
        old = self._row("before", payload.get("before"), schemas)
        row = self._row("after", payload.get("after"), schemas)
        if row is not None and old is not None:
            # A null in ``before`` may be of a table that logs its key alone; a value that was left alone is none.
            row = {name: known for name, known in old.items() if name not in row and known is not None} | row
        if row is None and KINDS[operation] in ("insert", "update", "read"):
            raise self.undecodable(f"its op is {operation} and it has no row in after")
        ts_ms = payload.get("ts_ms")
        if type(ts_ms) is not int and ts_ms is not None:
            raise self.undecodable(f"its ts_ms {ts_ms!r:.60} is not a whole number")
        return DebeziumChange(KINDS[operation], row, old, payload.get("source"), ts_ms)

    def encode(self, value: DebeziumChange) -> Any:
        """Returns the envelope without a schema."""
        if not isinstance(value, DebeziumChange):
            raise self.unencodable(value, "it is not a codecs.DebeziumChange")
        return {
            "before": self._written(value, value.old),
            "after": self._written(value, value.row),
            "source": value.source,
            "op": OPERATIONS[value.kind],
            "ts_ms": value.ts_ms,
        }

    def _schemas(self, schema: Any) -> dict[str, dict[str, ColumnType]]:
        """Returns the types of the columns in ``before`` and ``after``; none if the message has no schema."""
        if schema is None:
            return {}
        try:
            return {
                field["field"]: types_of(field)
                for field in schema["fields"]
                if field["field"] in ("before", "after") and field["type"] == "struct"
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self.undecodable(f"its schema cannot be read: {type(error).__name__}: {error}") from None

    def _row(self, part: str, given: Any, schemas: Mapping[str, Mapping[str, ColumnType]]) -> dict[str, Any] | None:
        if given is None:
            return None
        if not isinstance(given, Mapping):
            raise self.undecodable(f"its {part} is not an object")
        types = {**schemas.get(part, {}), **self._types}
        row = {}
        for name, value in given.items():
            if value in NOT_SENT_FORMS:
                continue
            kind = types.get(name)
            try:
                row[name] = value if kind is None or value is None else kind.read(value)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                raise self.undecodable(f"the column {name!r} of {part} cannot be read: {error}") from None
        return row

    def _written(self, change: DebeziumChange, row: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if row is None:
            return None
        written = {}
        for name, value in row.items():
            kind = self._types.get(name)
            try:
                written[name] = value if kind is None or value is None else kind.write(value)
            except (ValueError, TypeError, AttributeError, OverflowError) as error:
                raise self.unencodable(change, f"the column {name!r} cannot be written: {error}") from None
        return written
