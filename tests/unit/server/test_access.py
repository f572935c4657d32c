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
    assert {logins.failed("a") for _ in range(FAILURES_MAX)} == {0}


def test_answers_to_many_wrong_tokens_of_an_address_wait_for_their_turn() -> None:
    clock = _Clock()
    logins = FailedLogins(clock)
    for _ in range(FAILURES_MAX):
        logins.failed("a")
    waits = [logins.failed("a") for _ in range(200)]
    turns = round(WAIT_S_MAX / INTERVAL_S) + 1
    assert waits[: turns - 1] == pytest.approx([number * INTERVAL_S for number in range(turns - 1)])
    assert set(waits[turns:]) == {None}
    assert logins.failed("b") == 0
    clock.now_s = WINDOW_S
    assert logins.failed("a") == 0


def test_a_client_of_ipv6_is_one_address_whatever_it_chooses_for_the_second_half() -> None:
    logins = FailedLogins(_Clock())
    waits = [logins.failed(f"2001:db8::{number:x}") for number in range(FAILURES_MAX + 2)]
    assert waits[-2:] == [0, INTERVAL_S]
    assert logins.failed("2001:db8:0:1::1") == 0


class _Door:
    """A pace in front of a guard with one right token. ``held``: how long answers were held up."""

    def __init__(self) -> None:
        self.held: list[float] = []
        self.gate: asyncio.Event | None = None  # that ends the waits; None: they end at once
        self.pace = LoginPace(self._guard, FailedLogins(_Clock()), self._sleep)

    async def _guard(self, scope: Scope, _receive: Receive, send: Send) -> None:
        is_right = (b"Authorization", f"Bearer {TOKEN}".encode()) in scope["headers"]
        await send({"type": "http.response.start", "status": 200 if is_right else 401, "headers": []})
        await send({"type": "http.response.body", "body": b"of the guard"})

    async def _sleep(self, seconds: float) -> None:
        self.held.append(seconds)
        if self.gate is not None:
            await self.gate.wait()

    async def ask(self, token: str | None) -> int:
        """The status of the answer."""
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            raise AssertionError("nothing reads")

        headers = [] if token is None else [(b"Authorization", f"Bearer {token}".encode())]
        await self.pace({"type": "http", "client": ("a", 1), "headers": headers}, receive, send)
        assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
        return int(sent[0]["status"])


def test_a_right_token_is_answered_at_once_among_wrong_ones_of_its_address() -> None:
    door = _Door()

    async def play() -> list[int]:
        statuses = []
        for _ in range(FAILURES_MAX + 100):
            await door.ask(OTHER)
            held = len(door.held)
            statuses.append(await door.ask(TOKEN))
            assert len(door.held) == held
        return statuses

    assert set(asyncio.run(play())) == {200}


def test_wrong_tokens_are_answered_later_and_then_refused_and_a_request_without_one_is_no_guess() -> None:
    door = _Door()

    async def play() -> tuple[list[int], set[int]]:
        without = {await door.ask(None) for _ in range(100)}
        return [await door.ask(OTHER) for _ in range(FAILURES_MAX + 40)], without

    statuses, without = asyncio.run(play())
    assert (without, statuses[: FAILURES_MAX + 1]) == ({401}, [401] * (FAILURES_MAX + 1))
    assert statuses[-1] == 429
    assert len(door.held) == statuses.count(401) - FAILURES_MAX - 1


def test_a_few_answers_wait_at_a_time_and_the_others_are_refused_at_once() -> None:
    door = _Door()

    async def play() -> list[int]:
        door.gate = asyncio.Event()
        for _ in range(FAILURES_MAX + 1):
            await door.ask(OTHER)
        door.pace.delayed_max = 5
        guesses = [asyncio.create_task(door.ask(OTHER)) for _ in range(12)]
        refused, waiting = await asyncio.wait(guesses, return_when=asyncio.FIRST_COMPLETED)
        assert (len(refused), len(waiting)) == (7, 5)
        assert await door.ask(TOKEN) == 200
        door.gate.set()
        return sorted(await asyncio.gather(*guesses))

    assert asyncio.run(play()) == [401] * 5 + [429] * 7
