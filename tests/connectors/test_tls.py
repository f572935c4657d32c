"""Connectors with TLS against servers whose certificate an authority of the test has signed."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import codecs, kafka, mqtt, nats, rabbitmq, redis
from clonos.connectors import postgres as pg
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.external_system import SystemRefused, SystemUnreachable
from clonos.operators.connector_contract import WriterIdentity
from tests.connectors.mqtt.topics import observed, publish
from tests.connectors.nats.streams import add_stream, found
from tests.connectors.redis.streams import add_stream as add_entries
from tests.connectors.redis.streams import found as entries
from tests.connectors.servers.certificates import OTHER_ADDRESS, Authority
from tests.connectors.servers.kafka import PASSWORD as KAFKA_PASSWORD
from tests.connectors.servers.kafka import USER as KAFKA_USER
from tests.connectors.servers.kafka import KafkaServer
from tests.connectors.servers.mosquitto import MosquittoServer
from tests.connectors.servers.nats import NatsServer
from tests.connectors.servers.postgres import PostgresServer
from tests.connectors.servers.rabbitmq import RabbitServer
from tests.connectors.servers.redis import RedisProcess
from tests.connectors.servers.server_process import PortServer
from tests.unit.connectors.reading import read_raw

pytestmark = pytest.mark.connectors

IDENTITY = WriterIdentity("job-1", "out/0", 0, 1)


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    """An authority that has signed no server."""
    return Authority(tmp_path / "stranger", "stranger")


def written(sink: Any, rows: list[Any]) -> None:
    sink.check_start()
    with closing(sink.immediate_writer()) as writer:
        writer.register(IDENTITY, 0)
        assert writer.write(0, rows) == len(rows)


# ---------------------------------------------------------------------- NATS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of servers of this module."""
    return Authority(tmp_path_factory.mktemp("authority"))


def starting(
    make: Callable[[Path, Authority, bool], PortServer], folder: Path, authority: Authority
) -> Iterator[Callable[[bool], Any]]:
    """Starts servers that have a certificate, and ask for one on request."""
    with ExitStack() as started:
        yield lambda asks_client: started.enter_context(make(folder, authority, asks_client).running())


@pytest.fixture
def start_nats(tmp_path: Path, authority: Authority) -> Iterator[Callable[[bool], Any]]:
    """Starts a server of NATS."""
    yield from starting(NatsServer, tmp_path, authority)


def test_nats_with_tls_is_read_and_written(start_nats: Callable[[bool], Any], authority: Authority) -> None:
    server = start_nats(False)
    add_stream(server, "TLS")
    written(nats.sink("tls", url=server.full_url, ca=authority.ca), [1, 2])
    source = nats.source("TLS", url=server.full_url, ca=str(authority.ca), decode=codecs.json(), until="latest")
    (split,) = source.splits(1)
    assert read_raw(source, split) == [1, 2]


def test_nats_whose_authority_is_unknown_is_refused(start_nats: Callable[[bool], Any], stranger: Authority) -> None:
    server = start_nats(False)
    for ca in (None, stranger.ca):
        with pytest.raises(SystemRefused, match=r"certificate verify failed.*Correct ca=, certificate="):
            nats.sink("tls", url=server.full_url, ca=ca).check_start()


def test_nats_that_asks_for_a_certificate_gets_that_of_the_client(
    start_nats: Callable[[bool], Any], authority: Authority
) -> None:
    server = start_nats(True)
    add_stream(server, "MUTUAL")
    with pytest.raises(SystemRefused, match="certificate"):
        nats.sink("mutual", url=server.full_url, ca=authority.ca).check_start()
    written(nats.sink("mutual", url=server.full_url, ca=authority.ca, certificate=authority.client("ann")), [b"x"])
    assert [body for _, _, body in found(server, "MUTUAL")] == [b"x"]


def test_nats_that_ends_the_connection_before_it_asks_for_a_certificate_is_a_refusal(authority: Authority) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server())
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def play() -> None:
            connection, _ = listener.accept()
            connection.sendall(b'INFO {"server_id":"x","max_payload":1000,"tls_required":true,"tls_verify":true}\r\n')
            with context.wrap_socket(connection, server_side=True) as encrypted:
                encrypted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no alert

        server = threading.Thread(target=play)
        server.start()
        sink = nats.sink("mutual", url=f"tls://127.0.0.1:{listener.getsockname()[1]}", ca=authority.ca)
        try:
            with pytest.raises(SystemRefused, match="asks for a certificate of the client"):
                sink.check_start()
        finally:
            server.join()


@pytest.mark.parametrize("user", ["shop:s3cret@", "t0ken-s3cret@", ""])
def test_nats_without_tls_gets_no_secret_if_the_url_asks_for_tls(user: str) -> None:
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def play() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(20)
                connection.sendall(b'INFO {"server_id":"x","max_payload":1000,"auth_required":true}\r\n')
                while data := connection.recv(1000):
                    received.append(data)
                    connection.sendall(b"PONG\r\n" * data.count(b"PING\r\n"))

        server = threading.Thread(target=play)
        server.start()
        url = f"tls://{user}127.0.0.1:{listener.getsockname()[1]}"
        try:
            with pytest.raises(SystemRefused, match="does not offer TLS, which tls:// asks for"):
                nats.sink("plain", url=url).check_start()
        finally:
            server.join()
    assert b"s3cret" not in b"".join(received)


# ---------------------------------------------------------------------- RabbitMQ


def test_rabbitmq_with_tls_is_read_and_written(rabbit: RabbitServer) -> None:
    trust: Any = {"url": rabbit.secure_url, "ca": rabbit.authority.ca, "certificate": rabbit.authority.client("ann")}
    with rabbit.channel() as channel:
        channel.queue_delete("tls")
        channel.queue_declare("tls")
    written(rabbitmq.exchange("", routing_key="tls", **trust), ["a", "b"])
    feed = rabbitmq.queue("tls", until="empty", **trust).connect(0)
    with closing(feed):
        taken = b""
        while (data := feed.receive(100)) is not None:
            taken += data
    source = rabbitmq.queue("tls", **trust)
    assert [each.body for each in source.decode(source.cut(taken))] == [b"a", b"b"]


def test_rabbitmq_whose_authority_is_unknown_is_refused(rabbit: RabbitServer, stranger: Authority) -> None:
    for ca in (None, stranger.ca):
        sink = rabbitmq.exchange("", url=rabbit.secure_url, routing_key="tls", ca=ca)
        with pytest.raises(SystemRefused, match=r"certificate verify failed.*Correct ca=, certificate="):
            sink.check_start()


# ---------------------------------------------------------------------- Redis


@pytest.fixture
def start_redis(tmp_path: Path, authority: Authority) -> Iterator[Callable[[bool], Any]]:
    """Starts a server of Redis."""
    yield from starting(RedisProcess, tmp_path, authority)


def test_redis_with_tls_is_read_and_written(start_redis: Callable[[bool], Any], authority: Authority) -> None:
    server = start_redis(True)
    add_entries(server, "tls")
    trust: Any = {"url": server.full_url, "ca": authority.ca, "certificate": authority.client("ann")}
    written(redis.sink("tls", **trust), [1, 2])
    assert [fields[b"data"] for _, fields in entries(server, "tls")] == [b"1", b"2"]
    source = redis.source("tls", decode=codecs.json(), until="latest", **trust)
    assert read_raw(source, source.splits(1)[0]) == [1, 2]


def test_redis_whose_authority_is_unknown_or_that_asks_for_a_certificate_is_refused(
    start_redis: Callable[[bool], Any], authority: Authority, stranger: Authority
) -> None:
    server = start_redis(True)
    for ca in (None, stranger.ca):
        with pytest.raises(SystemRefused, match=r"certificate verify failed.*Correct ca=, certificate="):
            redis.sink("tls", url=server.full_url, ca=ca).check_start()
    with pytest.raises((SystemRefused, SystemUnreachable)):  # it may end the connection without a word
        redis.sink("tls", url=server.full_url, ca=authority.ca).check_start()


# ---------------------------------------------------------------------- MQTT


@pytest.fixture
def start_mosquitto(tmp_path: Path, authority: Authority) -> Iterator[Callable[[bool], Any]]:
    """Starts a broker of MQTT."""
    yield from starting(MosquittoServer, tmp_path, authority)


def test_mqtt_with_tls_is_read_and_written(start_mosquitto: Callable[[bool], Any], authority: Authority) -> None:
    server = start_mosquitto(True)
    trust: Any = {"url": server.full_url, "ca": authority.ca, "certificate": authority.client("ann")}
    large = "x" * 300_000  # many records of TLS, which wait behind the socket
    with observed(server, "written") as seen:
        written(mqtt.sink("written", **trust), [1, large])
        seen.wait(2)
    assert [payload for _, payload in seen.messages] == [b"1", large.encode()]
    source = mqtt.source("read", session="tls", **trust)
    with closing(source.connect(0)) as feed:
        publish(server, "read", ["a", large])
        data = b""
        while len(records := source.cut(data)) < 2:
            data += feed.receive(100) or b""
    assert [each.payload for each in source.decode(records)] == [b"a", large.encode()]


def test_mqtt_whose_authority_is_unknown_or_that_asks_for_a_certificate_is_refused(
    start_mosquitto: Callable[[bool], Any], authority: Authority, stranger: Authority
) -> None:
    server = start_mosquitto(True)
    for ca in (None, stranger.ca):
        with pytest.raises(SystemRefused, match=r"certificate verify failed.*Correct ca=, certificate="):
            mqtt.sink("tls", url=server.full_url, ca=ca).check_start()
    with pytest.raises((SystemRefused, SystemUnreachable)):  # it may end the connection without a word
        mqtt.sink("tls", url=server.full_url, ca=authority.ca).check_start()


# ---------------------------------------------------------------------- Kafka


def login(broker: KafkaServer, ca: Path) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": KAFKA_USER,
        "sasl.password": KAFKA_PASSWORD,
        "ssl.ca.location": str(ca),
    }


def test_kafka_with_sasl_and_tls_is_read_and_written(broker: KafkaServer) -> None:
    topic = broker.create_topic("tls")
    options = login(broker, broker.authority.ca)
    written(kafka.sink(topic, servers=broker.secure_servers, options=options), ["a", "b"])
    source = kafka.source(topic, servers=broker.secure_servers, options=options, until="latest")
    (split,) = source.splits(1)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        assert [each.value for each in reader.read(10) or []] == [b"a", b"b"]


def test_kafka_whose_authority_is_unknown_is_refused(broker: KafkaServer, stranger: Authority) -> None:
    sink = kafka.sink("tls", servers=broker.secure_servers, options=login(broker, stranger.ca))
    with pytest.raises(SystemRefused, match="certificate verify failed"):
        sink.check_start()


# ---------------------------------------------------------------------- PostgreSQL


def test_postgres_with_verify_full_checks_authority_and_name(
    postgres: PostgresServer, authority: Authority, stranger: Authority
) -> None:
    def sink(ca: Path) -> Any:
        url = f"{postgres.full_url}?sslmode=verify-full&sslrootcert={ca}"
        return pg.table(url, "words", {"word": "text"})

    with pytest.raises(SystemRefused, match="server does not support SSL, but SSL was required"):
        sink(authority.ca).check_start()
    with postgres.encrypted(*authority.server()):
        written(sink(authority.ca), [("a",)])
        assert postgres.run("SELECT word FROM words") == [("a",)]
        with pytest.raises(SystemRefused, match=r"certificate verify failed.*sslrootcert"):
            sink(stranger.ca).check_start()
        with pytest.raises(SystemRefused, match=r"root certificate file .* does not exist"):
            sink(authority.ca.with_name("missing.pem")).check_start()
    with postgres.encrypted(*authority.server(OTHER_ADDRESS)), pytest.raises(SystemRefused, match="does not match"):
        sink(authority.ca).check_start()


# ---------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: nats.sink("x", url="nats://a:1", ca="ca.pem"),
            r"ca= is given, but the url is not for TLS\.",
        ),
        (lambda: rabbitmq.queue("x", url="amqp://a", certificate="c.pem"), r"certificate= is given.*Give amqps://"),
        (lambda: nats.sink("x", url="tls://a:1", ca=""), r"ca is ''\. Give the path of a file in PEM"),
        (
            lambda: rabbitmq.exchange("x", url="amqps://a", ca="/missing.pem").check_start(),
            r"ca='/missing.pem' cannot be used: .*No such file.*on each machine",
        ),
        (lambda: nats.sink("x", url="tls://a:1", certificate=__file__).check_start(), "certificate=.*cannot be used"),
    ],
)
def test_files_of_certificates_that_cannot_be_used_are_named(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InvalidConnector, match=sentence):
        make()
