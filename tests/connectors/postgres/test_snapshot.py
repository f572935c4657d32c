"""``postgres.changes(snapshot=True)`` on a real server: rows and then changes, copies, refusals."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import cloudpickle
import msgspec
import pytest

from clonos import values
from clonos.connectors import postgres as pg
from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed
from clonos.connectors.kit.external_system import SystemRefused
from clonos.connectors.kit.history import LateCut
from clonos.connectors.postgres import SnapshotLost
from clonos.connectors.postgres.changes import SnapshotThenChanges
from clonos.connectors.postgres.column_values import ValueUnreadable
from clonos.connectors.postgres.table_copies import OWN_SCHEMA
from clonos.operators.connector_contract import MalformedRecord
from tests.connectors.servers.postgres import PostgresServer
from tests.speed import scaled

pytestmark = pytest.mark.connectors

WAIT_S = scaled(20.0)
SLOT = "orders_slot"
TYPES = (
    "id bigint PRIMARY KEY, price numeric, weight float8, at timestamptz, day date, span interval, doc jsonb, tags"
    " text[], address inet, raw bytea, fits bool, code char(5), colour colour, positive positive, key uuid,"
    " twice bigint GENERATED ALWAYS AS (2 * id) STORED"
)
VALUES = (
    "({}, 1.50, 0.1, '2026-01-02 03:04:05+02', '2026-01-02', '1 day 2.5 s', '{{\"a\": 1}}', '{{x,NULL}}', '10.0.0.1',"
    " '\\xff00', true, 'ab', 'red', 7, '00000000-0000-0000-0000-000000000001')"
)


@pytest.fixture
def orders(replicated: PostgresServer) -> PostgresServer:
    """A server with a table of five rows."""
    replicated.run("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    replicated.run("INSERT INTO orders SELECT n, 'item ' || n FROM generate_series(1, 5) n")
    return replicated


def made(server: PostgresServer, table: Any = "orders", **options: Any) -> SnapshotThenChanges:
    """A source as a slot has it."""
    source: SnapshotThenChanges = cloudpickle.loads(
        cloudpickle.dumps(pg.changes(server.full_url, table, slot=SLOT, snapshot=True, **options))
    )
    return source


def rows(source: SnapshotThenChanges, split: bytes, mark: bytes | None = None, step: int = 100) -> list[Any]:
    """What is left of a copy."""
    found: list[Any] = []
    with closing(source.reader()) as reader:
        reader.open(split, mark)
        while (read := reader.read(step)) is not None:
            found += read
    return found


def followed(source: SnapshotThenChanges, split: bytes, count: int) -> list[Any]:
    """That many changes after the copies."""
    found: list[Any] = []
    with closing(source.sources[1].reader()) as reader:
        reader.open(msgspec.msgpack.decode(split)[1], None)
        while len(found) < count:
            found += (read := reader.read(count, WAIT_S))
            assert read, f"{len(found)} of {count} changes have come"
    return found


def views(server: PostgresServer) -> int:
    return int(server.run("SELECT count(*) FROM pg_matviews")[0][0])


def test_the_rows_of_all_tables_come_first_and_then_their_changes(orders: PostgresServer) -> None:
    orders.run("CREATE TABLE items (name text)")
    orders.run("INSERT INTO items VALUES ('tea'), (NULL)")
    orders.run("CREATE TABLE without (name text)")
    source = made(orders, ["orders", "items", "without"])
    items, copied, without, live = source.splits(4)
    assert [source.phase_of(each) for each in (items, copied, without, live)] == [0, 0, 0, 1]
    orders.run("INSERT INTO orders VALUES (6, 'new')")
    found = rows(source, copied)
    assert [(each.kind, each.table) for each in found] == [("read", "public.orders")] * 5
    assert sorted(each.row["id"] for each in found) == [1, 2, 3, 4, 5]
    assert [each.row for each in rows(source, items)] == [{"name": "tea"}, {"name": None}]
    assert rows(source, without) == []
    (change,) = followed(source, live, 1)
    assert (change.kind, change.row) == ("insert", {"id": 6, "item": "new"})
    assert found[0].lsn <= change.lsn
    assert found[0].committed < change.committed


def test_a_row_of_a_snapshot_has_the_values_that_its_insertion_has(orders: PostgresServer) -> None:
    orders.run("DROP TABLE orders")
    orders.run("CREATE TYPE colour AS ENUM ('red')")
    orders.run("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    orders.run(f"CREATE TABLE orders ({TYPES})")
    orders.run("INSERT INTO orders VALUES " + VALUES.format(1))
    source = made(orders)
    copied, live = source.splits(1)
    orders.run("INSERT INTO orders VALUES " + VALUES.format(2))
    (row,) = rows(source, copied)
    (inserted,) = followed(source, live, 1)
    assert row.row | {"id": 2} == inserted.row
    assert list(row.row) == list(inserted.row)
    assert [type(value) for value in row.row.values()] == [type(value) for value in inserted.row.values()]


def test_a_value_that_python_cannot_hold_is_an_error_of_its_row_or_a_text(orders: PostgresServer) -> None:
    orders.run("ALTER TABLE orders ADD until date")
    orders.run("UPDATE orders SET until = 'infinity' WHERE id = 3")
    source = made(orders)
    found = rows(source, source.splits(1)[0])
    (malformed,) = [each for each in found if isinstance(each, MalformedRecord)]
    assert isinstance(malformed.error, ValueUnreadable)
    assert "row id = 3" in str(malformed.error)
    assert malformed.record.row["until"] == "infinity"
    text = made(orders, as_text=["until"])
    assert {each.row["until"] for each in rows(text, text.splits(1)[0])} == {None, "infinity"}


@pytest.mark.parametrize("step", [1, 2, 100])
def test_a_copy_that_is_opened_at_any_mark_gives_the_same_rest_though_the_table_has_changed(
    orders: PostgresServer, step: int
) -> None:
    source = made(orders)
    split, _ = source.splits(1)
    everything = rows(source, split)
    orders.run("UPDATE orders SET item = 'other'")
    orders.run("DELETE FROM orders WHERE id < 4")
    with closing(source.reader()) as reader:
        reader.open(split, None)
        taken = 0
        while True:
            assert rows(source, split, reader.mark(), step) == everything[taken:]
            if (read := reader.read(step)) is None:
                break
            taken += len(read)


def test_rows_that_are_written_during_the_snapshot_are_neither_lost_nor_there_twice(orders: PostgresServer) -> None:
    source, stop = made(orders), threading.Event()
    last = 5

    def write() -> None:
        nonlocal last
        with orders.connect() as connection:
            while not stop.is_set():
                last += 1
                connection.execute("INSERT INTO orders VALUES (%s, 'concurrent')", [last])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        copied, live = source.splits(1)
    finally:
        stop.set()
        writer.join()
    found = [each.row["id"] for each in rows(source, copied)]
    found += [each.row["id"] for each in followed(source, live, last - len(found))]
    assert found == list(range(1, last + 1))


def test_publications_of_yours_limit_rows_and_columns_and_name_the_table_of_partitions(orders: PostgresServer) -> None:
    orders.run('CREATE TABLE "Parts" (id int, "%s" int, hidden int) PARTITION BY RANGE (id)')
    orders.run('CREATE TABLE low PARTITION OF "Parts" FOR VALUES FROM (0) TO (10)')
    orders.run('CREATE TABLE high PARTITION OF "Parts" FOR VALUES FROM (10) TO (20)')
    orders.run('INSERT INTO "Parts" SELECT n, n, n FROM generate_series(0, 19) n')
    for root, names in (("false", {"public.low", "public.high"}), ("true", {"public.Parts"})):
        # Only a publication of the root has columns and a filter for the root.
        of = '"Parts" (id, "%s") WHERE (id > 5)' if root == "true" else '"Parts"'
        orders.run(f"CREATE PUBLICATION by_root_{root} FOR TABLE {of} WITH (publish_via_partition_root = {root})")
        source = pg.changes(orders.full_url, publication=f"by_root_{root}", slot=SLOT, snapshot=True)
        found = [each for split in source.splits(1)[:-1] for each in rows(source, split)]
        assert {each.table for each in found} == names
        assert len(found) == (14 if root == "true" else 20)
        assert ("hidden" in found[0].row) is (root == "false")
        assert found[0].row["%s"] == found[0].row["id"]
        orders.run(f"SELECT pg_drop_replication_slot('{SLOT}')")


def test_the_copies_are_no_changes_of_a_publication_of_all_tables(orders: PostgresServer) -> None:
    orders.run("CREATE PUBLICATION everything FOR ALL TABLES")
    source = pg.changes(orders.full_url, publication="everything", slot=SLOT, snapshot=True)
    _, live = source.splits(1)
    orders.run("DELETE FROM orders WHERE id = 1")
    (change,) = followed(source, live, 1)
    assert (change.kind, change.table) == ("delete", "public.orders")


def test_a_start_finds_what_an_earlier_one_has_made_and_makes_again_what_it_has_left_half_made(
    orders: PostgresServer,
) -> None:
    first = made(orders).splits(1)
    orders.run("INSERT INTO orders VALUES (6, 'new')")
    assert made(orders).splits(1) == first  # the driver has died before it has stored them
    orders.run(f"COMMENT ON SCHEMA {SLOT} IS '{OWN_SCHEMA}'")  # as it is before all is copied
    source = made(orders)
    copied, _ = source.splits(1)
    assert len(rows(source, copied)) == 6
    assert views(orders) == 1
    with pytest.raises(SnapshotLost, match=r"rows of public\.orders are lost: .* does not exist any more.*--overwrite"):
        rows(source, first[0])
    orders.run(f"SELECT pg_drop_replication_slot('{SLOT}')")  # as the document says for a job that is gone
    assert made(orders).splits(1)[0] != copied
    orders.run(f"DROP SCHEMA {SLOT} CASCADE")
    with pytest.raises(SystemRefused, match=r"orders_slot exists already.*pg_drop_replication_slot\('orders_slot'\)"):
        made(orders).splits(1)


def test_copies_of_other_tables_or_columns_are_not_taken(orders: PostgresServer) -> None:
    made(orders).splits(1)
    orders.run("CREATE TABLE items (name text)")
    orders.run(f"ALTER PUBLICATION {SLOT} ADD TABLE items")
    with pytest.raises(SystemRefused, match=r"or it is of other tables.*--resume; .*pg_drop_replication_slot"):
        made(orders, ["orders", "items"]).splits(1)
    orders.run(f"ALTER PUBLICATION {SLOT} DROP TABLE items")
    assert len(made(orders).splits(1)) == 2


def test_the_copies_are_dropped_when_no_restart_reads_them_and_a_fresh_start_is_refused_then(
    orders: PostgresServer,
) -> None:
    source = made(orders)
    _, live = source.splits(1)
    with closing(source.sources[1].reader()) as reader:
        reader.open(msgspec.msgpack.decode(live)[1], None)
        orders.run("INSERT INTO orders VALUES (6, 'new')")
        while not reader.read(10, WAIT_S):
            pass
        assert views(orders) == 1
        source.acknowledge(live, reader.mark())
        reader.read(10)
        assert views(orders) == 0
    with pytest.raises(SystemRefused, match=r"a job has gone on from the snapshot of the slot orders_slot.*--resume"):
        made(orders).splits(1)  # it would give no row
    orders.run(f"SELECT pg_drop_replication_slot('{SLOT}')")
    assert len(made(orders).splits(1)) == 2


def test_names_that_are_not_the_jobs_and_rights_that_it_lacks_are_refused(orders: PostgresServer) -> None:
    orders.run(f"CREATE SCHEMA {SLOT}")
    with pytest.raises(SystemRefused, match="the schema orders_slot exists already, and was not made for a slot"):
        made(orders).splits(1)
    orders.run(f"DROP SCHEMA {SLOT}")
    orders.run("CREATE PUBLICATION of_orders FOR TABLE orders")
    orders.run("CREATE ROLE plain LOGIN REPLICATION PASSWORD 'unused-by-others'")
    try:
        url = f"postgresql://plain:unused-by-others@{orders.place}"
        source = pg.changes(url, publication="of_orders", slot=SLOT, snapshot=True)
        with pytest.raises(SystemRefused, match=r"permission denied for database.*CREATE on the database"):
            source.splits(1)
        orders.run("GRANT CREATE ON DATABASE postgres TO plain")
        orders.run("GRANT USAGE ON SCHEMA public TO plain")
        with pytest.raises(SystemRefused, match=r"permission denied for table orders.*SELECT on all rows"):
            source.splits(1)
        orders.run("GRANT SELECT ON orders TO plain")
        orders.run("ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
        with pytest.raises(SystemRefused, match=r"row-level security policy for table.*SELECT on all rows"):
            source.splits(1)
        assert orders.run("SELECT 1 FROM pg_replication_slots") == []  # the server keeps no log for what was refused
        assert orders.run("SELECT 1 FROM pg_namespace WHERE nspname = %s", SLOT) == []
    finally:
        orders.run("DROP OWNED BY plain")
        orders.run("DROP ROLE plain")


def test_a_snapshot_is_no_part_of_another_history_and_its_bytes_are_checked(orders: PostgresServer) -> None:
    source = made(orders)
    with pytest.raises(InvalidConnector, match="does not end"):
        source.then(source)
    with pytest.raises(LateCut, match="there is no replication slot"):
        values([1]).then(source).splits(1)
    with pytest.raises(SplitMalformed):
        source.check_split(msgspec.msgpack.encode([0, b"\xc1"]))
    split, _ = source.splits(1)
    with pytest.raises(SplitMalformed):
        rows(source, split, b"\xff")
    assert "snapshot=True" in repr(source)
