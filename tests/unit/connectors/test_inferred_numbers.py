"""Columns of CSV whose types are inferred: a text that its number would not give again stays a text, or is an error."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import files
from clonos.connectors.columns.inferred_numbers import PIECE_BYTES, may_differ, problem_with, signs_of
from clonos.connectors.connector_errors import InputMalformed
from tests.unit.connectors.reading import rows_and_errors


def csv(folder: Path, text: str, **options: Any) -> tuple[list[Any], list[str]]:
    (folder / "in.csv").write_text(text)
    return rows_and_errors(files.csv(folder / "in.csv", **options))


@pytest.mark.parametrize("cells", [["7", "01234"], ["007"], ["-01", "5"], ["+05"], ["00.5", "1.5"], ['"01"', "1"]])
def test_a_column_with_a_leading_zero_is_a_column_of_texts(tmp_path: Path, cells: list[str]) -> None:
    rows, errors = csv(tmp_path, "id,n,at\n" + "".join(f"{cell},10,05:30:00\n" for cell in cells))
    assert [row["id"] for row in rows] == [cell.strip('"') for cell in cells]
    assert [row["n"] for row in rows] == [10] * len(cells)
    assert errors == []


def test_zeros_within_numbers_dates_and_times_make_no_texts(tmp_path: Path) -> None:
    rows, _ = csv(tmp_path, "a,b,c,d\n0,0.05,-0.5,2024-01-05 00:07:00\n100,-0,0e5,2025-02-03 01:02:03\n")
    assert [type(value).__name__ for value in rows[0].values()] == ["int", "float", "float", "datetime"]


LATE = ["01234", "-007", " 01", "+05", '"08"']


@pytest.mark.parametrize("cell", LATE)
def test_a_leading_zero_after_the_first_lines_is_an_error_beside_good_rows(tmp_path: Path, cell: str) -> None:
    lines = ["id,name"] + [f"{n},name of {n} {'x' * 100}" for n in range(12_000)]  # more than types are inferred from
    lines[9_000] = f"{cell},late"
    rows, (error,) = csv(tmp_path, "\n".join(lines))
    assert [row["id"] for row in rows] == [n for n in range(12_000) if n != 8_999]
    if cell != "+05":  # to Arrow it is no integer
        assert f"its id, {cell.strip(chr(34))!r}, has a leading zero, which the column of numbers would drop" in error


@pytest.mark.parametrize(
    "number",
    ["0.12345678901234567890", "1e400", "-1e-400", "12345678901234567.8", "0.12345678901234567", "4.9406e-324"],
)
def test_a_number_that_a_float_rounds_is_an_error_beside_good_rows(tmp_path: Path, number: str) -> None:
    good = ["0.1", "0.10000000000000001", "0.10000000000000000555", "1e308", "5e-324", "0e-400", "inf", "nan", "0.0000"]
    rows, (error,) = csv(tmp_path, "x,n\n" + "".join(f"{each},1\n" for each in [*good[:4], number, *good[4:]]))
    assert [repr(row["x"]) for row in rows] == [repr(float(each)) for each in good]
    assert f"its x, {number!r}, is a number that the column of floats would round" in error
    exact = pyarrow.schema([("x", pyarrow.string()), ("n", pyarrow.int64())])
    assert csv(tmp_path, f"x,n\n{number},1\n", schema=exact)[0] == [{"x": number, "n": 1}]


numbers = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=18).map(str),
    st.from_regex(r"[+-]?[0-9]{1,20}(\.[0-9]{1,20})?(e-?[0-9]{1,3})?", fullmatch=True, alphabet="0123456789+-.e"),
)


@given(st.lists(numbers, min_size=1, max_size=5), st.sampled_from([0, 1, PIECE_BYTES - 20, PIECE_BYTES - 8]))
def test_no_number_that_differs_from_its_text_is_overlooked(cells: list[str], before: int) -> None:
    values = [float(cell) for cell in cells]
    texts, column = pyarrow.array(cells), pyarrow.array(values)
    data = b"x" * before + b"\n" + "\n".join(cells).encode()
    batch = pyarrow.record_batch({"x": column})
    problem = problem_with("x", texts, column)
    for cell, value in zip(cells, values, strict=True):
        plain = cell.lstrip("+-")
        is_zeroed = len(plain) > 1 and plain[0] == "0" and plain[1].isdigit()
        mantissa = plain.lower().partition("e")[0]
        digits = mantissa.replace(".", "").lstrip("0")
        digits = digits.rstrip("0") if "." in mantissa else digits
        if value in (float("inf"), float("-inf")):
            is_rounded = "inf" not in cell
        else:  # farther from the text than half a unit of its last digit
            unit = Fraction(10) ** (Decimal(cell).adjusted() - len(digits) + 1)
            is_rounded = bool(digits) and (not value or 2 * abs(Fraction(value) - Fraction(cell)) > unit)
        if is_zeroed or is_rounded:
            assert problem
            assert may_differ(signs_of(data, ord(",")), batch)
            return
    assert problem == ""


@pytest.mark.parametrize("blank", ["   ", " \t", "\t", " \r"])
def test_lines_of_blanks_are_no_rows_of_several_columns(tmp_path: Path, blank: str) -> None:
    text = f"a,b\n{blank}\n1,x\n{blank}\n{blank}\n2,  \n{blank}"
    assert csv(tmp_path, text) == ([{"a": 1, "b": "x"}, {"a": 2, "b": "  "}], [])
    assert csv(tmp_path, f"a,b\n{blank}\n") == ([], [])
    assert csv(tmp_path, text.replace(",", ";"), delimiter=";")[1] == []


def test_blanks_are_cells_of_one_column_of_texts_and_within_quotes(tmp_path: Path) -> None:
    assert csv(tmp_path, "a\nx\n  \ny\n")[0] == [{"a": "x"}, {"a": "  "}, {"a": "y"}]
    quoted = csv(tmp_path, 'a,b\n1,"x\n  \ny"\n  \n2,z\n', newlines_in_values=True)
    assert quoted == ([{"a": 1, "b": "x\n  \ny"}, {"a": 2, "b": "z"}], [])
    assert csv(tmp_path, "a\tb\n \t \nx\ty\n", delimiter="\t")[0] == [{"a": " ", "b": " "}, {"a": "x", "b": "y"}]


@pytest.mark.parametrize(
    "text",
    [
        '[{"a":1,"b":2},{"a":3,"b":4}]\n',
        "[1,2,3]",
        '["a","b"]\n1,2\n',
        '[\n{"a":1}\n]\n',
        '[{"a":1,\n"b":2}]\n',
        '{"a":1}\n',
    ],
)
def test_a_file_of_json_is_refused_as_csv(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputMalformed, match="at byte 0: it is JSON, which has no header"):
        csv(tmp_path, text)


def test_names_in_brackets_are_names_of_columns(tmp_path: Path) -> None:
    assert csv(tmp_path, "[id],[name]\n1,x\n")[0] == [{"[id]": 1, "[name]": "x"}]
