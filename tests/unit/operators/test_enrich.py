"""enrich: answers of a service by key, their order, the cache, restores, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import http_lookup
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.core.log.call_outcomes import encode_outcome
from clonos.core.log.call_usage import CallAccount
from clonos.core.model.metric_series import MetricTable
from clonos.core.model.options import Options
from clonos.core.task.async_calls import HELD_MAX, OpenCalls
from clonos.io.http.http_client import HttpReply
from clonos.io.system.pace import Pace
from clonos.operators.row_errors import FieldMissing
from clonos_services import http
from tests.unit.operators.driver import Clock, Given, Outbox, Run

SECOND_NS = 1_000_000_000
URL = "http://host/users/{user}"
ITS_NUMBER: Any = object()


class Calls(Clock):
    """A recorder that leaves calls open, and counts the records that wait for the calls of others."""

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[int, Callable[[str], object]] = {}
        self.held = 0

    def limit_calls(self, capacity: int, held_max: int = 0) -> None:
        pass

    def hold(self, count: int) -> None:
        self.held += count

    def submit(
        self, number: int, service: str, request: bytes, perform: Callable[..., object], parts: object = None
    ) -> str:
        self.open[number] = perform
        return "key"


class Enriched:
    """A job with one enrich step, whose calls the test answers; the answer of a call is (key, its number)."""

    def __init__(self, keys: list[Any], restored: Enriched | None = None, **options: Any) -> None:
        graph = JobGraph("job", errors=Outbox())
        rows = graph.source(Given([{"n": n, "key": key} for n, key in enumerate(keys)]), parallelism=1)
        rows.enrich(lambda key: key, **{"on": "key", "select": _row, **options}).map(_same, name="out").sink(Outbox())
        self.calls = Calls()
        self.going = Run(graph.compile(Options(), parallelism=1), clock=self.calls)

    def restore(self, checkpoint: int) -> None:
        """Goes on where a barrier was taken."""
        before, clock_ns = self.going, self.calls.now_ns
        taken = before.barrier(checkpoint)
        before.close()
        self.calls = Calls()
        self.calls.now_ns = clock_ns
        self.going = Run(before.image, taken, self.calls)
        self.going.written = before.written

    def answer(self, number: int, outcome: Any = ITS_NUMBER) -> None:
        """Answers a call: with its key and number, or with ``outcome``."""
        key = self.calls.open.pop(number)("key")
        found = [key, number] if outcome is ITS_NUMBER else outcome
        self.going.chains[0].complete(number, encode_outcome("enrich", found))

    def answer_all(self) -> None:
        """Answers the open calls."""
        for number in list(self.calls.open):
            self.answer(number)

    @property
    def rows(self) -> list[Any]:
        """What has left the step."""
        return [row for name, rows in self.going.written.items() if "out" in name for row in rows]

    @property
    def errors(self) -> list[Any]:
        """What has gone to the error output."""
        self.going.drain()
        return self.going.written.get("errors", [])


def _row(record: dict[str, Any], answer: Any) -> tuple[int, Any, Any]:
    return record["n"], record["key"], answer


def _same(row: Any) -> Any:
    return row


CACHES = st.sampled_from([None, 1, 2, 100, "3s", (2, "2s")])
ACTIONS = st.lists(st.sampled_from(["read", "read", "answer", "answer", "time", "restore"]), min_size=12, max_size=40)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=10, max_size=30), CACHES, ACTIONS, st.integers(0, 1 << 30))
def test_each_record_has_an_answer_for_its_key_in_order_and_restores_change_nothing(
    keys: list[str], cache: Any, actions: list[str], seed: int
) -> None:
    """Whatever the order in which the calls end. A cache that the state had not would ask again, by another number."""
    outputs, asked = [], []
    for is_troubled in (False, True):
        rng, enriched, made = random.Random(seed), Enriched(keys, cache=cache), list[int]()
        for checkpoint, action in enumerate(actions, 1):
            if action == "read":
                enriched.going.read(3)
            elif action == "time":
                enriched.calls.now_ns += SECOND_NS
            elif action == "answer" and enriched.calls.open:
                made.append(rng.choice(sorted(enriched.calls.open)))
                enriched.answer(made[-1])
            elif action == "restore" and is_troubled:
                enriched.restore(checkpoint)
        while enriched.going.read(3):
            pass
        while enriched.calls.open:
            made.append(rng.choice(sorted(enriched.calls.open)))
            enriched.answer(made[-1])
        assert enriched.calls.held == 0
        enriched.going.close()
        outputs.append(enriched.rows)
        asked.append(made)
    assert outputs[0] == outputs[1]
    assert asked[0] == asked[1]
    assert [(n, key, answer[0]) for n, key, answer in outputs[0]] == [(n, key, key) for n, key in enumerate(keys)]
    numbers = [answer[1] for _, _, answer in outputs[0]]
    assert set(numbers) == set(asked[0])
    assert cache is not None or numbers == list(range(len(keys)))
    if cache == 100:
        assert len(asked[0]) == len(set(keys))


def test_an_answer_is_asked_for_again_when_it_is_old_or_was_pushed_out() -> None:
    enriched = Enriched(["a", "b", "a", "a", "c", "a", "b"], cache=(2, "10s"))
    enriched.going.read(3)
    assert (len(enriched.calls.open), enriched.calls.held) == (2, 1)
    enriched.answer_all()
    enriched.calls.now_ns += 9 * SECOND_NS
    enriched.going.read(1)
    assert not enriched.calls.open
    enriched.calls.now_ns += SECOND_NS
    enriched.going.read(2)  # c, and a, which is old
    assert len(enriched.calls.open) == 2
    enriched.answer_all()
    enriched.going.read(1)  # b is old, too
    enriched.answer_all()
    found = {n: answer[1] for n, _, answer in enriched.rows}
    assert found[0] == found[2] == found[3] != found[5]
    assert len(set(found.values())) == 5
    enriched.going.close()


def test_the_oldest_answer_leaves_a_full_cache() -> None:
    enriched = Enriched(["a", "b", "c", "b", "a"], cache=2)
    for opened in (1, 1, 1, 0, 1):
        enriched.going.read(1)
        assert len(enriched.calls.open) == opened
        enriched.answer_all()
    enriched.going.close()


@pytest.mark.parametrize(("not_found", "left_out"), [("none", 0), ("skip", 2)])
def test_a_record_without_an_answer_gives_none_or_nothing(not_found: str, left_out: int) -> None:
    enriched = Enriched(["a", None, "b"], not_found=not_found)
    enriched.going.read(3)
    assert sorted(enriched.calls.open) == [0, 2], "no answer is asked for None"
    enriched.answer(0, None)
    enriched.answer(2)
    assert enriched.rows == [(0, "a", None), (1, None, None), (2, "b", ["b", 2])][left_out:]
    enriched.going.close()


def test_an_error_or_a_missing_answer_is_the_error_of_each_record_that_waits_for_it() -> None:
    enriched = Enriched(["a", "a", "b", "c", "a"], not_found="error", cache="1h")
    enriched.going.read(3)
    enriched.going.read(1)
    enriched.answer(0, ValueError("broken"))
    enriched.answer(2, None)
    enriched.answer(3)
    enriched.going.read(1)
    enriched.answer_all()
    assert [(each.record["n"], each.error.partition(":")[0]) for each in enriched.errors] == [
        (0, "ValueError"),
        (1, "ValueError"),
        (2, "AnswerMissing"),
    ]
    assert "the step enrich has found no answer for the record" in enriched.errors[2].error
    assert [n for n, _, _ in enriched.rows] == [3, 4], "an error is not kept"
    enriched.going.close()


def test_results_are_pairs_or_have_the_answer_in_a_field() -> None:
    for options, row in (({"select": None}, ({"n": 0, "key": "a"}, ["a", 0])), ({"select": None, "into": "x"}, None)):
        enriched = Enriched(["a"], **options)
        enriched.going.read(1)
        enriched.answer_all()
        assert enriched.rows == [row or {"n": 0, "key": "a", "x": ["a", 0]}]
        enriched.going.close()


def test_a_step_after_cannot_change_an_answer_in_the_cache() -> None:
    enriched = Enriched(["a", "a"], cache="1h", select=lambda record, answer: (record["n"], answer.pop()))
    enriched.going.read(1)
    enriched.answer_all()
    enriched.going.read(1)
    assert enriched.rows == [(0, 0), (1, 0)]
    enriched.going.close()


# --- addresses


def test_an_address_asks_with_quoted_fields_and_knows_replies_without_an_answer() -> None:
    asked = []

    def reply(request: Any, limits: Any) -> HttpReply:
        asked.append(request.url)
        status = {"no": 404, "gone": 410, "empty": 204, "bad": 500}.get(request.url.rpartition("/")[2], 200)
        return HttpReply(status, "", request.url, (), b'{"name": "Ann"}')

    lookup = http_lookup("/users/{user}", base_url="http://host")
    with http.transported_by(reply):
        urls = [lookup.url_of({"user": user}) for user in ("ann/é", 7, "no", "gone", "empty")]
        assert [lookup(url) for url in urls if url] == [{"name": "Ann"}, {"name": "Ann"}, None, None, None]
        assert asked[:2] == ["http://host/users/ann%2F%C3%A9", "http://host/users/7"]
        with pytest.raises(http.HttpStatusError):
            lookup("/users/bad")
    assert lookup.url_of({"user": None}) is None
    with pytest.raises(FieldMissing, match="the record has no field 'user'; it has usr"):
        lookup.url_of({"usr": 1})


@pytest.mark.parametrize(
    ("lookup", "keywords", "sentence"),
    [
        ("users", {}, r"gets 'users', which is no http:// address\. Write \"https://host/users/\{user\}\""),
        ("http://host/{}", {}, "has something else than fields in braces"),
        ("http://host/{user.name}", {}, "has something else than fields in braces"),
        ("http://host/{user", {}, "malformed"),
        (URL, {"on": "user"}, "gets an address and on="),
        (7, {}, "gets 7, which is neither an address nor a function"),
        (len, {}, r"asks a function, and gets on=None\. Give a field or a function"),
        (URL, {"into": "a", "select": max}, "gets into= and select="),
        (URL, {"into": 3}, r"gets into=3\. Give the name of a field"),
        (URL, {"select": lambda record: record}, "takes 1 argument"),
        (URL, {"cache": 0}, "gets cache=0"),
        (URL, {"cache": True}, "gets cache=True"),
        (URL, {"cache": ("1h", 10)}, r"Give a number of answers, a length of time such as \"10min\", or both"),
        (URL, {"rate": 0}, r"gets rate=0\. Give the greatest number of calls per second"),
        (URL, {"not_found": "drop"}, r"gets not_found='drop'\. Give \"none\", \"skip\" or \"error\""),
        (URL, {"capacity": 0}, "has capacity=0"),
        (URL, {"retries": -1}, "has retries=-1"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(lookup: Any, keywords: dict[str, Any], sentence: str) -> None:
    rows: Any = JobGraph("job").source(Given([]))
    with pytest.raises(InvalidJob, match=sentence):
        rows.enrich(lookup, **keywords)


def test_a_cache_is_limited_by_a_number_a_time_or_both() -> None:
    rows: Any = JobGraph("job").source(Given([]))
    for cache in (1, "10min", timedelta(seconds=1), (10, "1h")):
        rows.enrich(URL, cache=cache)


# --- limits


def test_calls_wait_for_turns_at_the_rate() -> None:
    pace = Pace()
    assert [pace.take(now, 100) for now in (1_000, 1_000, 1_050, 1_300, 1_310)] == [0, 100, 150, 0, 90]


def test_a_task_takes_no_input_while_too_many_records_wait_for_the_calls_of_others() -> None:
    port: Any = None
    calls = OpenCalls(port, "keys", False, CallAccount(MetricTable(), 1))
    calls.limit(16)
    calls.submit(0, "step", b"", lambda key: key)
    assert calls.room == 15
    calls.hold(HELD_MAX - 4)
    assert calls.room == 4
    calls.hold(10)
    assert calls.room == 0
    calls.hold(-HELD_MAX - 6)
    assert calls.room == 15
