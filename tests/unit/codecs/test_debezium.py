"""Debezium's envelope: with a schema and without, values by their semantic types, and what is no envelope."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos import codecs
from clonos.connectors.codecs.codec import InvalidCodec, UndecodableBytes
from clonos.connectors.kit.payloads import decoded
from clonos.core.values import decode_value, encode_value

SOURCE = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders", "lsn": 33_812_384}


def field(name: str, kind: str, semantic: str = "", **more: Any) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": True, **({"name": semantic} if semantic else {}), **more}


TYPED: list[tuple[dict[str, Any], Any, Any]] = [
    (field("id", "int32"), 7, 7),
    (field("item", "string"), "tea", "tea"),
    (field("share", "double"), 0.5, 0.5),
    (field("price", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"}), "fQ==", "1.25"),
    (field("debt", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"}), "gw==", "-1.25"),
    (field("any", "struct", "io.debezium.data.VariableScaleDecimal"), {"scale": 1, "value": "DA=="}, "1.2"),
    (field("at", "int64", "io.debezium.time.MicroTimestamp"), 1_000_001, datetime(1970, 1, 1, 0, 0, 1, 1)),
    (field("before", "int64", "io.debezium.time.MicroTimestamp"), -1, datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    (field("ms", "int64", "io.debezium.time.Timestamp"), 1_500, datetime(1970, 1, 1, 0, 0, 1, 500_000)),
    (field("ns", "int64", "io.debezium.time.NanoTimestamp"), 3_000, datetime(1970, 1, 1, 0, 0, 0, 3)),
    (field("connect", "int64", "org.apache.kafka.connect.data.Timestamp"), 0, datetime(1970, 1, 1)),
    (field("zoned", "string", "io.debezium.time.ZonedTimestamp"), "2026-11-28T10:00:00.5Z", "zoned"),
    (field("day", "int32", "io.debezium.time.Date"), 20_000, date(2024, 10, 4)),
    (field("hour", "int64", "io.debezium.time.MicroTime"), 3_600_000_000, time(1)),
    (field("took", "int64", "io.debezium.time.MicroDuration"), 5, timedelta(microseconds=5)),
    (field("data", "bytes"), "AP8=", b"\x00\xff"),
    (field("document", "string", "io.debezium.data.Json"), '{"a": [1]}', {"a": [1]}),
    (field("uuid", "string", "io.debezium.data.Uuid"), str(UUID(int=5)), UUID(int=5)),
    (field("days", "array", items={"type": "int32", "name": "io.debezium.time.Date"}), [0, None], "days"),
    (field("nothing", "int64", "io.debezium.time.MicroTimestamp"), None, None),
]
EXPECTED = {
    "zoned": datetime(2026, 11, 28, 10, 0, 0, 500_000, tzinfo=UTC),
    "days": [date(1970, 1, 1), None],
    **{name: Decimal(digits) for name, digits in (("price", "1.25"), ("debt", "-1.25"), ("any", "1.2"))},
}


def wrapped(payload: dict[str, Any]) -> bytes:
    fields = [each for each, _, _ in TYPED]
    parts = [field(part, "struct", fields=fields) for part in ("before", "after")]
    schema = {"type": "struct", "name": "shop.public.orders.Envelope", "fields": [*parts, field("op", "string")]}
    return json.dumps({"schema": schema, "payload": payload}).encode()


def payload(operation: str, before: Any, after: Any) -> dict[str, Any]:
    return {
        "before": before,
        "after": after,
        "source": SOURCE,
        "op": operation,
        "ts_ms": 1_764_324_000_000,
        "transaction": None,
    }


def test_a_message_with_a_schema_has_the_values_that_its_schema_names() -> None:
    change = codecs.debezium().decode(wrapped(payload("c", None, {each["field"]: raw for each, raw, _ in TYPED})))
    assert change.row == {each["field"]: EXPECTED.get(each["field"], value) for each, _, value in TYPED}
    assert {name: type(value) for name, value in change.row.items() if name in EXPECTED}["price"] is Decimal
    assert (change.kind, change.old, change.table, change.ts_ms) == ("insert", None, "public.orders", 1_764_324_000_000)
    assert decode_value(encode_value(change)) == change


COLUMNS = {"price": "Decimal(2)", "at": "MicroTimestamp", "data": "bytes"}


def test_a_message_without_a_schema_is_decoded_by_columns_and_written_back_the_same() -> None:
    codec = cloudpickle.loads(cloudpickle.dumps(codecs.debezium(columns=COLUMNS)))
    given = payload("u", {"id": 1, "price": "fQ=="}, {"id": 1, "price": "gw==", "at": 1_000_001, "data": "AP8="})
    change = codec.decode(json.dumps(given).encode())
    assert change.old == {"id": 1, "price": Decimal("1.25")}
    row = {"id": 1, "price": Decimal("-1.25"), "at": datetime(1970, 1, 1, 0, 0, 1, 1), "data": b"\x00\xff"}
    assert change.row == row
    assert json.loads(codec.encode(change)) == {name: value for name, value in given.items() if name != "transaction"}


@pytest.mark.parametrize(("operation", "kind"), [("c", "insert"), ("u", "update"), ("d", "delete"), ("r", "read")])
def test_every_operation_has_the_word_of_postgres_changes_with_a_schema_and_without(operation: str, kind: str) -> None:
    before, after = ({"id": 1} if operation in "ud" else None), (None if operation == "d" else {"id": 1})
    given = payload(operation, before, after)
    changes = [codecs.debezium().decode(data) for data in (wrapped(given), json.dumps(given).encode())]
    expected = codecs.DebeziumChange(kind, after, before, SOURCE, given["ts_ms"])  # type: ignore[arg-type]
    assert changes == [expected, expected]


def test_a_tombstone_decodes_to_none_between_the_changes() -> None:
    deletion = json.dumps(payload("d", {"id": 1}, None)).encode()
    found = decoded(codecs.debezium().decode, [deletion, None], lambda _: (None, ""))
    assert [each and each.kind for each in found] == ["delete", None]


def test_a_value_that_was_not_sent_is_missing_unless_the_old_row_has_it() -> None:
    not_sent = "__debezium_unavailable_value"
    after = {"id": 1, "note": not_sent, "data": b64encode(not_sent.encode()).decode(), "list": [not_sent]}
    alone, known = (
        codecs.debezium().decode(json.dumps(payload("u", before, after)).encode())
        for before in (None, {"id": 1, "note": "long"})
    )
    assert alone.row == {"id": 1}
    assert known.row == {"id": 1, "note": "long"}


def test_a_null_of_a_before_that_has_the_key_alone_is_not_taken_for_a_value_that_was_not_sent() -> None:
    after = {"id": 2, "note": "__debezium_unavailable_value", "size": None}
    change = codecs.debezium().decode(json.dumps(payload("u", {"id": 1, "note": None}, after)).encode())
    assert change.row == {"id": 2, "size": None}


@pytest.mark.parametrize("kind", ["ZonedTimestamp", "ZonedTime"])
def test_digits_after_microseconds_are_refused_unless_they_are_zeros(kind: str) -> None:
    codec = codecs.debezium(columns={"at": kind})
    day = "2026-11-28T" if kind == "ZonedTimestamp" else ""

    def read(clock: str) -> Any:
        return codec.decode(json.dumps(payload("c", None, {"at": f"{day}{clock}"})).encode()).row["at"]

    assert read("10:00:00.123456000Z").microsecond == 123_456
    with pytest.raises(UndecodableBytes, match="no whole number of microseconds"):
        read("10:00:00.123456789Z")


@given(st.integers(-(10**40), 10**40), st.integers(0, 40))
def test_decimals_of_any_size_are_exact_in_both_directions(unscaled: int, scale: int) -> None:
    codec = codecs.debezium(columns={"n": f"Decimal({scale})"})
    change = codecs.DebeziumChange("insert", {"n": Decimal(f"{unscaled}E{-scale}")}, None)
    data = codec.encode(change)
    text = json.loads(data)["after"]["n"]
    size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1  # as BigInteger.toByteArray of Java writes it
    assert text == b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()
    assert codec.decode(data) == change


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"id": 1}', "no envelope"),
        (b"[]", "no envelope"),
        (b'{"op": "x"}', "its op 'x'"),
        (b'{"op": "c", "after": null}', "no row in after"),
        (b'{"op": "c", "after": 5}', "its after is not an object"),
        (b'{"op": "c", "after": {}, "ts_ms": "now"}', "ts_ms"),
        (b'{"op": "c", "after": {"price": "?"}}', "the column 'price' of after"),
        (b'{"op": "c", "after": {"at": "2026"}}', "the column 'at' of after"),
        (b'{"op": "c", "after": {"at": 999999999999999999999}}', "the column 'at' of after"),
        (b'{"op": "c", "after": {"data": 5}}', "the column 'data' of after"),
        (b'{"schema": {"fields": [{"field": "after"}]}, "payload": {"op": "d"}}', "its schema cannot be read"),
    ],
)
def test_bytes_without_an_envelope_do_not_decode(data: bytes, reason: str) -> None:
    with pytest.raises(codecs.UndecodableBytes, match=reason):
        codecs.debezium(columns=COLUMNS).decode(data)


def test_a_line_of_text_decodes_as_its_bytes_do_and_what_is_decoded_already_is_refused() -> None:
    line: Any = '{"op": "c", "after": {"id": 1}}'
    assert codecs.debezium().decode(line) == codecs.debezium().decode(line.encode())
    with pytest.raises(codecs.UndecodableBytes, match="it is of the type dict, and JSON is bytes or a str"):
        codecs.debezium().decode(json.loads(line))


def test_columns_that_are_no_dict_are_refused() -> None:
    columns: Any = ["price"]
    with pytest.raises(InvalidCodec, match=r"columns is \['price'\]\. Give a dict"):
        codecs.debezium(columns=columns)


@pytest.mark.parametrize(
    "row", [{"price": Decimal("1.255")}, {"price": Decimal("NaN")}, {"at": "2026"}, {"price": 1.5}]
)
def test_a_value_that_its_type_would_change_is_not_written(row: dict[str, Any]) -> None:
    with pytest.raises(codecs.UnencodableValue, match="cannot be written"):
        codecs.debezium(columns=COLUMNS).encode(codecs.DebeziumChange("insert", row, None))


def test_a_type_that_debezium_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidCodec, match=r"'numeric' of 'price'.*Decimal\(scale\)"):
        codecs.debezium(columns={"price": "numeric"})
