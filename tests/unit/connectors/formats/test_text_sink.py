"""``files.lines`` as a sink: each str is one line, and nothing else is written."""

from pathlib import Path
from typing import Any

import pyarrow
import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import InvalidConnector, RowNotWritable
from clonos.connectors.filesystem.line_files import LineFiles
from tests.unit.connectors.reading import read_all
from tests.unit.connectors.writing import JOB, part_of, writer_of


def started(folder: Path, **options: Any) -> LineFiles[Any]:
    sink = files.lines(folder, **options)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    return sink


def test_each_row_is_a_line_that_a_source_reads_back(tmp_path: Path) -> None:
    sink = started(tmp_path / "out")
    sink.commit(JOB, 1, [part_of(sink, 1, ["to be", "", "é"]), part_of(sink, 1, [" or\tnot"], index=1)])
    assert [part.path.rpartition(".")[2] for part in files.committed(tmp_path / "out")] == ["txt", "txt"]
    rows = ["to be", "", "é", " or\tnot"]
    assert list(files.read_committed(tmp_path / "out")) == rows
    assert read_all(files.lines(tmp_path / "out")) == rows


def test_a_column_of_text_is_written_line_by_line(tmp_path: Path) -> None:
    sink = started(tmp_path / "out")
    writer = writer_of(sink)
    writer.write_columns(pyarrow.record_batch({"word": ["to", "be"]}))
    part = writer.prepare(1)
    assert part is not None
    sink.commit(JOB, 1, [part])
    assert list(files.read_committed(tmp_path / "out")) == ["to", "be"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"a": 1}, "it is dict, and a line is a str"),
        (b"x", "it is bytes, and a line is a str"),
        (None, "it is NoneType"),
        ("a\nb", "it has a line end"),
        ("a\r", "it has a line end"),
        ("\u20ac", "latin-1 has no '€'"),
    ],
)
def test_a_row_that_is_not_one_line_is_refused_and_nothing_of_its_batch_is_written(
    tmp_path: Path, row: Any, reason: str
) -> None:
    sink = started(tmp_path / "out", encoding="latin-1")
    writer = writer_of(sink)
    with pytest.raises(RowNotWritable, match=reason) as raised:
        writer.write(["good", row])
    assert raised.value.index == 1
    writer.write(["é\rä"])
    part = writer.prepare(1)
    assert part is not None
    sink.commit(JOB, 1, [part])
    (found,) = files.committed(tmp_path / "out")
    assert Path(found.path).read_bytes() == "é\rä\n".encode("latin-1")
    assert list(files.read_committed(tmp_path / "out")) == ["é\rä"]


def test_a_single_file_has_the_lines_of_all_parts(tmp_path: Path) -> None:
    sink = started(tmp_path / "out.txt", single=True)
    sink.commit(JOB, 1, [part_of(sink, 1, ["a"]), part_of(sink, 1, ["b"], index=1)])
    sink.commit(JOB, 2, [part_of(sink, 2, ["c"])])
    sink.finish_output(JOB)
    assert (tmp_path / "out.txt").read_text() == "a\nb\nc\n"


def test_an_option_for_sources_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConnector, match="with_position= is for a source"):
        started(tmp_path / "out", with_position=True)
