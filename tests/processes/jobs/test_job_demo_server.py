"""The demo's HTTP server: each answer is drawn at random and logged before it is sent."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from clonos.demo.demo_server import DemoServerProcess
from clonos.demo.demo_verdict import answers_given

pytestmark = pytest.mark.processes

QUESTIONS = 200


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "answers.jsonl"


@pytest.fixture
def connection(log: Path) -> Iterator[http.client.HTTPConnection]:
    with (
        closing(DemoServerProcess(log)) as server,
        closing(http.client.HTTPConnection(urlsplit(server.url).netloc)) as connection,
    ):
        yield connection


def _ask(connection: http.client.HTTPConnection, path: str, key: str = "") -> tuple[int, dict[str, object]]:
    connection.request("GET", path, headers={"Idempotency-Key": key})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def test_the_log_holds_every_answer_as_it_was_given(connection: http.client.HTTPConnection, log: Path) -> None:
    given = []
    for number in range(QUESTIONS):
        asked = urlencode({"word": "café & more", "identity": f"a:0:{number}"})
        status, body = _ask(connection, f"/banned?{asked}", key=f"key-{number}")
        assert status == 200
        given.append((f"a:0:{number}", body["banned"]))
    assert list(answers_given(log)) == given
    assert {banned for _, banned in given} == {True, False}
    first = json.loads(log.read_text("utf-8").splitlines()[0])
    assert (first["word"], first["key"]) == ("café & more", "key-0")


def test_a_request_without_a_word_is_refused_and_not_logged(connection: http.client.HTTPConnection, log: Path) -> None:
    assert _ask(connection, "/banned?word=a")[0] == 404
    assert _ask(connection, "/other")[0] == 404
    assert log.read_text("utf-8") == ""
