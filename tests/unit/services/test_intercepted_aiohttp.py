"""Requests of aiohttp inside a function whose calls are logged one by one: sent once, and the same reply again."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from clonos.core.log.call_outcomes import CallInDoubt
from clonos.core.ports.recorder import EffectUndeclared, running
from clonos.io.interception.answers import answered_with
from clonos.io.interception.patches import install
from clonos.operators.steps.call_attempts import Caller, CallPolicy
from clonos_services.intercepted_aiohttp import BodyNotRecorded
from clonos_services.interception import ANSWERS, NotIntercepted
from tests.harnesses.call_life import Died, life
from tests.harnesses.fake_recorder import FakeRecorder
from tests.unit.services.loopback import Loopback, loopback

install()
aiohttp: Any = pytest.importorskip("aiohttp")

pytestmark = pytest.mark.keeps_sockets


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


def asking(use: Callable[[Any], Awaitable[Any]]) -> Callable[[], Any]:
    """A function that uses a session of its own, and returns the class and text of an error of the library."""

    async def asked() -> Any:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            try:
                return await use(session)
            except aiohttp.ClientError as error:
                return type(error), str(error), getattr(error, "status", None), getattr(error, "host", None)

    return asked


async def described(reply: Any) -> Any:
    """What user code can see of a reply, but for its date."""
    lines = sorted(pair for pair in reply.headers.items() if pair[0] != "Date")
    hops = [(each.status, str(each.url), each.headers["Location"]) for each in reply.history]
    start = reply.status, reply.reason, reply.version, reply.method, str(reply.url), reply.ok, reply.content_type
    cookies = {name: each.value for name, each in reply.cookies.items()}
    return start, lines, hops, cookies, await reply.text(), str(reply.request_info.real_url)


def plain(url: str) -> Callable[[Any], Awaitable[Any]]:
    async def use(session: Any) -> Any:
        async with session.get(url, params={"q": "a b"}) as reply:
            return await described(reply), [each.value for each in session.cookie_jar]

    return use


def streamed(url: str) -> Callable[[Any], Awaitable[Any]]:
    async def use(session: Any) -> Any:
        async with session.get(url) as reply:
            chunks = [chunk async for chunk in reply.content.iter_chunked(7_000)]
            return b"".join(chunks), max(map(len, chunks)), reply.content.at_eof()

    return use


def checked(url: str) -> Callable[[Any], Awaitable[Any]]:
    async def use(session: Any) -> Any:
        async with session.get(url, raise_for_status=True) as reply:
            return await reply.text()

    return use


USES = (plain, streamed, checked)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("path", ["/any", "/moved", "/zipped", "/refused"])
def test_a_reply_is_that_of_a_request_outside_of_a_task_and_comes_again_without_one(
    use: Callable[[str], Callable[[Any], Awaitable[Any]]], path: str, server: Loopback
) -> None:
    code = asking(use(server.url + path))
    alone = asyncio.run(code())
    sent = len(server.seen)
    server.seen.clear()
    reported: dict[bytes, bytes] = {}
    found = run(reported, code)
    assert found == alone
    assert len(server.seen) == sent
    assert all(seen.headers["idempotency-key"] for seen in server.seen)
    assert run(reported, code) == found
    assert len(server.seen) == sent


def test_requests_side_by_side_are_sent_once(server: Loopback) -> None:
    async def use(session: Any) -> Any:
        async def count() -> str:
            async with session.get(server.url + "/count") as reply:
                return str(await reply.text())

        return sorted(await asyncio.gather(*(count() for _ in range(3))))

    reported: dict[bytes, bytes] = {}
    found = run(reported, asking(use))
    assert found == ['{"count": 1}', '{"count": 2}', '{"count": 3}']
    assert run(reported, asking(use)) == found
    assert len(server.seen) == len(reported) == 3


def test_a_connection_that_is_refused_has_its_own_error_again() -> None:
    code = asking(plain("http://127.0.0.1:1/"))
    alone = asyncio.run(code())
    assert alone[0] is aiohttp.ClientConnectorError
    reported: dict[bytes, bytes] = {}
    assert run(reported, code) == run(reported, code) == alone
    assert len(reported) == 1


async def _parts() -> AsyncIterator[bytes]:
    yield b"one,"
    yield b"two"


BODIES: dict[str, tuple[Callable[[], Any], bytes, str]] = {
    "bytes": (lambda: b"one,two", b"one,two", "application/octet-stream"),
    "text": (lambda: "one,two", b"one,two", "text/plain; charset=utf-8"),
    "stream": (_parts, b"one,two", "application/octet-stream"),
    "file": (lambda: io.BytesIO(b"one,two"), b"one,two", "application/octet-stream"),
    "form": (lambda: {"a": "b c"}, b"a=b+c", "application/x-www-form-urlencoded"),
}


@pytest.mark.parametrize("kind", BODIES)
def test_requests_with_other_bodies_are_other_calls(kind: str, server: Loopback) -> None:
    make, whole, content_type = BODIES[kind]

    async def use(session: Any) -> Any:
        async with session.put(server.url + "/any", data=make()) as reply:
            return reply.status

    reported: dict[bytes, bytes] = {}
    assert run(reported, asking(use)) == run(reported, asking(use)) == 200
    [seen] = server.seen
    assert (seen.body, seen.headers["content-type"]) == (whole, content_type)

    async def other(session: Any) -> Any:
        async with session.put(server.url + "/any", data=b"other") as reply:
            return reply.status

    run(reported, asking(other))
    assert len(server.seen) == 2


def test_a_multipart_body_is_refused_by_name(server: Loopback) -> None:
    async def use(session: Any) -> Any:
        form = aiohttp.FormData()
        form.add_field("file", io.BytesIO(b"x"), filename="x.txt")
        await session.post(server.url + "/any", data=form)

    with pytest.raises(BodyNotRecorded, match="the body of a request of aiohttp is a FormData"):
        run({}, asking(use))
    assert server.seen == []


def test_a_post_is_an_effect_and_in_doubt_after_a_death(server: Loopback) -> None:
    async def use(session: Any) -> Any:
        async with session.post(server.url + "/count", json={"n": 1}) as reply:
            return reply.status

    with pytest.raises(EffectUndeclared):
        run({}, asking(use), has_effects=False)
    reported: dict[bytes, bytes] = {}
    with pytest.raises(Died):
        run(reported, asking(use), dies_after=1)
    assert [seen.body for seen in server.seen] == [b'{"n": 1}']
    with pytest.raises(CallInDoubt):
        run(reported, asking(use))
    assert len(server.seen) == 1


def test_a_websocket_is_refused_inside_an_asynchronous_call_and_in_a_step(server: Loopback) -> None:
    async def use(session: Any) -> None:
        await session.ws_connect(server.url)

    with pytest.raises(NotIntercepted, match=r"aiohttp\.ClientSession\._ws_connect cannot be recorded"):
        run({}, asking(use))
    with running(FakeRecorder()), answered_with(ANSWERS), pytest.raises(NotIntercepted, match="_ws_connect"):
        asyncio.run(asking(use)())


def test_a_request_in_a_step_is_refused_by_name(server: Loopback) -> None:
    code = asking(plain(server.url + "/any"))
    with running(FakeRecorder()), answered_with(ANSWERS), pytest.raises(NotIntercepted) as raised:
        asyncio.run(code())
    assert str(raised.value).startswith("aiohttp.ClientSession._request cannot be recorded")
    assert "log_calls=True" in str(raised.value)
