"""Connections of the HTTP client: as many as calls at once, and reused."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from clonos.io.http.http_client import HttpClient, HttpLimits, HttpRequest
from tests.unit.services.hostile import Conversation, answer, hostile

CALLS = 20
LIMITS = HttpLimits(
    timeout_s=30.0, connect_timeout_s=30.0, retries_max=0, redirects_max=0, body_bytes_max=1 << 20, is_repeatable=True
)


def test_calls_at_once_have_a_connection_each_which_the_next_calls_reuse(
    client: HttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    all_here = threading.Barrier(CALLS)
    connections = []

    def script(conversation: Conversation) -> None:
        connections.append(conversation.number)
        while conversation.read():
            all_here.wait(30)
            conversation.send(answer())

    with hostile(script) as server, caplog.at_level(logging.WARNING), ThreadPoolExecutor(CALLS) as threads:
        request = HttpRequest("GET", server.url)
        for _ in range(2):
            replies = list(threads.map(lambda _: client.send(request, LIMITS), range(CALLS)))
            assert [reply.status_code for reply in replies] == [200] * CALLS
        client.close()
    assert caplog.messages == []
    assert len(connections) == CALLS
