"""Tokens of a server, and the pace at which wrong ones are compared."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from clonos.server.access.failed_logins import (
    FAILURES_MAX,
    INTERVAL_S,
    WAIT_S_MAX,
    WINDOW_S,
    FailedLogins,
    LoginPace,
)
from clonos.server.access.tokens import TokenUnfit, find_tokens
from clonos.server.job_api.guard import Role

TOKEN, OTHER = "t" * 16, "o" * 16


def test_a_fresh_token_is_in_a_file_that_only_its_user_may_read(tmp_path: Path) -> None:
    first = find_tokens(tmp_path, None, None, {})
    assert first.fresh_file == tmp_path / "token"
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    (token,) = first.by_token
    assert (len(token) >= 40, first.by_token[token]) == (True, Role.WRITE)
    later = find_tokens(tmp_path, None, None, {})
    assert (later.by_token, later.fresh_file) == (first.by_token, None)


def test_an_option_comes_before_the_environment_in_both_roles(tmp_path: Path) -> None:
    variables = {"CLONOS_TOKEN": "e" * 16, "CLONOS_READ_TOKEN": OTHER}
    assert find_tokens(tmp_path, TOKEN, None, variables).by_token == {TOKEN: Role.WRITE, OTHER: Role.READ}
    assert find_tokens(tmp_path, None, None, variables).by_token == {"e" * 16: Role.WRITE, OTHER: Role.READ}


def test_a_token_in_a_file_is_read_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.touch(0o600)
    file.write_text(f"{TOKEN}\n")
    assert find_tokens(tmp_path, f"@{file}", None, {}).by_token == {TOKEN: Role.WRITE}
    file.chmod(0o640)
    with pytest.raises(TokenUnfit, match="can be read by other users: chmod 600"):
        find_tokens(tmp_path, f"@{file}", None, {})


@pytest.mark.parametrize(
    ("token", "read_token", "reason"),
    [
        ("short", None, "--token needs at least 16 printable ASCII characters"),
        ("with space in it", None, "needs at least 16"),
        ("é" * 16, None, "needs at least 16"),
        (TOKEN, "short", "--read-token needs at least 16"),
        (TOKEN, TOKEN, "is that for writing"),
        ("@/no/such/file", None, "cannot be read"),
    ],
)
def test_an_unfit_token_is_refused_and_not_shown(
    tmp_path: Path, token: str, read_token: str | None, reason: str
) -> None:
    with pytest.raises(TokenUnfit, match=reason) as raised:
        find_tokens(tmp_path, token, read_token, {})
    assert "short" not in str(raised.value)


class _Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_wrong_tokens_within_the_limit_cost_no_time() -> None:
    logins = FailedLogins(_Clock())
    for _ in range(FAILURES_MAX - 1):
        logins.failed("a")
    assert logins.wait_s("a") == 0


def test_requests_of_an_address_with_many_wrong_tokens_wait_for_their_turn() -> None:
    clock = _Clock()
    logins = FailedLogins(clock)
    for _ in range(FAILURES_MAX):
        logins.failed("a")
    waits = [logins.wait_s("a") for _ in range(200)]
    turns = round(WAIT_S_MAX / INTERVAL_S) + 1
    assert waits[: turns - 1] == pytest.approx([number * INTERVAL_S for number in range(turns - 1)])
    assert set(waits[turns:]) == {None}
    assert logins.wait_s("b") == 0
    clock.now_s = WINDOW_S
    assert logins.wait_s("a") == 0


def test_a_token_is_not_compared_before_its_turn_and_a_request_without_one_is_no_guess() -> None:
    logins, slept, passed = FailedLogins(_Clock()), [], []

    async def guard(scope: Scope, _receive: Receive, send: Send) -> None:
        passed.append(scope["path"])
        await send({"type": "http.response.start", "status": 401, "headers": []})

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def ask(path: str, headers: list[tuple[bytes, bytes]]) -> int:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            raise AssertionError("nothing reads")

        scope = {"type": "http", "client": ("a", 1), "headers": headers, "path": path}
        await LoginPace(guard, logins, sleep)(scope, receive, send)
        return int(sent[0]["status"])

    async def play() -> list[int]:
        wrong = [(b"Authorization", b"Bearer x")]
        for _ in range(100):
            await ask("/none", [])
        return [await ask(f"/{number}", wrong) for number in range(FAILURES_MAX + 40)]

    statuses = asyncio.run(play())
    assert statuses[: FAILURES_MAX + 1] == [401] * (FAILURES_MAX + 1)
    assert statuses[-1] == 429
    assert len(passed) == 100 + statuses.count(401)
    assert len(slept) == statuses.count(401) - FAILURES_MAX - 1
