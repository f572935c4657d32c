"""Options of ``files.csv``: cells that are null, encodings, delimiters, files without a header."""

from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import InputMalformed, InvalidConnector
from clonos.operators.connector_contract import WriterContext
from tests.unit.connectors.reading import read_all
from tests.unit.connectors.writing import JOB, part_of


def written(path: Path, rows: list[Any], **options: Any) -> str:
    """The text of a single file of two parts."""
    sink = files.csv(path, single=True, **options)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, rows[:1]), part_of(sink, 1, rows[1:], index=1)])
    sink.finish_output(JOB)
    return path.read_text()


def test_the_given_texts_are_null_in_every_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,n\nNA,1\nx,NA\n,-\n")
    assert read_all(files.csv(tmp_path / "a.csv", null_values=["NA", "-", ""])) == [
        {"name": None, "n": 1},
        {"name": "x", "n": None},
        {"name": None, "n": None},
    ]


def test_an_empty_text_is_a_text_unless_it_is_among_the_null_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,n\n,1\nNA,2\n")
    assert read_all(files.csv(tmp_path / "a.csv", null_values=["NA"])) == [
        {"name": "", "n": 1},
        {"name": None, "n": 2},
    ]


@pytest.mark.parametrize("null_values", ["NA", [0]])
def test_null_values_that_are_not_a_list_of_texts_are_refused(null_values: Any) -> None:
    with pytest.raises(InvalidConnector, match=r"null_values is .* Give a list of texts"):
        files.csv("x", null_values=null_values)


def test_a_file_in_another_encoding_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("größe,n\nüber,1\n".encode("latin-1"))
    assert read_all(files.csv(tmp_path / "a.csv", encoding="latin-1")) == [{"größe": "über", "n": 1}]


def test_a_cell_that_is_not_in_the_encoding_is_malformed_at_its_byte(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"name,n\nx,1\n\xfcber,2\n")
    schema = pyarrow.schema([("name", pyarrow.string()), ("n", pyarrow.int64())])
    with pytest.raises(InputMalformed, match=r"a\.csv at byte 11, line 3: b'\\xfc' is not utf-8"):
        read_all(files.csv(tmp_path / "a.csv", schema=schema))
    with pytest.raises(InputMalformed, match=r"a\.csv at byte 11, line 3: b'\\xfc' is not ascii"):
        read_all(files.csv(tmp_path / "a.csv", schema=schema, encoding="ascii"))


@pytest.mark.parametrize("encoding", ["utf-16", "no such"])
def test_an_encoding_that_cannot_be_read_by_line_is_refused(encoding: str) -> None:
    with pytest.raises(InvalidConnector, match=r"files\.csv: the (byte 10|encoding)"):
        files.csv("x", encoding=encoding)


def test_a_sink_writes_another_delimiter(tmp_path: Path) -> None:
    rows = [{"a": "x;y", "b": 1}, {"a": "x,y", "b": None}]
    assert written(tmp_path / "out.csv", rows, delimiter=";") == 'a;b\n"x;y";1\nx,y;\n'
    assert pandas.read_csv(tmp_path / "out.csv", sep=";")["a"].tolist() == ["x;y", "x,y"]


def test_a_sink_writes_columns_with_another_delimiter(tmp_path: Path) -> None:
    sink = files.csv(tmp_path / "out", delimiter="\t")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    writer = sink.writer()
    writer.open(WriterContext(JOB, "out/0", 0, 0, 1))
    writer.write_columns(pyarrow.record_batch({"a": ["x\ty", "z"], "b": [1, 2]}))
    part = writer.prepare(1)
    assert part is not None
    sink.commit(JOB, 1, [part])
    (found,) = files.committed(tmp_path / "out")
    assert Path(found.path).read_text() == 'a\tb\n"x\ty"\t1\nz\t2\n'
    assert list(files.read_committed(tmp_path / "out")) == [{"a": "x\ty", "b": "1"}, {"a": "z", "b": "2"}]


def test_a_sink_leaves_the_header_out(tmp_path: Path) -> None:
    rows = [{"a": 1, "b": 2}, {"b": 4, "a": 3}]
    assert written(tmp_path / "out.csv", rows, header=False, columns=["a", "b"]) == "1,2\n3,4\n"
    expected = [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert list(files.read_committed(tmp_path / "out.csv")) == expected


def test_a_sink_without_header_and_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConnector, match="header=False leaves the cells without names"):
        written(tmp_path / "out.csv", [{"a": 1}], header=False)


def test_an_option_for_sources_is_refused_by_a_sink(tmp_path: Path) -> None:
    with pytest.raises(InvalidConnector, match=r"null_values= and encoding= are for a source"):
        written(tmp_path / "out.csv", [{"a": 1}], null_values=["NA"])
