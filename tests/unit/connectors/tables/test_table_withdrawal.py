"""Tables after a rollback: rows that will be written again are withdrawn first, or reported by number."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from clonos.connectors import dbapi, sqlite
from clonos.connectors.connector_errors import InvalidConnector, TableUnavailable
from clonos.operators.connector_contract import Registration, WriterFenced, WriterIdentity
from tests.unit.connectors.tables.table_samples import (
    COLUMNS,
    JOB,
    MAKERS,
    Make,
    Unruly,
    by_driver,
    by_path,
    identity,
    run,
    words_in,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


def test_rows_after_the_restored_checkpoint_are_withdrawn_before_new_ones_are_written(path: Path) -> None:
    for number, make in enumerate(MAKERS):
        file = path.with_name(f"{number}.db")
        sink = make(file)
        early, late = sink.immediate_writer(), sink.immediate_writer()
        assert early.register(identity(1, 1), 0) == Registration(0, None)
        assert early.write(0, [("a", 1), ("b", 2), ("c", 3)]) == 3
        assert late.register(identity(2, 2), 1) == Registration(1, None)  # no alarm
        assert words_in(file) == [("a", 1)]
        with pytest.raises(WriterFenced):
            early.write(3, [("of a dead generation", 4)])
        assert late.write(1, [("B", 2)]) == 2
        early.close()
        late.close()
        assert words_in(file) == [("a", 1), ("B", 2)]


def test_a_row_has_its_job_task_and_number(path: Path) -> None:
    writer = by_path(path).immediate_writer()
    writer.register(identity(1, 1, index=3), 7)
    writer.write(7, [("a", 1), ("b", 2)])
    writer.close()
    found = run(path, "SELECT word, clonos_task, clonos_number FROM words")
    assert found == [("a", f"{JOB}/words/3", 7), ("b", f"{JOB}/words/3", 8)]
    with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE constraint failed: words.clonos_task"):
        run(path, f"INSERT INTO words VALUES ('again', 0, '{JOB}/words/3', 8)")


def test_only_the_rows_of_the_task_that_registers_are_withdrawn(path: Path) -> None:
    sink = by_path(path)
    first, second, other = sink.immediate_writer(), sink.immediate_writer(), sink.immediate_writer()
    for writer, who in ((first, identity(1, 1)), (second, identity(1, 1, index=1))):
        writer.register(who, 0)
        writer.write(0, [(who.task_name, 1), (who.task_name, 2)])
    other.register(WriterIdentity("an earlier start", "words/0", 1, 1), 0)
    other.write(0, [("of an earlier start", 1), ("of an earlier start", 2)])
    assert first.register(identity(2, 2), 1) == Registration(1, None)
    for writer in (first, second, other):
        writer.close()
    expected = [("words/0", 1), ("words/1", 1), ("words/1", 2), ("of an earlier start", 1), ("of an earlier start", 2)]
    assert words_in(path) == expected


def test_another_incarnation_of_the_same_generation_withdraws_nothing(path: Path) -> None:
    for make in MAKERS:
        file = path.with_name(f"{make.__name__}.db")
        sink = make(file)
        early, late = sink.immediate_writer(), sink.immediate_writer()
        early.register(identity(1, 1), 0)
        early.write(0, [("a", 1), ("b", 2)])
        assert late.register(identity(2, 1), 1) == Registration(2, None)
        early.close()
        late.close()
        assert words_in(file) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("key", [None, "word"])
@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_withdrawal_with_unknown_outcome_is_retried_and_withdraws_once(
    path: Path, fault: str, key: str | None
) -> None:
    sink = dbapi(lambda: sqlite3.connect(path, factory=Unruly), "words", COLUMNS, upsert=key)
    early, late = sink.immediate_writer(), sink.immediate_writer()
    early.register(identity(1, 1), 0)
    early.write(0, [("a", 1), ("b", 2), ("a", 3)])
    early.close()
    Unruly.faults.extend([fault, "", ""])
    assert late.register(identity(2, 2), 1) == Registration(1, None)
    assert not Unruly.faults
    late.close()
    assert words_in(path) == [("a", 1)]


class Overtaken(sqlite3.Connection):
    """Something happens each time before a registration is taken over."""

    meanwhile: ClassVar[list[Callable[[], object]]] = []

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(OvertakenCursor)


class OvertakenCursor(sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = ()) -> OvertakenCursor:
        if sql.startswith("UPDATE clonos_registrations SET generation"):
            for happen in Overtaken.meanwhile:
                happen()
        super().execute(sql, parameters)
        return self


@pytest.mark.parametrize("generation", [1, 2])
def test_an_old_incarnation_that_keeps_writing_does_not_block_the_next_registration(
    path: Path, generation: int
) -> None:
    early = by_driver(path).immediate_writer()
    late = dbapi(lambda: sqlite3.connect(path, factory=Overtaken), "words", COLUMNS).immediate_writer()
    early.register(identity(1, 1), 0)
    early.write(0, [("a", 1)])
    written = [1]

    def write_on() -> None:
        written.append(early.write(written[-1], [("b", written[-1])]))

    Overtaken.meanwhile.append(write_on)
    try:
        answer = late.register(identity(2, generation), 1)
    finally:
        Overtaken.meanwhile.clear()
    assert len(written) == 2
    assert answer == Registration(2 if generation == 1 else 1, None)
    with pytest.raises(WriterFenced):
        early.write(2, [("c", 3)])
    early.close()
    late.close()
    assert len(words_in(path)) == answer[0]


# ------------------------------------------------------------------ users' own tables


@pytest.mark.parametrize("make", MAKERS)
def test_a_table_without_the_columns_is_warned_of_once_at_the_start(
    path: Path, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    run(path, "CREATE TABLE words (word TEXT, seen INTEGER)")
    sink = make(path)
    first, second = sink.immediate_writer(), sink.immediate_writer()
    with caplog.at_level(logging.WARNING, "clonos.slot"):
        first.register(identity(1, 1), 0)
        second.register(identity(1, 1, index=1), 0)
    (line,) = caplog.messages
    assert line.startswith("the table words has no columns clonos_task and clonos_number, so after a rollback or a")
    first.write(0, [("a", 1), ("b", 2)])
    caplog.clear()
    late = sink.immediate_writer()
    assert late.register(identity(2, 1), 0) == Registration(2, None)
    assert not caplog.messages
    assert late.register(identity(3, 2), 1) == Registration(1, 2)
    late.write(1, [("B", 2)])
    for writer in (first, second, late):
        writer.close()
    assert words_in(path) == [("a", 1), ("b", 2), ("B", 2)]


def test_an_existing_table_with_the_columns_supports_withdrawal(path: Path) -> None:
    run(path, "CREATE TABLE words (clonos_number BIGINT, word TEXT, Clonos_Task TEXT, seen INTEGER, more TEXT)")
    sink = dbapi(lambda: sqlite3.connect(path), "words", ["word", "seen"])
    writer = sink.immediate_writer()
    writer.register(identity(1, 1), 0)
    writer.write(0, [("a", 1), ("b", 2)])
    assert writer.register(identity(2, 2), 1) == Registration(1, None)
    writer.close()
    assert words_in(path) == [("a", 1)]


def test_rows_from_before_the_columns_were_added_are_reported_by_number(path: Path) -> None:
    run(path, "CREATE TABLE words (word TEXT, seen INTEGER)")
    sink = by_path(path)
    writer = sink.immediate_writer()
    writer.register(identity(1, 1), 0)
    writer.write(0, [("a", 1), ("b", 2)])
    writer.close()
    run(path, "ALTER TABLE words ADD COLUMN clonos_task VARCHAR(255)")
    run(path, "ALTER TABLE words ADD COLUMN clonos_number BIGINT")
    writer.register(identity(2, 1), 0)
    writer.write(2, [("c", 3), ("d", 4)])
    assert writer.register(identity(3, 2), 1) == Registration(1, 2)  # number 1 stays
    assert words_in(path) == [("a", 1), ("b", 2)]
    writer.write(1, [("B", 2), ("C", 3)])
    writer.close()


def test_rows_deleted_by_another_writer_are_reported_as_possible_repeats(path: Path) -> None:
    sink = by_path(path)
    writer = sink.immediate_writer()
    writer.register(identity(1, 1), 0)
    writer.write(0, [("a", 1), ("b", 2), ("c", 3), ("d", 4)])
    run(path, "DELETE FROM words WHERE word = 'c'")
    assert writer.register(identity(2, 2), 1) == Registration(1, 4)
    writer.close()
    assert words_in(path) == [("a", 1)]


def test_an_unreadable_table_is_never_taken_for_an_empty_one(path: Path) -> None:
    sink = by_path(path)
    writer = sink.immediate_writer()
    writer.register(identity(1, 1), 0)
    writer.write(0, [("a", 1), ("b", 2)])
    writer.close()
    run(path, "ALTER TABLE words RENAME TO elsewhere")
    late = sink.immediate_writer()
    with pytest.raises(TableUnavailable, match="no such table: words"):
        late.register(identity(2, 2), 1)
    run(path, "ALTER TABLE elsewhere RENAME TO words")
    assert late.register(identity(2, 2), 1) == Registration(1, None)
    late.close()
    assert words_in(path) == [("a", 1)]


class Unseen(sqlite3.Connection):
    """A connection of SQLite through which tables cannot be looked at for a while."""

    is_blind = False

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(UnseenCursor)


class UnseenCursor(sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = ()) -> UnseenCursor:
        if Unseen.is_blind and "WHERE 1 = 0" in sql:
            raise sqlite3.OperationalError("disk I/O error")
        super().execute(sql, parameters)
        return self


def test_an_unreadable_table_is_read_again_before_anything_is_written(path: Path) -> None:
    writer = dbapi(lambda: sqlite3.connect(path, factory=Unseen), "words", COLUMNS).immediate_writer()
    writer.register(identity(1, 1), 0)
    writer.write(0, [("a", 1)])
    Unseen.is_blind = True
    try:
        writer.register(identity(2, 1), 0)
        with pytest.raises(TableUnavailable, match="disk I/O error"):
            writer.write(1, [("b", 2)])
    finally:
        Unseen.is_blind = False
    writer.write(1, [("b", 2)])
    writer.close()
    assert run(path, "SELECT clonos_number FROM words ORDER BY rowid") == [(0,), (1,)]


def test_a_field_with_the_name_of_a_reserved_column_is_refused(path: Path) -> None:
    writer = sqlite(path, "words").immediate_writer()
    writer.register(identity(1, 1), 0)
    with pytest.raises(InvalidConnector, match="a field clonos_number"):
        writer.write(0, [{"word": "a", "clonos_number": 1}])
    writer.close()
