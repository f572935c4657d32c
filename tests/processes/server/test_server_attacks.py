"""Attacks on a real server from the address of its right clients, which are answered nevertheless."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest

from clonos.server.job_api.events import STREAMS_MAX
from tests.processes.harness.running_server import (
    READ_TOKEN,
    TOKEN,
    RunningServer,
    running_server,
    wait_for,
    word_count_file,
)
from tests.speed import scaled

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

IDLE_S = 5.0
IDLE_SHARE_MAX = 0.05
SILENT = 600
STREAMS = 90
GUESSERS = 25
RIGHT = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a job that runs and has no input, and with all that it starts beside it."""
    folder = tmp_path_factory.mktemp("attacked")
    with running_server(folder) as started:
        started.wait_for_status(started.submit(word_count_file(folder)), "RUNNING")
        wait_for(lambda: started.spare().children(), "the spare driver with its fork server")
        yield started


def _port(server: RunningServer) -> int:
    return int(server.url.rpartition(":")[2])


def _answer(server: RunningServer, token: str = TOKEN) -> tuple[int, bytes]:
    """The status and the body of the answer to a request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", _port(server), timeout=scaled(20))
    try:
        connection.request("GET", "/api/v1/jobs", headers={"Authorization": f"Bearer {token}"})
        with connection.getresponse() as answer:
            return answer.status, answer.read()
    finally:
        connection.close()


def _right_statuses(server: RunningServer) -> list[int]:
    return [_answer(server)[0] for _ in range(RIGHT)]


def test_an_idle_server_uses_little_of_a_core(server: RunningServer) -> None:
    process = psutil.Process(server.pid)
    before = process.cpu_times()
    threading.Event().wait(IDLE_S)
    after = process.cpu_times()
    assert (after.user + after.system - before.user - before.system) / IDLE_S <= IDLE_SHARE_MAX


def test_silent_connections_to_a_server_do_not_keep_right_requests_out(server: RunningServer) -> None:
    with ExitStack() as stack:
        for number in range(SILENT):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", _port(server)), scaled(20)))
            if number % 2:
                silent.sendall(b"GET /api/v1/jobs HT")
        assert _right_statuses(server) == [200] * RIGHT


def test_wrong_tokens_do_not_keep_the_right_token_out(server: RunningServer) -> None:
    has_ended, statuses = threading.Event(), Counter[int]()

    def guess() -> None:
        while not has_ended.is_set():
            statuses[_answer(server, "guessed-" * 3)[0]] += 1

    guessers = [threading.Thread(target=guess) for _ in range(GUESSERS)]
    try:
        for guesser in guessers:
            guesser.start()
        wait_for(lambda: statuses[429], "refusals of guesses")
        assert _right_statuses(server) == [200] * RIGHT
    finally:
        has_ended.set()
        for guesser in guessers:
            guesser.join()
    assert set(statuses) == {401, 429}


def test_event_streams_of_the_token_for_reading_do_not_keep_other_requests_out(server: RunningServer) -> None:
    (job,) = json.loads(_answer(server)[1])["jobs"]
    path = f"/api/v1/jobs/{job['id']}/events"
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {READ_TOKEN}\r\n\r\n".encode()
    with ExitStack() as stack:
        streams = [
            stack.enter_context(socket.create_connection(("127.0.0.1", _port(server)), scaled(20)))
            for _ in range(STREAMS)
        ]
        statuses = Counter[bytes]()
        for stream in streams:
            stream.sendall(head)
            statuses[stream.recv(12)[9:]] += 1
        assert statuses == {b"200": STREAMS_MAX, b"429": STREAMS - STREAMS_MAX}
        assert _right_statuses(server) == [200] * RIGHT
        (job,) = json.loads(_answer(server)[1])["jobs"]
        assert job["status"] == "RUNNING"
