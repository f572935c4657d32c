"""Sinks of files that get columns write the bytes, or values, that they write for the same records as rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import files
from clonos.connectors.columns import text_columns
from clonos.connectors.columns.parquet_rows import ParquetRows
from clonos.connectors.connector_errors import RowNotWritable
from clonos.connectors.filesystem.csv_files import CsvRows
from clonos.connectors.filesystem.durable_files import DurableFile
from clonos.connectors.filesystem.json_files import JsonRows
from tests.unit.connectors.writing import JOB, writer_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["", "a,b", 'say "x"', "two\nlines", "\r", "\\", "\x00", "\x1f", "\x7f", " lead", "é\u2028", "null", "1"]
)
ZONED = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.replace(tzinfo=UTC))
WHOLE = ZONED.map(lambda at: at.replace(microsecond=0))

COLUMNS: list[tuple[Any, Any]] = [
    (pyarrow.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pyarrow.uint64(), st.integers(0, (1 << 64) - 1)),
    (pyarrow.int8(), st.integers(-128, 127)),
    (pyarrow.bool_(), st.booleans()),
    (pyarrow.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pyarrow.float32(), st.floats(allow_nan=False, allow_infinity=False, width=32)),
    (pyarrow.string(), TEXTS),
    (pyarrow.large_string(), TEXTS),
    (pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), TEXTS),
    (pyarrow.date32(), st.dates()),
    (pyarrow.timestamp("us", "UTC"), ZONED),
    (pyarrow.timestamp("s", "UTC"), WHOLE),
    (pyarrow.timestamp("ms", "UTC"), WHOLE),
    (pyarrow.timestamp("us", "Europe/Berlin"), ZONED.filter(lambda at: 1900 < at.year < 2100)),
    (pyarrow.timestamp("us"), ZONED.map(lambda at: at.replace(tzinfo=None))),
    (pyarrow.binary(), st.binary(max_size=4)),
    (pyarrow.decimal128(12, 3), st.decimals(-1000, 1000, places=3)),
    (pyarrow.list_(pyarrow.int64()), st.lists(st.integers(0, 9), max_size=3)),
    (pyarrow.struct({"a": pyarrow.string()}), st.fixed_dictionaries({"a": TEXTS})),
    (pyarrow.time64("us"), st.times()),
    (pyarrow.null(), st.nothing()),
]


@st.composite
def batches(draw: st.DrawFn) -> Any:
    """A batch of some columns, or a slice of it."""
    kinds = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4))
    count = draw(st.integers(1, 6))
    names = draw(st.permutations(["a", "b c", 'q"', "é,"]))
    cells = [draw(st.lists(st.none() | values, min_size=count, max_size=count)) for _, values in kinds]
    arrays = [pyarrow.array(column, kind) for column, (kind, _) in zip(cells, kinds, strict=True)]
    batch = pyarrow.record_batch(arrays, names=names[: len(arrays)])
    start = draw(st.integers(0, count - 1))
    return batch.slice(start, draw(st.integers(1, count)))


def content(folder: Path, kind: str, write: Any, **options: Any) -> bytes:
    """The bytes of one part."""
    sink = getattr(files, kind)(folder, **options)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    writer = writer_of(sink)
    write(writer)
    part = writer.prepare(1)
    writer.close()
    sink.commit(JOB, 1, [part])
    (found,) = files.committed(folder)
    return Path(found.path).read_bytes()


class Written:
    """File in memory."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)


@pytest.mark.parametrize("make", [JsonRows, lambda file: CsvRows(file, None)], ids=["jsonl", "csv"])
@given(batch=batches())
def test_columns_are_written_as_their_rows(make: Any, batch: Any) -> None:
    of_rows, of_columns = Written(), Written()
    make(of_rows).rows(batch.to_pylist())
    make(of_columns).columns(batch)
    assert of_columns.data == of_rows.data


USUAL = pyarrow.record_batch(
    {
        "key": pyarrow.array([1, None, 3]),
        "word": pyarrow.array(["a", None, "ü"]),
        "start": pyarrow.array([datetime(2026, 1, 1, tzinfo=UTC)] * 3, pyarrow.timestamp("us", "UTC")),
        "day": pyarrow.array([date(2026, 1, 1), None, date(1999, 12, 31)]),
        "is_big": pyarrow.array([True, False, None]),
    }
)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_usual_columns_become_no_python_objects(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = content(tmp_path / "rows", kind, lambda writer: writer.write(USUAL.to_pylist()))

    def refused(*args: object) -> str:
        raise AssertionError(f"{args} was a Python object")

    monkeypatch.setattr(text_columns, "_by_row_path", refused)
    monkeypatch.setattr(text_columns, "scalar_text", refused)
    monkeypatch.setattr("clonos.connectors.filesystem.json_files.json_lines", refused)
    monkeypatch.setattr("clonos.connectors.filesystem.csv_files.fields_of", refused)
    assert content(tmp_path / "columns", kind, lambda writer: writer.write_columns(USUAL)) == expected


def test_a_column_that_the_sink_does_not_have_is_refused_with_its_row(tmp_path: Path) -> None:
    with pytest.raises(RowNotWritable, match="there is no column for its word"):
        content(tmp_path / "out", "csv", lambda writer: writer.write_columns(USUAL), columns=["key"])


def test_columns_that_a_batch_lacks_are_empty_cells(tmp_path: Path) -> None:
    batch = USUAL.select(["key", "word"])
    found = content(tmp_path / "out", "csv", lambda writer: writer.write_columns(batch), columns=["word", "n", "key"])
    assert found == "word,n,key\na,,1\n,,\nü,,3\n".encode()


def test_an_infinity_in_a_column_is_refused_with_its_row(tmp_path: Path) -> None:
    batch = pyarrow.record_batch({"x": [1.0, float("inf")]})
    with pytest.raises(RowNotWritable, match="is inf, which JSON cannot express") as refused:
        content(tmp_path / "out", "jsonl", lambda writer: writer.write_columns(batch))
    assert refused.value.index == 1


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_batches_are_gathered_into_groups_between_rows(tmp_path: Path, kind: str) -> None:
    def write(writer: Any) -> None:
        writer.write_columns(pyarrow.record_batch({"n": [1, 2]}))
        writer.write([{"n": 3}])
        writer.write_columns(pyarrow.record_batch({"n": pyarrow.array([4], pyarrow.int8())}))
        writer.write_columns(pyarrow.record_batch({"n": [5]}))

    content(tmp_path / "out", kind, write)
    assert [row["n"] for row in files.read_committed(tmp_path / "out")] == [1, 2, 3, 4, 5]


def test_small_batches_become_one_row_group(tmp_path: Path) -> None:
    file = DurableFile(str(tmp_path / "writing"))
    part = ParquetRows(file, None, group_rows=10)
    for number in range(25):
        part.columns(pyarrow.record_batch({"n": [number]}))
    part.finish()
    file.publish(str(tmp_path / "part.parquet"))
    with pyarrow.parquet.ParquetFile(tmp_path / "part.parquet") as found:
        assert [found.metadata.row_group(group).num_rows for group in range(found.num_row_groups)] == [10, 10, 5]
        assert found.read().column("n").to_pylist() == list(range(25))


def test_a_batch_that_does_not_fit_an_arrow_file_names_its_sink(tmp_path: Path) -> None:
    def write(writer: Any) -> None:
        writer.write_columns(pyarrow.record_batch({"n": [1]}))
        writer.write_columns(pyarrow.record_batch({"m": [1]}))

    with pytest.raises(RowNotWritable, match=r"files\.arrow .*its batch has no column n"):
        content(tmp_path / "out", "arrow", write)
