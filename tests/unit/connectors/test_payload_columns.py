"""Payloads of messages as columns: against a twin that decodes each alone, and those that do not fit."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow
import pytest

from clonos import codecs
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.payload_columns import PayloadColumns
from clonos.operators.connector_contract import MalformedRecord

SCHEMA = pyarrow.schema([("n", pyarrow.int64()), ("name", pyarrow.string()), ("size", pyarrow.float64())])
CODECS = [pytest.param(None, id="json"), pytest.param(codecs.raw() | codecs.json(), id="codec")]

FITTING = (
    b'{"n": 1, "name": "a", "size": 0.5}',
    b'{"n": -7, "size": 3, "other": [1, {"x": null}]}',
    b'{"name": "\\u00e9\\n", "n": null}',
    b"{}",
    b' {"n": 2}\t',
    b'{\n  "n": 3,\r\n  "name": "lines"\n}\n',
)
UNFIT = {
    None: "it has no value",
    b"": "is not JSON",
    b"\n": "is not JSON",
    b'{"n": 1': "is not JSON",
    b'{"name": "a\nb"}': "is not JSON",
    b'{"n": 1}\n{"n": 2}': "is not JSON",
    b"[1]": "is not an object",
    b"null": "is not an object",
    b'{"n": "one"}': "does not fit the columns",
    b'{"n": 1.5}': "does not fit the columns",
    b'{"size": 9007199254740993}': "is an integer that the column of floats would round",
    b'{"name": "\xff"}': "is not UTF-8",
}
"""Payloads that are no row, and what is said of them."""


def described(index: int) -> tuple[Any, str]:
    return index, f"payload {index}"


def taken(columns: PayloadColumns, payloads: list[Any]) -> list[Any]:
    """A row or a ``MalformedRecord`` for each payload."""
    found: list[Any] = []
    for end, piece in columns.pieces(payloads, described):
        found += piece.to_pylist() if hasattr(piece, "num_rows") else piece
        assert len(found) == end
        assert hasattr(piece, "num_rows") or {type(each) for each in piece} == {MalformedRecord}
    return found


def row_of(payload: bytes) -> dict[str, Any]:
    record = json.loads(payload)
    return {name: record.get(name) for name in SCHEMA.names}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("unfit_share", [0.0, 0.1, 1.0])
def test_each_payload_is_a_row_or_set_aside_in_its_place(codec: Any, unfit_share: float) -> None:
    random, columns = Random(unfit_share), PayloadColumns("test", SCHEMA, codec)
    wrong = [payload for payload in UNFIT if codec is None or payload != b'{"name": "\xff"}']
    for size in (1, 2, 7, 200):
        payloads = [random.choice(wrong if random.random() < unfit_share else FITTING) for _ in range(size)]
        expected = [row_of(payload) if payload in FITTING else index for index, payload in enumerate(payloads)]
        found = taken(columns, payloads)
        assert [each.record if type(each) is MalformedRecord else each for each in found] == expected


@pytest.mark.parametrize("payload", UNFIT, ids=repr)
def test_a_payload_that_is_set_aside_has_its_place_and_the_reason(payload: bytes | None) -> None:
    _, found, _ = taken(PayloadColumns("test", SCHEMA, None), [FITTING[0], payload, FITTING[0]])
    assert str(found.error).startswith("payload 1: it")
    assert UNFIT[payload] in str(found.error)


def test_payloads_of_avro_are_columns_of_its_types() -> None:
    fields = [
        {"name": "n", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ]
    codec = codecs.avro({"type": "record", "name": "Reading", "fields": fields})
    schema = pyarrow.schema([("at", pyarrow.timestamp("us", "UTC")), ("n", pyarrow.int32())])
    rows = [{"n": number, "at": pyarrow.scalar(number, schema.field("at").type).as_py()} for number in (5, 2**31, 7)]
    payloads = [codec.encode(row) for row in rows]
    first, large, wrong, last = taken(PayloadColumns("test", schema, codec), [*payloads[:2], b"\x80", payloads[2]])
    assert [first, last] == [rows[0], rows[2]]
    assert "its n does not fit the column of int32" in str(large.error)
    assert "cannot decode this record" in str(wrong.error)


def test_a_schema_that_is_not_one_of_arrow_is_refused() -> None:
    with pytest.raises(InvalidConnector, match=r"Give a pyarrow.Schema"):
        PayloadColumns("test", dict, None)
    with pytest.raises(InvalidConnector, match="two columns"):
        PayloadColumns("test", pyarrow.schema([("n", pyarrow.int64()), ("n", pyarrow.int64())]), None)
