"""Queues of the tests, and what a client that has nothing in common with the library puts into them and finds there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pika
import pytest

from clonos.connectors.kit.external_system import SystemUnreachable
from tests.connectors.servers.rabbitmq import RabbitServer


def declare(server: RabbitServer, name: str, **arguments: Any) -> str:
    """A durable queue; ``x_max_length=3`` gives it the argument x-max-length."""
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    with server.channel() as channel:
        channel.queue_declare(name, durable=True, arguments=named)
    return name


def publish(server: RabbitServer, name: str, bodies: Iterable[Any], ids: bool = True, first: int = 0) -> None:
    """Puts persistent messages into a queue; their ids are numbers from ``first`` on."""
    with server.channel() as channel:
        channel.confirm_delivery()
        for number, body in enumerate(bodies, first):
            properties = pika.BasicProperties(message_id=f"m-{number}" if ids else None, delivery_mode=2)
            channel.basic_publish("", name, str(body).encode(), properties, mandatory=True)


def taken(server: RabbitServer, name: str) -> list[tuple[Any, bytes]]:
    """Takes all messages out of a queue: their properties and bodies."""
    found: list[tuple[Any, bytes]] = []
    with server.channel() as channel:
        while True:
            method, properties, body = channel.basic_get(name, auto_ack=True)
            if method is None:
                return found
            found.append((properties, body))


def count(server: RabbitServer, name: str) -> int:
    """Messages in a queue that nobody has been given."""
    with server.channel() as channel:
        return int(channel.queue_declare(name, passive=True).method.message_count)


def await_end(feed: Any, text: str) -> None:
    """Receives until the connection has ended with a fault that has this text."""
    with pytest.raises(SystemUnreachable, match=text):
        _receive_on(feed)


def _receive_on(feed: Any) -> None:
    while True:
        feed.receive(100)
