"""Codecs of Avro, by fastavro: one datum by its schema, container files, and Confluent's wire format.

Values are those of fastavro: dict, list, str, bytes, int, float, bool, None, and for logical types datetime (aware),
date, time, Decimal and UUID.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
from collections import Counter
from functools import cached_property
from typing import Any

from clonos.connectors.codecs.avro_values import Checks, NotOfSchema
from clonos.connectors.codecs.codec import Codec, InvalidCodec, shown
from clonos.connectors.codecs.schema_registry import SchemaRegistry
from clonos.core.model.errors import ExtraMissing

MAGIC = 0
HEAD = struct.Struct(">bI")
"""Confluent's wire format: a zero, and the id of the schema in four bytes."""


class AvroCodec(Codec[bytes, Any]):
    """One datum in Avro's binary encoding, without its schema."""

    def __init__(self, schema: Any, reader: Any) -> None:
        self.schema = checked_schema("codecs.avro", schema)
        self.reader = None if reader is None else checked_schema("codecs.avro", reader)
        self.name = f"avro({schema_name(self.schema)})"

    @cached_property
    def _schemas(self) -> tuple[Any, Any]:
        return parsed(self.schema), None if self.reader is None else parsed(self.reader)

    @cached_property
    def _checks(self) -> Checks:
        return checks_of(self._schemas[0])

    def decode(self, data: bytes) -> Any:
        """See ``Codec``."""
        return decode_datum(self, data, *self._schemas)

    def encode(self, value: Any) -> bytes:
        """See ``Codec``."""
        return encode_datum(self, value, self._schemas[0], self._checks)


class AvroFileCodec(Codec[bytes, list[Any]]):
    """A container file of Avro, which names its schema, as the list of its records."""

    def __init__(self, schema: Any, reader: Any) -> None:
        self.schema = None if schema is None else checked_schema("codecs.avro_file", schema)
        self.reader = None if reader is None else checked_schema("codecs.avro_file", reader)
        self.name = "avro_file()"
        fastavro()

    @cached_property
    def _checks(self) -> Checks:
        return checks_of(parsed(self.schema))

    def decode(self, data: bytes) -> list[Any]:
        """See ``Codec``."""
        try:
            found = list(fastavro().reader(io.BytesIO(data), reader_schema=self.reader))
        except Exception as error:  # noqa: BLE001  fastavro lets anything pass
            raise self.undecodable(_reason(error)) from None
        return self.shallow(found, len(data))

    def encode(self, value: list[Any]) -> bytes:
        """See ``Codec``.

        Raises: InvalidCodec: it has no schema.
        """
        if self.schema is None:
            raise InvalidCodec(self.name, "it has no schema to write with", "Give codecs.avro_file(schema=...).")
        file = io.BytesIO()
        try:
            for each in value:
                self._checks(each)
            # fastavro draws the 16 bytes between blocks at random by default: equal values must give equal bytes.
            marker = hashlib.sha256(json.dumps(self.schema).encode()).digest()[:16]
            fastavro().writer(file, parsed(self.schema), value, sync_marker=marker, strict_allow_default=True)
        except Exception as error:  # noqa: BLE001  fastavro lets anything pass
            raise self.unencodable(value, _reason(error)) from None
        return file.getvalue()


class ConfluentAvroCodec(Codec[bytes, Any]):
    """Avro in Confluent's wire format: each datum names its schema by the id that a schema registry has given it."""

    def __init__(self, registry: SchemaRegistry, subject: str | None, schema: Any, reader: Any) -> None:
        if (subject is None) != (schema is None):
            raise InvalidCodec(
                "codecs.confluent_avro", "subject= and schema= belong together", "Give both to encode, none to decode."
            )
        self.registry = registry
        self.subject = subject
        self.schema = None if schema is None else checked_schema("codecs.confluent_avro", schema)
        self.reader = None if reader is None else checked_schema("codecs.confluent_avro", reader)
        self.name = "confluent_avro()"
        fastavro()

    @cached_property
    def _writers(self) -> dict[int, Any]:
        return {}

    @cached_property
    def _parsed(self) -> tuple[Any, Any]:
        return tuple(None if one is None else parsed(one) for one in (self.schema, self.reader))  # type: ignore[return-value]

    @cached_property
    def _checks(self) -> Checks:
        return checks_of(self._parsed[0])

    @cached_property
    def _head(self) -> bytes:
        assert self.subject is not None
        return HEAD.pack(MAGIC, self.registry.register(self.subject, json.dumps(self.schema)))

    def decode(self, data: bytes) -> Any:
        """See ``Codec``.

        Raises: RegistryFailed: the registry does not answer, or refuses to.
        """
        if len(data) < HEAD.size or data[0] != MAGIC:
            raise self.undecodable(f"it begins with {shown(bytes(data[:5]))}, not with a zero and the id of a schema")
        number = HEAD.unpack_from(data)[1]
        writer = self._writers.get(number)
        if writer is None:
            text = self.registry.schema(number)
            if text is None:
                raise self.undecodable(f"the registry {self.registry.shown_url} has no schema {number}")
            writer = self._writers[number] = parsed(checked_schema(self.name, text))
        return decode_datum(self, data[HEAD.size :], writer, self._parsed[1])

    def encode(self, value: Any) -> bytes:
        """See ``Codec``.

        Raises: InvalidCodec: it has no schema. RegistryFailed: the registry does not answer, or refuses the schema.
        """
        if self.schema is None:
            raise InvalidCodec(self.name, "it has no schema to write with", "Give subject= and schema=.")
        return self._head + encode_datum(self, value, self._parsed[0], self._checks)

    def trial(self, value: Any) -> bytes:
        """See ``Codec``. It asks no registry."""
        return b"" if self.schema is None else encode_datum(self, value, self._parsed[0], self._checks)


def decode_datum(codec: Codec[bytes, Any], data: bytes, writer: Any, reader: Any) -> Any:
    """Decodes one datum, all of whose bytes belong to it.

    Raises: UndecodableBytes: it does not have the schema.
    """
    file = io.BytesIO(data)
    try:
        found = fastavro().schemaless_reader(file, writer, reader)
    except Exception as error:  # noqa: BLE001  fastavro lets anything pass
        raise codec.undecodable(_reason(error)) from None
    if rest := len(data) - file.tell():
        raise codec.undecodable(f"{rest} of its {len(data)} bytes are left over: it has another schema")
    return codec.shallow(found, len(data))


def encode_datum(codec: Codec[bytes, Any], value: Any, schema: Any, check: Checks) -> bytes:
    """Encodes one datum. A field that the schema does not have is refused, and what its type does not hold.

    Raises: UnencodableValue: the value does not have the schema.
    """
    file = io.BytesIO()
    try:
        check(value)
        fastavro().schemaless_writer(file, schema, value, strict_allow_default=True)
    except Exception as error:  # noqa: BLE001  fastavro lets anything pass
        raise codec.unencodable(value, _reason(error)) from None
    return file.getvalue()


def checked_schema(codec: str, schema: Any) -> Any:
    """Returns a schema as JSON values.

    Raises: InvalidCodec: it is no schema of Avro.
    """
    fastavro()
    try:
        found = json.loads(schema) if isinstance(schema, str) and schema.lstrip()[:1] in '{["' else schema
        check_names(parsed(found))
    except Exception as error:  # noqa: BLE001  fastavro lets anything pass
        raise InvalidCodec(
            codec, f"{shown(schema)} is no schema of Avro: {_reason(error)}", "Give its dict, or its JSON."
        ) from None
    return found


def check_names(schema: Any) -> None:
    """Checks that the fields of each record have names that differ, which fastavro does not.

    Raises: ValueError: two have one name.
    """
    if isinstance(schema, list):
        for one in schema:
            check_names(one)
    elif isinstance(schema, dict):
        names = [field["name"] for field in schema.get("fields", ())]
        if repeated := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"two fields of {schema['name']} have the name {repeated[0]!r}")
        for within in (
            *(field["type"] for field in schema.get("fields", ())),
            schema.get("items"),
            schema.get("values"),
        ):
            check_names(within)


def parsed(schema: Any) -> Any:
    """Returns a schema as fastavro uses it."""
    return fastavro().parse_schema(schema)


def schema_name(schema: Any) -> str:
    """Returns the name of a schema for messages."""
    return str(schema.get("name", schema.get("type"))) if isinstance(schema, dict) else shown(schema)


def checks_of(schema: Any) -> Checks:
    """Returns the checks of the values of a parsed schema."""
    return Checks(schema, fastavro().validation.validate)


def _reason(error: Exception) -> str:
    if isinstance(error, NotOfSchema):
        return str(error)
    if isinstance(error, EOFError):
        return "it is cut off"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def fastavro() -> Any:
    """Returns the module.

    Raises: ExtraMissing: it is not installed.
    """
    try:
        import fastavro
    except ImportError:
        raise ExtraMissing("Avro", "fastavro", "avro") from None
    return fastavro
