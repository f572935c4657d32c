"""Codecs between bytes and values: for ``decode=`` and ``encode=`` of sources and sinks, and for a ``map``.

``a | b`` is a codec too: ``codecs.gzip() | codecs.json()`` decompresses, then parses, and the other way round encodes.
A record that does not decode goes to the error output of the job, if it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from clonos.connectors.codecs.avro import AvroCodec, AvroFileCodec, ConfluentAvroCodec
from clonos.connectors.codecs.codec import Codec as Codec
from clonos.connectors.codecs.codec import UndecodableBytes as UndecodableBytes
from clonos.connectors.codecs.codec import UnencodableValue as UnencodableValue
from clonos.connectors.codecs.codec_choice import CodecRegistry, codec_of, is_record_class
from clonos.connectors.codecs.compressed import BYTES_MAX, ArrowCompressed, GzipCodec
from clonos.connectors.codecs.debezium import DebeziumChange as DebeziumChange
from clonos.connectors.codecs.debezium import DebeziumCodec
from clonos.connectors.codecs.plain import (
    ArrowCodec,
    CsvCodec,
    FieldsCodec,
    JsonCodec,
    MsgpackCodec,
    Number,
    NumberCodec,
    RawCodec,
    TextCodec,
    XmlCodec,
)
from clonos.connectors.codecs.protobuf import ProtobufCodec
from clonos.connectors.codecs.schema_registry import SchemaRegistry as SchemaRegistry
from clonos.core.model.missing_names import explains_names
from clonos.core.model.wrong_calls import explains_calls

if TYPE_CHECKING:
    from pyarrow import RecordBatch

T = TypeVar("T")

__all__ = [
    *("Codec", "UndecodableBytes", "UnencodableValue", "SchemaRegistry", "register", "for_type"),
    *("debezium", "DebeziumChange"),
    *("raw", "text", "number", "json", "csv", "xml", "msgpack", "arrow"),
    *("avro", "avro_file", "confluent_avro", "protobuf"),
    *("gzip", "zstd", "lz4", "fields"),
]


@explains_calls
def raw() -> Codec[bytes, bytes]:
    """Bytes as they are."""
    return RawCodec()


@explains_calls
def number(kind: type[Number]) -> Codec[bytes, Number]:
    """A number in digits, such as b"12": ``int`` or ``float``."""
    return NumberCodec(kind)


@explains_calls
def text(encoding: str = "utf-8") -> Codec[bytes, str]:
    """Text in one of Python's encodings."""
    return TextCodec(encoding)


@overload
def json() -> Codec[bytes, Any]: ...
@overload
def json(schema: type[T]) -> Codec[bytes, T]: ...
@explains_calls
def json(schema: type[T] | None = None) -> Codec[bytes, Any]:
    """JSON: of any value, or of the objects of a class, as ``files.jsonl(schema=)`` describes them."""
    return JsonCodec(schema)


@explains_calls
def csv(columns: Sequence[str], delimiter: str = ",") -> Codec[str, dict[str, str]]:
    """One line of CSV as a dict of texts, after ``text()``."""
    return CsvCodec(columns, delimiter)


@explains_calls
def xml() -> Codec[bytes, dict[str, Any]]:
    """XML as dicts: ``{"order": {"@id": "1", "item": ["pen", "ink"]}}``, as the package xmltodict has them."""
    return XmlCodec()


@explains_calls
def msgpack() -> Codec[bytes, Any]:
    """MessagePack."""
    return MsgpackCodec()


@explains_calls
def arrow() -> Codec[bytes, RecordBatch]:
    """A ``pyarrow.RecordBatch`` as a stream of Arrow IPC."""
    return ArrowCodec()


@explains_calls
def avro(schema: Any, *, reader: Any = None) -> Codec[bytes, Any]:
    """One datum of Avro without its schema. ``schema``: its dict or JSON. ``reader``: the schema to read it as."""
    return AvroCodec(schema, reader)


@explains_calls
def avro_file(schema: Any = None, *, reader: Any = None) -> Codec[bytes, list[Any]]:
    """A container file of Avro as the list of its records. ``schema`` is for encoding."""
    return AvroFileCodec(schema, reader)


@explains_calls
def confluent_avro(
    registry: str | SchemaRegistry, *, subject: str | None = None, schema: Any = None, reader: Any = None
) -> Codec[bytes, Any]:
    """Avro in Confluent's wire format. ``registry``: a URL, or a ``SchemaRegistry`` with a user and a password.

    Encoding needs ``subject``, such as "orders-value", and ``schema``, which is registered under it.
    """
    known = registry if isinstance(registry, SchemaRegistry) else SchemaRegistry(registry)
    return ConfluentAvroCodec(known, subject, schema, reader)


@explains_calls
def protobuf(message: Any, *, descriptor: str | Path | bytes | None = None) -> Codec[bytes, dict[str, Any]]:
    """A message of Protocol Buffers as a dict. ``message``: a generated class, or a full name in ``descriptor``.

    ``descriptor``: a file that ``protoc --include_imports --descriptor_set_out=FILE`` wrote, or its bytes.
    """
    return ProtobufCodec(message, descriptor)


@explains_calls
def debezium(
    envelope: Codec[bytes, Any] | None = None, *, columns: Mapping[str, str] | None = None
) -> Codec[bytes, DebeziumChange]:
    """A change in Debezium's envelope, with a schema (``schemas.enable``) or without; it is written without one.

    ``envelope``: how the envelope itself is encoded, ``json()`` by default, or ``confluent_avro(...)``. ``columns``:
    the types of columns that a message without a schema does not tell, in Debezium's words, such as
    ``{"price": "Decimal(2)", "at": "MicroTimestamp"}``.
    """
    return (json() if envelope is None else envelope) | DebeziumCodec(columns)


@explains_calls
def gzip(bytes_max: int = BYTES_MAX) -> Codec[bytes, bytes]:
    """gzip. More than ``bytes_max`` bytes decompressed, 64 MiB by default, are refused."""
    return GzipCodec("gzip", bytes_max)


@explains_calls
def zstd(bytes_max: int = BYTES_MAX) -> Codec[bytes, bytes]:
    """Zstandard. More than ``bytes_max`` bytes decompressed, 64 MiB by default, are refused."""
    return ArrowCompressed("zstd", bytes_max)


@explains_calls
def lz4(bytes_max: int = BYTES_MAX) -> Codec[bytes, bytes]:
    """Frames of LZ4. More than ``bytes_max`` bytes decompressed, 64 MiB by default, are refused."""
    return ArrowCompressed("lz4", bytes_max)


@explains_calls
def fields(*names: str) -> Codec[dict[str, Any], dict[str, Any]]:
    """Some fields of a dict, after a codec that gives dicts. ``"user.id"`` leads into the dict of ``user``."""
    return FieldsCodec(names)


_registry = CodecRegistry()


@explains_calls
def register(outer: type, inner: type | Callable[[Any], bool], make: Callable[[Any], Codec[Any, Any]]) -> None:
    """Registers a codec for ``decode=`` and ``encode=`` with a type.

    ``make(inner)`` creates a codec between ``outer``, such as ``bytes``, and ``inner``: a type, or a function that says
    whether a type fits.
    """
    _registry.register(outer, inner, make)


@explains_calls
def for_type(wanted: Any) -> Codec[bytes, Any]:
    """Returns the codec between bytes and a type: the only shortest chain of registered codecs.

    Raises: InvalidCodec: there is none, or there are several; the error lists them.
    """
    return _registry.chain(bytes, wanted)


def for_decoding(connector: str, given: Any) -> Codec[bytes, Any]:
    """Returns the codec that ``decode=`` of a connector means: a codec, a type, or a function.

    Raises: InvalidCodec: it means none.
    """
    return codec_of(connector, "decode", given, _registry)


def for_encoding(connector: str, given: Any) -> Codec[bytes, Any]:
    """Returns the codec that ``encode=`` of a connector means: a codec, a type, or a function.

    Raises: InvalidCodec: it means none.
    """
    return codec_of(connector, "encode", given, _registry)


def _is_record_batch(wanted: Any) -> bool:
    return isinstance(wanted, type) and (wanted.__module__, wanted.__name__) == ("pyarrow.lib", "RecordBatch")


register(bytes, str, lambda _: text())
register(bytes, int, number)
register(bytes, float, number)
register(bytes, is_record_class, json)
register(bytes, dict, lambda _: json())
register(bytes, dict, lambda _: msgpack())
register(bytes, dict, lambda _: xml())
register(bytes, list, lambda _: json())
register(bytes, list, lambda _: msgpack())
register(bytes, _is_record_batch, lambda _: arrow())

explains_names(
    __name__,
    {
        "string": "Use text.",
        "str": "Use text.",
        "bytes": "Use raw.",
        "int": "Use number(int).",
        "float": "Use number(float).",
        "proto": "Use protobuf.",
        "cdc": "Use debezium.",
        "JSON": "Use json.",
        "utf8": "Use text.",
    },
)
