"""``files.csv``: a header in each part, one cell per column, and no silent loss."""

from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import InvalidConnector, RowNotWritable
from clonos.connectors.filesystem.csv_files import CsvFiles
from tests.unit.connectors.writing import JOB, part_of


class Count(NamedTuple):
    word: str
    total: int


def written(folder: Path, rows: list[Any], columns: list[str] | None = None) -> str:
    """The text of one part."""
    sink = files.csv(folder, columns=columns)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, rows)])
    (part,) = files.committed(folder)
    return Path(part.path).read_bytes().decode()


def test_cells_are_quoted_when_necessary(tmp_path: Path) -> None:
    rows = [{"a": 'x,"y"\n', "b": None}, {"b": True, "a": 1.5}, {"a": date(2026, 1, 2), "b": [1, "z"]}]
    assert written(tmp_path / "out", rows) == 'a,b\n"x,""y""\n",\n1.5,true\n2026-01-02,"[1,""z""]"\n'
    assert next(files.read_committed(tmp_path / "out")) == {"a": 'x,"y"\n', "b": ""}


def test_fields_are_found_by_name(tmp_path: Path) -> None:
    assert written(tmp_path / "out", [Count("a", 2)]) == "word,total\na,2\n"


def test_a_missing_field_is_an_empty_cell_even_where_a_tuple_has_a_method_of_that_name(tmp_path: Path) -> None:
    class Word(NamedTuple):
        word: str

    assert written(tmp_path / "out", [Word("a"), {"count": 1}], ["count", "word"]) == "count,word\n,a\n1,\n"


def test_tuples_and_single_values_are_written_by_position(tmp_path: Path) -> None:
    assert written(tmp_path / "tuples", [("a", 2), ["b", 3]], ["word", "count"]) == "word,count\na,2\nb,3\n"
    assert written(tmp_path / "values", ["a", "b"]) == "value\na\nb\n"


@pytest.mark.parametrize(
    ("rows", "columns", "reason"),
    [
        ([{"a": 1}, {"a": 1, "b": 2}], None, "there is no column for its b"),
        ([("a", 1)], None, "give the sink columns="),
        ([("a", 1, 2)], ["a", "b"], "it has 3 fields for the 2 columns a, b"),
        ([{1: 2}], None, "its keys are not column names"),
        ([{}], None, "its keys are not column names"),
        ([{"a": object()}], None, "has no JSON"),
        ([{"a": "b"}, {"a": "\ud800"}], None, "CSV has no escape"),
    ],
)
def test_a_row_with_other_fields_is_an_error(
    tmp_path: Path, rows: list[Any], columns: list[str] | None, reason: str
) -> None:
    with pytest.raises(RowNotWritable, match=reason) as raised:
        written(tmp_path / "out", rows, columns)
    assert raised.value.index in (0, len(rows) - 1)


@pytest.mark.parametrize("columns", [[], ["a", "a"], "ab"])
def test_columns_that_are_not_a_list_of_names_are_refused(columns: list[str]) -> None:
    with pytest.raises(InvalidConnector, match="distinct names"):
        files.csv("out", columns=columns)


def test_the_declared_type_of_the_sink_is_its_class() -> None:
    sink: CsvFiles = files.csv("out")
    assert sink.columns is None
