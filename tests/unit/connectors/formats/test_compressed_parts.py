"""``compression=``: part files that the tools of the format read, and that sources read back."""

import bz2
import gzip
import lzma
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import pandas
import polars
import pyarrow.parquet
import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import InvalidConnector, OutputCorrupt
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.connectors.formats.compressed_parts import SUFFIXES
from tests.unit.connectors.reading import read_all
from tests.unit.connectors.writing import JOB, part_of

ROWS = [{"word": f"word {number}", "n": number} for number in range(3_000)]
OF_TOOLS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "bz2": bz2.decompress,
    "xz": lzma.decompress,
    "lz4": lz4.frame.decompress,
}


def written(path: Path, kind: str, rows: list[Any], **options: Any) -> FileSink:
    sink: FileSink = getattr(files, kind)(path, **options)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    middle = len(rows) // 2
    sink.commit(JOB, 1, [part_of(sink, 1, rows[:middle]), part_of(sink, 1, rows[middle:], index=1)])
    sink.finish_output(JOB)
    return sink


@pytest.mark.parametrize("compression", SUFFIXES)
@pytest.mark.parametrize("kind", ["lines", "jsonl", "csv"])
def test_a_source_reads_compressed_parts_back(tmp_path: Path, kind: str, compression: str) -> None:
    rows: list[Any] = [row["word"] for row in ROWS] if kind == "lines" else ROWS
    written(tmp_path / "out", kind, rows, compression=compression)
    assert read_all(getattr(files, kind)(tmp_path / "out")) == rows
    expected = [{**row, "n": str(row["n"])} for row in ROWS] if kind == "csv" else rows
    assert list(files.read_committed(tmp_path / "out")) == expected
    assert all(part.path.endswith(f".{SUFFIXES[compression]}") for part in files.committed(tmp_path / "out"))


@pytest.mark.parametrize("compression", SUFFIXES)
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_single_file_has_the_compression_of_its_suffix(tmp_path: Path, kind: str, compression: str) -> None:
    path = tmp_path / f"out.{kind}.{SUFFIXES[compression]}"
    written(path, kind, ROWS, single=True)
    assert read_all(getattr(files, kind)(path)) == ROWS
    if compression == "zstd":
        read = polars.read_ndjson if kind == "jsonl" else polars.read_csv
        assert read(path).to_dicts() == ROWS
    else:
        text = OF_TOOLS[compression](path.read_bytes())
        assert text.count(b"\n") == len(ROWS) + (kind == "csv")


def test_pandas_and_zcat_read_a_gzip_file(tmp_path: Path) -> None:
    written(tmp_path / "out.csv.gz", "csv", ROWS, single=True)
    assert pandas.read_csv(tmp_path / "out.csv.gz").to_dict("records") == ROWS
    shown = subprocess.run(["zcat", tmp_path / "out.csv.gz"], capture_output=True, check=True)
    assert shown.stdout.startswith(b"word,n\nword 0,0\n")


def test_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    for compression in SUFFIXES:
        for name in ("a", "b"):
            written(tmp_path / f"{name}.{compression}", "jsonl", ROWS, compression=compression)
        first, second = (files.committed(tmp_path / f"{name}.{compression}") for name in ("a", "b"))
        assert [part.xxh3 for part in first] == [part.xxh3 for part in second]


@pytest.mark.parametrize("compression", ["zstd", "gzip", "none"])
def test_parquet_compresses_its_columns(tmp_path: Path, compression: str) -> None:
    written(tmp_path / "out", "parquet", ROWS, compression=compression)
    part = pyarrow.parquet.ParquetFile(files.committed(tmp_path / "out")[0].path)
    codec = part.metadata.row_group(0).column(0).compression
    assert codec == ("UNCOMPRESSED" if compression == "none" else compression.upper())
    assert list(files.read_committed(tmp_path / "out")) == ROWS


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_arrow_compresses_its_columns(tmp_path: Path, compression: str) -> None:
    written(tmp_path / "plain", "arrow", ROWS)
    written(tmp_path / "out", "arrow", ROWS, compression=compression)
    sizes = [files.committed(tmp_path / name)[0].size_bytes for name in ("out", "plain")]
    assert (sizes[0] < sizes[1]) == (compression != "none")
    assert list(files.read_committed(tmp_path / "out")) == ROWS


@pytest.mark.parametrize(
    ("kind", "name", "options", "problem"),
    [
        ("jsonl", "out", {"compression": "snappy"}, "compression is 'snappy'. Give one of gzip, bz2, xz, zstd, lz4"),
        ("parquet", "out", {"compression": "xz"}, "compression is 'xz'. Give one of snappy"),
        ("arrow", "out", {"compression": "gzip"}, "compression is 'gzip'. Give one of zstd, lz4"),
        ("csv", "out.csv", {"compression": "gzip", "single": True}, "does not fit the name .*out.csv.gz"),
    ],
)
def test_a_compression_that_cannot_be_is_refused(
    tmp_path: Path, kind: str, name: str, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidConnector, match=problem):
        written(tmp_path / name, kind, ROWS, **options)


def test_a_damaged_part_is_found(tmp_path: Path) -> None:
    written(tmp_path / "out", "jsonl", ROWS, compression="gzip")
    (part, _) = files.committed(tmp_path / "out")
    data = Path(part.path).read_bytes()
    Path(part.path).write_bytes(data[:-9])
    with pytest.raises(OutputCorrupt, match="xxh3"):
        list(files.read_committed(tmp_path / "out"))
