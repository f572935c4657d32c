"""``part_rows=`` and ``part_bytes=``: several part files per checkpoint, visible together."""

import resource
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import InvalidConnector, OutputFailed
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.connectors.filesystem.output_parts import FULL_PARTS_MAX
from tests.unit.connectors.writing import JOB, writer_of

ROWS = [{"n": number} for number in range(10)]


def sink_of(folder: Path, kind: str = "jsonl", **options: Any) -> FileSink:
    sink: FileSink = getattr(files, kind)(folder, **options)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    return sink


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "arrow"])
def test_a_part_file_ends_with_the_rows_that_fill_it(tmp_path: Path, kind: str) -> None:
    sink = sink_of(tmp_path / "out", kind, part_rows=4)
    writer = writer_of(sink)
    for row in ROWS:
        writer.write([row])
    part = writer.prepare(1)
    assert part is not None
    assert not list((tmp_path / "out").iterdir())
    sink.commit(JOB, 1, [part])
    sink.commit(JOB, 1, [part])
    assert [found.rows for found in files.committed(tmp_path / "out")] == [4, 4, 2]
    assert [int(row["n"]) for row in files.read_committed(tmp_path / "out")] == list(range(10))
    writer.write(ROWS)
    later = writer.prepare(2)
    assert later is not None
    sink.commit(JOB, 2, [later])
    assert [found.rows for found in files.committed(tmp_path / "out")] == [4, 4, 2, 10]


def test_a_part_file_ends_with_the_bytes_that_fill_it(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "out", "lines", part_bytes=300_000)
    writer = writer_of(sink)
    for _ in range(10):
        writer.write(["x" * 99_999])
    part = writer.prepare(1)
    assert part is not None
    sink.commit(JOB, 1, [part])
    sizes = [found.size_bytes for found in files.committed(tmp_path / "out")]
    assert sum(sizes) == 1_000_000
    assert len(sizes) > 1
    assert all(size >= 300_000 for size in sizes[:-1])


def test_a_closed_writer_leaves_none_of_its_part_files(tmp_path: Path) -> None:
    writer = writer_of(sink_of(tmp_path / "out", part_rows=1))
    for row in ROWS:
        writer.write([row])
    writer.close()
    assert not list((tmp_path / ".out.clonos" / "parts").iterdir())


def test_a_limit_that_makes_too_many_files_is_an_error(tmp_path: Path) -> None:
    writer = writer_of(sink_of(tmp_path / "out", part_rows=1))
    for number in range(FULL_PARTS_MAX - 1):
        writer.write([number])
    with pytest.raises(InvalidConnector, match=f"more than {FULL_PARTS_MAX} files between two checkpoints"):
        writer.write(["one more"])
    writer.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"part_rows": 0}, "part_rows is 0"),
        ({"part_bytes": "1 GiB"}, "part_bytes is '1 GiB'"),
        ({"part_rows": 5, "single": True}, "part_rows= does not go with single="),
        ({"part_bytes": 5, "partition_by": "n"}, "part_bytes= does not go with partition_by="),
    ],
)
def test_a_limit_that_cannot_work_is_refused(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConnector, match=problem):
        sink_of(tmp_path / "out", **options)


def test_a_part_that_outgrows_the_disk_loses_no_committed_part(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "out", "lines", part_bytes=400_000)
    writer = writer_of(sink)
    writer.write(["x" * 200_000])
    part = writer.prepare(1)
    assert part is not None
    sink.commit(JOB, 1, [part])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, limits[1]))
    try:
        with pytest.raises(OutputFailed, match=r"File too large.*nothing is\s+lost"):
            writer.write(["y" * 350_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    writer.close()
    assert list(files.read_committed(tmp_path / "out")) == ["x" * 200_000]
    assert len(list((tmp_path / ".out.clonos" / "parts").iterdir())) == 0
