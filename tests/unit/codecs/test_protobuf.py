"""Messages of Protocol Buffers by their descriptor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from clonos import codecs
from clonos.connectors.codecs import Codec, UndecodableBytes, UnencodableValue

Field = descriptor_pb2.FieldDescriptorProto


def order_file() -> bytes:
    """Returns a descriptor set of what protoc would make of a file with an Order."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(("NONE", "RED")):
        colour.value.add(name=name, number=number)
    part = file.message_type.add(name="Part")
    part.field.add(name="weight", number=1, type=Field.TYPE_DOUBLE, label=Field.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    order.field.add(name="data", number=2, type=Field.TYPE_BYTES, label=Field.LABEL_OPTIONAL)
    order.field.add(name="colour", number=3, type=Field.TYPE_ENUM, type_name=".shop.Colour", label=Field.LABEL_OPTIONAL)
    order.field.add(name="main", number=4, type=Field.TYPE_MESSAGE, type_name=".shop.Part", label=Field.LABEL_OPTIONAL)
    order.field.add(name="parts", number=5, type=Field.TYPE_MESSAGE, type_name=".shop.Part", label=Field.LABEL_REPEATED)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    order.field.add(
        name="counts",
        number=6,
        type=Field.TYPE_MESSAGE,
        type_name=".shop.Order.CountsEntry",
        label=Field.LABEL_REPEATED,
    )
    order.field.add(name="numbers", number=7, type=Field.TYPE_INT32, label=Field.LABEL_REPEATED)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


FULL = {
    "id": 2**53 + 1,
    "data": b"\x00\xff",
    "colour": "RED",
    "main": {"weight": 0.5},
    "parts": [{"weight": 1.5}, {"weight": 0.0}],
    "counts": {"a": 1, "b": 2},
    "numbers": [1, 2],
}


@pytest.fixture(name="order")
def order_codec() -> Codec[bytes, dict[str, Any]]:
    return codecs.protobuf("shop.Order", descriptor=order_file())


def test_every_kind_of_field_comes_back(order: Codec[bytes, dict[str, Any]]) -> None:
    assert order.decode(order.encode(FULL)) == FULL
    assert cloudpickle.loads(cloudpickle.dumps(order)).decode(order.encode(FULL)) == FULL
    swapped = dict(reversed(FULL.items())) | {"counts": {"b": 2, "a": 1}}
    assert order.encode(swapped) == order.encode(FULL)


def test_a_field_without_presence_has_its_default_and_one_with_presence_is_left_out(
    order: Codec[bytes, dict[str, Any]],
) -> None:
    assert order.decode(b"") == {"id": 0, "data": b"", "colour": "NONE", "parts": [], "counts": {}, "numbers": []}
    assert order.decode(order.encode({"main": {}}))["main"] == {"weight": 0.0}
    assert order.decode(order.encode({"colour": 9}))["colour"] == 9


def test_a_descriptor_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "shop.desc").write_bytes(order_file())
    assert codecs.protobuf("shop.Order", descriptor=tmp_path / "shop.desc").decode(b"\x08\x05")["id"] == 5


def test_a_generated_class_needs_no_descriptor() -> None:
    codec = codecs.protobuf(timestamp_pb2.Timestamp)
    message = timestamp_pb2.Timestamp(seconds=5, nanos=7)
    assert codec.decode(message.SerializeToString()) == {"seconds": 5, "nanos": 7}
    assert codec.encode({"seconds": 5, "nanos": 7}) == message.SerializeToString()


@pytest.mark.parametrize(
    "value",
    [
        {"colour": "GREEN"},
        {"size": 1},
        {"id": "seven"},
        {"id": 2**63},
        {"main": 5},
        {"parts": [1]},
        {"numbers": 5},
        {"counts": [1]},
        {"counts": 5},
        [],
    ],
    ids=str,
)
def test_a_value_that_is_no_such_message_is_refused(order: Codec[bytes, dict[str, Any]], value: Any) -> None:
    with pytest.raises(UnencodableValue):
        order.encode(value)


@given(data=st.binary(max_size=40))
def test_wrong_bytes_are_decoded_or_refused(data: bytes) -> None:
    codec = codecs.protobuf("shop.Order", descriptor=order_file())
    try:
        found = codec.decode(data)
    except UndecodableBytes:
        return
    assert set(found) <= set(FULL)
