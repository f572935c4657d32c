"""Codecs: round trips, wrong bytes, wrong values, and what travels to the tasks."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import cloudpickle
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos import codecs
from clonos.connectors.codecs import Codec, UndecodableBytes, UnencodableValue
from clonos.connectors.codecs.codec import InvalidCodec
from clonos.core.values import encode_value

ORDER_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
ORDER = {"id": 7, "item": "pen", "price": Decimal("1.25"), "at": datetime(2026, 11, 22, 8, 30, tzinfo=UTC)}


@dataclass
class Order:
    id: int
    item: str = "pen"


BATCH = pyarrow.record_batch({"a": [1, 2, None], "b": ["x", "y", "z"]})
TRIPS: list[tuple[Codec[Any, Any], Any]] = [
    (codecs.raw(), b"\x00\xff"),
    (codecs.text(), "größer"),
    (codecs.number(int), -(10**30)),
    (codecs.number(float), -0.1),
    (codecs.text("latin-1"), "größer"),
    (codecs.json(), {"a": [1, None, "x"]}),
    (codecs.json(Order), Order(3, "ink")),
    (codecs.msgpack(), {"a": [1, None, b"x"]}),
    (codecs.text() | codecs.csv(["id", "note"], delimiter=";"), {"id": "1", "note": 'a;"b"'}),
    (codecs.xml(), {"order": {"@id": "1", "item": ["pen", "ink"]}}),
    (codecs.arrow(), BATCH),
    (codecs.avro(ORDER_SCHEMA), ORDER),
    (codecs.avro_file(ORDER_SCHEMA), [ORDER, ORDER]),
    (codecs.gzip(), b"bytes" * 100),
    (codecs.zstd(), b"bytes" * 100),
    (codecs.lz4(), b"bytes" * 100),
    (codecs.gzip() | codecs.json(Order), Order(3)),
    (codecs.zstd() | codecs.msgpack() | codecs.fields("user.name"), {"user.name": "Ada"}),
]


@pytest.mark.parametrize(("codec", "value"), TRIPS, ids=lambda each: str(each)[:40])
def test_a_value_comes_back_from_its_bytes_also_after_the_codec_has_travelled(
    codec: Codec[Any, Any], value: Any
) -> None:
    encoded = codec.encode(value)
    assert isinstance(encoded, bytes)
    assert codec.decode(encoded) == value
    travelled = cloudpickle.loads(cloudpickle.dumps(codec))
    assert travelled.decode(encoded) == value
    assert travelled.encode(value) == encoded
    assert repr(travelled) == codec.name


@pytest.mark.parametrize(("codec", "value"), TRIPS, ids=lambda each: str(each)[:40])
@given(data=st.binary(max_size=60), cut=st.integers(0, 60), flip=st.integers(0, 255))
def test_wrong_bytes_are_decoded_or_refused_by_the_declared_error(
    codec: Codec[Any, Any], value: Any, data: bytes, cut: int, flip: int
) -> None:
    encoded = bytearray(codec.encode(value))
    encoded[cut % len(encoded)] ^= flip
    for wrong in (data, bytes(encoded), bytes(encoded[:cut])):
        with suppress(UndecodableBytes):
            codec.decode(wrong)


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (codecs.raw(), "text"),
        (codecs.number(int), 1.0),
        (codecs.number(int), True),
        (codecs.number(float), "1"),
        (codecs.text(), b"bytes"),
        (codecs.text("ascii"), "größer"),
        (codecs.json(), {"a": ...}),
        (codecs.json(), float("nan")),
        (codecs.msgpack(), ...),
        (codecs.csv(["a", "b"]), {"a": 1}),
        (codecs.csv(["a", "b"]), "a,b"),
        (codecs.xml(), {"a": "1", "b": "2"}),
        (codecs.arrow(), [1]),
        (codecs.avro(ORDER_SCHEMA), {"id": "seven"}),
        (codecs.avro(ORDER_SCHEMA), {**ORDER, "colour": "red"}),
        (codecs.avro_file(ORDER_SCHEMA), [{"id": 1}]),
        (codecs.gzip(), "text"),
        (codecs.zstd(), 1),
        (codecs.fields("a"), {"b": 1}),
    ],
    ids=str,
)
def test_a_value_that_the_format_cannot_express_is_refused(codec: Codec[Any, Any], value: Any) -> None:
    with pytest.raises(UnencodableValue) as caught:
        codec.encode(value)
    assert caught.value.codec == codec.name


@pytest.mark.parametrize(
    ("codec", "data", "reason"),
    [
        (codecs.text() | codecs.csv(["a", "b"]), b"1,2\n3,4", "it is more than one line"),
        (codecs.avro(ORDER_SCHEMA), b"", "it is cut off"),
        (codecs.text(), b"ab\xff", "in position 2"),
        (codecs.number(int), b"1.5", "invalid literal for int"),
        (codecs.number(float), b"\xff", "ordinal not in range"),
    ],
    ids=["csv", "avro", "text", "int", "float"],
)
def test_bytes_are_refused_with_the_reason(codec: Codec[Any, Any], data: bytes, reason: str) -> None:
    with pytest.raises(UndecodableBytes, match=reason):
        codec.decode(data)


@pytest.mark.parametrize("codec", [codecs.gzip(1000), codecs.zstd(1000), codecs.lz4(1000)], ids=str)
def test_a_few_bytes_that_stand_for_many_are_refused(codec: Codec[bytes, bytes]) -> None:
    assert len(codec.decode(codec.encode(b"x" * 1000))) == 1000
    with pytest.raises(UndecodableBytes, match="more than 1000 bytes decompressed"):
        codec.decode(codec.encode(b"x" * 1001))


def test_gzip_reads_several_members_and_writes_no_time() -> None:
    two = gzip.compress(b"one ") + gzip.compress(b"two")
    assert codecs.gzip().decode(two) == b"one two"
    assert codecs.gzip().encode(b"x")[4:8] == bytes(4)


def test_xml_does_not_expand_entities() -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x>&b;</x>'
    with pytest.raises(UndecodableBytes):
        codecs.xml().decode(bomb)


def test_fields_projects_in_both_directions() -> None:
    codec = codecs.json() | codecs.fields("id", "user.name")
    assert codec.decode(b'{"id": 1, "user": {"name": "Ada", "age": 36}}') == {"id": 1, "user.name": "Ada"}
    assert codec.encode({"id": 1, "user.name": "Ada"}) == b'{"id":1,"user":{"name":"Ada"}}'
    with pytest.raises(UndecodableBytes, match=r"no field 'user.name'"):
        codec.decode(b'{"id": 1}')


def test_avro_reads_an_older_schema_as_a_newer_one() -> None:
    newer = {**ORDER_SCHEMA, "fields": [ORDER_SCHEMA["fields"][0], {"name": "left", "type": "int", "default": 5}]}
    data = codecs.avro(ORDER_SCHEMA).encode(ORDER)
    assert codecs.avro(ORDER_SCHEMA, reader=newer).decode(data) == {"id": 7, "left": 5}


def test_avro_refuses_bytes_of_another_schema_that_leave_some_over() -> None:
    data = codecs.avro(ORDER_SCHEMA).encode(ORDER)
    with pytest.raises(UndecodableBytes, match="left over: it has another schema"):
        codecs.avro({"type": "long"}).decode(data)


INNER = {"type": "record", "name": "inner", "fields": [{"name": "a", "type": "long"}, {"name": "a", "type": "string"}]}
REPEATED = {"type": "array", "items": ["null", INNER]}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: codecs.text("utf-9"), "no encoding 'utf-9'"),
        (lambda: codecs.number(bool), "no class of numbers"),
        (lambda: codecs.csv("a,b"), "names no columns"),
        (lambda: codecs.csv(["a"], delimiter="::"), "not one character"),
        (lambda: codecs.gzip(0), "no number of bytes"),
        (lambda: codecs.fields(), "names no field"),
        (lambda: codecs.avro({"type": "recrod"}), "no schema of Avro"),
        (lambda: codecs.avro("{"), "no schema of Avro"),
        (lambda: codecs.avro(REPEATED), "two fields of inner have the name 'a'"),
        (lambda: codecs.confluent_avro("http://registry", schema="long"), "belong together"),
        (lambda: codecs.gzip() | int, "is no codec"),
        (lambda: codecs.protobuf(int), "no message class"),
        (lambda: codecs.protobuf("shop.Order", descriptor=b"\xff"), "cannot be read"),
        (lambda: codecs.protobuf("shop.Order", descriptor=b""), "not found"),
        (lambda: codecs.protobuf("shop.Order", descriptor="/no/such/file"), "No such file"),
    ],
    ids=range(15),
)
def test_arguments_that_cannot_work_are_refused_at_once(make: Any, message: str) -> None:
    with pytest.raises(InvalidCodec, match=message):
        make()


TREE_SCHEMA = {"type": "record", "name": "Tree", "fields": [{"name": "x", "type": ["null", "Tree"]}]}


def _tree(depth: int) -> Any:
    return None if not depth else {"x": _tree(depth - 1)}


@pytest.mark.parametrize(
    ("codec", "encode"),
    [
        (codecs.json(), lambda depth: b"[" * depth + b"]" * depth),
        (codecs.msgpack(), lambda depth: b"\x91" * depth + b"\xc0"),
        (codecs.xml(), lambda depth: b"<a>" * depth + b"x" + b"</a>" * depth),
        (codecs.avro(TREE_SCHEMA), lambda depth: codecs.avro(TREE_SCHEMA).encode(_tree(depth))),
        (codecs.avro_file(TREE_SCHEMA), lambda depth: codecs.avro_file(TREE_SCHEMA).encode([_tree(depth - 1)])),
        (codecs.for_decoding("test", json.loads), lambda depth: b"[" * depth + b"]" * depth),
    ],
    ids=["json", "msgpack", "xml", "avro", "avro_file", "function"],
)
def test_a_record_that_is_deeper_than_a_value_may_be_is_undecodable(codec: Any, encode: Any) -> None:
    encode_value(codec.decode(encode(64)))
    for depth in (65, 100, 300):
        with pytest.raises(UndecodableBytes, match="nested in more than 64 containers"):
            codec.decode(encode(depth))


def test_a_byte_order_mark_before_json_is_no_part_of_it() -> None:
    assert codecs.json().decode(b'\xef\xbb\xbf{"id": 7}') == {"id": 7}
    assert codecs.json(Order).decode(b'\xef\xbb\xbf{"id": 7}') == Order(7)


@pytest.mark.parametrize(("kind", "data"), [(int, b"1_000"), (float, b"1_0.5"), (float, b"1e400"), (float, b"-1e999")])
def test_digits_that_are_not_the_number_are_undecodable(kind: Any, data: bytes) -> None:
    with pytest.raises(UndecodableBytes, match=r"underscore|beyond the range"):
        codecs.number(kind).decode(data)
    assert codecs.number(float).decode(b"-inf") == -float("inf")
