"""The guarantees of all sinks, under kills, rollbacks, resumes, kills of the server and network faults.

`make connectors` runs it: it takes minutes, so that CI does without.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable
from pyiceberg.exceptions import NoSuchTableError

from clonos import dbapi, delta, files, iceberg, kafka, mqtt, nats, rabbitmq, redis, sqlite, web
from clonos import postgres as pg
from clonos.io.http.http_client import close_shared_client
from clonos.testing import NetworkLink, check_sink
from tests.connectors.guarantees.conftest import REPEATING, numbered, server_outages
from tests.connectors.guarantees.places import WORLDS, mqtt_url, nats_url, postgres_url, rabbit_url, redis_url, s3_url
from tests.connectors.kafka.producing import committed
from tests.connectors.mqtt.topics import Observer, observed
from tests.connectors.nats.streams import add_stream, found
from tests.connectors.object_stores.objects import contents
from tests.connectors.rabbitmq.messages import declare, taken
from tests.connectors.redis.streams import add_stream as add_entries
from tests.connectors.redis.streams import found as entries
from tests.connectors.servers.kafka import KafkaServer
from tests.connectors.servers.mosquitto import MosquittoServer
from tests.connectors.servers.nats import NatsServer
from tests.connectors.servers.postgres import PostgresServer
from tests.connectors.servers.rabbitmq import RabbitServer
from tests.connectors.servers.redis import RedisProcess
from tests.harnesses.iceberg_tables import catalog_in, threads_ended
from tests.harnesses.iceberg_tables import found as found_in_table
from tests.harnesses.s3_server import S3Server
from tests.unit.connectors.web.receiving_server import Receiver, receiver

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "arrow"])
def test_files_have_each_row_once(places: Path, expect: Any, kind: str) -> None:
    def read(place: str) -> list[Any]:
        return [{"n": row["n"], "draw": int(row["draw"])} for row in files.read_committed(places / place)]

    make = getattr(files, kind)
    expect(f"`files.{kind}`, written", check_sink(lambda place: make(places / place), read, worlds=WORLDS))


def test_files_of_lines_have_each_row_once(places: Path, expect: Any) -> None:
    def read(place: str) -> list[Any]:
        return [json.loads(line) for line in files.read_committed(places / place)]

    def make(place: str) -> Any:
        return files.lines(places / place)

    expect("`files.lines`, written", check_sink(make, read, row=json.dumps, worlds=WORLDS))


def test_compressed_files_of_limited_size_have_each_row_once(places: Path, expect: Any) -> None:
    def read(place: str) -> list[Any]:
        return list(files.read_committed(places / place))

    def make(place: str) -> Any:
        return files.jsonl(places / place, compression="zstd", part_rows=10)

    expect("`files.jsonl`, compressed, by `part_rows`", check_sink(make, read, worlds=WORLDS))


def test_a_file_for_each_row_is_there_once(places: Path, expect: Any) -> None:
    def read(place: str) -> list[Any]:
        return [json.loads(path.read_bytes()) for path in (places / place).glob("*/*.json")]

    def row(row: dict[str, int]) -> tuple[str, bytes]:
        return f"{row['n'] % 3}/{row['n']}.json", json.dumps(row).encode()

    expect("`files.whole`", check_sink(lambda place: files.whole(places / place), read, row=row, worlds=WORLDS))


def test_files_of_avro_have_each_row_once(places: Path, expect: Any) -> None:
    fields = [{"name": name, "type": "long"} for name in ("n", "draw")]

    def read(place: str) -> list[Any]:
        return list(files.read_committed(places / place))

    def make(place: str) -> Any:
        return files.avro(places / place, schema={"type": "record", "name": "Row", "fields": fields})

    expect("`files.avro`, written", check_sink(make, read, worlds=WORLDS))


def test_partitioned_files_have_each_row_once(places: Path, expect: Any) -> None:
    def read(place: str) -> list[Any]:
        return [{"n": row["n"], "draw": int(row["draw"])} for row in files.read_committed(places / place)]

    def make(place: str) -> Any:
        return files.parquet(places / place, partition_by="draw")

    expect("`files.parquet`, by `partition_by`", check_sink(make, read, worlds=WORLDS))


@pytest.mark.keeps_sockets
@pytest.mark.parametrize("partition_by", [None, "draw"])
def test_a_delta_table_has_each_row_once(places: Path, expect: Any, partition_by: str | None) -> None:
    schema = pyarrow.schema([(name, pyarrow.int64()) for name in ("n", "draw")])

    def make(place: str) -> Any:
        return delta.table(places / place, schema=schema, partition_by=partition_by)

    def read(place: str) -> list[Any]:
        return DeltaTable(places / place).to_pyarrow_table().to_pylist() if (places / place).exists() else []

    expect(f"`delta.table`{', by `partition_by`' if partition_by else ''}", check_sink(make, read, worlds=WORLDS))


@pytest.mark.parametrize("partition_by", [None, "draw"])
def test_an_iceberg_table_has_each_row_once(places: Path, expect: Any, partition_by: str | None) -> None:
    schema = pyarrow.schema([(name, pyarrow.int64()) for name in ("n", "draw")])
    catalog = catalog_in(places)

    def make(place: str) -> Any:
        return iceberg.table(f"shop.{place}", catalog=catalog, schema=schema, partition_by=partition_by)

    def read(place: str) -> list[Any]:
        try:
            return found_in_table(catalog, f"shop.{place}")
        except NoSuchTableError:
            return []

    with threads_ended():
        report = check_sink(make, read, worlds=WORLDS)
    expect(f"`iceberg.table`{', by `partition_by`' if partition_by else ''}", report)


@pytest.mark.parametrize("key", [None, "n"], ids=["append", "upsert"])
def test_a_table_of_sqlite_has_each_row_once(places: Path, expect: Any, key: str | None) -> None:
    def read(place: str) -> list[tuple[int, int]]:
        with closing(sqlite3.connect(places / f"{place}.db")) as database:
            return database.execute("SELECT n, draw FROM rows").fetchall()

    def make(place: str) -> Any:
        return sqlite(places / f"{place}.db", "rows", {"n": "INTEGER", "draw": "INTEGER"}, upsert=key)

    expect(f"`sqlite`{', by key' if key else ''}", check_sink(make, read, worlds=()))


def test_a_table_of_a_driver_for_python_has_each_row_once(places: Path, expect: Any) -> None:
    def connect(place: str) -> sqlite3.Connection:
        return sqlite3.connect(places / f"{place}.db", timeout=20)

    def read(place: str) -> list[tuple[int, int]]:
        with closing(connect(place)) as database:
            return database.execute("SELECT n, draw FROM rows").fetchall()

    def make(place: str) -> Any:
        with closing(connect(place)) as database:
            database.execute(
                "CREATE TABLE rows (n INTEGER, draw INTEGER, clonos_task VARCHAR(255), clonos_number BIGINT,"
                " UNIQUE (clonos_task, clonos_number))"
            )
        return dbapi(partial(connect, place), "rows", columns={"n": "INTEGER", "draw": "INTEGER"})

    expect("`dbapi`", check_sink(make, read, worlds=()))


@pytest.mark.parametrize("mode", ["immediate", "transactional"])
def test_a_topic_has_each_row_once(broker: KafkaServer, kafka_link: NetworkLink, expect: Any, mode: Any) -> None:
    def make(place: str) -> Any:
        topic = broker.create_topic(f"{mode}-{place}", 2)
        return kafka.sink(topic, servers=kafka_link.address, mode=mode)

    def read(place: str) -> list[Any]:
        return [json.loads(message.value()) for message in committed(broker, f"{mode}-{place}")]

    outages = kafka_link.outages() | server_outages(broker)
    report = check_sink(make, read, outages=outages, worlds=())
    if mode == "immediate":
        numbered(report)
    expect(f"`kafka.sink`, {mode}", report, REPEATING if mode == "immediate" else {})


@pytest.mark.parametrize("key", [None, "n"], ids=["append", "upsert"])
def test_a_table_of_postgres_has_each_row_once(
    postgres: PostgresServer, postgres_link: NetworkLink, expect: Any, key: str | None
) -> None:
    def table_of(place: str) -> str:
        return f"t_{place.replace('-', '_')}"

    def make(place: str) -> Any:
        return pg.table(postgres_url(postgres_link), table_of(place), {"n": "bigint", "draw": "bigint"}, upsert=key)

    def read(place: str) -> list[tuple[int, int]]:
        return [(int(n), int(draw)) for n, draw in postgres.psql(f"SELECT n, draw FROM {table_of(place)}")]

    outages = postgres_link.outages() | server_outages(postgres)
    expect(f"`postgres.table`{', by key' if key else ''}", check_sink(make, read, outages=outages, worlds=()))


def test_an_exchange_has_each_row_once_by_its_id(rabbit: RabbitServer, rabbit_link: NetworkLink, expect: Any) -> None:
    def make(place: str) -> Any:
        return rabbitmq.exchange("", url=rabbit_url(rabbit_link), routing_key=declare(rabbit, f"out-{place}"))

    def read(place: str) -> list[Any]:
        by_id = {properties.message_id: json.loads(body) for properties, body in taken(rabbit, f"out-{place}")}
        return list(by_id.values())

    outages = rabbit_link.outages() | server_outages(rabbit)
    report = check_sink(make, read, outages=outages, worlds=())
    numbered(report)
    expect("`rabbitmq.exchange`, by id", report, REPEATING)


def test_a_subject_has_each_row_once(nats_server: NatsServer, nats_link: NetworkLink, expect: Any) -> None:
    def make(place: str) -> Any:
        add_stream(nats_server, f"out-{place}")
        return nats.sink(f"out-{place}", url=nats_url(nats_link))

    def read(place: str) -> list[Any]:
        return [json.loads(body) for _, _, body in found(nats_server, f"out-{place}")]

    outages = nats_link.outages() | server_outages(nats_server)
    report = check_sink(make, read, outages=outages, worlds=())
    numbered(report)
    expect("`nats.sink`", report, REPEATING)


def test_entries_have_each_row_once(redis_server: RedisProcess, redis_link: NetworkLink, expect: Any) -> None:
    def make(place: str) -> Any:
        return redis.sink(add_entries(redis_server, f"out-{place}"), url=redis_url(redis_link))

    def read(place: str) -> list[Any]:
        return [json.loads(fields[b"data"]) for _, fields in entries(redis_server, f"out-{place}")]

    outages = redis_link.outages() | server_outages(redis_server)
    report = check_sink(make, read, outages=outages, worlds=())
    numbered(report)
    expect("`redis.sink`", report, REPEATING)


def test_a_topic_of_mqtt_has_each_row_once_by_its_id(
    mosquitto: MosquittoServer, mqtt_link: NetworkLink, expect: Any
) -> None:
    """Without kills of the broker, which loses what its subscribers have not received."""
    observers: dict[str, Observer] = {}
    with ExitStack() as stack:

        def make(place: str) -> Any:
            observers[place] = stack.enter_context(observed(mosquitto, f"out-{place}"))
            return mqtt.sink(f"out-{place}", url=mqtt_url(mqtt_link))

        def read(place: str) -> list[Any]:
            return [json.loads(payload) for payload in dict(observers[place].messages).values()]

        report = check_sink(make, read, outages=mqtt_link.outages(), worlds=())
    numbered(report)
    expect("`mqtt.sink`, by id", report, REPEATING)


def test_objects_have_each_row_once(s3: S3Server, s3_link: NetworkLink, expect: Any) -> None:
    def make(place: str) -> Any:
        return files.jsonl(s3_url(s3_link, f"out/{place}"))

    def read(place: str) -> list[Any]:
        return [json.loads(line) for part in contents(s3, f"out/{place}").values() for line in part.splitlines()]

    expect("`files.jsonl`, written as objects", check_sink(make, read, outages=s3_link.outages(), worlds=()))


@pytest.fixture
def http_server() -> Iterator[Receiver]:
    with receiver() as running:
        yield running
    close_shared_client()


def test_a_server_has_each_row_once_by_its_key(http_server: Receiver, expect: Any) -> None:
    upstream = http_server.url.split("/")[2]
    with NetworkLink(upstream) as link:

        def make(place: str) -> Any:
            return web.post(f"http://{link.address}/rows", headers={"X-Place": place})

        def read(place: str) -> list[Any]:
            accepted = [one for one in http_server.accepted if one.headers["x-place"] == place]
            return list({one.key: one.value for one in accepted}.values())

        report = check_sink(make, read, outages=link.outages(), worlds=())
    numbered(report)
    expect("`web.post`, by key", report, REPEATING)
