"""Codecs of text, JSON, MessagePack, lines of CSV, XML and Arrow, and the projection of fields."""

from __future__ import annotations

import csv as csv_module
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from xml.parsers.expat import ExpatError

import msgspec

from clonos.connectors.codecs.codec import Codec, InvalidCodec, shown
from clonos.connectors.csv_text import csv_lines
from clonos.connectors.json_text import json_lines, parse_json
from clonos.connectors.typed_records import LineDecoder, check_schema
from clonos.core.model.errors import ExtraMissing
from clonos.operators.row_errors import RowNotWritable

if TYPE_CHECKING:
    from pyarrow import RecordBatch

T = TypeVar("T")


class TextCodec(Codec[bytes, str]):
    """Text in an encoding."""

    def __init__(self, encoding: str) -> None:
        try:
            "".encode(encoding)
        except LookupError:
            raise InvalidCodec("codecs.text", f"there is no encoding {encoding!r}", "Use one of Python's.") from None
        self.encoding = encoding
        self.name = f"text({encoding!r})"

    def decode(self, data: bytes) -> str:
        """See ``Codec``."""
        try:
            return bytes(data).decode(self.encoding)
        except UnicodeDecodeError as error:
            raise self.undecodable(error) from None

    def encode(self, value: str) -> bytes:
        """See ``Codec``."""
        if not isinstance(value, str):
            raise self.unencodable(value, "it is not a str")
        try:
            return value.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise self.unencodable(value, error) from None


class RawCodec(Codec[bytes, bytes]):
    """Bytes as they are."""

    name = "raw()"

    def decode(self, data: bytes) -> bytes:
        """See ``Codec``."""
        return data

    def encode(self, value: bytes) -> bytes:
        """See ``Codec``."""
        if not isinstance(value, bytes):
            raise self.unencodable(value, "it is not bytes")
        return value


Number = TypeVar("Number", bound=float)


class NumberCodec(Codec[bytes, Number], Generic[Number]):
    """A number in digits, as Python writes it."""

    def __init__(self, kind: type[Number]) -> None:
        if not (kind is int or kind is float):
            raise InvalidCodec("codecs.number", f"{kind!r:.80} is no class of numbers", "Give int or float.")
        self.kind: type[Number] = kind
        self.name = f"number({kind.__name__})"

    def decode(self, data: bytes) -> Number:
        """See ``Codec``."""
        parse: Callable[[str], Number] = self.kind
        try:
            digits = bytes(data).decode("ascii")
            found = parse(digits)
        except ValueError as error:
            raise self.undecodable(error) from None
        if "_" in digits:
            raise self.undecodable(f"{shown(digits)} has an underscore, which only Python takes for a number")
        if found in (inf, -inf) and "inf" not in digits.lower():
            raise self.undecodable(f"{shown(digits)} is beyond the range of a float")
        return found

    def encode(self, value: Number) -> bytes:
        """See ``Codec``."""
        if type(value) is not self.kind:
            raise self.unencodable(value, f"it is not of the type {self.kind.__name__}")
        return repr(value).encode("ascii")


class JsonCodec(Codec[bytes, T], Generic[T]):
    """JSON: of any value, or of the objects of a class."""

    def __init__(self, schema: type[T] | None) -> None:
        self.schema = schema
        self.name = "json()" if schema is None else f"json({schema.__qualname__})"
        if schema is not None:
            check_schema("codecs.json", schema)

    @cached_property
    def _decoder(self) -> LineDecoder[T]:
        assert self.schema is not None
        check_schema("codecs.json", self.schema)  # a class that came with the job is registered in this process
        return LineDecoder(self.schema)

    def decode(self, data: Any) -> T:
        """See ``Codec``. A str is taken too."""
        if isinstance(data, bytearray | memoryview):
            data = bytes(data)
        if not isinstance(data, str | bytes):
            reason = f"it is of the type {type(data).__qualname__}, and JSON is bytes or a str; files.lines reads those"
            raise self.undecodable(reason)
        try:
            if self.schema is None:
                found: T = parse_json(data)
                return found
            return self._decoder.decode(data if isinstance(data, str) else bytes(data).decode())
        except ValueError as error:
            raise self.undecodable(error) from None

    def encode(self, value: T) -> bytes:
        """See ``Codec``."""
        try:
            return json_lines((value,), self.name)[:-1]
        except RowNotWritable as error:
            raise self.unencodable(value, error.reason) from None


class MsgpackCodec(Codec[bytes, Any]):
    """MessagePack."""

    name = "msgpack()"

    def decode(self, data: bytes) -> Any:
        """See ``Codec``."""
        try:
            return self.shallow(msgspec.msgpack.decode(data), len(data))
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
            raise self.undecodable(error) from None

    def encode(self, value: Any) -> bytes:
        """See ``Codec``."""
        try:
            return msgspec.msgpack.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self.unencodable(value, error) from None


class CsvCodec(Codec[str, dict[str, str]]):
    """One line of CSV."""

    def __init__(self, columns: Sequence[str], delimiter: str) -> None:
        if isinstance(columns, str) or not columns or len(set(columns)) < len(columns):
            raise InvalidCodec("codecs.csv", f"{columns!r} names no columns", 'Give a list such as ["id", "name"].')
        if len(delimiter) != 1:
            raise InvalidCodec("codecs.csv", f"the delimiter {delimiter!r} is not one character", 'Give one, as ";".')
        self.columns = tuple(columns)
        self.delimiter = delimiter
        self.name = f"csv({list(columns)!r})"

    def decode(self, data: str) -> dict[str, str]:
        """See ``Codec``."""
        try:
            lines = list(csv_module.reader([data], delimiter=self.delimiter, strict=True))
        except csv_module.Error as error:
            several = "it is more than one line"  # of which the module says that a file should be opened otherwise
            raise self.undecodable(several if "new-line" in str(error) else error) from None
        cells = lines[0] if lines else []
        if len(cells) != len(self.columns):
            raise self.undecodable(f"it has {len(cells)} cells where {len(self.columns)} are expected")
        return dict(zip(self.columns, cells, strict=True))

    def encode(self, value: dict[str, str]) -> str:
        """See ``Codec``."""
        _check_mapping(self, value)
        if set(value) != set(self.columns):
            raise self.unencodable(value, f"its fields are not {list(self.columns)!r}")
        return csv_lines([[value[column] for column in self.columns]], self.delimiter).removesuffix("\n")


class XmlCodec(Codec[bytes, dict[str, Any]]):
    """XML as dicts, in the form of the package xmltodict."""

    name = "xml()"

    def __init__(self) -> None:
        _xmltodict()

    def decode(self, data: bytes) -> dict[str, Any]:
        """See ``Codec``."""
        try:
            found: dict[str, Any] = _xmltodict().parse(data)
        except (ExpatError, ValueError, LookupError, RecursionError) as error:  # LookupError: its encoding
            raise self.undecodable(error) from None
        return self.shallow(found, len(data))

    def encode(self, value: dict[str, Any]) -> bytes:
        """See ``Codec``."""
        _check_mapping(self, value)
        try:
            return str(_xmltodict().unparse(value)).encode()
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise self.unencodable(value, error) from None


class ArrowCodec(Codec[bytes, "RecordBatch"]):
    """A record batch as a stream of Arrow IPC."""

    name = "arrow()"

    def decode(self, data: bytes) -> RecordBatch:
        """See ``Codec``."""
        import pyarrow  # Arrow takes long to load

        try:
            table = pyarrow.ipc.open_stream(data).read_all()
            table.validate(full=True)
            batches = table.combine_chunks().to_batches()
        except (pyarrow.ArrowException, OSError) as error:
            raise self.undecodable(error) from None
        return batches[0] if batches else pyarrow.RecordBatch.from_pylist([], schema=table.schema)

    def encode(self, value: RecordBatch) -> bytes:
        """See ``Codec``."""
        import pyarrow

        if not isinstance(value, pyarrow.RecordBatch):
            raise self.unencodable(value, "it is not a pyarrow.RecordBatch")
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, value.schema) as stream:
            stream.write_batch(value)
        return bytes(sink.getvalue())


class FieldsCodec(Codec[dict[str, Any], dict[str, Any]]):
    """Some fields of a dict; a name such as ``"user.id"`` leads into the dicts inside."""

    def __init__(self, names: Sequence[str]) -> None:
        if not names:
            raise InvalidCodec("codecs.fields", "it names no field", 'Give names, as codecs.fields("id", "user.name").')
        self.paths = {name: tuple(name.split(".")) for name in names}
        self.name = f"fields({', '.join(map(repr, names))})"

    def decode(self, data: dict[str, Any]) -> dict[str, Any]:
        """See ``Codec``."""
        found = {}
        for name, path in self.paths.items():
            value: Any = data
            for part in path:
                if not isinstance(value, Mapping) or part not in value:
                    raise self.undecodable(f"it has no field {name!r}")
                value = value[part]
            found[name] = value
        return found

    def encode(self, value: dict[str, Any]) -> dict[str, Any]:
        """Returns the named fields, each under its own name; dots become dicts."""
        _check_mapping(self, value)
        encoded: dict[str, Any] = {}
        for name, path in self.paths.items():
            if name not in value:
                raise self.unencodable(value, f"it has no field {name!r}")
            inside = encoded
            for part in path[:-1]:
                inside = inside.setdefault(part, {})
            inside[path[-1]] = value[name]
        return encoded


def _check_mapping(codec: Codec[Any, Any], value: Any) -> None:
    if not isinstance(value, Mapping):
        raise codec.unencodable(value, "it is not a dict")


def _xmltodict() -> Any:
    try:
        import xmltodict
    except ImportError:
        raise ExtraMissing("codecs.xml", "xmltodict", "xml") from None
    return xmltodict
