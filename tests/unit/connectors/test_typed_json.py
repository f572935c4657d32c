"""JSON lines as objects of a class: what fits, what is malformed, which classes are refused."""

from __future__ import annotations

import dataclasses
import enum
import json
import pickle
import sys
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import cloudpickle
import msgspec
import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import files
from clonos.connectors.connector_errors import InputMalformed, InvalidConnector
from clonos.core.values import decode_rows, encode_rows
from clonos.io.process.pickling import pickled
from clonos.operators.connector_contract import MalformedRecord
from tests.unit.connectors.reading import read_all
from tests.unit.operators.driver import Outbox, run


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Place:
    city: str
    at: datetime | None = None


@dataclasses.dataclass(frozen=True)
class Bid:
    auction: int
    price: float
    places: list[Place] = dataclasses.field(default_factory=list)
    colour: Colour = Colour.RED
    exact: Decimal = Decimal(0)


@dataclasses.dataclass
class Loose:
    x: Any


class Pair(NamedTuple):
    left: int
    right: str = "none"


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Row(TypedDict):
    x: int


def written(folder: Path, *lines: str) -> Path:
    path = folder / "in.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


@pytest.mark.parametrize(
    ("schema", "line", "expected"),
    [
        (Bid, '{"auction": 1, "price": 2.5, "unknown": 0}', Bid(1, 2.5)),
        (
            Bid,
            '{"auction": 1, "price": 2, "places": [{"city": "Rom", "at": "2026-01-02T00:00:00Z"}], "exact": "1.10"}',
            Bid(1, 2.0, [Place("Rom", datetime(2026, 1, 2, tzinfo=UTC))], exact=Decimal("1.10")),
        ),
        (Bid, f'{{"auction": {2**80}, "price": 1}}', Bid(2**80, 1.0)),
        (Pair, '{"right": "b", "left": 1}', Pair(1, "b")),
        (Pair, '{"left": 1}', Pair(1)),
        (Point, '{"x": 1}', Point(1)),
        (Row, '{"x": 1, "y": 2}', {"x": 1}),
    ],
    ids=["unknown key", "nested", "large int", "named tuple", "default", "struct", "typed dict"],
)
def test_a_line_becomes_an_object_of_the_class(tmp_path: Path, schema: type, line: str, expected: Any) -> None:
    source: Any = files.jsonl(written(tmp_path, line, "", line), schema=schema)
    found = read_all(source)
    assert found == [expected, expected]
    assert {type(each) for each in found} == {type(expected)}
    assert decode_rows(encode_rows(found)) == found


def _read(source: Any) -> list[Any]:
    (split,) = source.splits(1)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        return list(reader.read(10))


def test_decimals_keep_all_digits_also_beside_a_malformed_line(tmp_path: Path) -> None:
    line = '{"auction": 1, "price": 0.1234567890123456789, "exact": 0.1234567890123456789}'
    source: Any = files.jsonl(written(tmp_path, line, "{auction", line), schema=Bid)
    first, _, last = _read(source)
    assert first == last == Bid(1, 0.12345678901234568, exact=Decimal("0.1234567890123456789"))


def test_a_field_of_any_type_does_not_round(tmp_path: Path) -> None:
    source: Any = files.jsonl(written(tmp_path, '{"x": 0.1234567890123456789}', '{"x": 0.5}'), schema=Loose)
    malformed, good = _read(source)
    assert good == Loose(0.5)
    assert "its number 0.1234567890123456789 has more digits than a float holds" in str(malformed.error)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"auction": "one", "price": 1}', "does not fit Bid: Expected `int`, got `str` - at `$.auction`"),
        ('{"auction": 1}', "does not fit Bid: Object missing required field `price`"),
        ('{"auction": 1, "price": 1, "places": [{}]}', "missing required field `city` - at `$.places[0]`"),
        ('{"auction": 1, "price": NaN, "colour": "blue"}', "does not fit Bid: Invalid enum value 'blue'"),
        ("[1, 2]", "does not fit Bid: Expected `object`, got `array`"),
        ("{auction", "is not JSON: "),
    ],
)
def test_a_line_that_does_not_fit_is_malformed_and_the_others_are_read(tmp_path: Path, line: str, problem: str) -> None:
    good = '{"auction": 1, "price": 1}'
    source = files.jsonl(written(tmp_path, good, line, good), schema=Bid)
    first, malformed, last = _read(source)
    assert (first, last) == (Bid(1, 1.0), Bid(1, 1.0))
    assert isinstance(malformed, MalformedRecord)
    assert malformed.record == line
    assert isinstance(malformed.error, InputMalformed)
    assert malformed.error.offset_bytes == len(good) + 1
    assert problem in str(malformed.error)
    assert "errors=" in str(malformed.error)


def test_a_malformed_line_goes_to_the_error_output_of_the_job(tmp_path: Path) -> None:
    path = written(tmp_path, '{"auction": 1, "price": 1}', '{"auction": 1}')
    graph = JobGraph("typed", errors=Outbox())
    graph.source(files.jsonl(path, schema=Bid)).map(lambda bid: bid.price).sink(Outbox())
    written_rows = run(graph).written
    assert written_rows["source-map-sink"] == [1.0]
    (error,) = written_rows["errors"]
    assert (error.step, error.record) == ("source", '{"auction": 1}')
    assert "Object missing required field `price`" in error.error


class NoFields:
    pass


@dataclasses.dataclass
class Holding:
    what: NoFields


@dataclasses.dataclass
class Unresolved:
    what: Nowhere  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (NoFields, "schema=NoFields is not a class with fields"),
        (int, "schema=int is not a class with fields"),
        (Holding, "schema=Holding has a field of the type NoFields"),
        (Unresolved, "schema=Unresolved cannot be read: name 'Nowhere' is not defined"),
        ("Bid", "schema='Bid' "),
    ],
)
def test_a_class_that_no_line_can_become_is_refused_at_once(schema: Any, problem: str) -> None:
    with pytest.raises(InvalidConnector) as refused:
        files.jsonl("in", schema=schema)
    assert problem in str(refused.value)
    assert "dataclass" in str(refused.value)


def test_a_sink_with_a_class_is_refused(tmp_path: Path) -> None:
    sink = files.jsonl(tmp_path / "out", schema=Bid)
    with pytest.raises(InvalidConnector, match="schema= is for a source"):
        sink.prepare_output("job", False, False)


@pytest.mark.parametrize("schema", [Bid, Pair, Point, Row])
def test_a_source_with_a_class_of_the_job_travels_to_the_slots_also_after_it_was_read(
    tmp_path: Path, schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"auction": 1, "price": 2.0, "left": 3, "x": 4}
    source: Any = files.jsonl(written(tmp_path, json.dumps(fields), "NaN"), schema=schema)
    reader = source.reader()
    (split,) = source.splits(1)
    reader.open(split, None)
    first, _ = reader.read(10)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as modules of a job are sent
    try:
        sent = pickled(source)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    again = pickle.loads(sent).reader()  # noqa: S301  our own bytes
    again.open(split, None)
    assert again.read(10)[0] == first
    reader.close()
    again.close()
