"""The guarantees of all connectors, under kills, rollbacks, resumes, kills of the server and network faults.

`make connectors` runs it: it takes minutes, so that CI does without.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow
import pytest
from deltalake import DeltaTable

from clonos import codecs, delta, files, kafka, nats, rabbitmq, sqlite, web
from clonos import postgres as pg
from clonos.io.http.http_client import close_shared_client
from clonos.testing import NetworkLink, check_sink, check_source
from tests.connectors.guarantees.conftest import FORGETTING, REPEATING, server_outages
from tests.connectors.kafka.producing import committed, produce
from tests.connectors.nats.streams import add_stream, found
from tests.connectors.nats.streams import publish as publish_to_stream
from tests.connectors.object_stores.objects import contents, put
from tests.connectors.rabbitmq.messages import declare, publish, taken
from tests.connectors.servers.kafka import KafkaServer
from tests.connectors.servers.nats import PASSWORD as NATS_PASSWORD
from tests.connectors.servers.nats import USER as NATS_USER
from tests.connectors.servers.nats import NatsServer
from tests.connectors.servers.postgres import DATABASE, PASSWORD, USER, PostgresServer
from tests.connectors.servers.rabbitmq import PASSWORD as RABBIT_PASSWORD
from tests.connectors.servers.rabbitmq import USER as RABBIT_USER
from tests.connectors.servers.rabbitmq import RabbitServer
from tests.harnesses.s3_server import S3Server
from tests.unit.connectors.web.feed_server import Feeds, after
from tests.unit.connectors.web.polled_server import RestartedPages
from tests.unit.connectors.web.receiving_server import Receiver, receiver
from tests.unit.connectors.web.sending import PATH, deliver, free_port

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(1200)]

WORLDS = range(20)


def postgres_url(link: NetworkLink) -> str:
    return f"postgresql://{USER}:{PASSWORD}@{link.address}/{DATABASE}"


def nats_url(link: NetworkLink) -> str:
    return f"nats://{NATS_USER}:{NATS_PASSWORD}@{link.address}"


def s3_url(link: NetworkLink, key: str) -> str:
    return f"s3://bucket/{key}?endpoint=http://{link.address}"


def rabbit_url(link: NetworkLink) -> str:
    return f"amqp://{RABBIT_USER}:{RABBIT_PASSWORD}@{link.address}/%2F"


# ---------------------------------------------------------------------- sinks


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_files_have_each_row_once(places: Path, expect: Any, kind: str) -> None:
    def read(place: str) -> list[Any]:
        return list(files.read_committed(places / place))

    make = getattr(files, kind)
    expect(f"`files.{kind}`", check_sink(lambda place: make(places / place), read, worlds=WORLDS))


def test_compressed_files_of_limited_size_have_each_row_once(places: Path, expect: Any) -> None:
    def read(place: str) -> list[Any]:
        return list(files.read_committed(places / place))

    def make(place: str) -> Any:
        return files.jsonl(places / place, compression="zstd", part_rows=10)

    expect("`files.jsonl`, compressed, by `part_rows`", check_sink(make, read, worlds=WORLDS))


def test_files_of_avro_have_each_row_once(places: Path, expect: Any) -> None:
    fields = [{"name": name, "type": "long"} for name in ("n", "draw")]

    def read(place: str) -> list[Any]:
        return list(files.read_committed(places / place))

    def make(place: str) -> Any:
        return files.avro(places / place, schema={"type": "record", "name": "Row", "fields": fields})

    expect("`files.avro`", check_sink(make, read, worlds=WORLDS))


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


@pytest.mark.parametrize("key", [None, "n"], ids=["append", "upsert"])
def test_a_table_of_sqlite_has_each_row_once(places: Path, expect: Any, key: str | None) -> None:
    def read(place: str) -> list[tuple[int, int]]:
        with closing(sqlite3.connect(places / f"{place}.db")) as database:
            return database.execute("SELECT n, draw FROM rows").fetchall()

    def make(place: str) -> Any:
        return sqlite(places / f"{place}.db", "rows", {"n": "INTEGER", "draw": "INTEGER"}, upsert=key)

    expect(f"`sqlite`{', by key' if key else ''}", check_sink(make, read, worlds=()))


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
        for trial in REPEATING:
            assert report[trial].twice + report[trial].changed <= report[trial].announced, report
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
    expect("`rabbitmq.exchange`, by id", check_sink(make, read, outages=outages, worlds=()), REPEATING)


def test_a_subject_has_each_row_once(nats_server: NatsServer, nats_link: NetworkLink, expect: Any) -> None:
    def make(place: str) -> Any:
        add_stream(nats_server, f"out-{place}")
        return nats.sink(f"out-{place}", url=nats_url(nats_link))

    def read(place: str) -> list[Any]:
        return [json.loads(body) for _, _, body in found(nats_server, f"out-{place}")]

    outages = nats_link.outages() | server_outages(nats_server)
    expect("`nats.sink`", check_sink(make, read, outages=outages, worlds=()), FORGETTING)


def test_objects_have_each_row_once(s3: S3Server, s3_link: NetworkLink, expect: Any) -> None:
    def make(place: str) -> Any:
        return files.jsonl(s3_url(s3_link, f"out/{place}"))

    def read(place: str) -> list[Any]:
        return [json.loads(line) for part in contents(s3, f"out/{place}").values() for line in part.splitlines()]

    expect("`files.jsonl`, objects", check_sink(make, read, outages=s3_link.outages(), worlds=()))


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
    expect("`web.post`, by key", report, FORGETTING)


# ---------------------------------------------------------------------- sources


def test_lines_of_files_are_read_once(places: Path, expect: Any) -> None:
    def write(place: str, numbers: Sequence[int]) -> None:
        (places / place).mkdir(exist_ok=True)
        new = places / place / f"{numbers[0]}.new"
        new.write_text("".join(f"{number}\n" for number in numbers), "ascii")
        new.rename(new.with_suffix(".txt"))

    report = check_source(lambda place: files.lines(places / place / "*.txt", watch="100ms"), write, int)
    expect("`files.lines`", report)


def test_messages_of_a_topic_are_read_once(broker: KafkaServer, kafka_link: NetworkLink, expect: Any) -> None:
    def make(place: str) -> Any:
        topic = broker.create_topic(f"in-{place}", 2)
        return kafka.source(topic, servers=kafka_link.address, decode=int)

    def write(place: str, numbers: Sequence[int]) -> None:
        for partition in range(2):
            produce(broker, f"in-{place}", numbers[partition::2], partition)

    outages = kafka_link.outages() | server_outages(broker)
    expect("`kafka.source`", check_source(make, write, int, outages=outages))


def test_rows_of_a_query_are_read_once(postgres: PostgresServer, postgres_link: NetworkLink, expect: Any) -> None:
    def write(place: str, numbers: Sequence[int]) -> None:
        name = place.replace("-", "_")
        with postgres.connect() as connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS q_{name} (n bigint PRIMARY KEY)")
            connection.execute(f"INSERT INTO q_{name} SELECT generate_series({numbers[0]}, {numbers[-1]})")

    def make(place: str) -> Any:
        return pg.query(postgres_url(postgres_link), f"SELECT n FROM q_{place.replace('-', '_')}", key="n")

    outages = postgres_link.outages() | server_outages(postgres)
    report = check_source(make, write, lambda row: int(row["n"]), is_live=False, outages=outages)
    expect("`postgres.query`", report)


def test_changes_of_a_table_are_followed_once(
    replicated: PostgresServer, postgres_link: NetworkLink, expect: Any
) -> None:
    def make(place: str) -> Any:
        name = place.replace("-", "_")
        replicated.run(f"CREATE TABLE c_{name} (n bigint PRIMARY KEY)")
        return pg.changes(postgres_url(postgres_link), f"c_{name}", slot=f"slot_{name}")

    def write(place: str, numbers: Sequence[int]) -> None:
        replicated.run(f"INSERT INTO c_{place.replace('-', '_')} SELECT generate_series({numbers[0]}, {numbers[-1]})")

    def number(change: Any) -> int:
        return int(change.row["n"])

    outages = postgres_link.outages() | server_outages(replicated)
    report = check_source(make, write, number, outages=outages)
    expect("`postgres.changes`", report)


def test_messages_of_a_queue_count_once(rabbit: RabbitServer, rabbit_link: NetworkLink, expect: Any) -> None:
    def make(place: str) -> Any:
        name, url = declare(rabbit, f"in-{place}"), rabbit_url(rabbit_link)
        return rabbitmq.queue(name, url=url, decode=codecs.json(), acknowledge="checkpoint")

    def write(place: str, numbers: Sequence[int]) -> None:
        publish(rabbit, f"in-{place}", numbers, first=numbers[0])

    outages = rabbit_link.outages() | server_outages(rabbit)
    expect("`rabbitmq.queue`", check_source(make, write, int, outages=outages))


def test_messages_of_a_stream_are_read_once(nats_server: NatsServer, nats_link: NetworkLink, expect: Any) -> None:
    def make(place: str) -> Any:
        return nats.source(add_stream(nats_server, f"in-{place}"), url=nats_url(nats_link), decode=codecs.json())

    def write(place: str, numbers: Sequence[int]) -> None:
        publish_to_stream(nats_server, f"in-{place}", numbers)

    outages = nats_link.outages() | server_outages(nats_server)
    expect("`nats.source`", check_source(make, write, int, outages=outages))


def test_lines_of_objects_are_read_once(s3: S3Server, s3_link: NetworkLink, expect: Any) -> None:
    def write(place: str, numbers: Sequence[int]) -> None:
        put(s3, f"in/{place}/{numbers[0]}.txt", "".join(f"{number}\n" for number in numbers).encode())

    def make(place: str) -> Any:
        return files.lines(s3_url(s3_link, f"in/{place}/*.txt"), watch="100ms")

    expect("`files.lines`, objects", check_source(make, write, int, outages=s3_link.outages()))


def test_requests_that_were_answered_count_once(expect: Any) -> None:
    """Without the death of all processes: it loses answered requests since the checkpoint, which the documents say."""
    port = free_port()

    def make(_place: str) -> Any:
        return web.receive(port, PATH, decode=codecs.json())

    def write(_place: str, numbers: Sequence[int]) -> None:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(partial(deliver, port), numbers))

    expect("`web.receive`", check_source(make, write, int, trials=["kills"]))


def test_records_of_an_endpoint_count_once(expect: Any) -> None:
    with RestartedPages() as server, NetworkLink(server.address) as link:

        def make(place: str) -> Any:
            return web.poll(f"http://{link.address}/{place}", records="data.items", cursor="next", every="20ms")

        outages = link.outages() | {"server killed": server.restart}
        expect("`web.poll`", check_source(make, server.add, int, outages=outages))


def test_messages_of_a_websocket_count_once_if_the_server_continues_behind_a_cursor(expect: Any) -> None:
    with Feeds() as server, NetworkLink(server.address) as link:

        def make(place: str) -> Any:
            return web.websocket(f"ws://{link.address}/{place}", send=after, cursor="at")

        outages = link.outages() | {"server killed": server.restart, "connection cut": server.cut}
        report = check_source(make, server.number, lambda message: int(message["n"]), outages=outages)
        expect("`web.websocket`, behind a cursor", report)


def test_records_of_avro_are_read_once(places: Path, expect: Any) -> None:
    def write(place: str, numbers: Sequence[int]) -> None:
        (places / place).mkdir(exist_ok=True)
        new = places / place / f"{numbers[0]}.new"
        with new.open("wb") as file:
            schema = fastavro.parse_schema({"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]})
            fastavro.writer(file, schema, [{"n": number} for number in numbers], sync_interval=100)
        new.rename(new.with_suffix(".avro"))

    report = check_source(
        lambda place: files.avro(places / place / "*.avro", watch="100ms"), write, lambda record: int(record["n"])
    )
    expect("`files.avro`, as a source", report)
