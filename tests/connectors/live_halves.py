"""Live halves of ``history.then(live)`` on real servers: two keys with numbers, each in its order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from confluent_kafka import OFFSET_END

from clonos import kafka, nats, redis
from clonos import postgres as pg
from tests.connectors.kafka.producing import produce, trim
from tests.connectors.nats.streams import add_stream, publish
from tests.connectors.redis.streams import add_stream as add_entries
from tests.connectors.redis.streams import publish as add_to_entries

KEYS = 2


class LiveHalf(ABC):
    """Streams without records at a server of the class's ``fixture``, and their source."""

    fixture: ClassVar[str]

    def __init__(self, server: Any, name: str = "continued") -> None:
        self.server, self.name = server, name
        self.source = self.made()

    @abstractmethod
    def made(self) -> Any:
        """Creates the streams; returns their source."""

    @abstractmethod
    def publish(self, key: int, numbers: Iterable[int]) -> None:
        """Adds numbers of a key."""

    @abstractmethod
    def lose(self) -> None:
        """Removes what is in the streams, as retention does."""


class KafkaHalf(LiveHalf):
    fixture = "broker"

    def made(self) -> Any:
        self.topic = self.server.create_topic(self.name, KEYS)
        return kafka.source(self.topic, servers=self.server.servers, decode=int)

    def publish(self, key: int, numbers: Iterable[int]) -> None:
        produce(self.server, self.topic, numbers, key)

    def lose(self) -> None:
        trim(self.server, self.topic, dict.fromkeys(range(KEYS), OFFSET_END))


class NatsHalf(LiveHalf):
    fixture = "nats_server"

    def made(self) -> Any:
        subjects = [f"{self.name}.{key}" for key in range(KEYS)]
        self.stream = add_stream(self.server, self.name.upper(), *subjects)
        return nats.source(self.stream, url=self.server.full_url, subjects=subjects, decode=int)

    def publish(self, key: int, numbers: Iterable[int]) -> None:
        publish(self.server, f"{self.name}.{key}", numbers)

    def lose(self) -> None:
        self.server.ask(lambda jetstream: jetstream.purge_stream(self.stream))


class RedisHalf(LiveHalf):
    fixture = "redis_server"

    def made(self) -> Any:
        self.keys = [add_entries(self.server, f"{self.name} {key}") for key in range(KEYS)]
        return redis.source(self.keys, url=self.server.full_url, decode=int)

    def publish(self, key: int, numbers: Iterable[int]) -> None:
        add_to_entries(self.server, self.keys[key], numbers)

    def lose(self) -> None:
        self.server.ask_all([("XTRIM", key, "MAXLEN", 0) for key in self.keys])


class PostgresHalf(LiveHalf):
    """A table of the numbers; the records are changes."""

    fixture = "replicated"

    def made(self) -> Any:
        self.server.run(f"CREATE TABLE {self.name} (n int PRIMARY KEY)")
        source = pg.changes(self.server.full_url, self.name, slot=self.name)
        source.splits(1)  # creates the slot, which has to be older than the end of the history
        return source

    def publish(self, key: int, numbers: Iterable[int]) -> None:
        self.server.run(f"INSERT INTO {self.name} SELECT * FROM unnest(%s::int[])", list(numbers))

    def lose(self) -> None:
        self.server.run("SELECT pg_drop_replication_slot(%s)", self.name)


HALVES = [KafkaHalf, NatsHalf, RedisHalf, PostgresHalf]
