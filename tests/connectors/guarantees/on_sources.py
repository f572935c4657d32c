"""The guarantees of all sources, under kills, rollbacks, resumes, kills of the server and network faults.

`make connectors` runs it: it takes minutes, so that CI does without.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import fastavro
import pyarrow
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

from clonos import codecs, delta, files, iceberg, kafka, mqtt, nats, rabbitmq, redis, sockets, values, web
from clonos import postgres as pg
from clonos.testing import Evidence, Guarantees, NetworkLink, check_source
from tests.connectors.guarantees.conftest import server_outages
from tests.connectors.guarantees.places import (
    WORLDS,
    WRITERS,
    mqtt_url,
    nats_url,
    postgres_url,
    rabbit_url,
    redis_url,
    s3_url,
)
from tests.connectors.kafka.producing import produce
from tests.connectors.mqtt.topics import publish as publish_to_topic
from tests.connectors.nats.streams import add_stream
from tests.connectors.nats.streams import publish as publish_to_stream
from tests.connectors.object_stores.objects import put
from tests.connectors.rabbitmq.messages import declare, publish
from tests.connectors.redis.streams import add_stream as add_entries
from tests.connectors.redis.streams import publish as add_to_entries
from tests.connectors.servers.kafka import KafkaServer
from tests.connectors.servers.mosquitto import MosquittoServer
from tests.connectors.servers.nats import NatsServer
from tests.connectors.servers.postgres import PostgresServer
from tests.connectors.servers.rabbitmq import RabbitServer
from tests.connectors.servers.redis import RedisProcess
from tests.harnesses.iceberg_tables import catalog_in, threads_ended
from tests.harnesses.log_rotation import ROTATIONS, append
from tests.harnesses.s3_server import S3Server
from tests.processes.harness.line_server import LineServer
from tests.unit.connectors.web.feed_server import Feeds, after
from tests.unit.connectors.web.polled_server import RestartedPages
from tests.unit.connectors.web.sending import PATH, deliver, free_port

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(1200)]

HISTORY = 500
"""Records of a history. The check writes 400 before each of its two faults."""


def test_lines_of_files_are_read_once(places: Path, expect: Any) -> None:
    def write(place: str, numbers: Sequence[int]) -> None:
        (places / place).mkdir(exist_ok=True)
        new = places / place / f"{numbers[0]}.new"
        new.write_text("".join(f"{number}\n" for number in numbers), "ascii")
        new.rename(new.with_suffix(".txt"))

    report = check_source(lambda place: files.lines(places / place / "*.txt", watch="100ms"), write, int)
    expect("`files.lines`, read", report)


def test_lines_of_files_that_grow_are_read_once(places: Path, expect: Any) -> None:
    rotations = cycle(ROTATIONS.values())

    def write(place: str, numbers: Sequence[int]) -> None:
        (places / place).mkdir(exist_ok=True)
        log = places / place / "app.log"
        append(log, "".join(f"{number}\n" for number in numbers))
        next(rotations)(log)

    def make(place: str) -> Any:
        return files.tail(places / place / "*.log", watch="100ms", linger="100ms")

    expect("`files.tail`", check_source(make, write, int))


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "arrow"])
def test_rows_of_files_are_read_once(places: Path, expect: Any, kind: str) -> None:
    def make(place: str) -> Any:
        return getattr(files, kind)(places / place / "*.done", watch="100ms")

    def write(place: str, numbers: Sequence[int]) -> None:
        (places / place).mkdir(exist_ok=True)
        new = places / place / f"{numbers[0]}.new"
        WRITERS[kind](pyarrow.table({"n": list(numbers)}), str(new))
        new.rename(new.with_suffix(".done"))

    expect(f"`files.{kind}`, read", check_source(make, write, lambda row: int(row["n"])))


@pytest.mark.keeps_sockets
def test_rows_of_a_delta_table_are_read_once(places: Path, expect: Any) -> None:
    def write(place: str, numbers: Sequence[int]) -> None:
        write_deltalake(places / place, pyarrow.table({"n": list(numbers)}), mode="append")

    report = check_source(lambda place: delta.read(places / place), write, lambda row: int(row["n"]), is_live=False)
    expect("`delta.read`", report)


@pytest.mark.keeps_sockets
def test_changes_of_a_delta_table_are_read_once(places: Path, expect: Any) -> None:
    def make(place: str) -> Any:
        write_deltalake(places / place, pyarrow.schema({"n": pyarrow.int64()}).empty_table())
        return delta.changes(places / place, from_version=0, watch="100ms")

    def write(place: str, numbers: Sequence[int]) -> None:
        write_deltalake(places / place, pyarrow.table({"n": list(numbers)}), mode="append")

    expect("`delta.changes`", check_source(make, write, lambda row: int(row["n"])))


def test_rows_of_an_iceberg_table_are_read_once(places: Path, expect: Any) -> None:
    catalog = catalog_in(places)

    def write(place: str, numbers: Sequence[int]) -> None:
        rows, shop = pyarrow.table({"n": list(numbers)}), load_catalog(**catalog)
        shop.create_namespace_if_not_exists("shop")
        shop.create_table_if_not_exists(f"shop.{place}", rows.schema).append(rows)

    def make(place: str) -> Any:
        return iceberg.read(f"shop.{place}", catalog=catalog)

    with threads_ended():
        report = check_source(make, write, lambda row: int(row["n"]), is_live=False)
    expect("`iceberg.read`", report)


def test_appends_to_an_iceberg_table_are_read_once(places: Path, expect: Any) -> None:
    catalog = catalog_in(places)

    def make(place: str) -> Any:
        shop = load_catalog(**catalog)
        shop.create_namespace_if_not_exists("shop")
        shop.create_table(f"shop.{place}", pyarrow.schema({"n": pyarrow.int64()}))
        return iceberg.changes(f"shop.{place}", catalog=catalog, after_snapshot=0, watch="100ms")

    def write(place: str, numbers: Sequence[int]) -> None:
        load_catalog(**catalog).load_table(f"shop.{place}").append(pyarrow.table({"n": list(numbers)}))

    with threads_ended():
        report = check_source(make, write, lambda row: int(row["n"]))
    expect("`iceberg.changes`", report)


def test_values_are_read_once(expect: Any) -> None:
    written: dict[str, list[int]] = {}

    def write(place: str, numbers: Sequence[int]) -> None:
        written[place] = list(numbers)

    report = check_source(lambda place: values(written[place]), write, int, is_live=False, worlds=WORLDS)
    expect("`values`", report)


def test_lines_of_a_socket_are_read_once(expect: Any) -> None:
    """Without faults that the documents name: the death of all processes loses acknowledged lines since the checkpoint,
    and a proxy that closes its connection in good order ends the input.
    """
    found: dict[str, Evidence] = {}
    for trial in ("kills", "reset", "slow", "sliced"):
        with LineServer() as server, NetworkLink(f"127.0.0.1:{server.port}") as link:
            host, port = link.address.split(":")

            def make(_: str, host: str = host, port: str = port) -> Any:
                return sockets.lines(host, int(port), acknowledge=True)

            def write(_: str, numbers: Sequence[int], server: LineServer = server) -> None:
                server.let_out(numbers)

            outages = {name: cut for name, cut in link.outages().items() if name == trial}
            found |= check_source(make, write, int, trials=() if outages else [trial], outages=outages)
    expect("`sockets.lines`", Guarantees("SocketLines", found))


def test_messages_of_a_topic_are_read_once(broker: KafkaServer, kafka_link: NetworkLink, expect: Any) -> None:
    def make(place: str) -> Any:
        topic = broker.create_topic(f"in-{place}", 2)
        return kafka.source(topic, servers=kafka_link.address, decode=int)

    def write(place: str, numbers: Sequence[int]) -> None:
        for partition in range(2):
            produce(broker, f"in-{place}", numbers[partition::2], partition)

    outages = kafka_link.outages() | server_outages(broker)
    expect("`kafka.source`", check_source(make, write, int, outages=outages))


def test_lines_of_files_and_then_messages_of_a_topic_are_read_once(
    places: Path, broker: KafkaServer, kafka_link: NetworkLink, expect: Any
) -> None:
    """The first fault comes in the history, the second one near the cut."""

    def make(place: str) -> Any:
        topic = broker.create_topic(f"then-{place}", 2)
        history = places / f"{place}.txt"
        history.write_text("".join(f"{number}\n" for number in range(HISTORY)), "ascii")
        return files.lines(history).then(kafka.source(topic, servers=kafka_link.address, decode=int))

    def write(place: str, numbers: Sequence[int]) -> None:
        live = [number for number in numbers if number >= HISTORY]
        for partition in range(2):
            produce(broker, f"then-{place}", live[partition::2], partition)

    outages = kafka_link.outages() | server_outages(broker)
    expect("`files.lines`, then `kafka.source`", check_source(make, write, int, outages=outages))


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


def test_rows_of_a_table_and_then_its_changes_are_read_once(
    replicated: PostgresServer, postgres_link: NetworkLink, expect: Any
) -> None:
    """The first fault comes in the snapshot, the second one near the cut."""

    def make(place: str) -> Any:
        name = place.replace("-", "_")
        replicated.run(f"CREATE TABLE s_{name} (n bigint PRIMARY KEY)")
        replicated.run(f"INSERT INTO s_{name} SELECT generate_series(0, {HISTORY - 1})")
        return pg.changes(postgres_url(postgres_link), f"s_{name}", slot=f"copied_{name}", snapshot=True)

    def write(place: str, numbers: Sequence[int]) -> None:
        live = ", ".join(f"({number})" for number in numbers if number >= HISTORY)
        if live:
            replicated.run(f"INSERT INTO s_{place.replace('-', '_')} VALUES {live}")

    outages = postgres_link.outages() | server_outages(replicated)
    report = check_source(make, write, lambda change: int(change.row["n"]), outages=outages)
    expect("`postgres.changes(snapshot=True)`", report)


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


def test_messages_of_a_topic_of_mqtt_count_once(
    mosquitto: MosquittoServer, mqtt_link: NetworkLink, expect: Any
) -> None:
    """Without kills of the broker, which loses its sessions with its process."""

    def make(place: str) -> Any:
        source = mqtt.source(
            f"in-{place}", session=place, url=mqtt_url(mqtt_link), decode=codecs.json(), acknowledge="checkpoint"
        )
        source.connect(0).close()  # the session begins
        return source

    def write(place: str, numbers: Sequence[int]) -> None:
        publish_to_topic(mosquitto, f"in-{place}", numbers, first=numbers[0])

    expect("`mqtt.source`", check_source(make, write, int, outages=mqtt_link.outages()))


def test_entries_of_a_stream_are_read_once(redis_server: RedisProcess, redis_link: NetworkLink, expect: Any) -> None:
    def make(place: str) -> Any:
        key = add_entries(redis_server, f"in-{place}")
        return redis.source(key, url=redis_url(redis_link), decode=codecs.json())

    def write(place: str, numbers: Sequence[int]) -> None:
        add_to_entries(redis_server, f"in-{place}", numbers)

    outages = redis_link.outages() | server_outages(redis_server)
    expect("`redis.source`", check_source(make, write, int, outages=outages))


def test_lines_of_objects_are_read_once(s3: S3Server, s3_link: NetworkLink, expect: Any) -> None:
    def write(place: str, numbers: Sequence[int]) -> None:
        put(s3, f"in/{place}/{numbers[0]}.txt", "".join(f"{number}\n" for number in numbers).encode())

    def make(place: str) -> Any:
        return files.lines(s3_url(s3_link, f"in/{place}/*.txt"), watch="100ms")

    expect("`files.lines`, objects read", check_source(make, write, int, outages=s3_link.outages()))


def test_requests_that_were_answered_count_once(expect: Any) -> None:
    """Without the death of all processes: it loses answered requests since the checkpoint, which the documents say."""
    port = free_port()

    def make(_place: str) -> Any:
        return web.receive(port, PATH, decode=codecs.json())

    def write(_place: str, numbers: Sequence[int]) -> None:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(partial(deliver, int(link.address.split(":")[1])), numbers))

    with NetworkLink(f"127.0.0.1:{port}") as link:
        report = check_source(make, write, int, trials=["kills"], outages=link.outages())
    expect("`web.receive`", report)


def test_records_of_an_endpoint_count_once(expect: Any) -> None:
    with RestartedPages() as server, NetworkLink(server.address) as link:

        def make(place: str) -> Any:
            return web.poll(f"http://{link.address}/{place}", records="data.items", cursor="next", every="20ms")

        outages = link.outages() | {"server killed": server.restart}
        expect("`web.poll`", check_source(make, server.add, int, outages=outages))


def test_messages_of_a_websocket_count_once_if_the_server_continues_after_a_cursor(expect: Any) -> None:
    with Feeds() as server, NetworkLink(server.address) as link:

        def make(place: str) -> Any:
            return web.websocket(f"ws://{link.address}/{place}", send=after, cursor="at")

        outages = link.outages() | {"server killed": server.restart, "connection cut": server.cut}
        report = check_source(make, server.number, lambda message: int(message["n"]), outages=outages)
        expect("`web.websocket`, after a cursor", report)


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
    expect("`files.avro`, read", report)
