"""Functions of Python in a step with ``intercept=True`` are repeated in every world, or refused by their name."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import secrets
import socket
import sqlite3
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest

from clonos import Job, collect, stdout, values
from clonos.api.checks.code.code_check import warnings_of
from clonos.api.checks.code.code_scope import full_name
from clonos.api.checks.code.replacements import replacement_of
from clonos.core.ports.recorder import running
from clonos.io.interception.answers import answered_with
from clonos.io.interception.patches import install
from clonos.job.description import graph_of
from clonos_services.calls import recorded_call
from clonos_services.interception import ANSWERS, NotIntercepted
from tests.harnesses.fake_recorder import FakeRecorder


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    install()


def drawn(number: int) -> tuple[int, float, float, str, str]:
    return number, time.time(), random.random(), str(uuid.uuid4()), secrets.token_hex()


def drawing_job(**options: Any) -> Job:
    job = Job("drawn")
    job.source(values(range(60))).map(drawn, **options).sink(collect())
    return job


def test_a_step_that_intercepts_gets_no_warning_of_what_is_recorded() -> None:
    assert list(warnings_of(graph_of(drawing_job(intercept=True)))) == []


async def awaited_client(record: int) -> int:
    async with httpx.AsyncClient() as client:
        return (await client.get(f"http://localhost/{record}")).status_code


def plain_client(record: int) -> int:
    return httpx.Client().get(f"http://localhost/{record}").status_code


@pytest.mark.parametrize(
    ("function", "intercepts", "is_warned"),
    [(awaited_client, True, False), (awaited_client, False, True), (plain_client, True, False)],
)
def test_the_check_is_silent_about_clients_whose_requests_are_recorded_one_by_one(
    function: Any, intercepts: bool, is_warned: bool
) -> None:
    job = Job("job")
    job.source(values([1])).map_async(function, log_calls=True, intercept=intercepts).sink(stdout())
    assert bool(list(warnings_of(graph_of(job)))) is is_warned


@pytest.mark.parametrize("client", ["openai._client.AsyncOpenAI", "anthropic.AsyncAnthropic", "httpx2.AsyncClient"])
def test_a_step_records_the_requests_of_a_client_that_is_awaited_where_calls_are_logged_one_by_one(client: str) -> None:
    found = replacement_of(client, is_called=True, arguments=1)
    assert found is not None
    assert (found.is_intercepted, found.is_intercepted_inside) == (False, True)
    plain = replacement_of(client.replace("Async", ""), is_called=True, arguments=1)
    assert plain is not None
    assert plain.is_intercepted
    assert list(warnings_of(graph_of(drawing_job()))) != []
    assert list(warnings_of(graph_of(drawing_job()).intercepting(True))) == []


def test_a_patched_function_has_the_name_of_its_original_in_a_check() -> None:
    assert full_name(os.urandom) == "posix.urandom"
    assert full_name(np.random.rand) == full_name(np.random.RandomState().rand)
    assert full_name(socket.getaddrinfo) == "socket.getaddrinfo"


class Timed:
    """Object in a cycle, whose finalizer reads the clock."""

    def __init__(self) -> None:
        self.myself = self

    def __del__(self) -> None:
        time.perf_counter()


def test_a_clock_that_is_read_in_a_garbage_collection_is_not_recorded() -> None:
    asked: list[str] = []

    def answer(original: Callable[[], float]) -> float:
        asked.append("asked")
        return original()

    callbacks = list(gc.callbacks)
    gc.callbacks[:] = [lambda _phase, _info: time.perf_counter(), *callbacks, lambda _phase, _info: time.perf_counter()]
    try:
        Timed()
        with answered_with({"time.perf_counter": answer}):
            gc.collect()
            assert asked == []
            time.perf_counter()
            assert asked == ["asked"]
    finally:
        gc.callbacks[:] = callbacks


def connected() -> None:
    with socket.socket() as made:
        made.connect(("127.0.0.1", 9))


REFUSED: dict[str, Callable[[], Any]] = {
    "numpy.random.rand": lambda: np.random.rand(),
    "threading.Thread.start": lambda: threading.Thread(target=int).start(),
    "socket.getaddrinfo": lambda: socket.create_connection(("localhost", 9)),
    "socket.socket.connect": lambda: connected(),
    "subprocess.Popen.__init__": lambda: subprocess.run(["true"], check=False),
    "psycopg.connect": lambda: psycopg.connect("host=localhost"),
    "sqlite3.connect": lambda: sqlite3.connect(":memory:"),
    "time.process_time": lambda: time.process_time(),
    "httpx.AsyncHTTPTransport.handle_async_request": lambda: asyncio.run(
        httpx.AsyncClient().get("http://127.0.0.1:9/")
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_function_without_an_answer_is_refused_by_name(name: str) -> None:
    with running(FakeRecorder()), answered_with(ANSWERS), pytest.raises(NotIntercepted) as raised:
        REFUSED[name]()
    assert str(raised.value).startswith(f"{name} cannot be recorded in a step with intercept=True: ")


def test_a_replay_does_not_sleep() -> None:
    first = FakeRecorder()
    with running(first), answered_with(ANSWERS):
        time.time()
    slept: list[float] = []
    for recorder in (first, first.successor()):
        with running(recorder):
            ANSWERS["time.sleep"](slept.append, 5.0)
    assert slept == [5.0]  # by the live one alone


def test_inside_a_recorded_call_functions_are_the_originals() -> None:
    recorder = FakeRecorder()
    with running(recorder), answered_with(ANSWERS):
        recorded_call("service", tuple, lambda _key: time.time())
    assert [tag for tag, _ in recorder.log] == ["CALL"]
