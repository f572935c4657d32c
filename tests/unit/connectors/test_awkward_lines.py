"""CSV and JSON lines as people have them: each line is a row, or an error that says why; the others are read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import InputChanged, InputMalformed, InvalidConnector
from clonos.core.values.column_rows import rows_of_columns
from tests.unit.connectors.reading import rows_and_errors

DEEP = b'{"x":' + b"[" * 100 + b"1" + b"]" * 100 + b"}"


def csv(folder: Path, text: str | bytes, **options: Any) -> tuple[list[Any], list[str]]:
    path = folder / "in.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return rows_and_errors(files.csv(path, **options))


@pytest.mark.parametrize("text", ["id,name\n", "id,name", "", "\n\n", "id,name\n\n\r\n"])
def test_a_file_without_rows_has_none(tmp_path: Path, text: str) -> None:
    assert csv(tmp_path, text) == ([], [])


@pytest.mark.parametrize("text", ["id,name\r1,a\r2,b\r", "id,name\r1,a\r2,b", "id,name\r1,a\r\n2,b\n"])
def test_a_file_whose_lines_end_with_a_carriage_return_alone_is_refused(tmp_path: Path, text: str) -> None:
    for options in ({}, {"columns": ["id"]}, {"newlines_in_values": True}):
        with pytest.raises(InputMalformed, match=r"in\.csv at byte 0: a carriage return alone ends its lines.*tr '"):
            csv(tmp_path, text, **options)
    assert csv(tmp_path, '"i\rd",name\n1,a\n', newlines_in_values=True) == ([{"i\rd": 1, "name": "a"}], [])


def test_a_watched_file_with_a_header_only_is_read_when_it_has_rows(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("id,name\n")
    source = files.csv(path, watch="1s")
    assert source.splits(1) == []
    path.write_text("id,name\n1,a\n")
    (split,) = source.discover([], 0, 1)
    reader = source.reader()
    reader.open(split, None)
    batch = reader.read(10)
    assert batch is not None
    assert not isinstance(batch, Sequence)
    assert rows_of_columns(batch) == [{"id": 1, "name": "a"}]
    reader.close()


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize(
    ("lines", "names", "errors"),
    [
        (["1,a", '2,5" pipe', "3,z"], ["a", '5" pipe', "z"], 0),
        (["1,a", '2,"open', "3,z", "4,y"], ["a", "z", "y"], 1),
        (['1,5" p', '2,6" p', '3,7" p', "4,x"], ['5" p', '6" p', '7" p', "x"], 0),
        (['1,"two\nlines"', "2,b"], ["two\nlines", "b"], 0),
        (['1,"say ""hi""\n"', "2,b"], ['say "hi"\n', "b"], 0),
        (['1,"open', '2,"b"', "3,c"], ["b", "c"], 1),
        (['1,""', "2,b"], ["", "b"], 0),
    ],
)
def test_a_quote_within_a_cell_or_an_open_quote_changes_no_other_line(
    tmp_path: Path, lines: list[str], names: list[str], errors: int, end: str
) -> None:
    rows, found = csv(tmp_path, "id,name\n" + "\n".join(lines) + end, newlines_in_values=True)
    assert [row["name"] for row in rows] == names
    assert len(found) == errors
    assert all("has a quote that does not end" in error for error in found)


def test_a_quote_that_does_not_end_in_a_large_file_costs_its_line_only(tmp_path: Path) -> None:
    lines = ["id,name", '0,"open', *(f"{number},name {number}" for number in range(1, 3_000))]
    rows, errors = csv(tmp_path, "\n".join(lines), newlines_in_values=True, line_bytes_max=4_096)
    assert [row["id"] for row in rows] == list(range(1, 3_000))
    assert len(errors) == 1


def test_a_header_may_have_line_ends_in_its_cells_and_cells_without_a_name(tmp_path: Path) -> None:
    assert csv(tmp_path, '"first\nname",n\nann,1\n', newlines_in_values=True)[0] == [{"first\nname": "ann", "n": 1}]
    assert csv(tmp_path, "a,b,,\n1,2,,\n", columns=["a", "b"])[0] == [{"a": 1, "b": 2}]
    assert csv(tmp_path, "a,\n1,2\n")[0] == [{"a": 1, "Unnamed: 1": 2}]
    with pytest.raises(InputMalformed, match="newlines_in_values=True"):
        csv(tmp_path, '"first\nname",n\nann,1\n')


def test_a_text_in_another_encoding_is_an_error_of_its_line_that_names_the_option(tmp_path: Path) -> None:
    data = "id,name\n1,Müller\n2,Ann\n".encode("latin-1")
    rows, (error,) = csv(tmp_path, data)
    assert rows == [{"id": 2, "name": "Ann"}]
    assert "is not utf-8" in error
    assert "name its encoding with encoding=" in error
    assert csv(tmp_path, data, encoding="latin-1")[0][0] == {"id": 1, "name": "Müller"}


def test_integers_that_a_column_of_floats_would_round_are_errors_of_their_lines(tmp_path: Path) -> None:
    rows, (error,) = csv(tmp_path, "n,id\n9007199254740993,9007199254740993\n1.5,9007199254740993\n2,3\n")
    assert rows == [{"n": 1.5, "id": 2**53 + 1}, {"n": 2.0, "id": 3}]
    assert "its n, 9007199254740993, is an integer that the column of floats would round" in error
    path = tmp_path / "in.jsonl"
    path.write_text('{"a":{"n":9007199254740993}}\n{"a":{"n":1.5}}\n{"a":{"n":9007199254740992}}\n')
    rows, (error,) = rows_and_errors(files.jsonl(path, columns=True))
    assert rows == [{"a": {"n": 1.5}}, {"a": {"n": 2.0**53}}]
    assert "its n, 9007199254740993, is" in error


def test_numbers_of_json_that_a_column_of_floats_would_round_are_errors_of_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(
        '{"a":{"n":0.1234567890123456789}}\n{"a":{"n":1.5}}\n{"a":{"n":0.30000000000000004}}\n{"a":{"n":1e-400}}\n'
    )
    rows, errors = rows_and_errors(files.jsonl(path, columns=True))
    assert rows == [{"a": {"n": 1.5}}, {"a": {"n": 0.1 + 0.2}}]
    assert ["0.1234567890123456789" in errors[0], "1e-400" in errors[1]] == [True, True]
    assert all("has more digits than a float holds" in error for error in errors)
    given = pyarrow.schema([("a", pyarrow.struct([("n", pyarrow.float64())]))])
    assert len(rows_and_errors(files.jsonl(path, schema=given))[0]) == 4  # a type that is given may round


def test_long_numbers_with_a_plus_sign_do_not_become_floats_that_merge_ids(tmp_path: Path) -> None:
    with pytest.raises(InvalidConnector, match=r"'\+9007199254740993,1.5' does not fit: an integer that a float would"):
        csv(tmp_path, "id,x\n+9007199254740993,1.5\n+9007199254740992,2\n")
    rows, (error,) = csv(tmp_path, "id,x\n1.5,1\n+9007199254740993,2\n")
    assert rows == [{"id": 1.5, "x": 1}]
    assert "its id, +9007199254740993, is an integer that the column of floats would round" in error


def test_one_column_whose_name_has_another_delimiter_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    csv(tmp_path, "id;name\n1;a\n")
    assert "one column, 'id;name', whose name contains ';': is that the delimiter=?" in caplog.text


def test_a_delimiter_that_is_not_one_byte_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConnector, match="which is not one byte in UTF-8"):
        csv(tmp_path, "a§b\n1§2\n", delimiter="§")


@pytest.mark.parametrize("depth", [100, 1_000, 20_000])
def test_a_line_of_many_levels_is_an_error_of_its_own(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"x":1}\n{"x":' + b"[" * depth + b"]" * depth + b'}\n{"x":2}\n')
    rows, (error,) = rows_and_errors(files.jsonl(path, columns=True))
    assert rows == [{"x": 1}, {"x": 2}]
    assert "cannot be a value: it is nested in more than 64 containers" in error


def test_brackets_in_texts_are_no_levels(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"x":"' + b"[{" * 300 + b'\\""}\n')
    assert len(rows_and_errors(files.jsonl(path, columns=True))[0]) == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[\n", "it is a JSON array, not one object per line"),
        (b'{\n "a": 1\n}\n', "its objects have several lines"),
        (b"\x1f\x8b\x08...", "it is compressed by gzip: let its name end in .gz"),
        (b"PK\x03\x04...", "it is a zip archive"),
        (b"PAR1...", "it is Parquet: read it with files.parquet"),
        (b"\xff\xfe{\0}\0", "it is UTF-16: convert it to UTF-8"),
        (b"a\0b\n", "it has zero bytes, so it is not text"),
        (b"plain text\n", "its first line 'plain text' is not JSON"),
        (DEEP, "its first line .* cannot be a value: it is nested in more than 64 containers"),
    ],
)
def test_a_file_without_a_line_of_the_format_is_refused_with_what_it_is(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(data)
    with pytest.raises(InvalidConnector, match=f"cannot be inferred: {reason}"):
        files.jsonl(path, columns=True).splits(1)


def test_a_compressed_file_of_csv_without_its_suffix_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputMalformed, match=r"it is compressed by gzip: let its name end in \.gz"):
        csv(tmp_path, b"\x1f\x8b\x08\xff\xff\n")


def test_a_watched_file_that_grew_after_it_was_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "in.log"
    path.write_text("1\n")
    source = files.lines(path, watch="1s")
    known = source.splits(1)
    assert source.discover(known, 0, 1) == []
    path.write_text("1\n2\n")
    with pytest.raises(InputChanged, match="never append to them"):
        source.discover(known, 0, 1)
    path.unlink()
    assert source.discover(known, 0, 1) == []
