"""Cache of replies: equal requests are asked for once, also by other tasks, jobs and runs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clonos import ai, http
from clonos.core.ports.recorder import running
from clonos.io.local.reply_cache import ReplyCache
from tests.harnesses.fake_recorder import FakeRecorder
from tests.harnesses.model_server import Answer, ModelServer, completion, model_server, sends


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as running_server:
        yield running_server
    http.close()


def test_equal_requests_get_the_reply_of_the_first_one_without_cost(server: ModelServer, tmp_path: Path) -> None:
    path, recorder = str(tmp_path / "replies.db"), FakeRecorder()

    def asked(question: str, **parameters: Any) -> tuple[str, int, float, bool]:
        model = ai.chat("m", base_url=server.url, prices={"input": 1_000, "output": 0}, cache=path)
        reply = model(question, **parameters)
        return reply.text, reply.usage.total_tokens, reply.cost, reply.is_cached

    def all_asked() -> list[tuple[str, int, float, bool]]:
        return [asked("a"), asked("a"), asked("b"), asked("a", temperature=1), asked("a")]

    with running(recorder):
        found = all_asked()
    assert found == [
        ("number 1", 12, 0.007, False),
        ("number 1", 0, 0.0, True),
        ("number 2", 12, 0.007, False),
        ("number 3", 12, 0.007, False),
        ("number 1", 0, 0.0, True),
    ]
    Path(path).unlink()
    with running(recorder.successor()):
        assert all_asked() == found, "a replay needs no cache"
    assert len(server.asked) == 3
    assert len(recorder.log) == 5


def test_a_reply_that_cannot_be_used_does_not_enter_the_cache(server: ModelServer, tmp_path: Path) -> None:
    model = ai.chat("m", base_url=server.url, retries=0, cache=ai.reply_cache(tmp_path / "replies.db"))
    server.script += [Answer(500), sends("no JSON"), sends('{"prompt_tokens": 7}')]
    with pytest.raises(http.HttpStatusError):
        model("?", response=ai.Usage)
    with pytest.raises(ai.ReplyInvalid):
        model("?", response=ai.Usage)
    with closing(sqlite3.connect(tmp_path / "replies.db")) as database:
        assert database.execute("SELECT count(*) FROM replies").fetchone() == (0,)
    assert [model("?", response=ai.Usage).value.prompt_tokens for _ in range(2)] == [7, 7]
    assert len(server.asked) == 3


def test_the_oldest_replies_make_room_and_replies_end_with_their_time(tmp_path: Path) -> None:
    cache = ReplyCache(str(tmp_path / "replies.db"), 2, None)
    for number in range(4):
        cache.store(b"%d" % number, b"reply %d" % number)
    cache.store(b"2", b"another")
    assert [cache.find(b"%d" % number) for number in range(4)] == [None, None, b"another", b"reply 3"]
    assert ReplyCache(cache.path, 2, 3_600.0).find(b"3") == b"reply 3"
    assert ReplyCache(cache.path, 2, 1e-9).find(b"3") is None


def test_requests_with_another_key_or_header_do_not_share_replies(server: ModelServer, tmp_path: Path) -> None:
    path, key = str(tmp_path / "replies.db"), "key-of-tenant-a-0123"

    def asked(key: str | None, **headers: str) -> str:
        return ai.chat("m", base_url=server.url, api_key=key, headers=headers, cache=path)("?").text

    texts = [asked(key, org="a"), asked(key, Org="a"), asked(key, org="b"), asked(f"{key}!", org="a"), asked(None)]
    assert texts == ["number 1", "number 1", "number 2", "number 3", "number 4"]
    assert key.encode() not in Path(path).read_bytes()


def test_the_file_is_for_its_user_alone(tmp_path: Path) -> None:
    cache = ReplyCache(str(tmp_path / "replies.db"), 2, None)
    cache.store(b"digest", b"reply")
    assert Path(cache.path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("ttl", [1e12, 1e300, float("inf")])
def test_a_reply_may_count_without_end(tmp_path: Path, ttl: float) -> None:
    cache = ai.reply_cache(tmp_path / "replies.db", ttl=ttl)
    cache.store(b"digest", b"reply")
    assert cache.find(b"digest") == b"reply"


def test_a_file_that_is_no_cache_is_an_error_before_a_request_leaves(server: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "replies.db").write_bytes(b"no database, and longer than a header of one" * 30)
    model = ai.chat("m", base_url=server.url, cache=str(tmp_path / "replies.db"))
    with pytest.raises(ai.CacheUnusable, match=r"replies\.db cannot be used: file is not a database"):
        model("?")
    assert server.asked == []


def test_a_paid_reply_is_returned_also_if_the_cache_does_not_take_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ReplyCache(str(tmp_path), 1, None).store(b"digest", json.dumps(completion("?")).encode())
    assert "did not take a reply: unable to open database file" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size= is 0, expected a number of replies"),
        ({"ttl": "1d"}, "ttl= is '1d', expected a number of sec"),
    ],
)
def test_a_wrong_cache_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ai.ModelCallInvalid) as raised:
        ai.reply_cache("replies.db", **arguments)
    assert message in str(raised.value)
