"""Libraries in a function whose calls are logged one by one: each request is a part, in threads and coroutines too."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import httpx
import pytest
import requests

from clonos.core.log.call_outcomes import CallInDoubt
from clonos.core.ports.recorder import EffectUndeclared
from clonos.io.interception.patches import install
from clonos.operators.steps.call_attempts import Caller, CallPolicy
from clonos_services.interception import ANSWERS
from tests.harnesses.call_life import Died, life
from tests.unit.services.loopback import Loopback, loopback

pytestmark = pytest.mark.keeps_sockets


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    install()


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as running_server:
        yield running_server


def run(reported: dict[bytes, bytes], code: Callable[[], Any], dies_after: int = 1_000, **effects: bool) -> Any:
    caller = Caller("step", lambda record: code(), CallPolicy())
    caller.answers = ANSWERS
    try:
        return caller.call((None,), "key", life(reported, dies_after, **effects))
    finally:
        caller.close()


def agent(url: str) -> Callable[[], Any]:
    """A function that asks by two clients, several times at once, and draws and reads clocks."""

    async def asked() -> Any:
        async with httpx.AsyncClient(trust_env=False) as client:
            replies = await asyncio.gather(*(client.get(url + "/count") for _ in range(3)))
            more = await asyncio.to_thread(lambda: requests.get(url + "/count", timeout=30).text)
            last = await client.get(url + "/zipped")
        drawn = random.random(), uuid.uuid4(), time.time()
        return sorted(reply.text for reply in replies), more, last.text, sorted(last.headers.items()), drawn

    return asked


def test_requests_of_coroutines_and_threads_are_sent_once(server: Loopback) -> None:
    reported: dict[bytes, bytes] = {}
    found = run(reported, agent(server.url))
    assert len(server.seen) == 5
    assert all(seen.headers["idempotency-key"] for seen in server.seen)
    assert run(reported, agent(server.url)) == found
    assert len(server.seen) == 5


def test_code_of_a_process_that_died_sends_only_what_is_not_logged(server: Loopback) -> None:
    reported: dict[bytes, bytes] = {}
    with pytest.raises(Died):
        run(reported, agent(server.url), dies_after=4)
    assert len(reported) == 4
    run(reported, agent(server.url))
    assert len(server.seen) <= 5 + 1


def test_an_error_of_an_asynchronous_client_has_its_own_class_again() -> None:
    async def asked() -> str:
        async with httpx.AsyncClient(trust_env=False) as client:
            try:
                await client.get("http://127.0.0.1:1/")
            except httpx.ConnectError as error:
                return f"{error} {error.request.url}"
        raise AssertionError("nothing listens there")

    reported: dict[bytes, bytes] = {}
    found = run(reported, asked)
    assert run(reported, asked) == found
    assert len(reported) == 1


def post(url: str) -> Any:
    async def posted() -> int:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.post(url, content=b"{}")).status_code

    return posted()


def test_a_post_of_an_asynchronous_client_is_an_effect(server: Loopback) -> None:
    with pytest.raises(EffectUndeclared):
        run({}, lambda: post(server.url + "/count"), has_effects=False)
    reported: dict[bytes, bytes] = {}
    with pytest.raises(Died):
        run(reported, lambda: post(server.url + "/count"), dies_after=1)
    assert len(server.seen) == 1, "it was announced, and died before its outcome was logged"
    with pytest.raises(CallInDoubt):
        run(reported, lambda: post(server.url + "/count"))
    assert len(server.seen) == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/models/m:generateContent"])
def test_a_post_by_which_a_model_is_asked_is_not_an_effect(path: str, server: Loopback) -> None:
    reported: dict[bytes, bytes] = {}
    status = run(reported, lambda: post(server.url + path), has_effects=False)
    assert run(reported, lambda: post(server.url + path), has_effects=False) == status
    assert len(server.seen) == len(reported) == 1


def test_a_thread_of_a_library_may_run(server: Loopback) -> None:
    seen: list[float] = []

    def code() -> None:
        thread = Thread(target=lambda: seen.append(time.time()))
        thread.start()
        thread.join()

    reported: dict[bytes, bytes] = {}
    run(reported, code)
    assert len(seen) == 1
    assert not reported, "the thread did not take the context of the function along"


def test_a_streamed_reply_is_sent_once_and_streams_again(server: Loopback) -> None:
    events = b"".join(b"data: %d\n\n" % number for number in range(50))
    chat = server.url + "/v1/chat/completions"

    def streamed() -> list[str]:
        with httpx.Client(trust_env=False) as client, client.stream("POST", chat, content=events) as reply:
            return [line for line in reply.iter_lines() if line]

    async def streamed_in_a_loop() -> list[str]:
        async with httpx.AsyncClient(trust_env=False) as client, client.stream("POST", chat, content=events) as reply:
            return [line async for line in reply.aiter_lines() if line]

    for code in (streamed, streamed_in_a_loop):
        reported: dict[bytes, bytes] = {}
        sent = len(server.seen)
        found = run(reported, code, has_effects=False)
        assert found == [f"data: {number}" for number in range(50)]
        assert run(reported, code, has_effects=False) == found
        assert len(server.seen) == sent + 1
