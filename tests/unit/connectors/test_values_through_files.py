"""Each kind of value, at its ends, through the sink of a format and back: equal, or an error of its row."""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import codecs, files
from clonos.connectors.connector_errors import RowNotWritable
from clonos.connectors.json_text import scalar_text
from tests.unit.connectors.reading import rows_and_errors
from tests.unit.connectors.test_exact_arrays import BERLIN, ENDS, KINDS, is_same, nested
from tests.unit.connectors.writing import JOB, writer_of


@pytest.fixture(autouse=True, scope="module")
def quick_disk() -> Iterator[None]:
    """Nothing waits for the disk: no test of this module loses power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def through(sink: Any, rows: list[Any]) -> list[Any]:
    """Writes rows one by one; returns those that the sink took."""
    sink.prepare_output(JOB, resume=False, overwrite=True)
    writer = writer_of(sink)
    taken: list[Any] = []
    for row in rows:
        try:
            writer.write([row])
        except RowNotWritable:
            continue
        taken.append(row)
    part = writer.prepare(1)
    if part is not None:
        sink.commit(JOB, 1, [part])
    return taken


def rows_of(values: list[Any]) -> list[dict[str, Any]]:
    return [{"n": number, "x": value} for number, value in enumerate(values)]


def is_equal(one: Any, other: Any) -> bool:
    """The same, or numbers of two types that are equal."""
    numbers = (int, float, Decimal)
    if type(one) in numbers and type(other) in numbers:
        return bool(one == other) or (one != one and other != other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    return is_same(one, other)


# --- Avro

AVRO: dict[str, Any] = {
    **{name: name for name in ("null", "boolean", "int", "long", "double", "string", "bytes")},
    **{
        name: {"type": base, "logicalType": name}
        for base, names in {
            "int": ("date", "time-millis"),
            "long": (
                "time-micros",
                "timestamp-millis",
                "timestamp-micros",
                "local-timestamp-millis",
                "local-timestamp-micros",
            ),
            "string": ("uuid",),
        }.items()
        for name in names
    },
    "fixed": {"type": "fixed", "name": "two", "size": 2},
    "enum": {"type": "enum", "name": "letter", "symbols": ["x", "y"]},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    "fixed decimal": {"type": "fixed", "name": "d", "size": 3, "logicalType": "decimal", "precision": 5, "scale": 2},
    "array": {"type": "array", "items": "int"},
    "map": {"type": "map", "values": "int"},
    "record": {"type": "record", "name": "inner", "fields": [{"name": "a", "type": "int"}]},
    "union of numbers": ["null", "double", "long"],
    "union of times": ["null", "string", {"type": "long", "logicalType": "timestamp-millis"}],
}
"""``float`` is not among them, which has the next number."""

OF_AVRO = [
    *(
        None,
        UUID(int=5),
        dt.time(1, 2, 3, 4567),
        dt.datetime(2020, 1, 1, 1, 2, 3, 4567, tzinfo=dt.UTC),
        dt.date(2020, 1, 2),
    ),
    *(
        Decimal("123.45"),
        Decimal("-0.00"),
        Decimal("1234.5"),
        Decimal("1E+2"),
        [1, 2**31],
        {"a": 1.5},
        {"a": True},
        2**31 - 1,
    ),
]


@pytest.mark.parametrize("name", AVRO)
def test_a_type_of_avro_gives_each_value_back_or_refuses_it(tmp_path: Path, name: str) -> None:
    fields = [{"name": "n", "type": "long"}, {"name": "x", "type": AVRO[name]}]
    schema = {"type": "record", "name": "row", "fields": fields}
    taken = through(files.avro(tmp_path / "out", schema=schema), rows_of([*ENDS, *OF_AVRO]))
    found, errors = rows_and_errors(files.avro(tmp_path / "out"))
    assert errors == []
    assert len(found) == len(taken) > 0
    for row, back in zip(taken, found, strict=True):
        assert is_equal(back, row), (row, back)


values_of_kinds = st.fixed_dictionaries(
    {kind: st.lists(values, min_size=1, max_size=3) for kind, values in KINDS.items()}
)


def rows_of_kinds(drawn: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """A row for each value, in a field of its kind."""
    return [{kind: value} for kind, values in drawn.items() for value in values]


def without_nulls(rows: list[Any]) -> list[Any]:
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


OF_KINDS: dict[str, Any] = {
    "int": "long",
    "float": "double",
    "bool": "boolean",
    "str": "string",
    "bytes": "bytes",
    "date": AVRO["date"],
    "datetime": AVRO["local-timestamp-micros"],
    "instant": AVRO["timestamp-micros"],
    "time": AVRO["time-micros"],
    "timedelta": "long",
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3},
}
NULLABLE = [{"name": kind, "type": ["null", type_], "default": None} for kind, type_ in OF_KINDS.items()]


@given(drawn=values_of_kinds)
def test_values_of_all_kinds_come_back_from_avro(tmp_path_factory: pytest.TempPathFactory, drawn: Any) -> None:
    out, rows = tmp_path_factory.mktemp("avro") / "out", rows_of_kinds(drawn)
    taken = through(files.avro(out, schema={"type": "record", "name": "row", "fields": NULLABLE}), rows)
    found, _ = rows_and_errors(files.avro(out))
    refused = [row for row in rows if row not in taken and row == row]
    assert all("timedelta" in row or row.get("decimal") == 0 for row in refused)  # minus zero
    assert len(found) == len(taken)
    assert all(map(is_equal, without_nulls(found), taken)), (found, taken)


# --- JSON lines


class JsonRow(TypedDict, total=False):
    int: int
    float: float
    bool: bool
    str: str
    bytes: bytes
    date: dt.date
    datetime: dt.datetime
    instant: dt.datetime
    time: dt.time
    timedelta: dt.timedelta
    decimal: Decimal


@given(drawn=values_of_kinds)
def test_values_of_all_kinds_come_back_from_json_lines(tmp_path_factory: pytest.TempPathFactory, drawn: Any) -> None:
    out, rows = tmp_path_factory.mktemp("json") / "out", rows_of_kinds(drawn)
    taken = through(files.jsonl(out), rows)
    if not taken:  # no row, no file
        return
    found, errors = rows_and_errors(files.jsonl(out, schema=JsonRow))
    assert errors == []
    assert is_same(found, taken), (found, taken)
    assert all(not math.isfinite(row["float"]) for row in rows if row not in taken)  # of which JSON has none
    plain, _ = rows_and_errors(files.jsonl(out))
    for row, back in zip(taken, plain, strict=True):
        assert row.keys() & {"int", "float", "bool", "str"} == set() or is_same(back, row)


@given(data=st.data())
def test_nested_values_come_back_from_json_lines(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    out = tmp_path_factory.mktemp("json") / "out"
    kind = st.sampled_from(["int", "float", "bool", "str"]).flatmap(lambda name: nested(KINDS[name]))
    taken = through(files.jsonl(out), [{"x": value} for value in data.draw(st.lists(kind, min_size=1, max_size=3))])
    found, _ = rows_and_errors(files.jsonl(out)) if taken else ([], [])  # no row, no file
    assert is_same(found, taken)


@pytest.mark.parametrize("sink", [files.jsonl, files.csv])
def test_an_offset_with_seconds_moves_no_instant(tmp_path: Path, sink: Any) -> None:
    odd = dt.timezone(dt.timedelta(minutes=53, seconds=28))
    early = dt.datetime(1893, 1, 1, tzinfo=BERLIN)  # when clocks showed the time of the sun
    rows: list[Any] = [{"x": early}, {"x": dt.datetime.min.replace(tzinfo=odd)}, {"x": dt.time(1, tzinfo=odd)}]
    rows += [{"x": dt.time(1, tzinfo=BERLIN)}, {"x": dt.datetime(2026, 1, 1, tzinfo=BERLIN)}]
    assert through(sink(tmp_path / "out"), rows) == [rows[0], rows[4]]
    found = [dt.datetime.fromisoformat(row["x"]) for row in files.read_committed(tmp_path / "out")]
    assert is_same(found, [early, rows[4]["x"]])


# --- CSV

COLUMNS = {
    "int": pyarrow.int64(),
    "float": pyarrow.float64(),
    "bool": pyarrow.bool_(),
    "str": pyarrow.string(),
    "bytes": pyarrow.string(),
    "date": pyarrow.date32(),
    "datetime": pyarrow.timestamp("us"),
    "instant": pyarrow.timestamp("us", "UTC"),
    "time": pyarrow.time64("us"),
    "timedelta": pyarrow.string(),
    "decimal": pyarrow.decimal128(38, 3),
}


@given(drawn=values_of_kinds)
def test_values_of_all_kinds_come_back_from_csv(tmp_path_factory: pytest.TempPathFactory, drawn: Any) -> None:
    out, rows = tmp_path_factory.mktemp("csv") / "out", rows_of_kinds(drawn)
    taken = through(files.csv(out, columns=list(COLUMNS)), rows)
    found, errors = rows_and_errors(files.csv(out, schema=pyarrow.schema(COLUMNS), newlines_in_values=True))
    assert errors == []
    assert len(found) == len(taken)
    for row, back in zip(taken, found, strict=True):
        ((kind, value),) = row.items()
        expected = scalar_text(value) if kind in ("bytes", "timedelta") else value
        assert is_equal(back[kind], expected), (row, back)
        assert all(other in (None, "") for name, other in back.items() if name != kind)


@pytest.mark.parametrize("as_columns", [False, True])
def test_line_ends_within_cells_come_back_from_csv(tmp_path: Path, as_columns: bool) -> None:
    texts = ["a\rb", "\r", "c\r\nd", "\n", 'e"\r"', "", "plain"]
    rows = [{"n": number, "x": text} for number, text in enumerate(texts)]
    sink = files.csv(tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    writer: Any = writer_of(sink)
    if as_columns:
        writer.write_columns(pyarrow.RecordBatch.from_pylist(rows))
    else:
        writer.write(rows)
    sink.commit(JOB, 1, [writer.prepare(1)])
    assert rows_and_errors(files.csv(tmp_path / "out", newlines_in_values=True)) == (rows, [])
    for text in texts:
        assert codecs.csv(["a", "b"]).decode(codecs.csv(["a", "b"]).encode({"a": text, "b": "x"})) == {
            "a": text,
            "b": "x",
        }
