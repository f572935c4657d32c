"""``postgres.changes`` on a real server: marks, lost connections, acknowledgement after checkpoints, errors."""

from __future__ import annotations

import datetime
import decimal
from contextlib import closing
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest

from clonos.connectors import collect
from clonos.connectors import postgres as pg
from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed
from clonos.connectors.kit.external_system import SystemRefused
from clonos.connectors.postgres import Change, ChangesLost
from clonos.connectors.postgres.change_stream import ChangePosition, ChangeStream
from clonos.connectors.postgres.changes import ChangesReader, PostgresChanges
from clonos.connectors.postgres.postgres_address import PostgresAddress
from clonos.job import Job
from tests.connectors.servers.postgres import PASSWORD, PostgresServer
from tests.speed import scaled

pytestmark = pytest.mark.connectors

WAIT_S = scaled(20.0)


@pytest.fixture
def orders(replicated: PostgresServer) -> PostgresServer:
    """A server with a table to follow."""
    replicated.run("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    return replicated


def followed(server: PostgresServer, **options: Any) -> tuple[PostgresChanges, bytes]:
    """A source, and its only split."""
    source = pg.changes(server.full_url, "orders", slot="orders_slot", **options)
    (split,) = source.splits(4)
    return source, split


def take(reader: ChangesReader, count: int, step: int = 100) -> list[Change]:
    """Reads until that many changes have come."""
    found: list[Change] = []
    while len(found) < count:
        changes = reader.read(min(step, count - len(found)), WAIT_S)
        assert changes, f"{len(found)} of {count} changes have come"
        found += changes
    return found


def brief(changes: list[Change]) -> list[tuple[Any, ...]]:
    return [(each.kind, each.row, each.old) for each in changes]


def insert(server: PostgresServer, first: int, count: int = 1) -> None:
    server.run(f"INSERT INTO orders SELECT n, 'item ' || n FROM generate_series({first}, {first + count - 1}) n")


def ids(changes: list[Change]) -> list[int]:
    return [each.row["id"] for each in changes if each.row is not None]


def confirmed(server: PostgresServer) -> int:
    return int(server.run("SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots")[0][0])


def test_each_kind_of_change_comes_with_its_transaction(orders: PostgresServer) -> None:
    insert(orders, 1)  # before the slot existed
    source, split = followed(orders)
    with orders.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO orders VALUES (2, NULL)")
        connection.execute("UPDATE orders SET item = 'new' WHERE id = 2")
        connection.execute("UPDATE orders SET id = 3 WHERE id = 2")
        connection.execute("DELETE FROM orders WHERE id = 3")
    orders.run("TRUNCATE orders")
    with closing(cloudpickle.loads(cloudpickle.dumps(source)).reader()) as reader:
        reader.open(split, None)
        found = take(reader, 5)
    assert brief(found) == [
        ("insert", {"id": 2, "item": None}, None),
        ("update", {"id": 2, "item": "new"}, None),
        ("update", {"id": 3, "item": "new"}, {"id": 2}),
        ("delete", None, {"id": 3}),
        ("truncate", None, None),
    ]
    assert {each.table for each in found} == {"public.orders"}
    assert len({(each.lsn, each.xid, each.committed) for each in found}) == 2
    assert found[0].lsn < found[-1].lsn
    assert abs(found[0].committed - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(minutes=5)


def test_values_have_the_types_of_their_columns(orders: PostgresServer) -> None:
    orders.run("DROP TABLE orders")
    orders.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, price numeric, at timestamptz, doc jsonb, tags int[],"
        " address inet, big text)"
    )
    orders.run("ALTER TABLE orders ALTER COLUMN big SET STORAGE EXTERNAL")
    source, split = followed(orders)
    orders.run(
        "INSERT INTO orders VALUES (1, 1.50, '2026-01-02 03:04:05+02', '{\"a\": 1}', '{1,NULL}', '10.0.0.1',"
        " repeat('x', 5000))"
    )
    orders.run("UPDATE orders SET price = 2")
    with closing(source.reader()) as reader:
        reader.open(split, None)
        first, second = take(reader, 2)
    row = {
        "id": 1,
        "price": decimal.Decimal("1.50"),
        "at": datetime.datetime(2026, 1, 2, 1, 4, 5, tzinfo=datetime.UTC),
        "doc": {"a": 1},
        "tags": [1, None],
        "address": "10.0.0.1",
    }
    assert first.row == row | {"big": "x" * 5000}
    assert second.row == row | {"price": decimal.Decimal(2)}  # its large value was left alone


def test_a_reader_has_the_bytes_of_the_log_that_wait_after_what_it_has_read(orders: PostgresServer) -> None:
    source, split = followed(orders)
    for first in (0, 1_000, 2_000):
        insert(orders, first, 1_000)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        assert reader.pending() is None
        take(reader, 1)
        before = reader.pending()
        take(reader, 2_999, step=1_000)
        mark = reader.mark()
    insert(orders, 3_000)
    with closing(source.reader()) as reader:
        reader.open(split, mark)
        take(reader, 1)
        after = reader.pending()
    assert before is not None
    assert after is not None
    assert (before.records, before.read_bytes, after.records) == (None, 0, None)
    assert before.bytes is not None
    assert after.bytes is not None
    assert before.bytes > 3_000 * 30
    assert after.bytes < before.bytes // 10
    assert after.read_bytes > before.bytes // 2


@pytest.mark.parametrize("step", [1, 3])
def test_a_slot_opened_at_any_mark_gives_the_same_rest(orders: PostgresServer, step: int) -> None:
    source, split = followed(orders)
    for first in (0, 10, 20):
        insert(orders, first, 7)
    marks: list[bytes] = []
    with closing(source.reader()) as reader:
        reader.open(split, None)
        everything: list[Change] = []
        while len(everything) < 21:
            marks.append(reader.mark())
            everything += take(reader, step)
    for number, mark in enumerate(marks[::3]):
        with closing(source.reader()) as reader:
            reader.open(split, mark)
            assert take(reader, 21 - 3 * step * number) == everything[3 * step * number :]


def test_a_reader_finds_at_once_what_was_committed_before_it_was_opened(orders: PostgresServer) -> None:
    source, split = followed(orders)
    for number in range(20):
        insert(orders, 10 * number, 10)
        found: list[Change] = []
        with closing(source.reader()) as reader:
            reader.open(split, None)
            while changes := reader.read(64):  # [] would mean to a replay that the server has lost the rest
                found += changes
            assert reader.read(1) == []
        assert ids(found) == list(range(10 * number + 10))


def test_a_reader_does_not_wait_for_an_end_of_the_log_that_no_record_reaches(orders: PostgresServer) -> None:
    _, split = followed(orders)
    begin = msgspec.msgpack.decode(split)[3]
    server, beyond = PostgresAddress("test", orders.full_url, None), begin + (1 << 30)
    insert(orders, 1)
    with closing(ChangeStream(server, "orders_slot", "orders_slot", ChangePosition(begin, 0), beyond)) as stream:
        assert ids(stream.take(10)) == [1]
        assert stream.take(10) == []


def test_a_lost_connection_and_a_restarted_server_lose_and_repeat_nothing(orders: PostgresServer) -> None:
    source, split = followed(orders)
    found: list[Change] = []
    with closing(source.reader()) as reader:
        reader.open(split, None)
        for number in range(6):
            insert(orders, 10 * number, 10)
            found += take(reader, 4)
            if number % 3 == 1:
                orders.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
            if number == 3:
                orders.kill()
                orders.start()
        found += take(reader, 60 - len(found))
    assert ids(found) == list(range(60))


def test_a_successor_ends_the_connection_of_a_reader_that_was_believed_dead(orders: PostgresServer) -> None:
    source, split = followed(orders)
    with closing(source.reader()) as early, closing(source.reader()) as late:
        early.open(split, None)
        early.read(1)
        late.open(split, None)
        insert(orders, 1)
        assert ids(take(late, 1)) == [1]


def test_the_server_drops_what_is_acknowledged_and_no_more(orders: PostgresServer) -> None:
    source, split = followed(orders)
    began = confirmed(orders)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        insert(orders, 0, 5)
        found = take(reader, 5)
        reader.read(1)
        mark = reader.mark()
        assert confirmed(orders) == began
        source.acknowledge(split, mark)
        reader.read(1)
        with orders.connect() as connection:
            while (
                connection.execute("SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots").fetchone()[0]
                == began
            ):
                connection.execute("SELECT pg_sleep(0.01)")
        assert confirmed(orders) <= msgspec.msgpack.decode(mark)[0]
    with closing(source.reader()) as reader:
        reader.open(split, mark)
        insert(orders, 5)
        assert ids(take(reader, 1)) == [5]
    assert ids(found) == list(range(5))
    with closing(source.reader()) as reader:
        reader.open(split, None)
        with pytest.raises(ChangesLost, match="the replication slot orders_slot is ahead of it"):
            reader.read(1)


def test_a_slot_that_was_dropped_is_named(orders: PostgresServer) -> None:
    source, split = followed(orders)
    orders.run("SELECT pg_drop_replication_slot('orders_slot')")
    with closing(source.reader()) as reader:
        reader.open(split, None)
        with pytest.raises(ChangesLost, match="orders_slot does not exist any more"):
            reader.read(1)


def test_a_refusal_of_the_server_at_the_start_is_named(orders: PostgresServer) -> None:
    with pytest.raises(SystemRefused, match=r"there is no publication missing.*CREATE PUBLICATION missing"):
        pg.changes(orders.full_url, publication="missing", slot="s").splits(1)
    with pytest.raises(SystemRefused, match='relation "missing" does not exist'):
        pg.changes(orders.full_url, "missing", slot="s").splits(1)
    orders.run("SELECT pg_create_logical_replication_slot('other', 'test_decoding')")
    with pytest.raises(SystemRefused, match="the slot other exists, for another plugin"):
        pg.changes(orders.full_url, "orders", slot="other").splits(1)
    orders.run("CREATE ROLE plain LOGIN PASSWORD 'unused-by-others'")
    orders.run("CREATE PUBLICATION of_orders FOR TABLE orders")
    with pytest.raises(SystemRefused, match=r"permission denied.*REPLICATION|must be superuser or replication role"):
        pg.changes(f"postgresql://plain:unused-by-others@{orders.place}", publication="of_orders", slot="s").splits(1)
    orders.run("DROP ROLE plain")


@pytest.mark.parametrize("tables", [["items"], ["orders", "items"], ["orders"]])
def test_a_publication_of_other_tables_is_refused_at_the_start(orders: PostgresServer, tables: list[str]) -> None:
    orders.run("CREATE TABLE items (id int PRIMARY KEY)")
    orders.run("CREATE PUBLICATION orders_slot FOR TABLE " + ("orders" if len(tables) > 1 else "orders, items"))
    with pytest.raises(SystemRefused, match=r"orders_slot exists, but not for .* alone.*ALTER PUBLICATION") as refused:
        pg.changes(orders.full_url, tables, slot="orders_slot").splits(1)
    advice = str(refused.value)
    orders.run(advice[advice.index("ALTER") : advice.index(", or choose another slot=")])
    assert len(pg.changes(orders.full_url, [f"public.{each}" for each in tables], slot="orders_slot").splits(1)) == 1


def test_options_and_stored_bytes_that_cannot_work_are_refused() -> None:
    url = f"postgresql://ann:{PASSWORD}@h/d"
    for options in ({"slot": "Upper"}, {"slot": "s", "table": None}, {"slot": "s", "publication": "p"}):
        with pytest.raises(InvalidConnector, match=r"postgres\.changes"):
            pg.changes(**{"dsn": url, "table": "orders"} | options)
    source = pg.changes(url, "orders", slot="s")
    for data in (b"", b"\xc1", msgspec.msgpack.encode([1, "s"])):
        with pytest.raises(SplitMalformed):
            source.check_split(data)
    with pytest.raises(InvalidConnector, match="started with slot='other'"):
        source.check_split(msgspec.msgpack.encode([1, "other", "s", 0, 1]))
    with pytest.raises(SplitMalformed):
        source.reader().open(msgspec.msgpack.encode([1, "s", "s", 0, 1]), b"\xff")
    assert PASSWORD not in repr(source)


def test_a_job_follows_a_table_resumes_and_lets_the_server_drop_its_log(orders: PostgresServer, tmp_path: Path) -> None:
    def run(limit: int, resume: bool) -> list[int]:
        output: Any = collect()
        job = Job("follow", slots="process", checkpoint_every="100ms", store=tmp_path / "store")
        source = pg.changes(orders.full_url, "orders", slot="orders_slot")
        rows = job.source(source, name="orders").map(lambda change: change.row["id"] if change.row else 0)
        rows.sink(output)
        with job.start(resume=resume) as handle, orders.connect() as connection:
            insert(orders, len(seen), limit)
            written = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots"
            (end,) = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
            while not connection.execute(written, [end]).fetchone()[0] or len(output.rows) < limit:
                connection.execute("SELECT pg_sleep(0.05)")
            handle.stop(drain=True)
            handle.wait(WAIT_S)
        return list(output.rows)

    seen: list[int] = []
    seen += run(20, resume=False)
    seen += run(20, resume=True)
    assert seen == list(range(40))


def test_a_slot_of_another_server_of_the_same_name_is_an_error(orders: PostgresServer) -> None:
    source, split = followed(orders)
    fields = msgspec.msgpack.decode(split)
    with closing(source.reader()) as reader:
        reader.open(msgspec.msgpack.encode([*fields[:-1], fields[-1] + 1]), None)
        with pytest.raises(ChangesLost, match="is that of another server of this name"):
            reader.read(1, 0.0)
