"""The guard of an API: hosts, tokens, roles, sizes, headers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from clonos.server.job_api.guard import RequestGuard, Role, role_by_token

TOKENS = {"reading": Role.READ, "writing": Role.WRITE}
LIMIT = 10


async def _echo(_scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def _ask(
    path: str = "/api/v1/jobs",
    method: str = "GET",
    token: str | None = "writing",
    host: str = "127.0.0.1:8090",
    pieces: tuple[bytes, ...] = (b"",),
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> tuple[int, bytes, dict[bytes, bytes]]:
    sent: list[dict[str, Any]] = []
    left = list(pieces)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: Any) -> None:
        sent.append(message)

    own = [(b"host", host.encode()), *headers]
    if token is not None:
        own.append((b"authorization", f"Bearer {token}".encode()))
    scope = {"type": "http", "path": path, "method": method, "headers": own}
    asyncio.run(RequestGuard(_echo, role_by_token(TOKENS), body_bytes_max=lambda _path: LIMIT)(scope, receive, send))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    return sent[0]["status"], sent[1]["body"], dict(sent[0]["headers"])


def _code(body: bytes) -> str:
    return str(json.loads(body)["error"]["code"])


def test_a_token_of_the_role_write_may_do_everything() -> None:
    assert _ask()[0] == 200
    assert _ask(method="POST", pieces=(b"12345", b"67890"))[:2] == (200, b"1234567890")


def test_a_token_of_the_role_read_may_not_change_anything() -> None:
    assert _ask(token="reading")[0] == 200
    status, body, _ = _ask(token="reading", method="POST")
    assert (status, _code(body)) == (403, "forbidden")


@pytest.mark.parametrize("token", [None, "", "writin", "writing2", "ünknown"])
def test_a_wrong_token_is_refused_for_every_path_of_the_api_alike(token: str | None) -> None:
    answers = {_ask(path, token=token)[:2] for path in ("/api/v1/jobs", "/api/v1/none", "/api/")}
    assert len(answers) == 1
    status, body = answers.pop()
    assert (status, _code(body)) == (401, "unauthorized")


def test_the_files_of_the_page_need_no_token() -> None:
    assert _ask("/page.js", token=None)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8090", "127.0.0.1.evil.example", ""])
def test_another_host_is_refused_because_its_name_may_have_been_rebound(host: str) -> None:
    status, body, _ = _ask(host=host)
    assert (status, _code(body)) == (400, "host_not_allowed")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:8090", "127.0.0.1"])
def test_names_of_the_loopback_interface_are_allowed(host: str) -> None:
    assert _ask(host=host)[0] == 200


@pytest.mark.parametrize("headers", [(), ((b"content-length", b"11"),)])
def test_a_body_above_the_limit_is_refused_once(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    status, body, _ = _ask(method="POST", pieces=(b"123456", b"78901"), headers=headers)
    assert (status, _code(body)) == (413, "body_too_large")


def test_every_answer_forbids_scripts_of_others() -> None:
    for found in (_ask(), _ask(token=None), _ask(host="evil.example"), _ask("/page.js", token=None)):
        assert b"script-src 'self'" in found[2][b"content-security-policy"]
        assert found[2][b"x-content-type-options"] == b"nosniff"
