"""Availability of an output, from the instants at which it grew."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from clonos_chaos.project.served.output_watch import OutputWatch, unavailable_ns


def test_the_output_is_unavailable_while_its_newest_row_is_too_old() -> None:
    assert unavailable_ns([0, 1, 2, 12, 13], (), at_most_ns=4) == (6, 13)


def test_an_excluded_span_counts_neither_as_available_nor_as_unavailable() -> None:
    assert unavailable_ns([0, 1, 2, 12, 13], [(2, 12)], at_most_ns=4) == (0, 3)
    assert unavailable_ns([0, 10], [(2, 5)], at_most_ns=4) == (3, 7)


def test_an_output_that_grows_all_the_time_is_available() -> None:
    assert unavailable_ns(list(range(100)), (), at_most_ns=1) == (0, 99)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table without rows."""
    with closing(sqlite3.connect(tmp_path / "table.sqlite")) as connection:
        connection.execute("CREATE TABLE rows (n INTEGER)")
    return tmp_path / "table.sqlite"


def test_rows_that_replace_withdrawn_ones_are_no_growth(table: Path) -> None:
    watch = OutputWatch(table)
    pause = threading.Event()
    try:
        with closing(sqlite3.connect(table, isolation_level=None)) as connection:
            connection.execute("INSERT INTO rows VALUES (0), (1), (2)")
            while len(watch.grown_ns) < 1:
                pause.wait(0.005)
            connection.execute("DELETE FROM rows WHERE n > 0")
            connection.execute("INSERT INTO rows VALUES (1), (2)")
            looks = watch.looks
            while watch.looks < looks + 2:
                pause.wait(0.005)
            assert len(watch.grown_ns) == 1
            connection.execute("INSERT INTO rows VALUES (3)")
            while len(watch.grown_ns) < 2:
                pause.wait(0.005)
    finally:
        watch.close()
    first, second = watch.grown_ns
    assert watch.silence_ns(first) == second - first
    assert watch.silence_ns(second) is None
    assert watch.longest_gap_ns(first - 5, second + 5) == (first, second)
