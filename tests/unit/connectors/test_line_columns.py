"""JSON lines and CSV as columns: each line once from every mark, malformed lines alone, types that do not change."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import Job, Timestamps, collect
from clonos.api.graph import JobGraph
from clonos.connectors import files
from clonos.connectors.columns.json_columns import JsonLines
from clonos.connectors.columns.line_columns import ColumnLineReader
from clonos.connectors.connector_errors import InputMalformed
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed
from clonos.testing import Outputs, crash_test
from tests.unit.connectors.reading import read_all, read_piecewise
from tests.unit.operators.driver import Outbox, run

NOON = 1_767_268_800
ROWS = [{"n": number, "word": f"w{number}", "x": number / 4} for number in range(60)]


def json_text(rows: list[dict[str, Any]], end: str = "\n") -> bytes:
    return "".join(json.dumps(row) + end for row in rows).encode()


def csv_text(rows: list[dict[str, Any]], end: str = "\n") -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator=end)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def of_format(kind: str, path: Path, **options: Any) -> Any:
    return files.jsonl(path, columns=True, **options) if kind == "jsonl" else files.csv(path, **options)


@pytest.fixture(params=["jsonl", "csv"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def written(folder: Path, kind: str, rows: list[dict[str, Any]], end: str = "\n") -> Path:
    path = folder / f"in.{kind}"
    path.write_bytes(json_text(rows, end) if kind == "jsonl" else csv_text(rows, end))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("block_bytes", [1, 10, 97, None])
def test_each_line_is_read_once_whatever_the_blocks(
    tmp_path: Path, kind: str, block_bytes: int | None, end: str
) -> None:
    source = of_format(kind, written(tmp_path, kind, ROWS, end), block_bytes=block_bytes)
    assert read_all(source) == ROWS


@settings(max_examples=20)
@given(sizes=st.lists(st.integers(1, 25), min_size=1, max_size=5), block_bytes=st.sampled_from([64, 300, 4_000]))
def test_each_line_is_read_once_from_every_mark(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], block_bytes: int
) -> None:
    for kind in ("jsonl", "csv"):
        folder = tmp_path_factory.mktemp("lines")
        source = of_format(kind, written(folder, kind, ROWS), block_bytes=block_bytes)
        splits = source.splits(2)
        assert [row for split in splits for piece in read_piecewise(source, split, sizes) for row in piece] == ROWS


def pieces(source: Any, split: bytes, sizes: Iterator[int]) -> Iterator[tuple[int, Any]]:
    """Each piece with its mark, read by a new reader at the mark before it."""
    mark: bytes | None = None
    while True:
        reader = source.reader()
        reader.open(split, mark)
        begin = int.from_bytes(reader.mark(), "big")
        some = reader.read(next(sizes))
        mark = reader.mark()
        reader.close()
        if some is None:
            return
        yield begin, some


LINES = st.sampled_from(
    [
        b'{"a": 1, "b": "x"}',
        b'{"b": "y"}',
        b'  {"a": 3} ',
        b'{"a": null}',
        b"",
        b" \t",
        b'{"a": 1.5}',
        b'{"a": 1,}',
        b"[1]",
        b"7",
        b'{"a": 1} {"a": 2}',
        b'{"a":',
        b"1}",
        b'{"b": "\xff"}',
        b'{"c": 1}',
    ]
)


@given(
    lines=st.lists(LINES, max_size=30),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    block_bytes=st.sampled_from([1, 20, 100, None]),
    read_bytes=st.sampled_from([7, 60, 1 << 20]),
)
def test_malformed_lines_are_set_aside_alone_and_all_others_are_read(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    sizes: list[int],
    block_bytes: int | None,
    read_bytes: int,
) -> None:
    """Against one line at a time, in order, wherever pieces and blocks are cut."""
    path = tmp_path_factory.mktemp("lines") / "in.jsonl"
    path.write_bytes(b"\n".join(lines))
    schema = pyarrow.schema({"a": pyarrow.int64(), "b": pyarrow.string()})
    text_format = JsonLines(schema, None)
    expected: list[Any] = []
    offset = 0
    for line in lines:
        try:
            value = json.loads(line)
            assert isinstance(value, dict)
            assert not isinstance(value.get("a"), float)
            expected.append((offset, {"a": value.get("a"), "b": value.get("b")}))
        except (ValueError, AssertionError):
            if line.strip():
                expected.append((offset, bytes))
        offset += len(line) + 1

    class Source:
        def reader(self) -> Any:
            return ColumnLineReader(text_format, 1 << 20, read_bytes)

    found: list[Any] = []
    sizes_in_turn = cycle(sizes)
    for split in files.jsonl(path, schema=schema, block_bytes=block_bytes).splits(2):
        for _, some in pieces(Source(), split, sizes_in_turn):
            if isinstance(some, PartlyMalformed):
                assert all(isinstance(each, MalformedRecord) for each in some)
                found += [(each.error, bytes) for each in some]
            else:
                found += [(None, row) for row in some.to_pylist()]
    assert [content for _, content in found] == [content for _, content in expected]
    for (error, content), (offset, _) in zip(found, expected, strict=True):
        if content is bytes:
            assert offset <= error.offset_bytes <= offset + 10
            assert error.path == str(path)


@pytest.mark.parametrize("records_max", [1, 3, 100])
def test_a_malformed_line_goes_to_the_error_output_with_its_place(tmp_path: Path, records_max: int) -> None:
    path = tmp_path / "in.jsonl"
    content = b'{"a": 1}\n{"a": 2,}\n\n{"a": "text"}\n{"a": 4}\n{"b": 1}\n[1]\n{"a": 5}\n'
    path.write_bytes(content)
    graph = JobGraph("job", errors=Outbox())
    graph.source(files.jsonl(path, columns=True), name="read").map(lambda row: row["a"]).sink(Outbox(), name="rows")
    found = run(graph, parallelism=1, records_max=records_max).written
    errors = found.pop("errors")
    assert [row for rows in found.values() for row in rows] == [1, 4, None, 5]
    assert [each.record for each in errors] == ['{"a": 2,}', '{"a": "text"}', "[1]"]
    starts = [content.index(each.record.encode()) for each in errors]
    texts = [
        "the line '{\"a\": 2,}' is not JSON",
        'the line \'{"a": "text"}\' does not fit the columns: JSON parse error: Column(/a)',
        "the line '[1]' is not an object, whose fields could be columns. Correct the file.",
    ]
    for each, start, text in zip(errors, starts, texts, strict=True):
        line = content[:start].count(b"\n") + 1
        assert each.error.startswith(f"InputMalformed: {path} at byte {start}, line {line}: {text}")
    assert "give the types of all columns with schema=" in errors[1].error


def test_without_an_error_output_a_malformed_line_fails_the_job_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a,b\n1,2\n3,x\n")
    with pytest.raises(InputMalformed) as failed:
        read_all(files.csv(path, schema=pyarrow.schema({"a": pyarrow.int64(), "b": pyarrow.int64()})))
    assert failed.value.offset_bytes == 8
    assert failed.value.reason == (
        "the line '3,x' does not fit the columns: the field 'b': CSV conversion error to int64: invalid value 'x'"
    )


def test_csv_without_a_header_and_with_another_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"\xef\xbb\xbf1;a\n2;\n")
    assert read_all(files.csv(path, header=False, columns=["n", "word"], delimiter=";")) == [
        {"n": 1, "word": "a"},
        {"n": 2, "word": ""},
    ]
    path.write_bytes(b"\xef\xbb\xbfn;word\n1;a\n;b\n")
    assert read_all(files.csv(path, delimiter=";")) == [{"n": 1, "word": "a"}, {"n": None, "word": "b"}]


def test_columns_have_the_order_of_the_header_of_their_file(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,x\n")
    (tmp_path / "2.csv").write_text("b,a\ny,2\n")
    assert read_all(files.csv(tmp_path)) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    (tmp_path / "3.csv").write_text("b,c\ny,2\n")
    with pytest.raises(InputMalformed, match="its header has no column 'a'; it has b, c"):
        read_all(files.csv(tmp_path))
    (tmp_path / "3.csv").write_text("b,c,a\ny,2,3\n")
    with pytest.raises(InputMalformed, match="its header has the column 'c', which the first file of the input lacks"):
        read_all(files.csv(tmp_path))
    assert read_all(files.csv(tmp_path, columns=["a"])) == [{"a": 1}, {"a": 2}, {"a": 3}]
    (tmp_path / "3.csv").write_text("b,b\ny,2\n")
    with pytest.raises(InputMalformed, match="its header has the column 'b' twice"):
        read_all(files.csv(tmp_path))


CELLS = st.text(st.sampled_from('a,"\n;é'), max_size=5)


@given(
    rows=st.lists(st.tuples(CELLS, st.integers(0, 9), CELLS), min_size=1, max_size=12),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3),
)
def test_cells_with_line_ends_are_read_in_whole_files(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int, str]], sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "in.csv"
    records = [{"a": a, "n": n, "b": b} for a, n, b in rows]
    path.write_bytes(csv_text(records))
    schema = pyarrow.schema({"a": pyarrow.string(), "n": pyarrow.int64(), "b": pyarrow.string()})
    source = files.csv(path, schema=schema, newlines_in_values=True)
    (split,) = source.splits(4)
    assert [row for piece in read_piecewise(source, split, sizes) for row in piece] == records


def test_an_open_quote_names_the_option_that_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b'a,b\n1,x\n2,"y\nz"\n3,w\n')
    with pytest.raises(InputMalformed, match="newlines_in_values=True reads cells with line ends"):
        read_all(files.csv(path, ordered=True))
    assert read_all(files.csv(path, newlines_in_values=True))[1] == {"a": 2, "b": "y\nz"}


@pytest.mark.parametrize("line", [b'2,"y', b'2,"y"z"', b'2"3,"y', b'z"'])
@pytest.mark.parametrize("following", [b"", b"\n3,w\n"])
def test_a_quote_that_does_not_end_joins_no_lines(tmp_path: Path, line: bytes, following: bytes) -> None:
    """Arrow takes what follows for the rest of the cell, to the end of the block."""
    path = tmp_path / "in.csv"
    path.write_bytes(b"a,b\n1,x\n" + line + following)
    kind = pyarrow.schema({"a": pyarrow.string(), "b": pyarrow.string()})
    source = files.csv(path, schema=kind, ordered=True)
    reader: Any = source.reader()
    reader.open(source.splits(1)[0], None)
    found: list[Any] = []
    while (some := reader.read(10)) is not None:
        found += [each.record for each in some] if isinstance(some, PartlyMalformed) else cast(Any, some).to_pylist()
    reader.close()
    assert found == [{"a": "1", "b": "x"}, line.decode(), *([{"a": "3", "b": "w"}] if following else [])]


def test_one_column_with_quotes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b'n\n1\n"2"\n""\n3')
    assert [row["n"] for row in read_all(files.csv(path))] == [1, 2, None, 3]


def test_compressed_files_are_read_in_one_piece(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"in.{kind}.gz"
    path.write_bytes(gzip.compress(json_text(ROWS) if kind == "jsonl" else csv_text(ROWS)))
    source = of_format(kind, path)
    (split,) = source.splits(8)
    assert [row for piece in read_piecewise(source, split, [7]) for row in piece] == ROWS


def test_a_line_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"a": "' + b"x" * 3_000_000 + b'"}\n')
    with pytest.raises(InputMalformed, match="a line is longer than 1000 bytes"):
        read_all(files.jsonl(path, schema=pyarrow.schema({"a": pyarrow.string()}), line_bytes_max=1_000))


@pytest.mark.slow
@pytest.mark.parametrize("watermarks", [False, True])
def test_lines_as_columns_are_read_once_though_processes_die(tmp_path: Path, watermarks: bool) -> None:
    path = tmp_path / "in.jsonl"
    times_of = {7: "null", 33: NOON * 1_000}
    lines = [f'{{"n": {number}, "at": {times_of.get(number, NOON + number)}}}\n' for number in range(60)]
    path.write_text("".join(line if number % 5 else f"bad {number}\n" for number, line in enumerate(lines)))
    bad_times = set(times_of) if watermarks else set()

    def check(outputs: Outputs) -> None:
        good = {number for number in range(60) if number % 5} - bad_times
        assert sorted(row["n"] for row in outputs["sink"]) == sorted(good)
        found = {str(error.record) for error in outputs["errors"]}
        assert len(outputs["errors"]) == 12 + len(bad_times)
        assert {f"bad {5 * number}" for number in range(12)} <= found

    job = Job("lines", errors=collect())
    times = Timestamps("at", out_of_order="1s", future_max=None) if watermarks else None
    lines_read = job.source(files.jsonl(path, columns=True), name="read", timestamps=times)
    lines_read.rebalance().map(lambda row: row).sink(collect())
    report = crash_test(job, seeds=range(3), check=check)
    assert report.injected["kill"] > 0
