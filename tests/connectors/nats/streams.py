"""Streams of the tests, and what a client of its own puts into them and finds there."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

from tests.connectors.servers.nats import NatsServer
from tests.speed import scaled


def add_stream(server: NatsServer, name: str, *subjects: str, **options: Any) -> str:
    """A new stream of these subjects, or of its own name in lower case."""

    async def add(jetstream: Any) -> None:
        with suppress(NotFoundError):
            await jetstream.delete_stream(name)
        await jetstream.add_stream(name=name, subjects=list(subjects or (name.lower(),)), **options)

    server.ask(add)
    return name


def publish(server: NatsServer, subject: str, bodies: Iterable[Any], **headers: str) -> None:
    """Puts messages into the stream of a subject, in their order."""

    async def all_of(jetstream: Any) -> None:
        for body in bodies:
            await jetstream.publish_async(subject, str(body).encode(), headers=dict(headers) or None)
        await jetstream.publish_async_completed()

    server.ask(all_of)


def found(server: NatsServer, stream: str) -> list[tuple[str, dict[str, str], bytes]]:
    """All messages of a stream: subject, headers and payload."""

    async def all_of(jetstream: Any) -> list[tuple[str, dict[str, str], bytes]]:
        count = (await jetstream.stream_info(stream)).state.messages
        subscription = await jetstream.pull_subscribe(
            "", stream=stream, config=ConsumerConfig(ack_policy=AckPolicy.NONE)
        )
        messages: list[Any] = []
        while len(messages) < count:
            messages += await subscription.fetch(min(500, count - len(messages)), timeout=scaled(5))
        await subscription.unsubscribe()
        return [(each.subject, each.headers or {}, each.data) for each in messages]

    result: list[tuple[str, dict[str, str], bytes]] = server.ask(all_of)
    return result
