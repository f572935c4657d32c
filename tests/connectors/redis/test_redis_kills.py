"""Source and sink of Redis under load while tasks and the server are killed: each entry counts once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clonos.connectors import redis
from tests.connectors.broker_drawing import BrokerDrawing
from tests.connectors.redis.streams import add_stream, found, publish
from tests.connectors.servers.redis import RedisProcess

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]


class StreamDrawing(BrokerDrawing):
    """From a stream into another one."""

    def __init__(self, server: RedisProcess) -> None:
        self.server = server
        given, self.drawn = add_stream(server, "numbers"), add_stream(server, "drawn")
        source = redis.source(given, url=server.full_url, decode=json.loads)
        super().__init__(source, redis.sink("drawn", url=server.full_url))

    def publish(self, numbers: range) -> None:
        publish(self.server, "numbers", numbers)

    def count(self) -> int:
        return int(self.server.ask("XLEN", self.drawn))


def test_kills_of_tasks_and_of_the_server_and_a_resume_count_each_message_once(
    tmp_path: Path, server: RedisProcess
) -> None:
    drawing = StreamDrawing(server)
    drawing.run_through_kills(tmp_path, server)
    drawing.resume(tmp_path)
    rows = [json.loads(fields[b"data"]) for _, fields in found(server, drawing.drawn)]
    assert sorted((row["n"], row["draw"]) for row in rows) == drawing.draws()
