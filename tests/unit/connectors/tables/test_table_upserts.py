"""Tables with one row per key: a row replaces the previous one, and a rollback restores it unless others changed it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import dbapi, sqlite
from clonos.connectors.connector_errors import InvalidConnector, RowNotWritable, TableRefused
from clonos.operators.connector_contract import Registration
from tests.unit.connectors.tables import strict_driver
from tests.unit.connectors.tables.table_samples import (
    MAKERS,
    Make,
    by_driver,
    by_path,
    by_strict_driver,
    identity,
    run,
    words_in,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


@pytest.mark.parametrize("make", MAKERS)
def test_a_row_replaces_its_key_and_a_restart_restores_the_previous_row(path: Path, make: Make) -> None:
    sink = make(path, upsert="word")
    early, late = sink.immediate_writer(), sink.immediate_writer()
    early.register(identity(1, 1), 0)
    early.write(0, [("a", 1), ("b", 1), ("a", 2)])
    assert sorted(words_in(path)) == [("a", 2), ("b", 1)]
    early.write(3, [("a", 3), ("c", 1), ("a", 4), ("b", 2)])
    assert sorted(words_in(path)) == [("a", 4), ("b", 2), ("c", 1)]
    # The restored number lies within a batch: after ("a", 3).
    assert late.register(identity(2, 2), 4) == Registration(4, None)
    assert sorted(words_in(path)) == [("a", 3), ("b", 1)]
    assert late.write(4, [("c", 7)]) == 5
    assert late.register(identity(3, 3), 1) == Registration(1, None)
    assert words_in(path) == [("a", 1)]
    early.close()
    late.close()


@pytest.mark.parametrize("make", [by_path, by_strict_driver])
def test_a_row_changed_by_another_writer_is_not_restored(
    path: Path, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    sink = make(path, upsert=["word"])
    writer = sink.immediate_writer()
    writer.register(identity(1, 1), 0)
    writer.write(0, [(word, 1) for word in "abcd"])
    writer.write(4, [(word, 2) for word in "abcd"] + [("e", 1)])
    run(path, "UPDATE words SET seen = 90 WHERE word = 'b'")
    run(path, "DELETE FROM words WHERE word = 'c'")
    run(path, "UPDATE words SET seen = 91 WHERE word = 'e'")
    assert writer.register(identity(2, 2), 4) == Registration(4, None)
    writer.close()
    assert sorted(words_in(path)) == [("a", 1), ("b", 90), ("d", 1), ("e", 91)]
    assert "3 rows of the table words were not restored, because others have changed them" in caplog.messages


@pytest.mark.parametrize("make", [by_path, by_strict_driver])
def test_an_existing_table_with_a_key_needs_no_extra_columns(path: Path, make: Make) -> None:
    run(path, "CREATE TABLE words (word TEXT PRIMARY KEY, seen TEXT, more TEXT DEFAULT 'more')")
    run(path, "INSERT INTO words VALUES ('a', 'old', 'of others'), ('z', 'old', 'of others')")
    writer = make(path, upsert="word").immediate_writer()
    writer.register(identity(1, 1), 0)
    writer.write(0, [("a", 1), ("b", 1)])  # the database makes texts of them
    assert run(path, "SELECT * FROM words ORDER BY word") == [
        ("a", "1", "of others"),
        ("b", "1", "more"),
        ("z", "old", "of others"),
    ]
    assert writer.register(identity(2, 2), 0) == Registration(0, None)
    writer.close()
    assert run(path, "SELECT * FROM words ORDER BY word") == [("a", "old", "of others"), ("z", "old", "of others")]


def test_undo_rows_below_the_oldest_checkpoint_are_deleted_and_an_earlier_resume_is_reported(path: Path) -> None:
    sink = by_path(path, upsert="word")
    writer = sink.immediate_writer()
    writer.register(identity(1, 1), 0)
    for number in range(10):
        writer.write(number, [("ab"[number % 2], number)])
    writer.forget(4)
    assert run(path, "SELECT MIN(number), COUNT(*) FROM clonos_previous") == [(4, 6)]
    assert writer.register(identity(2, 2), 2) == Registration(2, 4)  # numbers 2 and 3 are as they were left
    assert sorted(words_in(path)) == [("a", 2), ("b", 3)]
    assert run(path, "SELECT COUNT(*) FROM clonos_previous") == [(0,)]
    writer.close()


def test_a_fenced_incarnation_deletes_no_undo_rows(path: Path) -> None:
    sink = by_path(path, upsert="word")
    early, late = sink.immediate_writer(), sink.immediate_writer()
    early.register(identity(1, 1), 0)
    early.write(0, [("a", 1), ("a", 2)])
    late.register(identity(2, 2), 1)
    late.write(1, [("a", 3)])
    early.forget(2)
    assert late.register(identity(3, 3), 1) == Registration(1, None)
    early.close()
    late.close()
    assert words_in(path) == [("a", 1)]


def test_values_are_read_back_unchanged(path: Path) -> None:
    columns = {"key": "INTEGER", "half": "REAL", "raw": "BLOB", "text": "TEXT"}
    values = [(1, 1.5, b"\x00\xff", "a'b"), (2, None, None, None), (3, -0.5, b"", "")]
    for number, sink in enumerate(
        (
            sqlite(path, "words", columns, upsert="key"),
            dbapi(
                lambda: strict_driver.connect(path), "others", columns, upsert="key", paramstyle="pyformat", quote="`"
            ),
        )
    ):
        writer = sink.immediate_writer()
        writer.register(identity(1, 1, index=number), 0)
        writer.write(0, list(values))
        writer.write(3, [(key, 9.0, b"9", "9") for key in (1, 2, 3)])
        writer.register(identity(2, 2, index=number), 3)
        writer.close()
        assert run(path, f"SELECT * FROM {sink.table} ORDER BY key") == values


def test_many_keys_are_looked_up_in_batches(path: Path) -> None:
    writer = by_strict_driver(path, upsert=["word", "seen"]).immediate_writer()
    writer.register(identity(1, 1), 0)
    rows = [(f"word {number}", number % 3) for number in range(333)]
    writer.write(0, list(rows))
    writer.write(333, list(rows))
    assert sorted(words_in(path)) == sorted(rows)
    writer.register(identity(2, 2), 100)
    writer.close()
    assert sorted(words_in(path)) == sorted(rows[:100])


@pytest.mark.parametrize("key", [None, [1]])
def test_a_row_with_an_unusable_key_is_refused(path: Path, key: object) -> None:
    writer = by_driver(path, upsert="word").immediate_writer()
    writer.register(identity(1, 1), 0)
    with pytest.raises((RowNotWritable, TableRefused)) as refused:
        writer.write(0, [("a", 1), (key, 1)] if key is None else [("a", 1), (bytearray(b"x"), 1)])
    assert "its key (word)" in str(refused.value)
    writer.close()
    assert words_in(path) == []


def test_a_table_with_several_rows_under_a_key_is_refused(path: Path) -> None:
    run(path, "CREATE TABLE words (word TEXT, seen INTEGER)")
    run(path, "INSERT INTO words VALUES ('a', 1), ('a', 2)")
    writer = by_path(path, upsert="word").immediate_writer()
    writer.register(identity(1, 1), 0)
    with pytest.raises(TableRefused, match="it has several rows whose word is 'a'"):
        writer.write(0, [("a", 3)])
    writer.close()


@pytest.mark.parametrize(
    ("columns", "upsert"),
    [(None, "word"), (["word"], "other"), (["word"], []), (["word", "seen"], ["word", "word"])],
)
def test_a_key_that_is_not_among_the_columns_is_refused_at_once(columns: Any, upsert: Any) -> None:
    with pytest.raises(InvalidConnector, match="Name each key column once"):
        sqlite("out.db", "words", columns, upsert=upsert)
