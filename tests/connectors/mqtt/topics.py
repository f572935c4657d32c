"""What a client of its own publishes to topics, and what it has seen there."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.connectors.servers.mosquitto import MosquittoServer
from tests.speed import scaled

LIMIT_S = scaled(30.0)


def publish(server: MosquittoServer, topic: str, bodies: Iterable[Any], retain: bool = False, first: int = 0) -> None:
    """Publishes messages with ids from ``first`` on, and waits until the broker has them."""
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    with server.client("publisher") as client:
        sent = []
        for number, body in enumerate(bodies, first):
            properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.UserProperty = [("clonos-id", f"{topic}/{number}")]
            payload = body if isinstance(body, bytes) else str(body)
            sent.append(client.publish(topic, payload, 1, retain, properties))
        for each in sent:
            each.wait_for_publish(LIMIT_S)


class Observer:
    """Messages that a subscriber has seen: their ids and payloads."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self._changed = threading.Condition()

    def take(self, message: Any) -> None:
        """Takes a message of paho."""
        with self._changed:
            self.messages.append((dict(message.properties.UserProperty)["clonos-id"], message.payload))
            self._changed.notify_all()

    def has(self, ids: int) -> bool:
        """Whether there are ``ids`` different ids."""
        with self._changed:
            return len(dict(self.messages)) >= ids

    def wait(self, ids: int) -> None:
        """Waits until there are ``ids`` different ids."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(dict(self.messages)) >= ids, LIMIT_S), self.messages


@contextmanager
def observed(server: MosquittoServer, topic: str) -> Iterator[Observer]:
    """What is published to a topic from now on."""
    observer, subscribed = Observer(), threading.Event()
    with server.client(f"observer of {topic}") as client:
        client.on_message = lambda _client, _data, message: observer.take(message)
        client.on_subscribe = lambda *_: subscribed.set()
        client.subscribe(topic, 1)
        assert subscribed.wait(LIMIT_S)
        yield observer
