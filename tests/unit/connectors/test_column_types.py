"""Types of columns that are parsed from lines: given, or inferred once for all files, tasks and resumes."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from clonos.connectors import files
from clonos.connectors.columns.line_columns import ColumnSplit
from clonos.connectors.connector_errors import InputMalformed, InvalidConnector, SplitMalformed
from clonos.connectors.filesystem.file_splits import decode_split, encode_split
from tests.unit.connectors.reading import read_all, read_split
from tests.unit.connectors.test_line_columns import ROWS, written


def test_a_field_that_the_first_lines_lack_is_an_error_and_with_columns_left_out(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_bytes(b'{"a": 1}\n')
    (tmp_path / "2.jsonl").write_bytes(b'{"a": 2, "b": 1}\n')
    with pytest.raises(InputMalformed, match="does not fit the columns: JSON parse error: unexpected field"):
        read_all(files.jsonl(tmp_path, columns=True))
    assert read_all(files.jsonl(tmp_path, columns=["a"])) == [{"a": 1}, {"a": 2}]


def test_types_are_those_of_the_first_lines_in_every_task_and_after_a_resume(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_bytes(b'{"n": 1, "at": "2026-01-01 00:00:00", "s": {"t": "2026-01-01"}}\n')
    (tmp_path / "2.jsonl").write_bytes(b'{"n": 2}\n{"n": 2.5}\n')
    source = files.jsonl(tmp_path / "*.jsonl", columns=True)
    first, second = source.splits(1)
    kind = pyarrow.schema({"n": pyarrow.int64(), "at": pyarrow.string(), "s": pyarrow.struct({"t": pyarrow.string()})})
    reader = source.reader()
    reader.open(second, None)
    some: Any = reader.read(10)
    assert some.schema == kind
    malformed_lines: Any = reader.read(10)
    (malformed,) = malformed_lines
    assert malformed.record == '{"n": 2.5}'
    (tmp_path / "1.jsonl").unlink()
    assert files.jsonl(tmp_path / "*.jsonl", columns=True).discover([first], 0, 1) != []
    resumed = source.reader()
    resumed.open(second, reader.mark())
    assert resumed.read(10) is None
    reader.close()
    resumed.close()


def test_only_what_schema_and_columns_name_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, "jsonl", ROWS)
    schema = pyarrow.schema({"x": pyarrow.float32(), "n": pyarrow.int8()})
    batch = read_batch(files.jsonl(path, schema=schema))
    assert batch.schema == schema
    assert read_batch(files.jsonl(path, schema=schema, columns=["n"])).schema.names == ["n"]
    assert read_batch(files.jsonl(path, columns=["word", "n"])).schema.names == ["word", "n"]
    path = written(tmp_path, "csv", ROWS)
    assert read_batch(files.csv(path, schema=schema)).schema == schema
    assert read_batch(files.csv(path, columns=["word"])).schema.names == ["word"]
    with pytest.raises(InvalidConnector, match=r"there is no column 'm'. There are n, word, x"):
        files.csv(path, columns=["m"]).splits(1)
    with pytest.raises(InvalidConnector, match=r"there is no column 'm'. There are x, n"):
        files.jsonl(path, schema=schema, columns=["m"])


def read_batch(source: Any) -> Any:
    reader = source.reader()
    reader.open(source.splits(1)[0], None)
    batch = reader.read(1_000)
    reader.close()
    return batch


def test_files_without_a_record_have_no_types(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"")
    assert files.jsonl(path, columns=True).splits(1) == []
    path.write_bytes(b"\n \n")
    (tmp_path / "a.csv").write_bytes(b"n,m")
    assert files.csv(tmp_path / "*.csv").splits(1) == []
    (tmp_path / "b.csv").write_bytes(b"n,m\n1,2\n")
    assert read_all(files.csv(tmp_path / "*.csv")) == [{"n": 1, "m": 2}]
    assert files.jsonl(path, columns=True).splits(1) == []


def test_types_are_inferred_from_the_lines_that_are_of_the_format(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'broken\n{"a": 1}\n')
    source = files.jsonl(path, columns=True)
    (split,) = source.splits(1)
    with pytest.raises(InputMalformed, match="the line 'broken' is not JSON"):
        read_split(source.reader(), split)
    assert read_split(source.reader(), split, (7).to_bytes(8, "big")) == [{"a": 1}]


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 12345678901234567890123])
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_an_integer_beyond_64_bits_does_not_make_its_column_one_of_floats(
    tmp_path: Path, kind: str, number: int
) -> None:
    path = tmp_path / f"in.{kind}"
    lines = [f"{number},2.5", f"{-1 << 63},1e20"] if kind == "csv" else [f'{{"a": {number}, "b": 2.5}}', '{"a": 5}']
    path.write_text("\n".join([*(["a,b"] if kind == "csv" else []), *lines, ""]))
    source = files.csv(path) if kind == "csv" else files.jsonl(path, columns=True)
    (split,) = source.splits(1)
    with pytest.raises(InputMalformed, match=str(number)):
        read_split(source.reader(), split)
    schema = pyarrow.schema([("a", pyarrow.decimal128(38)), ("b", pyarrow.float64())])
    given = files.csv(path, schema=schema) if kind == "csv" else files.jsonl(path, schema=schema)
    assert read_all(given)[0] == {"a": Decimal(number), "b": 2.5}


@pytest.mark.parametrize("schema", [b"", b"\x00", b"\xff" * 40])
def test_a_split_whose_schema_is_damaged_is_refused(tmp_path: Path, schema: bytes) -> None:
    source = files.jsonl(written(tmp_path, "jsonl", ROWS), columns=True)
    part = decode_split(source.splits(1)[0])
    damaged = encode_split(
        ColumnSplit(part.format, part.path, part.size_bytes, part.mtime_ns, part.begin, part.end, schema)
    )
    with pytest.raises(SplitMalformed, match="its schema is not one"):
        source.reader().open(damaged, None)
