"""Runs with a token for a server that they ask or post to, or for those who send to the job, write it nowhere."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from subprocess import Popen

import pytest

from clonos.connectors import files
from tests.connectors.secret_runs import WRONG, run_with_secret
from tests.unit.connectors.web.feed_server import Feeds
from tests.unit.connectors.web.polled_server import Answer, pages
from tests.unit.connectors.web.receiving_server import receiver
from tests.unit.connectors.web.sending import LIMIT_S, PATH, free_port, send

pytestmark = pytest.mark.connectors

TOKEN = "t0ken-of-the-shop-6205"
POST = """
rows = job.source(files.lines("{given}"))
rows.sink(web.post("{url}", headers={{"Authorization": PASSWORD}}))
"""
RECEIVE = """
rows = job.source(web.receive({port}, "{path}", token=PASSWORD, decode=codecs.json()))
rows.sink(files.jsonl("out"))
"""
POLL = """
rows = job.source(web.poll("{url}", records="orders", cursor=web.NEXT_LINK, until="end", {given}))
rows.sink(files.jsonl("out"))
"""


WEBSOCKET = """
rows = job.source(web.websocket("{url}", send={{"after": 0}}, identity="n", until="close", {given}))
rows.sink(files.jsonl("out"))
"""


@pytest.mark.parametrize("given", ["token=PASSWORD", 'headers={"X-Shop": PASSWORD}'])
@pytest.mark.parametrize("is_refused", [False, True])
def test_a_run_that_connects_with_a_token_writes_it_nowhere(tmp_path: Path, given: str, is_refused: bool) -> None:
    with Feeds() as server:
        server.number("feed", [1, 2])
        server.closes.extend([(1011, f"{TOKEN} is not known now"), (1000, "that is all")])
        server.answers.extend([(401, {"X-Told": TOKEN}, b"unknown " + TOKEN.encode())] * is_refused)
        run = run_with_secret(tmp_path, WEBSOCKET.format(url=server.url(), given=given), TOKEN)
    assert (run.code == 0) is not is_refused, run.shown
    header, value = ("authorization", f"Bearer {TOKEN}") if given.startswith("token") else ("x-shop", TOKEN)
    assert {headers[header] for _, headers in server.asked} == {value}
    if is_refused:
        assert "401" in run.shown
    else:
        assert list(files.read_committed(tmp_path / "run" / "out")) == [{"n": 1, "at": 1}, {"n": 2, "at": 2}]
        assert "is not known now" in run.shown
    assert server.address in run.shown


@pytest.mark.parametrize("given", ["token=PASSWORD", 'headers={"X-Shop": PASSWORD}'])
@pytest.mark.parametrize("is_refused", [False, True])
def test_a_run_that_polls_with_a_token_writes_it_nowhere(tmp_path: Path, given: str, is_refused: bool) -> None:
    with pages(["tea", "ink", "jam"]) as server:
        server.answers.extend([Answer(401, b"unknown " + TOKEN.encode())] * is_refused)
        run = run_with_secret(tmp_path, POLL.format(url=server.url, given=given), TOKEN)
    assert (run.code == 0) is not is_refused, run.shown
    header, value = ("authorization", f"Bearer {TOKEN}") if given.startswith("token") else ("x-shop", TOKEN)
    assert {one.headers[header] for one in server.asked} == {value}
    if is_refused:
        assert "401" in run.shown
    else:
        assert list(files.read_committed(tmp_path / "run" / "out")) == ["tea", "ink", "jam"]
    assert server.url in run.shown


@pytest.mark.parametrize("status", [204, 401])
def test_a_run_that_posts_with_a_token_writes_it_nowhere(tmp_path: Path, status: int) -> None:
    (tmp_path / "words.txt").write_text("to\nbe\n", "utf-8")
    with receiver() as server:
        server.answers.extend([(status, {})] * 2)
        run = run_with_secret(tmp_path, POST.format(given=tmp_path / "words.txt", url=server.url), TOKEN)
    assert (run.code == 0) is (status == 204), run.shown
    assert {one.headers["authorization"] for one in server.received} == {TOKEN}
    assert status == 204 or "401" in run.shown
    assert server.url in run.shown


@pytest.mark.parametrize("body", [b'"tea"', b"{"])
def test_a_run_that_receives_with_a_token_writes_it_nowhere(tmp_path: Path, body: bytes) -> None:
    port = free_port()

    def deliver(process: Popen[str]) -> None:
        assert _status(process, port, body, WRONG) == 401
        status = _status(process, port, body, TOKEN)
        if body != b"{":  # which ends the job, perhaps before the answer
            assert status == 200
            process.send_signal(signal.SIGTERM)

    run = run_with_secret(tmp_path, RECEIVE.format(port=port, path=PATH), TOKEN, deliver)
    assert (run.code == 0) is (body != b"{"), run.shown
    assert list(files.read_committed(tmp_path / "run" / "out")) == (["tea"] if body != b"{" else [])
    assert WRONG.encode() not in run.shown.encode() + run.written


def _status(process: Popen[str], port: int, body: bytes, token: str) -> int:
    """Status of the answer to an event, which is sent again until there is one; 0 if the job has ended."""
    headers = {"Idempotency-Key": "e1", "Authorization": f"Bearer {token}"}
    for _ in range(int(LIMIT_S / 0.02)):
        with suppress(OSError, HTTPException):
            status = send(port, body, headers).status
            if status != 503:
                return status
        if process.poll() is not None:
            return 0
        threading.Event().wait(0.02)
    raise AssertionError("the job has not opened its port")
