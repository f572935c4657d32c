"""Requests of libraries are recorded calls: a successor sends none of them, and its code sees the same replies."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import requests
import urllib3

from clonos.core.log.call_outcomes import CallInDoubt
from clonos.core.ports.recorder import running
from clonos.io.interception.answers import answered_with
from clonos.io.interception.patches import install
from clonos_services.interception import ANSWERS
from tests.harnesses.fake_recorder import FakeRecorder
from tests.unit.services.loopback import Loopback, loopback

pytestmark = pytest.mark.keeps_sockets


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    install()


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as running_server:
        yield running_server


def by_requests(url: str) -> Any:
    with requests.Session() as session:
        reply = session.get(url)
        return reply.status_code, reply.reason, reply.text, sorted(reply.headers.items()), dict(session.cookies)


def by_urllib3(url: str) -> Any:
    with urllib3.PoolManager() as pool:
        reply = pool.request("GET", url)
        return reply.status, reply.data, sorted(reply.headers.items())


def by_httpx(url: str) -> Any:
    reply = httpx.get(url)
    return reply.status_code, reply.text, sorted(reply.headers.items()), reply.http_version


def by_urllib(url: str) -> Any:
    with urllib.request.urlopen(url) as reply:
        return reply.status, reply.reason, reply.read(), sorted(reply.headers.items()), reply.url


CLIENTS = (by_requests, by_urllib3, by_httpx, by_urllib)


def seen_by(recorder: FakeRecorder, use: Callable[[], Any]) -> Any:
    """Returns what user code of a task gets, or the class and text of its error."""
    with running(recorder), answered_with(ANSWERS):
        try:
            return use()
        except Exception as error:  # noqa: BLE001  compared below
            return type(error), str(error), type(getattr(error, "reason", None))


@pytest.mark.parametrize("get", CLIENTS)
@pytest.mark.parametrize("path", ["/count", "/moved", "/zipped", "/refused"])
def test_a_successor_gets_the_reply_without_a_request(get: Callable[[str], Any], path: str, server: Loopback) -> None:
    first = FakeRecorder()
    reply = seen_by(first, lambda: get(server.url + path))
    sent = len(server.seen)
    assert sent == (2 if path == "/moved" and get is not by_httpx else 1)  # httpx does not follow by itself
    assert all(seen.headers["idempotency-key"] for seen in server.seen)
    assert seen_by(first.successor(), lambda: get(server.url + path)) == reply
    assert len(server.seen) == sent


@pytest.mark.parametrize("get", CLIENTS)
@pytest.mark.parametrize("path", ["/any", "/zipped", "/refused"])
def test_the_reply_is_that_of_a_request_outside_of_a_task(
    get: Callable[[str], Any], path: str, server: Loopback
) -> None:
    reply, alone = (
        seen_by(FakeRecorder(), lambda: get(server.url + path)),
        seen_without_task(lambda: get(server.url + path)),
    )
    assert without_date(reply) == without_date(alone)


def without_date(reply: Any) -> list[Any]:
    return [[pair for pair in part if pair[0].lower() != "date"] if isinstance(part, list) else part for part in reply]


def seen_without_task(use: Callable[[], Any]) -> Any:
    try:
        return use()
    except Exception as error:  # noqa: BLE001  compared with that of a task
        return type(error), str(error), type(getattr(error, "reason", None))


@pytest.mark.parametrize("get", CLIENTS)
def test_errors_have_their_own_class_in_a_replay_too(get: Callable[[str], Any]) -> None:
    first = FakeRecorder()
    url = "http://127.0.0.1:1/"
    error = seen_by(first, lambda: get(url))
    assert seen_by(first.successor(), lambda: get(url)) == error
    assert error == seen_without_task(lambda: get(url)) or get in (
        by_requests,
        by_urllib3,
    )  # their texts have addresses
    assert error[0] is seen_without_task(lambda: get(url))[0]


POSTS: tuple[Callable[[str], Any], ...] = (
    lambda url: requests.post(url, json={"cents": 5}).text,
    lambda url: httpx.post(url, json={"cents": 5}).text,
    lambda url: urllib.request.urlopen(urllib.request.Request(url, data=b"cents=5")).read(),
)


@pytest.mark.parametrize("post", POSTS, ids=["requests", "httpx", "urllib"])
def test_a_post_is_an_effect_and_in_doubt_if_its_process_died(post: Callable[[str], Any], server: Loopback) -> None:
    first = FakeRecorder()
    url = server.url + "/echo"
    seen_by(first, lambda: post(url))
    tags = [tag for tag, _ in first.log if tag != "CLOCK"]
    assert tags == ["INTENT", "CALL"]
    assert len(server.seen) == 1
    died = FakeRecorder(tuple(first.log[: 1 + [tag for tag, _ in first.log].index("INTENT")]), life=1)
    assert seen_by(died, lambda: post(url))[0] is CallInDoubt
    assert len(server.seen) == 1
