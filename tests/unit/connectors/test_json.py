"""JSON lines: every reader can read what is written, and a source continues at a mark."""

import enum
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import codecs, files
from clonos.connectors.codecs.codec import UndecodableBytes
from clonos.connectors.connector_errors import InputMalformed, RowNotWritable
from clonos.connectors.json_text import json_lines, json_text, parse_json, scalar_text
from clonos.core.values import encode_rows
from tests.unit.connectors.reading import read_all, read_piecewise, rows_and_errors

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FINITE | st.text(st.characters())
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)


class Window(NamedTuple):
    key: str
    start: int
    value: Any


@dataclass
class Point:
    x: int
    tags: frozenset[str]


class Shape(msgspec.Struct):
    corners: list[Point]


class Colour(enum.Enum):
    RED = "red"


@given(rows=st.lists(VALUES, max_size=5))
def test_a_line_of_json_is_readable_by_the_standard_library(rows: list[Any]) -> None:
    lines = json_lines(rows, "test").split(b"\n")
    assert lines.pop() == b""
    assert [json.loads(line) for line in lines] == rows
    assert [parse_json(line) for line in lines] == rows


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 6), '"2026-01-02T03:04:05.000006"'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (time(3, 4), '"03:04:00"'),
        (timedelta(days=1, seconds=2), '"P1DT2S"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.10"), '"1.10"'),
        (b"abc", '"YWJj"'),
        ((1, "a"), '[1,"a"]'),
        ({3, 1, 2}, "[1,2,3]"),
        (Window("a", 1, Window("b", 2, None)), '{"key":"a","start":1,"value":{"key":"b","start":2,"value":null}}'),
        ({"window": [Window("a", 1, Colour.RED)]}, '{"window":[{"key":"a","start":1,"value":"red"}]}'),
        (Shape([Point(1, frozenset("cba"))]), '{"corners":[{"x":1,"tags":["a","b","c"]}]}'),
        (float("nan"), "NaN"),
        ([1.5, float("nan"), float("inf"), -float("inf")], "[1.5,NaN,Infinity,-Infinity]"),
        ([1e308, 1e308, (-0.0, 2.5)], "[1e308,1e308,[-0.0,2.5]]"),
        (2**100, str(2**100)),
        ({1: 4, None: 3, 1.5: 5, UUID(int=0): 6}, None),
        ({Colour.RED: 1, True: 2}, '{"red":1,"true":2}'),
        ("\ud800", '"\\ud800"'),
        ("\u2028", '"\u2028"'),
    ],
)
def test_a_value_without_a_json_type_is_written_as_documented(value: object, text: str | None) -> None:
    if text is None:
        text = '{"1":4,"null":3,"1.5":5,"00000000-0000-0000-0000-000000000000":6}'
    assert json_text(value) == text


def test_a_cell_of_text_has_no_quotes() -> None:
    assert [scalar_text(value) for value in ("a", True, None, 1.5, date(2026, 1, 2), [1, "a"])] == [
        "a",
        "true",
        "null",
        "1.5",
        "2026-01-02",
        '[1,"a"]',
    ]


@pytest.mark.parametrize("value", [object(), {"a": [1, object()]}, {(1, 2): 3}, 1j])
def test_a_row_that_json_cannot_express_is_named(value: object) -> None:
    with pytest.raises(RowNotWritable, match=r"files\.jsonl cannot write the row") as raised:
        json_lines([1, value], "files.jsonl")
    assert raised.value.index == 1


def test_a_row_that_contains_itself_is_refused() -> None:
    row: list[Any] = []
    row.append(row)
    with pytest.raises(RowNotWritable, match="nested in more than 64"):
        json_lines([row], "test")


def test_values_of_lines_are_read_with_marks(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"a": 1}\n\n  \r\n[1.0, 2]\nNaN\n"\\ud800"\n18446744073709551616\n\nnull')
    source = files.jsonl(path, block_bytes=7)
    expected = [{"a": 1}, [1.0, 2], "NaN", "\ud800", 2**64, None]
    found = [value for split in source.splits(1) for piece in read_piecewise(source, split, [1, 2]) for value in piece]
    assert ["NaN" if isinstance(value, float) else value for value in found] == expected


def test_a_line_that_is_not_json_is_reported_with_file_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 1,}\n')
    with pytest.raises(InputMalformed, match=f"{path} at byte 10.*not JSON") as raised:
        read_all(files.jsonl(path))
    assert raised.value.offset_bytes == 10


def test_a_line_nested_too_deeply_raises_an_error_instead_of_crashing(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("[" * 200_000)
    with pytest.raises(InputMalformed, match="nested in more than 64 containers"):
        read_all(files.jsonl(path))


@dataclass
class Nested:
    n: int
    x: Any = None


@pytest.mark.parametrize("schema", [None, Nested])
@pytest.mark.parametrize("opened", ["[", '{"a":'])
def test_a_line_that_is_deeper_than_a_value_may_be_is_an_error_beside_good_ones(
    tmp_path: Path, opened: str, schema: Any
) -> None:
    closed = {"[": "]", '{"a":': "}"}[opened]
    lines = [f'{{"n": {depth}, "x": {opened * depth}1{closed * depth}}}' for depth in (1, 63, 64, 100, 5_000)]
    lines += ['{"n": 0, "x": "' + "[{" * 100 + '\\""}', '{"n": -1, "x": [' + "[], " * 100 + "{}]}"]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    rows, errors = rows_and_errors(files.jsonl(tmp_path / "in.jsonl", schema=schema))
    assert [row.n if schema else row["n"] for row in rows] == [1, 63, 0, -1]
    for row in rows:
        encode_rows([row])
    assert len(errors) == 3
    for error, depth in zip(errors, (64, 100, 5_000), strict=True):
        assert f'the line \'{{"n": {depth}, ' in error
        assert "cannot be a value: it is nested in more than 64 containers. Correct the file." in error


def test_a_number_beyond_the_range_of_a_float_is_an_error_beside_good_ones(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"a": 1.5}\n{"a": 1e400}\n{"a": -1e309}\n{"a": 1e308}\n{"a": Infinity}\n')
    rows, errors = rows_and_errors(files.jsonl(tmp_path / "in.jsonl"))
    assert rows == [{"a": 1.5}, {"a": 1e308}, {"a": float("inf")}]
    assert [error.partition("cannot be a value: ")[2][:53] for error in errors] == [
        "its number 1e400 is beyond the range of a float. Corr",
        "its number -1e309 is beyond the range of a float. Cor",
    ]


def test_a_number_with_more_digits_than_a_float_holds_is_an_error_beside_good_ones(tmp_path: Path) -> None:
    good = [
        "0.30000000000000004",
        "0.1000000000000000055511151231257827",
        "0.10000000000000000000",
        "1e-308",
        "2.5e-308",
    ]
    wrong = ["12345678901234567.25", "99999999999999.999", "0.1234567890123456789", "1e-400", "2.2250738585072011e-320"]
    numbers = [number for pair in zip(good, wrong, strict=True) for number in pair]
    (tmp_path / "in.jsonl").write_text("".join(f'{{"a": [{number}]}}\n' for number in numbers))
    rows, errors = rows_and_errors(files.jsonl(tmp_path / "in.jsonl"))
    assert rows == [{"a": [float(number)]} for number in good]
    assert [error.partition("its number ")[2].partition(" has")[0] for error in errors] == wrong
    for number in wrong:
        with pytest.raises(UndecodableBytes, match=f"its number {number} has more digits than a float holds"):
            codecs.json().decode(number.encode())


def test_a_byte_order_mark_may_begin_a_file_and_each_of_several_that_were_joined(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('\ufeff{"a": 1}\n{"a": 2}\n\ufeff{"a": 3}\n', "utf-8")
    assert rows_and_errors(files.jsonl(tmp_path / "in.jsonl")) == ([{"a": 1}, {"a": 2}, {"a": 3}], [])


@pytest.mark.parametrize(("text", "advice"), [('[\n {"a": 1},\n', "jq -c .[]"), ('{\n "a": 1\n}\n', "jq -c .")])
def test_a_value_over_many_lines_is_named(tmp_path: Path, text: str, advice: str) -> None:
    (tmp_path / "in.jsonl").write_text(text)
    rows, errors = rows_and_errors(files.jsonl(tmp_path / "in.jsonl"))
    assert rows == []
    assert errors[0].endswith(
        f"on a line of its own, for example with: {advice} Job(..., errors=sink) sets such records aside."
    )
