"""Limits of models: a budget is state, and whatever dies it is neither forgotten nor charged twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clonos import Stream, ai, http
from clonos.core.log.call_outcomes import OutcomeMalformed, with_usage
from clonos.core.log.call_usage import MODEL_SPENT, CallAccount, spread_spending
from clonos.core.model.metric_series import MetricFamily, MetricSeries, MetricTable
from clonos.core.ports.recorder import running
from clonos.core.values import encode_value
from clonos.testing import Harness
from tests.harnesses.fake_recorder import FakeRecorder
from tests.harnesses.model_server import Answer, ModelServer, completion, model_server, sends

PRICES = {"input": 1_000, "output": 2_000}
COST = (7 * 1_000 + 5 * 2_000) / 1_000_000
"""Of a reply of the server, which has used 7 and 5 tokens."""


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as running_server:
        yield running_server
    http.close()


def question_of(request: Any) -> str:
    """The first message of a request to a model."""
    return str(json.loads(request.body)["messages"][0]["content"])


def counted(table: MetricTable) -> dict[str, float]:
    """The numbers of all series, by name and labels."""
    return {
        " ".join((family.metric.name, *series.labels)): series.numbers[0]
        for family in table.families()
        for series in family.series
    }


def test_tokens_and_cost_of_a_call_count_once_and_a_successor_goes_on_with_them(server: ModelServer) -> None:
    model = ai.chat("m", base_url=server.url, prices=PRICES | {"cached_input": 0, "currency": "EUR"})
    cached = completion("?")
    cached["usage"]["prompt_tokens_details"] = {"cached_tokens": 4}
    server.script += [sends("?"), Answer(body=json.dumps(cached).encode()), sends("no JSON")]
    recorder = FakeRecorder()
    with running(recorder):
        assert [model("?").cost for _ in range(2)] == pytest.approx([COST, COST - 0.004])
        with pytest.raises(ai.ReplyInvalid):
            model("?", response=ai.Usage)
    successor = recorder.successor()
    with running(successor):
        for _ in range(2):
            model("?")
        with pytest.raises(ai.ReplyInvalid):
            model("?", response=ai.Usage)
    assert (
        counted(successor.metric_table)
        == counted(recorder.metric_table)
        == {
            "clonos_model_requests m": 3,
            "clonos_model_tokens m prompt": 17,
            "clonos_model_tokens m cached": 4,
            "clonos_model_tokens m completion": 15,
            "clonos_model_cost m EUR": pytest.approx(3 * COST - 0.004),
            "clonos_model_spent m EUR ": pytest.approx(3 * COST - 0.004),
        }
    )
    assert len(server.asked) == 3


def test_a_model_is_not_asked_after_its_budget_is_spent_and_a_replay_raises_the_same(server: ModelServer) -> None:
    model = ai.chat("m", base_url=server.url, prices=PRICES, budget="0.05 USD")

    def ask() -> str:
        try:
            return model("?").text
        except ai.BudgetExceeded as error:
            return str(error)

    recorder = FakeRecorder()
    with running(recorder):
        found = [ask() for _ in range(4)]
    successor = recorder.successor()
    with running(successor):
        assert [ask() for _ in range(4)] == found
        found.append(ask())
    assert found[:3] == ["number 1", "number 2", "number 3"]
    assert found[3] == found[4]
    assert "the model m is not asked: its calls have cost 0.051 USD, and its budget is 0.05 USD. Raise" in found[3]
    assert len(server.asked) == 3


def test_each_task_has_an_equal_part_of_the_budget(server: ModelServer) -> None:
    recorder = FakeRecorder()
    recorder.account = CallAccount(recorder.metric_table, 4)
    model = ai.chat("m", base_url=server.url, prices=PRICES, budget="0.06 usd")
    with running(recorder):
        model("?")
        with pytest.raises(ai.BudgetExceeded, match=r"its budget is 0\.015 USD, the part of this task, one of 4\."):
            model("?")


@pytest.mark.parametrize("step", ["map", "map_async", "log_calls"])
def test_a_task_spends_its_budget_once_whatever_is_lost(step: str) -> None:
    asked: list[str] = []
    model = ai.chat("m", base_url="http://model/v1", prices=PRICES, budget="0.1 USD")

    def answer(request: Any) -> dict[str, Any]:
        asked.append(question_of(request))
        return completion(asked[-1])

    def ask(question: str) -> str:
        try:
            return f"{model(question).text} {model(question * 2).text}"
        except ai.BudgetExceeded as error:
            return f"{error.spent:.3f} {error.tasks}"

    def answered(questions: Stream[str]) -> Stream[str]:
        return questions.map(ask) if step == "map" else questions.map_async(ask, log_calls=step == "log_calls")

    with Harness(steps=answered, http=answer) as harness:
        assert harness.push(["a"]) == ["a aa"]
        harness.snapshot()
        assert harness.push(["b"]) == ["b bb"]
        harness.crash()
        harness.restore()
        assert harness.replay() == ["b bb"]
        assert harness.push(["c"]) == ["c cc"]
        assert harness.push(["d"]) == ["0.102 1"]
    assert asked == ["a", "aa", "b", "bb", "c", "cc"]


def test_outside_of_a_job_the_calls_of_the_process_spend_the_budget(server: ModelServer) -> None:
    model = ai.chat("outside", base_url=server.url, prices=PRICES, budget="0.02 USD")
    model("?")
    model("?")
    with pytest.raises(ai.BudgetExceeded, match=r"have cost 0\.034 USD"):
        model("?")


def test_vectors_spend_a_budget_too(server: ModelServer) -> None:
    embed = ai.embeddings("e", base_url=server.url, prices={"input": 1_000}, budget="0.004 USD", batch=1)
    recorder = FakeRecorder()
    with running(recorder):
        assert embed(["two words", "two more"]).cost == 0.004
        with pytest.raises(ai.BudgetExceeded):
            embed("?")
    assert counted(recorder.metric_table)["clonos_model_tokens e prompt"] == 4


@pytest.mark.parametrize("limit", [{"per_minute": 600}, {"tokens_per_minute": 7_200}], ids=str)
def test_a_call_waits_for_its_turn(server: ModelServer, limit: dict[str, float]) -> None:
    model = ai.chat("paced", base_url=server.url, **limit)  # type: ignore[arg-type]
    recorder = FakeRecorder()
    began = time.monotonic()
    with running(recorder):
        for _ in range(4):
            model("?")
    assert time.monotonic() - began >= 0.3, "of four calls three wait for a tenth of a second"
    began = time.monotonic()
    with running(recorder.successor()):
        for _ in range(4):
            model("?")
    assert len(server.asked) == 4


def test_a_retry_waits_for_its_turn_too(server: ModelServer) -> None:
    server.script += [Answer(503), sends("On it.")]
    began = time.monotonic()
    assert ai.chat("paced retry", base_url=server.url, per_minute=150)("?").text == "On it."
    assert time.monotonic() - began >= 0.4


def test_a_call_that_has_no_budget_waits_for_no_turn(server: ModelServer) -> None:
    model = ai.chat("slow", base_url=server.url, per_minute=0.1, prices=PRICES, budget="0.01 USD")
    with running(FakeRecorder()):
        model("?")
        with pytest.raises(ai.BudgetExceeded):
            model("?")


def test_tasks_of_another_width_share_what_all_have_spent() -> None:
    def having(spent: float, step: str = "ask") -> tuple[MetricFamily, ...]:
        return (MetricFamily(MODEL_SPENT, (MetricSeries(("m", "USD", step), (spent,)),)),)

    tasks = [having(3.0), having(5.0), having(7.0, "check")]
    assert spread_spending((), tasks, {"ask"}, 4) == having(2.0)
    assert spread_spending(having(3.0), tasks, {"ask", "read"}, 1) == having(8.0)
    assert spread_spending(having(3.0), tasks, {"check"}, 1) == having(7.0, "check")
    assert spread_spending((), tasks, {"read"}, 4) == ()


@pytest.mark.parametrize("kind", ["map", "map_async", "log_calls"])
def test_chained_steps_with_the_same_model_have_a_budget_each(kind: str) -> None:
    model = ai.chat("m", base_url="http://model/v1", prices=PRICES, budget="0.03 USD")

    def ask(question: str) -> str:
        try:
            return model(question).text
        except ai.BudgetExceeded as error:
            return f"{question} {error.spent:.3f}"

    async def ask_aside(question: str) -> str:
        return await asyncio.to_thread(ask, question)

    def asked(texts: Stream[str], name: str) -> Stream[str]:
        if kind == "map":
            return texts.map(ask, name=name)
        return texts.map_async(ask_aside, log_calls=kind == "log_calls", name=name)

    def asked_twice(questions: Stream[str]) -> Stream[str]:
        return asked(asked(questions, "first").map(lambda text: f"{text}!"), "second")

    with Harness(steps=asked_twice, http=lambda request: completion(question_of(request))) as harness:
        assert harness.push(["a"]) == ["a!"]
        harness.snapshot()
        assert harness.push(["b"]) == ["b!"]
        harness.crash()
        harness.restore()
        assert harness.replay() == ["b!"]
        assert harness.push(["c"]) == ["c 0.034! 0.034"], "two calls each"


def test_a_malformed_usage_is_refused() -> None:
    account = CallAccount(MetricTable(), 1)
    for usage in (encode_value([1]), encode_value(7), encode_value([("m", 1)])):
        with pytest.raises(OutcomeMalformed):
            account.count_outcome(with_usage(b"\x00", usage))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"per_minute": 0}, "per_minute= is 0, expected a number above 0"),
        ({"tokens_per_minute": "9"}, "tokens_per_minute= is '9', expected a number above 0"),
        ({"budget": 20, "prices": PRICES}, 'expected an amount and a currency, such as "20 USD"'),
        ({"budget": "20 USD"}, "budget= needs prices="),
        ({"budget": "20 USD", "prices": PRICES | {"currency": "EUR"}}, "budget= is in USD, and prices= are in EUR"),
        ({"prices": {"input": 1}}, "the prices of a million tokens, input and output"),
        ({"prices": PRICES | {"cache": 1}}, "and if they differ cached_input and currency"),
        ({"prices": PRICES | {"output": -1}}, "expected numbers from 0 on"),
    ],
)
def test_a_wrong_limit_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ai.ModelCallInvalid) as raised:
        ai.chat("m", **arguments)
    assert message in str(raised.value)


def fallbacks(server: ModelServer, **first: Any) -> Callable[[], ai.ModelReply]:
    third = ai.chat("third", base_url=server.url, retries=0, prices={"input": 0, "output": 0})
    second = ai.chat("second", base_url=server.url, retries=0, fallback=third)
    model = ai.chat("first", base_url=server.url, retries=0, fallback=second, **first)
    return lambda: model("?", temperature=0)


def test_a_fallback_answers_in_the_same_entry_and_the_reply_names_its_place(server: ModelServer) -> None:
    server.script += [Answer(500), Answer(body=b"<html>"), sends("third"), sends("first")]
    ask, recorder = fallbacks(server), FakeRecorder()
    with running(recorder):
        replies = [ask(), ask()]
    with running(recorder.successor()):
        assert [ask(), ask()] == replies
    assert [(reply.text, reply.fallback) for reply in replies] == [("third", 2), ("first", 0)]
    assert [each.body["model"] for each in server.asked] == ["first", "second", "third", "first"]
    assert all(each.body["temperature"] == 0 for each in server.asked)
    assert len(recorder.log) == 2


def test_a_logged_reply_has_the_cost_and_the_model_of_its_call_also_after_the_models_have_changed(
    server: ModelServer,
) -> None:
    def model(*others: str) -> ai.Chat:
        prices = {name: {"input": 1_000 * len(name), "output": 0} for name in ("m", *others)}
        rest = [ai.chat(name, base_url=server.url, retries=0, prices=prices[name]) for name in others]
        return ai.chat("m", base_url=server.url, retries=0, prices=prices["m"], fallback=rest)

    server.script += [Answer(500), Answer(body=json.dumps({**completion("On it."), "model": None}).encode())]
    recorder = FakeRecorder()
    with running(recorder):
        reply = model("m2")("?")
    assert (reply.model, reply.cost) == ("m2", 0.014)
    for others in ((), ("another", "m2")):
        with running(recorder.successor()):
            assert model(*others)("?") == reply


def test_a_fallback_answers_for_a_model_whose_budget_is_spent(server: ModelServer) -> None:
    ask = fallbacks(server, prices=PRICES, budget="0.01 USD")
    with running(FakeRecorder()):
        assert [ask().fallback for _ in range(3)] == [0, 1, 1]


def test_the_error_of_the_last_fallback_names_those_before(server: ModelServer) -> None:
    server.script += [Answer(500, b"one"), Answer(502, b"two"), Answer(400, b"three")]
    with pytest.raises(http.HttpStatusError, match="400 Bad Request: three") as raised:
        fallbacks(server)()
    (note,) = raised.value.__notes__
    assert note.startswith("The models before it have failed, too: POST ")
    assert "500 Internal Server Error: one" in note
    assert "502 Bad Gateway: two" in note


def test_a_fallback_that_is_no_model_is_refused() -> None:
    with pytest.raises(ai.ModelCallInvalid, match="fallback= has 'm-2', expected a model"):
        ai.chat("m", fallback=["m-2"])  # type: ignore[list-item]
