"""Rows that a table does not hold as they are: each goes to the error output, and those around it are written."""

from __future__ import annotations

import sqlite3
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import dbapi, sqlite
from clonos.connectors.connector_errors import RowNotWritable
from clonos.connectors.tables.table_sink import SqliteSink, TableSink
from tests.unit.connectors.refusing import numbered
from tests.unit.connectors.tables.table_samples import identity, run

NAN, INFINITY = float("nan"), float("inf")


def passed(sink: TableSink, rows: list[Any]) -> list[tuple[Any, str]]:
    """Writes rows; returns the records and texts of the errors."""
    if isinstance(sink, SqliteSink):
        sink.check_start()
    good, errors = numbered(sink, rows)
    writer = sink.immediate_writer()
    writer.register(identity(1), 0)
    writer.write(0, good)
    writer.close()
    return [(error.record, error.error) for error in errors]


def test_a_row_with_nan_goes_to_the_error_output_and_the_rows_around_it_to_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    rows = [{"n": 1, "x": 1.5}, {"n": 2, "x": NAN}, {"n": 3, "x": INFINITY}]
    ((record, text),) = passed(sqlite(path, "t"), rows)
    assert record["n"] == 2
    assert text.startswith("RowNotWritable: sqlite cannot write the row {'n': 2, 'x': nan}: its x is nan, for which")
    assert run(path, "SELECT n, x FROM t ORDER BY n") == [(1, 1.5), (3, INFINITY)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"n": "\ud800"}, "', with half a character, which UTF-8 does not have"),
        ({"n": 1, "more": 2}, "there is no column for its more"),
        ((1, 2), "it has 2 fields for the 1 columns n"),
    ],
)
def test_a_row_that_a_table_never_takes_is_an_error_of_its_own(tmp_path: Path, bad: Any, reason: str) -> None:
    path = tmp_path / "out.db"
    run(path, "CREATE TABLE t (n, clonos_task, clonos_number)")
    ((_, text),) = passed(sqlite(path, "t", ["n"]), [{"n": 1}, bad, {"n": 2}])
    assert text.startswith("RowNotWritable: sqlite cannot write the row ")
    assert reason in text
    assert run(path, "SELECT n FROM t ORDER BY n") == [(1,), (2,)]


def test_a_row_that_does_not_fit_the_columns_of_another_database_is_an_error_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    run(path, "CREATE TABLE t (n, clonos_task, clonos_number)")
    sink = dbapi(partial(sqlite3.connect, path), "t", ["n"])
    errors = passed(sink, [{"n": 1}, {"m": 5}, (1, 2), {"n": 2}])
    assert [record for record, _ in errors] == [{"m": 5}, (1, 2)]
    assert run(path, "SELECT n FROM t ORDER BY n") == [(1,), (2,)]


def test_a_field_without_a_column_and_a_column_without_its_field_are_errors_of_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    run(path, "CREATE TABLE t (N INTEGER NOT NULL, text, clonos_task, clonos_number)")
    errors = passed(sqlite(path, "t"), [{"n": 1}, {"n": 2, "text": "x"}, {"m": 3}, {"text": "x", "n": None}, {"n": 4}])
    assert [record for record, _ in errors] == [{"m": 3}, {"text": "x", "n": None}]
    assert "its m has no column in the table t, which has N, text" in errors[0][1]
    assert "its n is None, and the table does not take NULL there" in errors[1][1]
    assert run(path, "SELECT n, text FROM t ORDER BY n") == [(1, None), (2, "x"), (4, None)]


def test_a_row_without_its_key_is_an_error_of_its_own(tmp_path: Path) -> None:
    sink = sqlite(tmp_path / "out.db", "t", ["n", "x"], upsert="n")
    sink.check_row({"n": 1, "x": None})
    with pytest.raises(RowNotWritable, match="its key"):
        sink.check_row({"n": None, "x": 1})


COLUMNS = {"i": "INTEGER", "r": "REAL", "d": "DECIMAL(10, 2)", "s": "VARCHAR(5)", "any": ""}
HELD: dict[str, list[Any]] = {
    "i": [0, -(2**63), 2**63 - 1, True, 1.5, "x", "12", None, b"\0"],
    "r": [0.0, 1e300, 5e-324, INFINITY, 2**53, -3, "x"],
    "d": [Decimal("1.10"), Decimal("1E+2"), 7, "1.1", "one"],
    "s": ["007", "1.50", "long text", 12, 0.5, 2**70, Decimal("1.10")],
    "any": [-0.0, 0.1 + 0.2, "007", 2**70, b"x"],
}
REFUSED: dict[str, list[Any]] = {
    "i": [2**63, 2**70, -0.0, "007", " 1", "1e3", "9" * 30],
    "r": [2**53 + 1, -0.0, "1", "1.50"],
    "d": [Decimal("0.1234567890123456789"), "1.10", 2**63 + 1, Decimal(10**30 + 1)],
    "s": [0.1 + 0.2],
    "any": [],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_with_a_type_holds_a_value_as_it_is_or_refuses_its_row(tmp_path: Path, name: str) -> None:
    path = tmp_path / "out.db"
    values = HELD[name] + REFUSED[name]
    errors = passed(sqlite(path, "t", COLUMNS), [{name: value} for value in values])
    assert [record[name] for record, _ in errors] == REFUSED[name]
    assert all(f"its {name} is " in text for _, text in errors)
    for given, (stored,) in zip(HELD[name], run(path, f"SELECT {name} FROM t ORDER BY rowid"), strict=True):
        same = given if given is None or isinstance(given, int | float | bytes) else str(given)
        assert stored == same or str(stored) == str(given) or Decimal(str(stored)) == given, (given, stored)
