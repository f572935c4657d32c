"""Servers that the tests of connectors share: each is started once, at its first use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clonos.connectors.postgres.table_copies import OWN_SCHEMA
from tests.connectors.servers.kafka import KafkaServer
from tests.connectors.servers.mosquitto import MosquittoServer
from tests.connectors.servers.nats import NatsServer
from tests.connectors.servers.pgvector import vector_server
from tests.connectors.servers.postgres import PostgresServer
from tests.connectors.servers.rabbitmq import RabbitServer
from tests.connectors.servers.redis import RedisProcess
from tests.harnesses.s3_server import CREDENTIALS, S3Server


def emptied(server: PostgresServer) -> PostgresServer:
    """Starts a server that was killed, and empties its schema."""
    server.ensure_started()
    server.run("DROP SCHEMA public CASCADE")
    server.run("CREATE SCHEMA public")
    return server


@pytest.fixture(scope="session")
def shared_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """One broker."""
    with KafkaServer(tmp_path_factory.mktemp("kafka")).running() as server:
        yield server


@pytest.fixture
def broker(shared_kafka: KafkaServer) -> KafkaServer:
    """The broker, which runs: a test may have killed it."""
    shared_kafka.ensure_started()
    return shared_kafka


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[PostgresServer]:
    """One server."""
    with PostgresServer().running() as server:
        yield server


@pytest.fixture
def postgres(shared_postgres: PostgresServer) -> PostgresServer:
    """The server, which runs, with an empty schema: a test may have killed it."""
    return emptied(shared_postgres)


@pytest.fixture(scope="session")
def shared_vectors() -> Iterator[PostgresServer]:
    """One server with pgvector."""
    with vector_server().running() as server:
        yield server


@pytest.fixture
def with_vectors(shared_vectors: PostgresServer) -> PostgresServer:
    """The server with pgvector, which runs, with an empty schema but for its types."""
    emptied(shared_vectors).run("CREATE EXTENSION vector")
    return shared_vectors


def without_slots(server: PostgresServer) -> None:
    """Drops replication slots, publications and copies of tables."""
    server.ensure_started()
    with server.connect() as connection:
        connection.execute("SET statement_timeout = '20s'")
        connection.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        while connection.execute("SELECT count(*) FROM pg_replication_slots WHERE active").fetchone() != (0,):
            connection.execute("SELECT pg_sleep(0.01)")
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        for (name,) in connection.execute("SELECT pubname FROM pg_publication").fetchall():
            connection.execute(f'DROP PUBLICATION "{name}"')
        copies = "SELECT nspname FROM pg_namespace WHERE starts_with(obj_description(oid, 'pg_namespace'), %s)"
        for (name,) in connection.execute(copies, [OWN_SCHEMA]).fetchall():
            connection.execute(f'DROP SCHEMA "{name}" CASCADE')


@pytest.fixture
def replicated(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server; replication slots and publications of the test are dropped at its end."""
    yield postgres
    without_slots(postgres)


@pytest.fixture
def vectors_replicated(with_vectors: PostgresServer) -> Iterator[PostgresServer]:
    """The server with pgvector; replication slots and publications of the test are dropped at its end."""
    yield with_vectors
    without_slots(with_vectors)


@pytest.fixture(scope="session")
def shared_rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    """One broker."""
    with RabbitServer(tmp_path_factory.mktemp("rabbitmq")).running() as server:
        yield server


@pytest.fixture
def rabbit(shared_rabbit: RabbitServer) -> RabbitServer:
    """The broker, which runs: a test may have killed it."""
    shared_rabbit.ensure_started()
    return shared_rabbit


@pytest.fixture(scope="session")
def shared_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One server."""
    with NatsServer(tmp_path_factory.mktemp("nats")).running() as server:
        yield server


@pytest.fixture
def nats_server(shared_nats: NatsServer) -> NatsServer:
    """The server, which runs: a test may have killed it."""
    shared_nats.ensure_started()
    return shared_nats


@pytest.fixture(scope="session")
def shared_mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MosquittoServer]:
    """One broker."""
    with MosquittoServer(tmp_path_factory.mktemp("mosquitto")).running() as server:
        yield server


@pytest.fixture
def mosquitto(shared_mosquitto: MosquittoServer) -> MosquittoServer:
    """The broker, which runs: a test may have killed it."""
    shared_mosquitto.ensure_started()
    return shared_mosquitto


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """One server."""
    with RedisProcess(tmp_path_factory.mktemp("redis")).running() as server:
        yield server


@pytest.fixture
def redis_server(shared_redis: RedisProcess) -> RedisProcess:
    """The server, which runs: a test may have killed it."""
    shared_redis.ensure_started()
    return shared_redis


@pytest.fixture(scope="session")
def shared_s3() -> Iterator[S3Server]:
    """One server for all tests."""
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def s3(shared_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with its credentials in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return shared_s3
