"""``postgres.table`` on a server that refuses, breaks off, restarts or is full: each failure named, no row lost."""

from __future__ import annotations

import dataclasses
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import psycopg
import pytest

from clonos.connectors import postgres as pg
from clonos.connectors import secrets, values
from clonos.connectors.connector_errors import InvalidConnector, RowNotWritable, TableRefused, TableUnavailable
from clonos.connectors.kit.external_system import SystemRefused, SystemUnreachable
from clonos.job import Job
from tests.connectors.postgres.table_samples import COLUMNS, identity, registered, sink_to, words_in
from tests.connectors.servers.postgres import DATABASE, PASSWORD, USER, PostgresServer
from tests.speed import scaled

pytestmark = pytest.mark.connectors


@dataclasses.dataclass
class Mistake:
    """A row or a table that cannot work, and a part of the error."""

    row: tuple[Any, ...]
    error: str


@pytest.mark.parametrize(
    "mistake",
    [
        Mistake(("a", "many"), "its seen is 'many', which a column of the type integer does not hold"),
        Mistake(("a", 1 << 40), "its seen is 1099511627776, which a column of the type integer does not hold"),
        Mistake(("a\0b", 1), "its word is .*NUL"),
        Mistake((None, 1), "its word is None, and the table does not take NULL there"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_nothing_of_its_batch_is_there(
    postgres: PostgresServer, mistake: Mistake
) -> None:
    columns = {"word": "text NOT NULL", "seen": "int"}
    with registered(pg.table(postgres.full_url, "words", columns), identity(1)) as writer:
        with pytest.raises(RowNotWritable, match=f"postgres.table cannot write the row .*{mistake.error}"):
            writer.write(0, [("fits", 1), mistake.row])
        assert words_in(postgres) == []
        assert writer.write(0, [("fits", 1)]) == 1


def test_the_start_names_what_is_wrong_with_a_table(postgres: PostgresServer) -> None:
    with pytest.raises(InvalidConnector, match=r"there is no table words in postgresql://127\.0\.0\.1"):
        pg.table(postgres.full_url, "words").check_start()
    sink_to(postgres).check_start()  # which the sink creates
    postgres.run("CREATE TABLE words (word text)")
    with pytest.raises(InvalidConnector, match=r"has no column 'seen'\. It has: word\."):
        pg.table(postgres.full_url, "words", ["word", "seen"]).check_start()
    pg.table(postgres.full_url, "words").check_start()
    postgres.run("DROP ROLE IF EXISTS reader")
    postgres.run("CREATE ROLE reader LOGIN PASSWORD 'r'")
    postgres.run("GRANT USAGE ON SCHEMA public TO reader")
    postgres.run("GRANT SELECT ON words TO reader")
    with pytest.raises(InvalidConnector, match="the user may not write to the table words"):
        pg.table(f"postgresql://reader:r@{postgres.place}", "words").check_start()
    postgres.run("DROP OWNED BY reader")
    postgres.run("DROP ROLE reader")


def test_a_type_that_the_server_does_not_know_is_named_in_one_sentence(postgres: PostgresServer) -> None:
    sink = pg.table(postgres.full_url, "words", {"word": "txt"})
    with registered(sink, identity(1)) as writer, pytest.raises(TableRefused) as refused:
        writer.write(0, [("a",)])
    sentence = (
        r'the table words cannot be created: type "txt" does not exist LINE 1: .*\. Correct columns= or the rights'
    )
    assert re.match(sentence, str(refused.value)), str(refused.value)


def test_a_table_that_is_missing_later_is_named(postgres: PostgresServer) -> None:
    sink = pg.table(postgres.full_url, "words", ["word", "seen"])
    with registered(sink, identity(1)) as writer, pytest.raises(TableRefused, match='"words" does not exist'):
        writer.write(0, [("a", 1)])


WRONG = "wr0ng-and-secret"


@pytest.mark.parametrize(
    ("dsn", "error"),
    [
        (f"postgresql://{USER}:{WRONG}@HOST/{DATABASE}", f'password authentication failed for user "{USER}"'),
        (f"postgresql://{USER}@HOST/{DATABASE}", "no password supplied"),
        (f"postgresql://nobody:{WRONG}@HOST/{DATABASE}", 'password authentication failed for user "nobody"'),
        (f"postgresql://{USER}:{PASSWORD}@HOST/missing", 'database "missing" does not exist'),
    ],
)
def test_a_refused_connection_is_an_error_of_the_job_that_shows_no_password(
    postgres: PostgresServer, dsn: str, error: str
) -> None:
    sink = pg.table(dsn.replace("HOST", f"127.0.0.1:{postgres.port}"), "words", COLUMNS)
    for attempt in (sink.check_start, lambda: sink.immediate_writer().register(identity(1), 0)):
        with pytest.raises(SystemRefused, match=error) as raised:
            attempt()
        assert f"PostgreSQL at postgresql://127.0.0.1:{postgres.port}" in str(raised.value)
        shown = f"{raised.value} {raised.value!r} {raised.value.__context__} {sink!r} {sink.describe_output()}"
        assert WRONG not in shown
        assert PASSWORD not in shown
        assert str(cloudpickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_password_apart_and_a_secret_dsn_let_the_job_in(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PG_WORD", PASSWORD)
    monkeypatch.setenv("PG_DSN", postgres.full_url)
    apart = pg.table(f"host=127.0.0.1 port={postgres.port} user={USER} dbname={DATABASE}", "words", COLUMNS)
    with pytest.raises(SystemRefused, match="no password supplied"):
        apart.check_start()
    for sink in (
        pg.table(postgres.url, "words", COLUMNS, password=secrets.env("PG_WORD")),
        pg.table(secrets.env("PG_DSN"), "words", COLUMNS),
    ):
        sink.check_start()
        assert PASSWORD.encode() not in cloudpickle.dumps(sink)
        assert PASSWORD not in repr(sink) + str(sink.describe_output())
    assert pg.table(secrets.env("PG_DSN"), "words").describe_output()[0] == ("database", "<secret from $PG_DSN>")


def test_a_dsn_that_cannot_be_parsed_is_not_shown() -> None:
    for dsn in (f"postgresql://ann:{WRONG}/with/slash@h/db", f"host=h {WRONG}", f"postgresql://ann:{WRONG}@h:port/db"):
        with pytest.raises((InvalidConnector, SystemUnreachable)) as raised:
            pg.table(dsn, "words").immediate_writer().register(identity(1), 0)
        assert WRONG not in f"{raised.value} {raised.value.__context__} {raised.value.__cause__}"
    with pytest.raises(InvalidConnector, match="neither a URL of PostgreSQL nor"):
        pg.table("mysql://h/db", "words")


def test_a_server_that_does_not_run_is_named_and_not_checked_at_the_start(postgres: PostgresServer) -> None:
    sink = sink_to(postgres)
    postgres.kill()
    sink.check_start()
    with pytest.raises(SystemUnreachable, match="failed at connecting: connection failed"):
        sink.immediate_writer().register(identity(1), 0)


def test_a_connection_that_the_server_ends_is_opened_again_and_no_row_is_lost_or_twice(
    postgres: PostgresServer,
) -> None:
    with registered(sink_to(postgres), identity(1)) as writer:
        for number in range(5):
            postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'clonos'")
            assert writer.write(number, [(f"w{number}", number)]) == number + 1
    assert words_in(postgres) == [(f"w{number}", number) for number in range(5)]


def test_a_restarted_server_gets_what_was_not_written(postgres: PostgresServer) -> None:
    with registered(sink_to(postgres), identity(1)) as writer:
        writer.write(0, [("a", 1)])
        postgres.kill()
        with pytest.raises(SystemUnreachable):
            writer.write(1, [("b", 2)])
        postgres.start()
        assert writer.write(1, [("b", 2)]) == 2
    assert words_in(postgres) == [("a", 1), ("b", 2)]


def failing_commits(server: PostgresServer, faults: list[str]) -> Any:
    """A function that connects; each commit takes the next fault: lost "before" or "after" the server has it."""

    class Unreliable(psycopg.Connection[Any]):
        def commit(self) -> None:
            fault = faults.pop(0) if faults else ""
            if fault != "before":
                super().commit()
            if fault:
                self.pgconn.finish()
                raise psycopg.OperationalError("the connection is lost")

    return lambda: Unreliable.connect(server.full_url)


@pytest.mark.parametrize("upsert", [None, "word"])
@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_commit_whose_outcome_is_unknown_is_repeated_by_number(
    postgres: PostgresServer, fault: str, upsert: str | None
) -> None:
    sink = sink_to(postgres, upsert=upsert)
    faults: list[str] = []
    sink.connect = failing_commits(postgres, faults)
    with registered(sink, identity(1)) as early:
        for number in range(4):
            faults.extend([fault, fault])
            assert early.write(number, [(f"w{number}", number)]) == number + 1
            assert not faults
    assert postgres.run("SELECT word, seen FROM words ORDER BY seen") == [(f"w{n}", n) for n in range(4)]
    faults.extend(["", fault] if upsert is None else ["", "", fault])
    with registered(sink, identity(2, generation=2), 2):
        assert not faults
    assert postgres.run("SELECT word, seen FROM words ORDER BY seen") == [("w0", 0), ("w1", 1)]


def test_a_full_disk_is_an_error_of_the_environment_and_the_rows_come_when_there_is_space(
    postgres: PostgresServer,
) -> None:
    with registered(sink_to(postgres), identity(1)) as writer:
        writer.write(0, [("a", 1)])
        postgres.run(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$"
        )
        postgres.run("CREATE TRIGGER full_disk BEFORE INSERT ON words EXECUTE FUNCTION full_disk()")
        with pytest.raises(TableUnavailable, match="No space left on device"):
            writer.write(1, [("b", 2)])
        postgres.run("DROP FUNCTION full_disk CASCADE")
        assert writer.write(1, [("b", 2)]) == 2
    assert words_in(postgres) == [("a", 1), ("b", 2)]


def test_a_server_that_stands_still_delays_a_write_and_loses_nothing(postgres: PostgresServer) -> None:
    with registered(sink_to(postgres), identity(1)) as writer, ThreadPoolExecutor(1, "writer") as thread:
        writer.write(0, [("a", 1)])
        postgres.pause()
        written = thread.submit(writer.write, 1, [("b", 2)])
        postgres.unpause()
        assert written.result(timeout=scaled(30)) == 2
    assert words_in(postgres) == [("a", 1), ("b", 2)]


def test_a_lock_that_others_hold_is_named_and_loses_nothing(postgres: PostgresServer) -> None:
    sink = pg.table(f"{postgres.full_url}?options=-c%20lock_timeout%3D50", "words", COLUMNS)
    with registered(sink, identity(1)) as writer:
        writer.write(0, [("a", 1)])
        with postgres.connect() as holder, holder.transaction():
            holder.execute("LOCK TABLE words IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(TableUnavailable, match="canceling statement due to lock timeout"):
                writer.write(1, [("b", 2)])
        assert writer.write(1, [("b", 2)]) == 2
    assert words_in(postgres) == [("a", 1), ("b", 2)]
    connection = sink_to(postgres).connect()
    found = connection.execute("SHOW lock_timeout").fetchone()
    connection.close()
    assert found == ("30s",)


def test_a_session_ends_when_its_machine_has_vanished_in_a_transaction(postgres: PostgresServer) -> None:
    connection = sink_to(postgres).connect()
    found = connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()
    connection.close()
    assert found == ("1min",)


def test_a_job_whose_database_refuses_it_does_not_start(postgres: PostgresServer, tmp_path: Path) -> None:
    job = Job("refused", slots="process", store=tmp_path / "store")
    job.source(values([("a", 1)])).sink(pg.table(f"postgresql://{USER}:{WRONG}@{postgres.place}", "words", COLUMNS))
    with pytest.raises(SystemRefused, match="password authentication failed"):
        job.run()
    assert not (tmp_path / "store").exists()
