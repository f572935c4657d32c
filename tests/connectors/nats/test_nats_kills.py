"""Source and sink of NATS under load while tasks and the server are killed: each message counts once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import nats
from tests.connectors.broker_drawing import BrokerDrawing
from tests.connectors.nats.streams import add_stream, found, publish
from tests.connectors.servers.nats import NatsServer

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]


class StreamDrawing(BrokerDrawing):
    """From a stream into another one."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        given, self.drawn = add_stream(server, "NUMBERS"), add_stream(server, "DRAWN")
        source = nats.source(given, url=server.full_url, decode=json.loads)
        super().__init__(source, nats.sink("drawn", url=server.full_url))

    def publish(self, numbers: range) -> None:
        publish(self.server, "numbers", numbers)

    def count(self) -> int:
        async def written(jetstream: Any) -> int:
            return int((await jetstream.stream_info(self.drawn)).state.messages)

        return int(self.server.ask(written))


def test_kills_of_tasks_and_of_the_server_and_a_resume_count_each_message_once(
    tmp_path: Path, server: NatsServer
) -> None:
    drawing = StreamDrawing(server)
    drawing.run_through_kills(tmp_path, server)
    drawing.resume(tmp_path)
    rows = [json.loads(body) for _, _, body in found(server, drawing.drawn)]
    assert sorted((row["n"], row["draw"]) for row in rows) == drawing.draws()
