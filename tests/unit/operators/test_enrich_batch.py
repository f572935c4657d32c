"""enrich_batch: questions for many keys, when they are asked, what answers them, restores, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pandas
import polars
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.core.log.call_outcomes import encode_outcome
from clonos.core.model.errors import JobError
from clonos.core.model.options import Options
from clonos.operators.steps.enrich_batch import AnswersUnusable, answers_of
from tests.unit.operators.driver import Clock, Given, Outbox, Run

MILLISECOND_NS = 1_000_000


class Calls(Clock):
    """A recorder that leaves calls open, and knows how many records may wait for them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[int, Callable[[str], object]] = {}
        self.held, self.held_max = 0, 0

    def limit_calls(self, capacity: int, held_max: int = 0) -> None:
        self.held_max = held_max

    def hold(self, count: int) -> None:
        self.held += count

    def submit(
        self, number: int, service: str, request: bytes, perform: Callable[..., object], parts: object = None
    ) -> str:
        self.open[number] = perform
        return "key"


class Asked:
    """A job with one enrich_batch step, whose questions the test answers: the answer of a key is [key, question]."""

    def __init__(self, of_records: list[Any], **options: Any) -> None:
        graph = JobGraph("job", errors=Outbox())
        rows = graph.source(Given([{"n": n, "key": key} for n, key in enumerate(of_records)]), parallelism=1)
        chosen = {"on": "key", "select": _row, "keys": 3, **options}
        rows.enrich_batch(_asked, **chosen).map(_same, name="out").sink(Outbox())
        self.calls = Calls()
        self.going = Run(graph.compile(Options(), parallelism=1), clock=self.calls)

    def read(self, count: int) -> None:
        """Reads records, one in each step."""
        for _ in range(count):
            self.going.read(1)

    def restore(self, checkpoint: int) -> None:
        """Goes on where a barrier was taken."""
        before, clock_ns = self.going, self.calls.now_ns
        taken = before.barrier(checkpoint)
        before.close()
        self.calls = Calls()
        self.calls.now_ns = clock_ns
        self.going = Run(before.image, taken, self.calls)
        self.going.written = before.written

    def pass_time(self, milliseconds: int = 20) -> None:
        """Lets time pass, and fires the timers that are due."""
        self.calls.now_ns += milliseconds * MILLISECOND_NS
        chain = self.going.chains[0]
        if (due_ns := chain.next_timer_ns()) is not None and due_ns <= self.calls.now_ns:
            chain.fire_timers(self.calls.now_ns)

    def answer(self, number: int, expression: str = "") -> list[Any]:
        """Answers a question: each key with itself and the question, or by an expression. Returns the keys."""
        perform: Any = self.calls.open.pop(number)
        try:
            found: object = perform(expression or f"{{key: [key, {number}] for key in keys}}")
        except Exception as error:  # noqa: BLE001  the outcome of the call
            found = error
        self.going.chains[0].complete(number, encode_outcome("enrich_batch", found))
        return list(*perform.args[0])

    def answer_all(self) -> list[list[Any]]:
        """Answers the open questions, and those that follow. Returns their keys."""
        found = []
        while self.calls.open:
            found.append(self.answer(min(self.calls.open)))
        return found

    def end(self) -> None:
        """Ends the input, and answers all questions."""
        chain = self.going.chains[0]
        chain.end_of_input()
        while self.calls.open:
            self.answer_all()
            chain.end_of_input()
        self.going.close()

    @property
    def rows(self) -> list[Any]:
        """What has left the step."""
        return [row for name, rows in self.going.written.items() if "out" in name for row in rows]

    @property
    def errors(self) -> list[Any]:
        """What has gone to the error output."""
        self.going.drain()
        return self.going.written.get("errors", [])


def _asked(keys: list[Any], idempotency_key: str) -> Any:
    """Answers by an expression of the keys, which the test gives in place of the idempotency key."""
    found = eval(idempotency_key, {"keys": keys})  # noqa: S307  text of this test
    if isinstance(found, Exception):
        raise found
    return found


def _row(record: dict[str, Any], answer: Any) -> tuple[int, Any, Any]:
    return record["n"], record["key"], answer


def _same(row: Any) -> Any:
    return row


def test_keys_are_asked_for_together_once_each_when_they_are_enough_or_their_time_has_ended() -> None:
    asked = Asked([*"abaabcd"])
    asked.read(5)
    assert not asked.calls.open, "two keys wait for a third one"
    asked.read(2)
    assert list(asked.calls.open) == [0]
    assert asked.answer(0) == ["a", "b", "c"]
    assert [n for n, _, _ in asked.rows] == [0, 1, 2, 3, 4, 5]
    asked.pass_time(19)
    assert not asked.calls.open
    asked.pass_time(1)
    assert asked.answer_all() == [["d"]]
    assert asked.rows[0] == (0, "a", ["a", 0])
    assert asked.rows[6] == (6, "d", ["d", 6])
    asked.end()


def test_keys_that_wait_are_asked_for_at_the_end_of_the_input() -> None:
    asked = Asked([*"ab"])
    asked.read(2)
    asked.end()
    assert asked.rows == [(0, "a", ["a", 0]), (1, "b", ["b", 0])]


def test_no_more_questions_are_open_than_the_capacity_and_a_free_place_is_taken_at_once() -> None:
    asked = Asked([*"abcdefghij"], capacity=2)
    asked.read(10)
    assert sorted(asked.calls.open) == [0, 3]
    assert asked.calls.held == 10
    assert asked.calls.held_max == 9, "those of two questions and one more"
    assert asked.answer(3) == ["d", "e", "f"]
    assert asked.rows == []
    assert sorted(asked.calls.open) == [0, 6]
    asked.pass_time()
    assert sorted(asked.calls.open) == [0, 6], "j is due, and waits for a place"
    asked.restore(1)
    assert sorted(asked.calls.open) == [0, 6]
    asked.answer(6)
    assert sorted(asked.calls.open) == [0, 9]
    asked.answer_all()
    assert [answer for _, _, answer in asked.rows] == [[key, n // 3 * 3] for n, key in enumerate("abcdefghij")]
    asked.end()


def test_a_key_in_the_cache_or_in_an_open_question_is_not_asked_for() -> None:
    asked = Asked([*"abcabdab"], cache="1h")
    asked.read(3)
    asked.read(3)  # a and b follow the open question
    asked.restore(1)
    assert asked.answer(0) == ["a", "b", "c"]
    asked.read(2)
    asked.pass_time()
    assert asked.answer_all() == [["d"]]
    assert [answer[1] for _, _, answer in asked.rows] == [0, 0, 0, 0, 0, 5, 0, 0]
    asked.end()


@pytest.mark.parametrize(("not_found", "found"), [("none", [0, 1, 2, 3]), ("skip", [0])])
def test_a_record_without_an_answer_gives_none_or_nothing(not_found: str, found: list[int]) -> None:
    asked = Asked(["a", None, "b", "c"], not_found=not_found)
    asked.read(4)
    asked.answer(0, "{'a': 1, 'c': None, 'other': 2}")
    assert [n for n, _, _ in asked.rows] == found
    assert asked.rows[0] == (0, "a", 1)
    asked.end()


def test_the_error_of_a_question_is_that_of_its_records_and_an_answer_may_be_the_error_of_a_key() -> None:
    asked = Asked([*"abcadef"], not_found="error", cache="1h")
    asked.read(7)
    asked.answer(0, "ValueError('broken')")
    asked.answer(4, "{'d': 1, 'e': KeyError('of e')}")
    asked.end()
    assert [(each.record["n"], each.error.partition(":")[0]) for each in asked.errors] == [
        *((n, "ValueError") for n in range(4)),
        (5, "KeyError"),
        (6, "AnswerMissing"),
    ]
    assert asked.rows == [(4, "d", 1)]


FRAME = {"key": ["b", "a"], "price": [2, 1]}


@pytest.mark.parametrize("frame", [pandas.DataFrame(FRAME), polars.DataFrame(FRAME), pyarrow.table(FRAME)], ids=repr)
def test_the_rows_of_a_frame_are_answers_by_its_key_column(frame: Any) -> None:
    assert answers_of(["a", "c", "b"], frame, "key") == [{"key": "a", "price": 1}, None, {"key": "b", "price": 2}]


@pytest.mark.parametrize(
    ("found", "field", "sentence"),
    [
        ([1, 2], "key", r"returned a list\. Return a dict from key to answer, such as dict\(zip\(keys, answers\)\)"),
        (None, "key", "returned a NoneType"),
        (pandas.Series([1]), "key", "returned a Series"),
        (pyarrow.table(FRAME), None, "returned a frame, and on= is a function"),
        (pyarrow.table({"id": ["a"]}), "key", "the frame has no column 'key', the key; it has 'id'"),
        (pyarrow.table({"key": ["a", "a"]}), "key", "the frame has two rows for the key 'a'"),
        ({7: 1}, "key", r"keys such as 7 \(int\), and the question was for keys such as 'a' \(str\)"),
    ],
)
def test_a_value_without_answers_by_key_is_refused(found: Any, field: str | None, sentence: str) -> None:
    with pytest.raises(AnswersUnusable, match=sentence):
        answers_of(["a", "b"], found, field)


def test_a_table_of_all_answers_may_lack_those_asked_for() -> None:
    assert answers_of(["a"], {"x": 1, "y": 2}, None) == [None]
    assert answers_of([1], {1.0: "one"}, None) == ["one"]
    assert answers_of([1], {}, None) == [None]


CACHES = st.sampled_from([None, 1, 2, 100, "3s", (2, "2s")])
ACTIONS = st.lists(st.sampled_from(["read", "read", "answer", "answer", "time", "restore"]), min_size=12, max_size=40)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from("abcdefg"), min_size=10, max_size=30),
    CACHES,
    st.integers(1, 4),
    st.integers(1, 3),
    ACTIONS,
    st.integers(0, 1 << 30),
)
def test_each_record_has_an_answer_for_its_key_in_order_and_restores_change_no_question(
    keys: list[str], cache: Any, keys_max: int, capacity: int, actions: list[str], seed: int
) -> None:
    outputs, questions = [], []
    for is_troubled in (False, True):
        rng, made = random.Random(seed), list[list[Any]]()
        asked = Asked(keys, cache=cache, keys=keys_max, capacity=capacity)
        for checkpoint, action in enumerate(actions, 1):
            if action == "read":
                asked.going.read(3)
            elif action == "time":
                asked.pass_time(rng.choice((5, 20, 1_000)))
            elif action == "answer" and asked.calls.open:
                made.append(asked.answer(rng.choice(sorted(asked.calls.open))))
            elif action == "restore" and is_troubled:
                asked.restore(checkpoint)
        while asked.going.read(3):
            pass
        asked.end()
        assert asked.calls.held == 0
        outputs.append(asked.rows)
        questions.append(made)
    assert outputs[0] == outputs[1]
    assert questions[0] == questions[1]
    assert [(n, key, answer[0]) for n, key, answer in outputs[0]] == [(n, key, key) for n, key in enumerate(keys)]
    assert all(len(made) == len(set(made)) <= keys_max for made in questions[0])


@pytest.mark.parametrize(
    ("lookup", "keywords", "sentence"),
    [
        ("http://host/{key}", {}, r"which is no function\. Give a function of a list of keys"),
        (len, {"on": None}, r"asks a function, and gets on=None\. Give a field or a function"),
        (len, {"keys": 0}, r"has keys=0\. Give an int from 1 to 65,536"),
        (len, {"keys": 1 << 17}, "has keys=131072"),
        (len, {"within": None}, "None is not a length of time"),
        (len, {"capacity": 0}, "has capacity=0"),
        (lambda: 1, {}, "takes no argument"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(lookup: Any, keywords: dict[str, Any], sentence: str) -> None:
    rows: Any = JobGraph("job").source(Given([]))
    with pytest.raises(JobError, match=sentence):
        rows.enrich_batch(lookup, **{"on": "key", **keywords})
