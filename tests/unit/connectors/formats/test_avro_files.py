"""``files.avro``: blocks as splits, evolution of schemas, and part files that fastavro reads."""

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import fastavro
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.connectors import files
from clonos.connectors.connector_errors import InputMalformed, InvalidConnector, RowNotWritable
from clonos.connectors.filesystem.file_splits import decode_split
from tests.unit.connectors.reading import as_rows, read_all, read_piecewise, read_split
from tests.unit.connectors.writing import JOB, part_of, writer_of

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "n", "type": "long"}, {"name": "item", "type": "string"}],
}
ROWS = [{"n": number, "item": f"item {number}"} for number in range(2_000)]


@dataclass
class Line:
    cents: int
    price: float = 0.5


@dataclass
class Order:
    n: int
    at: datetime
    day: date
    id: UUID
    data: bytes
    lines: list[Line] = field(default_factory=list)
    note: str | None = None
    counts: dict[str, int] = field(default_factory=dict)


class Pair(NamedTuple):
    left: int
    right: str = "x"


def made(
    path: Path, rows: list[Any] = ROWS, schema: Any = SCHEMA, codec: str = "deflate", sync_interval: int = 1_000
) -> Path:
    """A file of another writer, with many blocks."""
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), rows, codec=codec, sync_interval=sync_interval)
    return path


def written(folder: Path, rows: list[Any], **options: Any) -> Any:
    sink = files.avro(folder, **({"schema": SCHEMA} | options))
    sink.prepare_output(JOB, resume=False, overwrite=False)
    middle = len(rows) // 2
    sink.commit(JOB, 1, [part_of(sink, 1, rows[:middle]), part_of(sink, 1, rows[middle:], index=1)])
    sink.finish_output(JOB)
    return sink


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
@pytest.mark.parametrize("block_bytes", [1, 17, 300, 5_000, 10_000_000])
def test_each_block_is_read_in_one_split(tmp_path: Path, block_bytes: int, codec: str) -> None:
    rows = ROWS[:300]
    source = files.avro(made(tmp_path / "a.avro", rows, codec=codec, sync_interval=500), block_bytes=block_bytes)
    assert read_all(source) == rows


def test_a_large_file_is_read_by_several_tasks(tmp_path: Path) -> None:
    made(tmp_path / "a.avro", ROWS * 5, codec="null")
    source = files.avro(tmp_path / "a.avro")
    counts = [len(read_split(source.reader(), split)) for split in source.splits(2)]
    assert len(counts) > 1
    assert all(counts)
    assert len(source.in_order().splits(2)) == 1


@given(st.lists(st.integers(1, 400), min_size=1, max_size=5))
@settings(max_examples=20, deadline=None)
def test_a_reader_continues_at_any_mark(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    source = files.avro(made(tmp_path_factory.mktemp("in") / "a.avro"), block_bytes=9_000)
    pieces = [piece for split in source.splits(2) for piece in read_piecewise(source, split, sizes)]
    assert [row for piece in pieces for row in piece] == ROWS


def test_a_schema_of_the_reader_adds_and_drops_fields(tmp_path: Path) -> None:
    made(tmp_path / "a.avro")
    newer = {"type": "record", "name": "Order", "fields": [
        {"name": "n", "type": "double"}, {"name": "kind", "type": "string", "default": "old"},
    ]}  # fmt: skip
    source = files.avro(tmp_path / "a.avro", schema=json.dumps(newer))
    assert read_all(source) == [{"n": float(number), "kind": "old"} for number in range(len(ROWS))]


def test_a_schema_that_does_not_fit_the_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    made(tmp_path / "a.avro")
    other = {"type": "record", "name": "Order", "fields": [{"name": "missing", "type": "long"}]}
    with pytest.raises(InputMalformed, match=r"a\.avro at byte \d+: the block does not fit schema="):
        read_all(files.avro(tmp_path / "a.avro", schema=other))


def test_a_file_that_is_cut_off_is_an_error_after_its_whole_blocks(tmp_path: Path) -> None:
    path = made(tmp_path / "a.avro", codec="null")
    path.write_bytes(path.read_bytes()[:-5])
    reader = files.avro(path).in_order().reader()
    (split,) = files.avro(path).in_order().splits(1)
    reader.open(split, None)
    rows: list[Any] = []
    with pytest.raises(InputMalformed, match=r"a\.avro at byte \d+: the block is damaged or cut off"):
        rows.extend(row for _ in ROWS for row in as_rows(reader.read(1) or []))
    reader.close()
    assert 0 < len(rows) < len(ROWS)
    assert rows == ROWS[: len(rows)]


def test_a_file_with_two_fields_of_one_name_is_refused(tmp_path: Path) -> None:
    repeated = {"type": "record", "name": "r", "fields": [{"name": name, "type": "long"} for name in ("a", "b", "a")]}
    with open(tmp_path / "a.avro", "wb") as file:
        fastavro.writer(file, repeated, [{"a": 1, "b": 2}])
    with pytest.raises(InputMalformed, match="the file is unclear: ValueError: two fields of r have the name 'a'"):
        read_all(files.avro(tmp_path / "a.avro"))


@pytest.mark.parametrize("content", [b"", b"Obj\x01", b"n,item\n1,x\n" * 100])
def test_a_file_of_another_format_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.avro").write_bytes(content)
    if not content:
        assert read_all(files.avro(tmp_path / "a.avro")) == []
        return
    with pytest.raises(InputMalformed, match=r"a\.avro at byte 0: the file is no container file of Avro"):
        read_all(files.avro(tmp_path / "a.avro"))


@pytest.mark.parametrize("compression", [None, "none"])
def test_part_files_are_read_by_others_and_by_the_source(tmp_path: Path, compression: str | None) -> None:
    written(tmp_path / "out", ROWS, compression=compression)
    assert read_all(files.avro(tmp_path / "out")) == ROWS
    assert list(files.read_committed(tmp_path / "out")) == ROWS
    found = [row for part in files.committed(tmp_path / "out") for row in polars.read_avro(part.path).to_dicts()]
    assert found == ROWS


def test_a_single_file_has_the_blocks_of_all_parts(tmp_path: Path) -> None:
    written(tmp_path / "out.avro", ROWS, single=True)
    with (tmp_path / "out.avro").open("rb") as file:
        assert list(fastavro.reader(file)) == ROWS


def test_objects_of_a_class_are_written_and_read_back(tmp_path: Path) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    rows = [
        Order(1, at, date(2026, 1, 2), UUID(int=7), b"\0\xff", [Line(3), Line(4, 1.5)], "x", {"a": 1}),
        Order(2, at, date(2026, 1, 3), UUID(int=8), b""),
    ]
    written(tmp_path / "out", rows, schema=Order)
    assert read_all(files.avro(tmp_path / "out", schema=Order)) == rows
    assert read_all(files.avro(tmp_path / "out"))[1]["note"] is None


def test_a_named_tuple_gets_the_default_of_a_field_that_the_file_lacks(tmp_path: Path) -> None:
    made(
        tmp_path / "a.avro",
        [{"left": 1}],
        {"type": "record", "name": "Pair", "fields": [{"name": "left", "type": "int"}]},
    )
    assert read_all(files.avro(tmp_path / "a.avro", schema=Pair)) == [Pair(1, "x")]


@pytest.mark.parametrize("wrong", [{"n": "x", "item": "y"}, {"n": 1}, {"n": 1, "item": "y", "extra": 2}, 5])
def test_a_row_without_the_schema_is_refused_and_nothing_of_its_batch_is_written(tmp_path: Path, wrong: Any) -> None:
    sink = files.avro(tmp_path / "out", schema=SCHEMA)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    writer = writer_of(sink)
    with pytest.raises(RowNotWritable, match="it does not have the schema") as raised:
        writer.write([ROWS[0], wrong])
    assert raised.value.index == 1
    writer.write([ROWS[2]])
    part = writer.prepare(1)
    assert part is not None
    sink.commit(JOB, 1, [part])
    assert list(files.read_committed(tmp_path / "out")) == [ROWS[2]]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"schema": {"type": "no such"}}, "is no schema of Avro"),
        ({"schema": int}, "schema=int is not a class with fields"),
        ({"compression": "gzip", "schema": SCHEMA}, "compression is 'gzip'"),
        ({"block_bytes": 0}, "block_bytes is 0"),
        ({"schema": Pair, "partitioned": True}, "no place for the columns"),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConnector, match=problem):
        files.avro("x", **options)


def test_a_sink_without_a_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConnector, match="a sink needs a schema"):
        files.avro(tmp_path / "out").prepare_output(JOB, resume=False, overwrite=False)


def test_a_split_has_its_place_in_the_file(tmp_path: Path) -> None:
    made(tmp_path / "a.avro")
    splits = [decode_split(split) for split in files.avro(tmp_path / "a.avro", block_bytes=9_000).splits(2)]
    assert [split.begin for split in splits[1:]] == [split.end for split in splits[:-1]]
