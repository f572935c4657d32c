"""Codec of Protocol Buffers: messages by their descriptor, as dicts.

A dict has the fields by the names of the `.proto` file: nested messages and maps are dicts, repeated fields lists,
enums their names (numbers that have no name stay numbers). A field that records its presence and is not set is left
out; any other field has its default. A message of google.protobuf such as Timestamp is a dict of its fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from clonos.connectors.codecs.codec import Codec, InvalidCodec, shown
from clonos.core.model.errors import ExtraMissing


class ProtobufCodec(Codec[bytes, dict[str, Any]]):
    """A message type. It travels to the tasks as its descriptor, without the generated module."""

    def __init__(self, message: Any, descriptor: str | Path | bytes | None) -> None:
        _protobuf()
        if descriptor is None:
            self.type_name, self.descriptor = _of_class(message)
        else:
            self.type_name, self.descriptor = message, _bytes_of(descriptor)
        self.name = f"protobuf({self.type_name})"
        _ = self._message  # a wrong descriptor is refused here

    @cached_property
    def _message(self) -> Any:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.message import DecodeError

        advice = "Give a file of `protoc --include_imports --descriptor_set_out=FILE`, and a full name in it."
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in descriptor_pb2.FileDescriptorSet.FromString(self.descriptor).file:
                pool.Add(file)
            found = pool.FindMessageTypeByName(self.type_name)
        except (DecodeError, TypeError) as error:
            raise InvalidCodec("codecs.protobuf", f"the descriptor cannot be read: {error}", advice) from None
        except KeyError as error:
            raise InvalidCodec("codecs.protobuf", f"{self.type_name!r} is not found: {error}", advice) from None
        return message_factory.GetMessageClass(found)

    def decode(self, data: bytes) -> dict[str, Any]:
        """See ``Codec``."""
        from google.protobuf.message import DecodeError

        message = self._message()
        try:
            message.ParseFromString(bytes(data))
        except (DecodeError, RecursionError) as error:
            raise self.undecodable(error) from None
        return self.shallow(_as_dict(message), len(data))

    def encode(self, value: dict[str, Any]) -> bytes:
        """See ``Codec``. Equal dicts give equal bytes."""
        from google.protobuf.message import EncodeError

        message = self._message()
        try:
            _fill(message, value)
            encoded: bytes = message.SerializeToString(deterministic=True)
        except (_Unfit, TypeError, ValueError, OverflowError, EncodeError, RecursionError) as error:
            raise self.unencodable(value, error) from None
        return encoded


class _Unfit(Exception):
    """A dict does not have the form of the message."""


def _as_dict(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            found[field.name] = {key: _value(inner, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_value(field, each) for each in value]
        else:
            found[field.name] = _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _as_dict(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    return value


def _fill(message: Any, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise _Unfit(f"{shown(value)} is not a dict of the fields of {message.DESCRIPTOR.full_name}")
    fields = message.DESCRIPTOR.fields_by_name
    for name, given in value.items():
        field = fields.get(name)
        if field is None:
            raise _Unfit(f"{message.DESCRIPTOR.full_name} has no field {name!r}")
        if given is None:
            continue
        if _is_map(field):
            _fill_map(getattr(message, name), field.message_type.fields_by_name["value"], given)
        elif field.is_repeated:
            target = getattr(message, name)
            for each in given:
                if field.message_type is not None:
                    _fill(target.add(), each)
                else:
                    target.append(_plain(field, each))
        elif field.message_type is not None:
            getattr(message, name).SetInParent()
            _fill(getattr(message, name), given)
        else:
            setattr(message, name, _plain(field, given))


def _fill_map(target: Any, inner: Any, given: Any) -> None:
    if not isinstance(given, Mapping):
        raise _Unfit(f"{shown(given)} is not a dict, as the value of a map is")
    for key, each in given.items():
        if inner.message_type is not None:
            _fill(target[key], each)
        else:
            target[key] = _plain(inner, each)


def _plain(field: Any, value: Any) -> Any:
    if field.enum_type is not None and isinstance(value, str):
        named = field.enum_type.values_by_name.get(value)
        if named is None:
            raise _Unfit(f"{field.enum_type.full_name} has no value {value!r}")
        return named.number
    return value


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _of_class(message: Any) -> tuple[str, bytes]:
    """Returns the full name of a message class, and a descriptor set of its file and all that it imports."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import Message

    if not (isinstance(message, type) and issubclass(message, Message)):
        raise InvalidCodec(
            "codecs.protobuf",
            f"{shown(message)} is no message class",
            "Give a class of a generated module, or a full name and descriptor=.",
        )
    files = descriptor_pb2.FileDescriptorSet()
    for file in _files_of(message.DESCRIPTOR.file, set()):
        file.CopyToProto(files.file.add())
    return message.DESCRIPTOR.full_name, files.SerializeToString(deterministic=True)


def _files_of(file: Any, seen: set[str]) -> Iterator[Any]:
    if file.name not in seen:
        seen.add(file.name)
        for imported in file.dependencies:
            yield from _files_of(imported, seen)
        yield file


def _bytes_of(descriptor: str | Path | bytes) -> bytes:
    if isinstance(descriptor, bytes):
        return descriptor
    try:
        return Path(descriptor).read_bytes()
    except OSError as error:
        raise InvalidCodec(
            "codecs.protobuf", f"the descriptor cannot be read: {error}", "Give the path of a file that protoc wrote."
        ) from None


def _protobuf() -> None:
    try:
        import google.protobuf  # noqa: F401  only whether it is installed
    except ImportError:
        raise ExtraMissing("codecs.protobuf", "protobuf", "protobuf") from None
