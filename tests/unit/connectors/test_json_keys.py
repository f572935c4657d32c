"""A key that an object of JSON has twice: an error of its record in rows, columns and codecs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clonos import files
from clonos.connectors import codecs
from clonos.connectors.codecs.codec import UndecodableBytes
from clonos.connectors.connector_errors import RowNotWritable
from clonos.connectors.json_keys import check_keys, have_all_keys, unique
from clonos.connectors.json_text import json_lines
from clonos.connectors.postgres.column_values import Unreadable, json_value
from clonos.connectors.value_depth import NotAValue
from clonos.kernels.texts import keys_max
from tests.harnesses.both_kernels import kernels
from tests.unit.connectors.reading import rows_and_errors

__all__ = ["kernels"]

LINES = [
    '{"n": 1, "x": {"a": 1, "b": "0:00:00"}}',
    '{"n": 2, "n": 3}',
    '{"n": 4, "x": {"a": 1, "b": ":", "a": 2}}',
    '{"n": 5, "x": {"a" : 1, "\\u0061" : 2, "b": "\\u003a\\":"}}',
    '{"n": 6, "x": {"a": 7, "b": "a:\\":"}}',
]


@dataclass
class Inner:
    a: int
    b: str


@dataclass
class Outer:
    n: int
    x: Inner | None = None


@dataclass
class Flat:
    n: int
    at: str


@pytest.mark.parametrize("options", [{}, {"schema": Outer}, {"columns": True}], ids=["dicts", "objects", "columns"])
def test_a_key_that_is_there_twice_is_an_error_beside_good_lines(tmp_path: Path, options: Any) -> None:
    (tmp_path / "in.jsonl").write_text("\n".join(LINES))
    rows, errors = rows_and_errors(files.jsonl(tmp_path / "in.jsonl", **options))
    assert [row.n if type(row) is Outer else row["n"] for row in rows] == [1, 6]
    assert [error.partition("cannot be a value: an object has the key ")[2][:9] for error in errors] == [
        "'n' twice",
        "'a' twice",
        "'a' twice",
    ]


def test_an_object_of_plain_fields_with_a_key_twice_is_an_error_beside_good_lines(tmp_path: Path) -> None:
    lines = ['{"n": 1, "at": "2026-01-01T00:00:00"}', '{"n": 2, "at": "x", "n": 3}', '{"n": 4, "at": "5", "z": 1}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    rows, errors = rows_and_errors(files.jsonl(tmp_path / "in.jsonl", schema=Flat))
    assert ([row.n for row in rows], len(errors)) == ([1, 4], 1)


texts = st.sampled_from(["a", "b", ":", '":', " :", "\t:", "\\", "\\u003a", "é"])
values = st.recursive(
    st.none() | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(texts, inner), max_size=3).map(tuple),
    max_leaves=8,
)


def _written(value: Any, colon: str, ascii_only: bool) -> str:
    """JSON of a value, whose objects are tuples of their items and may have a key twice."""
    if type(value) is tuple:
        items = [
            f"{json.dumps(key, ensure_ascii=ascii_only)}{colon}{_written(item, colon, ascii_only)}"
            for key, item in value
        ]
        return "{" + ", ".join(items) + "}"
    if type(value) is list:
        return "[" + ",".join(_written(item, colon, ascii_only) for item in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


@given(st.lists(values, min_size=1, max_size=3), st.sampled_from([":", ": ", " : ", "\t:"]), st.booleans())
@example([(("a", ":"), ("a", 1)), (("\\u003a", 1),)], ":", True)
def test_keys_are_found_as_a_plain_parser_finds_them(objects: list[Any], colon: str, ascii_only: bool) -> None:
    lines = [_written(each, colon, ascii_only).replace("\\\\u003a", "\\u003a") for each in objects]
    found = [json.loads(line) for line in lines]
    repeats = []
    for line, value in zip(lines, found, strict=True):
        try:
            json.loads(line, object_pairs_hook=unique)
            repeats.append(False)
        except NotAValue:
            repeats.append(True)
        if repeats[-1]:
            with pytest.raises(NotAValue):
                check_keys(line, value)
        else:
            check_keys(line, value)
    assert not (have_all_keys(lines, found) and any(repeats))
    assert keys_max(lines) >= sum(_count(each) for each in objects)


def _count(value: Any) -> int:
    if type(value) is tuple:
        return len(value) + sum(_count(item) for _, item in value)
    return sum(map(_count, value)) if type(value) is list else 0


def test_codecs_and_values_of_postgres_refuse_a_key_twice() -> None:
    for data in (b'{"id": 1, "id": 2}', b'[{"id": 1, "id": NaN}]'):
        with pytest.raises(UndecodableBytes, match="an object has the key 'id' twice"):
            codecs.json().decode(data)
        with pytest.raises(Unreadable, match="an object has the key 'id' twice"):
            json_value(data)
    with pytest.raises(UndecodableBytes, match="an object has the key 'n' twice"):
        codecs.json(Flat).decode(b'{"n": 1, "at": "", "n": 2}')
    assert codecs.json(Flat).decode(b'{"n": 1, "at": ":"}') == Flat(1, ":")


@pytest.mark.parametrize("row", [{1: "a", "1": "b"}, [{"x": {None: 1, "null": 2}}], {1.5: 0, "1.5": 1}])
def test_a_row_whose_keys_are_one_text_is_not_writable(row: Any) -> None:
    with pytest.raises(RowNotWritable, match="two keys of a dict have the same text in JSON"):
        json_lines([{"n": 1}, row], "files.jsonl")
    assert json_lines([{1: "a", "2": "b"}], "files.jsonl") == b'{"1":"a","2":"b"}\n'
