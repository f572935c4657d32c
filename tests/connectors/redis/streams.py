"""Streams of the tests, and what a client of its own puts into them and finds there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.connectors.servers.redis import RedisProcess


def add_stream(server: RedisProcess, key: str) -> str:
    """A new stream without entries."""
    server.ask("DEL", key)
    server.ask_all([("XGROUP", "CREATE", key, "made", "$", "MKSTREAM"), ("XGROUP", "DESTROY", key, "made")])
    return key


def publish(server: RedisProcess, key: str, bodies: Iterable[Any]) -> None:
    """Adds entries with a field ``data``, in their order."""
    server.ask_all([("XADD", key, "*", "data", str(body)) for body in bodies])


def found(server: RedisProcess, key: str) -> list[tuple[str, dict[bytes, bytes]]]:
    """All entries of a stream: their ids and fields."""
    return [(name.decode(), fields) for name, fields in server.ask("XRANGE", key, "-", "+")]
