"""Tables as an immediate sink: each row once, by number; a fenced or dying writer leaves no partial transaction."""

import sqlite3
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import dbapi, sqlite
from clonos.connectors.connector_errors import (
    InvalidConnector,
    RegistrationLost,
    RowNotWritable,
    TableRefused,
    TableUnavailable,
)
from clonos.connectors.tables import table_sink
from clonos.connectors.tables.table_statements import Dialect
from clonos.core.model.errors import InternalError
from clonos.core.model.ids import Incarnation, TaskId
from clonos.core.ports.task_failure import failure_of
from clonos.core.wire.recovery_messages import Recourse
from clonos.operators.connector_contract import (
    ImmediateSink,
    Registration,
    TransactionalSink,
    WriterFenced,
    WriterIdentity,
)
from tests.tidy.source import ROOT
from tests.unit.connectors.tables.table_samples import JOB, Unruly, identity


class Seen(NamedTuple):
    word: str
    end: int


def rows_in(path: Path, table: str = "words") -> list[Any]:
    """Rows of the job, without the columns that the sink adds."""
    connection = sqlite3.connect(path)
    try:
        found = connection.execute(f'SELECT * FROM "{table}" ORDER BY rowid')
        places = [place for place, column in enumerate(found.description) if not column[0].startswith("clonos_")]
        return [tuple(row[place] for place in places) for row in found]
    finally:
        connection.close()


def make_plain_table(path: Path) -> None:
    """A user's own table: without columns for task and number nothing in it can be withdrawn."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE words (word TEXT)")
    connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


@pytest.mark.parametrize("kind", ["sqlite", "dbapi"])
def test_rows_are_written_in_one_transaction_with_their_number(path: Path, kind: str) -> None:
    columns = {"word": "TEXT", "end": "INTEGER"}
    sink = (
        sqlite(path, "words", columns) if kind == "sqlite" else dbapi(lambda: sqlite3.connect(path), "words", columns)
    )
    writer = sink.immediate_writer()
    assert writer.register(identity(1), 0).next_number == 0
    assert writer.write(0, [Seen("a", 1), {"end": 2, "word": "b"}]) == 2
    assert writer.write(2, [("c", 3)]) == 3
    writer.close()
    assert rows_in(path) == [("a", 1), ("b", 2), ("c", 3)]
    assert sink.registrations(JOB) == {"words/0": (0, 1, 3)}
    assert sink.registrations("another job") == {}


def test_repeated_output_is_dropped_by_number(path: Path) -> None:
    writer = sqlite(path, "words").immediate_writer()
    writer.register(identity(1), 0)
    assert writer.write(0, ["a", "b", "c"]) == 3
    assert writer.write(0, ["a", "b", "c"]) == 3
    assert writer.write(1, ["b", "c", "d"]) == 4
    assert writer.write(4, []) == 4
    writer.close()
    assert rows_in(path) == [("a",), ("b",), ("c",), ("d",)]


def test_output_with_a_gap_is_refused(path: Path) -> None:
    writer = sqlite(path, "words").immediate_writer()
    writer.register(identity(1), 0)
    with pytest.raises(InternalError, match="where row 0 is next"):
        writer.write(1, ["b"])
    writer.close()


def test_an_earlier_incarnation_is_fenced_once_a_later_one_has_registered(path: Path) -> None:
    sink = sqlite(path, "words")
    early, late = sink.immediate_writer(), sink.immediate_writer()
    assert early.register(identity(1), 0).next_number == 0
    assert early.write(0, ["a"]) == 1
    assert late.register(identity(2), 0).next_number == 1
    for _ in range(2):
        with pytest.raises(WriterFenced, match="but incarnation 2 of generation 0 is registered") as fenced:
            early.write(1, ["of a dead life"])
        assert fenced.value.by == (0, 2)
    with pytest.raises(WriterFenced):
        early.register(identity(1), 0)
    assert late.write(1, ["b"]) == 2
    assert late.register(identity(2), 0).next_number == 2
    early.close()
    late.close()
    assert rows_in(path) == [("a",), ("b",)]


def test_a_new_generation_continues_at_the_restored_number_and_reports_rows_already_written(path: Path) -> None:
    make_plain_table(path)
    sink = sqlite(path, "words", ["word"])
    early, late = sink.immediate_writer(), sink.immediate_writer()
    assert early.register(identity(1), 0) == Registration(0, None)
    assert early.write(0, ["a", "b", "c"]) == 3
    assert late.register(identity(2, generation=1), 1) == Registration(1, 3)
    with pytest.raises(WriterFenced):
        early.write(3, ["of a dead generation"])
    with pytest.raises(WriterFenced):
        early.register(identity(3), 0)
    assert late.write(1, ["B"]) == 2
    assert late.register(identity(2, generation=1), 1) == Registration(2, None)
    assert early.register(identity(4, generation=1), 1) == Registration(2, None)
    assert early.write(1, ["B", "C"]) == 3
    early.close()
    late.close()
    assert rows_in(path) == [("a",), ("b",), ("c",), ("B",), ("C",)]


def test_a_registration_that_someone_deleted_ends_the_job_and_no_retry_guesses_which_rows_are_there(path: Path) -> None:
    sink = sqlite(path, "words")
    writer = sink.immediate_writer()
    writer.register(identity(1), 0)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM clonos_registrations")
    connection.commit()
    connection.close()
    with pytest.raises(RegistrationLost, match=r"the registration of words/0 .* start afresh with --overwrite") as lost:
        writer.write(0, ["a"])
    assert failure_of(TaskId(0), Incarnation(1), lost.value).recourse is Recourse.NONE
    writer.close()


def test_each_task_of_each_job_has_its_own_numbers(path: Path) -> None:
    sink = sqlite(path, "words")
    first, second, other = sink.immediate_writer(), sink.immediate_writer(), sink.immediate_writer()
    assert [life.register(identity(1, index=n), 0) for n, life in enumerate((first, second))] == [
        Registration(0, None)
    ] * 2
    assert other.register(WriterIdentity("another job", "words/0", 0, 7), 0).next_number == 0
    assert [first.write(0, ["a"]), second.write(0, ["b"]), other.write(0, ["c"])] == [1, 1, 1]
    for writer in (first, second, other):
        writer.close()
    assert sink.registrations(JOB) == {"words/0": (0, 1, 1), "words/1": (0, 1, 1)}


STEP = st.tuples(st.sampled_from(["write", "repeat", "replace", "die"]), st.integers(0, 2), st.integers(1, 3))


@given(steps=st.lists(STEP, max_size=12))
def test_every_order_of_writes_repeats_and_deaths_writes_each_row_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("tables") / "out.db"
    sink = sqlite(path, "words", ["number"])
    lives = [sink.immediate_writer()]
    written = lives[0].register(identity(0), 0).next_number
    for what, back, count in steps:
        first = max(0, written - back)
        if what in ("replace", "die"):
            if what == "die":
                lives[-1].close()
            lives.append(sink.immediate_writer())
            assert lives[-1].register(identity(len(lives) - 1), 0).next_number == written
        elif what == "repeat" and len(lives) > 1:
            with pytest.raises(WriterFenced):
                lives[-2].write(first, [-1] * (count + back))
        else:
            written = lives[-1].write(first, list(range(first, written + count)))
    for life in lives:
        life.close()
    if written:
        assert rows_in(path) == [(number,) for number in range(written)]


@pytest.mark.parametrize("faults", [["before"], ["after"], ["after", "before"]])
def test_a_commit_with_unknown_outcome_is_retried_and_counts_once(path: Path, faults: list[str]) -> None:
    writer = dbapi(lambda: sqlite3.connect(path, factory=Unruly), "words", {"word": "TEXT"}).immediate_writer()
    writer.register(identity(1), 0)
    assert writer.write(0, ["a"]) == 1
    Unruly.faults.extend(faults)
    assert writer.write(1, ["b"]) == 2
    assert not Unruly.faults
    writer.close()
    assert rows_in(path) == [("a",), ("b",)]


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_registration_with_unknown_outcome_still_reports_rows_already_written(path: Path, fault: str) -> None:
    make_plain_table(path)
    sink = dbapi(lambda: sqlite3.connect(path, factory=Unruly), "words", {"word": "TEXT"})
    early, late = sink.immediate_writer(), sink.immediate_writer()
    early.register(identity(1), 0)
    early.write(0, ["a", "b"])
    early.close()
    Unruly.faults.extend([fault, "", ""])
    assert late.register(identity(2, generation=1), 1) == Registration(1, 2)
    assert not Unruly.faults
    late.close()


def test_a_database_that_stays_unreachable_is_an_error_and_leaves_no_row(path: Path) -> None:
    writer = dbapi(lambda: sqlite3.connect(path, factory=Unruly), "words", {"word": "TEXT"}).immediate_writer()
    writer.register(identity(1), 0)
    Unruly.faults.extend(["before"] * 9)
    try:
        with pytest.raises(TableUnavailable, match="No row is lost or written twice"):
            writer.write(0, ["a"])
    finally:
        Unruly.faults.clear()
    assert writer.write(0, ["a"]) == 1
    writer.close()
    assert rows_in(path) == [("a",)]


def test_a_row_that_the_table_rejects_rolls_back_its_batch(path: Path) -> None:
    writer = sqlite(path, "words", {"word": "TEXT UNIQUE"}).immediate_writer()
    writer.register(identity(1), 0)
    with pytest.raises(TableRefused, match=r"UNIQUE constraint failed.*No row of this batch"):
        writer.write(0, ["a", "b", "a"])
    assert writer.write(0, ["a", "b"]) == 2
    writer.close()
    assert rows_in(path) == [("a",), ("b",)]


def test_a_missing_table_is_created_when_types_are_known(path: Path) -> None:
    writer = dbapi(lambda: sqlite3.connect(path), "words", ["word"]).immediate_writer()
    writer.register(identity(1), 0)
    with pytest.raises(TableUnavailable, match="no such table: words"):
        writer.write(0, ["a"])
    writer.close()


def test_names_that_are_one_column_of_sqlite_are_refused_and_a_row_with_them_is_an_error_beside_good_ones(
    path: Path,
) -> None:
    for columns in (["id", "ID"], {"id": "INTEGER", "n": "TEXT", "Id": "TEXT"}):
        with pytest.raises(InvalidConnector, match=r"the columns 'id' and 'I[dD]' are one column of the table"):
            sqlite(path, "words", columns)
    with pytest.raises(InvalidConnector, match="the columns 'a' and 'a' are one column"):
        dbapi(lambda: sqlite3.connect(path), "words", ["a", "b", "a"])
    dbapi(lambda: sqlite3.connect(path), "words", ["id", "ID"])  # which may be two columns there
    accents = sqlite(path.with_name("other.db"), "accents", ["é", "É"]).immediate_writer()
    accents.register(identity(1), 0)
    assert accents.write(0, [{"é": 1, "É": 2}]) == 1
    accents.close()
    writer = sqlite(path, "words").immediate_writer()
    writer.register(identity(1), 0)
    writer.write(0, [{"id": 1}])
    with pytest.raises(RowNotWritable, match="the columns 'id' and 'ID' are one column of the table") as raised:
        writer.write(1, [{"id": 2, "ID": 3}])
    assert raised.value.index == 0
    assert writer.write(1, [{"id": 4}]) == 2
    writer.close()
    assert rows_in(path) == [(1,), (4,)]


def test_columns_that_do_not_fit_the_table_are_no_fault_of_the_database(path: Path) -> None:
    writer = dbapi(lambda: sqlite3.connect(path), "words", {"id": "INTEGER", "ID": "TEXT"}).immediate_writer()
    writer.register(identity(1), 0)
    with pytest.raises(TableRefused, match=r"words cannot be created: duplicate column name: ID\. Correct columns="):
        writer.write(0, [(1, "a")])
    writer.close()
    make_plain_table(path)
    writer = sqlite(path, "words").immediate_writer()
    writer.register(identity(1), 0)
    with pytest.raises(RowNotWritable, match="its other has no column in the table words, which has word"):
        writer.write(0, [{"word": "a", "other": "b"}])
    writer.close()


def test_a_busy_database_is_waited_for(path: Path) -> None:
    sink = table_sink.SqliteSink(str(path), "words", None, None, busy_ms=1)
    writer = sink.immediate_writer()
    writer.register(identity(1), 0)
    writer.write(0, ["a"])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(TableUnavailable, match="locked"):
        writer.write(1, ["b"])
    other.rollback()
    other.close()
    assert writer.write(1, ["b"]) == 2
    writer.close()


def test_values_are_stored_as_types_of_sqlite(path: Path) -> None:
    writer = sqlite(path, "words").immediate_writer()
    writer.register(identity(1), 0)
    writer.write(0, [None, True, 1.5, 2**70, b"x", date(2026, 1, 2), UUID(int=1), {"value": [1, "a"]}])
    writer.close()
    assert [row[0] for row in rows_in(path)] == [
        None,
        1,
        1.5,
        str(2**70),
        b"x",
        "2026-01-02",
        str(UUID(int=1)),
        '[1,"a"]',
    ]


def test_a_database_driver_gets_plain_values_unchanged_and_records_as_json(path: Path) -> None:
    sink = dbapi(lambda: sqlite3.connect(path), "words")
    instant = date(2026, 1, 2)
    assert [sink.field(value) for value in (instant, b"x", Seen("a", 1), {"a": {1}})] == [
        instant,
        b"x",
        '{"word":"a","end":1}',
        '{"a":[1]}',
    ]


def test_a_column_may_have_any_word_as_its_name(path: Path) -> None:
    writer = sqlite(path, 'group "x"').immediate_writer()
    writer.register(identity(1), 0)
    writer.write(0, [{"end": 1, "select": 2, 'quo"te': 3}])
    writer.close()
    assert rows_in(path, 'group ""x""') == [(1, 2, 3)]


def test_a_row_without_a_column_for_its_field_is_an_error(path: Path) -> None:
    writer = sqlite(path, "words").immediate_writer()
    writer.register(identity(1), 0)
    with pytest.raises(RowNotWritable, match="its b has no column in the table words, which has a"):
        writer.write(0, [{"a": 1}, {"a": 1, "b": 2}])
    writer.close()
    assert rows_in(path) == []


@pytest.mark.parametrize(
    ("paramstyle", "sql", "parameters"),
    [
        ("qmark", 'INSERT INTO "s"."t" ("a", "b") VALUES (?, ?)', [1, 2]),
        ("format", 'INSERT INTO "s"."t" ("a", "b") VALUES (%s, %s)', [1, 2]),
        ("numeric", 'INSERT INTO "s"."t" ("a", "b") VALUES (:1, :2)', [1, 2]),
        ("named", 'INSERT INTO "s"."t" ("a", "b") VALUES (:c0, :c1)', {"c0": 1, "c1": 2}),
        ("pyformat", 'INSERT INTO "s"."t" ("a", "b") VALUES (%(c0)s, %(c1)s)', {"c0": 1, "c1": 2}),
    ],
)
def test_each_parameter_style_is_written_as_in_pep_249(paramstyle: str, sql: str, parameters: Any) -> None:
    insert = Dialect("dbapi", paramstyle, '"').insert("s.t", ["a", "b"])
    assert insert.sql == sql
    assert insert.parameters({"c0": 1, "c1": 2}) == parameters


def test_an_impossible_table_sink_is_refused_at_once() -> None:
    with pytest.raises(InvalidConnector, match="list of names"):
        sqlite("out.db", "words", [])
    with pytest.raises(InvalidConnector, match="list of names"):
        sqlite("out.db", "words", "word")
    with pytest.raises(InvalidConnector, match="is not a valid SQL identifier"):
        sqlite("out.db", "a:b")
    with pytest.raises(InvalidConnector, match="Give one of qmark"):
        dbapi(list, "words", paramstyle="percent")


def test_a_connection_in_autocommit_mode_is_refused() -> None:
    class CommitsAtOnce(sqlite3.Connection):
        autocommit = True

    writer = dbapi(lambda: sqlite3.connect(":memory:", factory=CommitsAtOnce), "words").immediate_writer()
    with pytest.raises(InvalidConnector, match="has autocommit on"):
        writer.register(identity(1), 0)


def test_a_pickled_table_sink_still_meets_the_sink_protocol(path: Path) -> None:
    sink: ImmediateSink = cloudpickle.loads(cloudpickle.dumps(sqlite(path, "words")))
    assert isinstance(sink, ImmediateSink)
    assert not isinstance(sink, TransactionalSink)
    writer = sink.immediate_writer()
    assert writer.register(identity(1), 0).next_number == 0
    writer.close()


KILLED_IN_MID_TRANSACTION = """
import sqlite3, sys, time
from clonos.connectors import dbapi
from clonos.operators.connector_contract import WriterIdentity

class StopsBeforeCommit(sqlite3.Connection):
    stops = False
    def commit(self):
        if self.stops:
            print("rows are written, the commit is not", flush=True)
            sys.stdin.read()
        super().commit()

connections = []
def connect():
    connections.append(sqlite3.connect(sys.argv[1], factory=StopsBeforeCommit))
    return connections[-1]

outside = dbapi(connect, "words", {"word": "TEXT"}).immediate_writer()
outside.register(WriterIdentity(sys.argv[2], "words/0", 0, 1), 0)
outside.write(0, ["a"])
connections[-1].stops = True
outside.write(1, ["b", "c"])
"""


@pytest.mark.processes
def test_a_process_killed_in_mid_transaction_leaves_no_row_of_it(path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED_IN_MID_TRANSACTION, str(path), JOB],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "rows are written, the commit is not\n"
        child.kill()
    successor = dbapi(lambda: sqlite3.connect(path), "words", {"word": "TEXT"}).immediate_writer()
    assert successor.register(identity(2), 0).next_number == 1
    assert successor.write(1, ["b", "c"]) == 3
    successor.close()
    assert rows_in(path) == [("a",), ("b",), ("c",)]
