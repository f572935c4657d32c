"""Agents: turns, tools, limits, hand-over and approvals; one entry for each question and each call of a tool."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import pytest

from clonos import CallInDoubt, ai, http
from clonos.core.log.call_outcomes import encode_outcome
from clonos.core.ports.recorder import CANCELLED, EventAwaited, RecordingSuspended
from clonos.core.values import decode_value, encode_value
from clonos.operators.steps.call_attempts import Caller, CallPolicy
from clonos_services.awaiting import AwaitTimeout, CallCancelled
from tests.harnesses.call_life import Died, life
from tests.harnesses.model_server import Answer, ModelServer, model_server, sends

KEY = "customer 17"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as running_server:
        yield running_server
    http.close()


def calls(*asked: tuple[str, dict[str, Any]]) -> Answer:
    """A reply that asks for calls of tools."""
    tool_calls = [
        {"id": f"t{place}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for place, (name, arguments) in enumerate(asked)
    ]
    return sends(None, finish_reason="tool_calls", tool_calls=tool_calls)


class Shop:
    """A shop with tools. ``made``: what was called, with the idempotency key of a refund."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.dies = False

        @ai.tool
        def find(order: int) -> dict[str, int]:
            """Find an order."""
            self.made.append(("find", order))
            if order == 0:
                raise LookupError("there is no order 0")
            return {"order": order, "cents": 900}

        @ai.tool(effect=True, key="customer", raises=TimeoutError)
        def refund(customer: str, order: int, idempotency_key: str = "") -> str:
            self.made.append(("refund", customer, order, idempotency_key))
            if order == 1:
                raise ai.ToolError("order 1 is not paid")
            if order == 2:
                raise TimeoutError("no answer of the bank")
            if self.dies:
                self.dies = False
                raise Died
            return "refunded"

        self.find, self.refund = find, refund


def model_of(server: ModelServer) -> ai.Chat:
    return ai.chat("m", base_url=server.url, retries=0)


def run(
    made: Callable[..., Any],
    text: Any,
    before: ai.Conversation | None = None,
    reported: dict[bytes, bytes] | None = None,
    dies_after: int = 1_000,
) -> tuple[ai.Conversation, Any]:
    """The outcome of one record, in a life that has the parts ``reported``."""
    caller = Caller("step", made, CallPolicy())
    try:
        found = caller.call((KEY, before, text), "key", life({} if reported is None else reported, dies_after))
    finally:
        caller.close()
    assert decode_value(encode_value(found)) == found
    state, reply = found
    return state, reply


def shown(server: ModelServer, place: int = -1) -> list[str]:
    """What the model was shown of tools in a request."""
    return [message["content"] for message in server.asked[place].body["messages"] if message["role"] == "tool"]


def test_an_agent_calls_tools_until_the_model_replies_and_has_the_conversation_as_state(server: ModelServer) -> None:
    shop = Shop()
    helper = ai.agent(model_of(server), tools=[shop.find, shop.refund], instructions="Help.", temperature=0.5)
    server.script += [calls(("find", {"order": 7})), calls(("refund", {"order": 7})), sends("Done.")]
    state, reply = run(helper, "My cup is broken.")
    assert reply == ai.AgentReply(KEY, "Done.", None, "agent", "reply", 3, 21, 15)
    assert [entry[:3] for entry in shop.made] == [("find", 7), ("refund", KEY, 7)]
    first = server.asked[0].body
    assert first["messages"] == [
        {"role": "system", "content": "Help."},
        {"role": "user", "content": "My cup is broken."},
    ]
    assert first["temperature"] == 0.5
    assert [each["function"]["name"] for each in first["tools"]] == ["find", "refund"]
    assert shown(server) == ['{"cents":900,"order":7}', "refunded"]
    assert [message["role"] for message in state.messages] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert (state.agent, state.prompt_tokens, state.completion_tokens) == ("agent", 21, 15)
    state, _ = run(helper, "Thanks.", state)
    assert server.asked[-1].body["messages"][1:] == state.messages[:-1]
    assert (state.prompt_tokens, len(state.messages)) == (28, 8)


@pytest.mark.parametrize("dies_after", range(8))
def test_an_agent_of_a_process_that_died_goes_on_with_the_first_call_that_is_not_logged(
    server: ModelServer, dies_after: int
) -> None:
    def script() -> list[Answer]:
        return [calls(("find", {"order": 7}), ("find", {"order": 8})), calls(("refund", {"order": 7})), sends("Done.")]

    shop = Shop()
    helper = ai.agent(model_of(server), tools=[shop.find, shop.refund])
    server.script += script()
    reported: dict[bytes, bytes] = {}
    logged_before = 7  # three questions, two calls of find, the announcement of the refund and its outcome
    if dies_after < logged_before:
        with pytest.raises(Died):
            run(helper, "?", reported=reported, dies_after=dies_after)
        assert len(reported) == dies_after
        asked, made = len(server.asked), len(shop.made)
        server.script.clear()
        server.script += script()[asked - 1 if dies_after in (0, 3, 6) else asked :]
        if dies_after == 5:
            with pytest.raises(CallInDoubt):
                run(helper, "?", reported=reported)
            assert len(shop.made) == made == 3
            return
        _, reply = run(helper, "?", reported=reported)
        assert len(server.asked) + len(shop.made) == 6 + (dies_after != 4), "only the call under way is made again"
    else:
        _, reply = run(helper, "?", reported=reported, dies_after=dies_after)
    assert reply.text == "Done."
    assert sum(entry[0] == "refund" for entry in shop.made) == 1


def test_wrong_arguments_and_errors_of_tools_are_shown_to_the_model(server: ModelServer) -> None:
    shop = Shop()
    helper = ai.agent(model_of(server), tools=[shop.find, shop.refund])
    asked: list[tuple[str, dict[str, Any]]] = [
        ("find", {"order": "7"}),
        ("find", {}),
        ("find", {"order": 7, "of": 1}),
        ("lose", {}),
        ("find", {"order": 0}),
    ]
    server.script += [calls(*asked, ("refund", {"order": 1}))]
    run(helper, "?")
    assert shown(server) == [
        "error: the arguments are wrong: Expected `int`, got `str` - at `$.order`",
        "error: the arguments are wrong: Object missing required field `order`",
        "error: the arguments are wrong: Object contains unknown field `of`",
        "error: there is no tool 'lose'. The tools are: find, refund",
        "error: LookupError: there is no order 0",
        "error: order 1 is not paid",
    ]
    assert [entry[:3] for entry in shop.made] == [("find", 0), ("refund", KEY, 1)]


def test_a_later_attempt_sees_the_errors_of_tools_that_an_earlier_one_saw(server: ModelServer) -> None:
    shop = Shop()
    fails = [LookupError("the shop does not answer"), ai.ToolError("the bank is closed")]

    @ai.tool
    def find(order: int) -> int:
        if fails:
            raise fails[0]
        return 700

    @ai.tool(effect=True)
    def book(order: int) -> str:
        if fails:
            raise fails[1]
        return "booked"

    helper = ai.agent(model_of(server), tools=[find, book, shop.refund])
    broken = [{"id": "t", "type": "function", "function": {"name": "find", "arguments": "{oops"}}]
    server.script.append(calls(("find", {"order": 7}), ("book", {"order": 7})))
    server.script += [calls(("refund", {"order": 7})), sends(None, finish_reason="tool_calls", tool_calls=broken)]
    reported: dict[bytes, bytes] = {}
    first = life(reported)
    with first.attempt(0, get_ident) as begin:
        begin()
        with pytest.raises(ai.ReplyInvalid):
            helper(KEY, None, "?")
    fails.clear()
    with first.attempt(1, get_ident) as begin:
        begin()
        helper(KEY, None, "?")
    assert shown(server) == ["error: LookupError: the shop does not answer", "error: the bank is closed", "refunded"]
    assert len(shop.made) == 1


def test_an_effect_that_may_have_taken_place_ends_the_call(server: ModelServer) -> None:
    shop = Shop()
    helper = ai.agent(model_of(server), tools=[shop.refund])
    server.script += [calls(("refund", {"order": 2}))]
    with pytest.raises(TimeoutError, match="no answer of the bank"):
        run(helper, "?")
    assert len(server.asked) == 1, "a model that is shown the error may call the tool again"


def test_the_last_turn_makes_no_calls_and_leaves_none_without_an_answer(server: ModelServer) -> None:
    shop = Shop()
    helper = ai.agent(model_of(server), tools=[shop.find], turns_max=2)
    server.script += [calls(("find", {"order": 1})), calls(("find", {"order": 2}), ("find", {"order": 3}))]
    state, reply = run(helper, "?")
    assert (reply.ended, reply.turns, reply.text) == ("turns", 2, "")
    assert shop.made == [("find", 1)]
    run(helper, "And now?", state)
    assert shown(server)[1:] == ["not called: this was the last of 2 turns"] * 2


def test_the_history_has_the_last_records_with_all_that_followed_them(server: ModelServer) -> None:
    shop = Shop()
    helper = ai.agent(model_of(server), tools=[shop.find], history_max=2)
    state: ai.Conversation | None = None
    for number in range(4):
        server.script += [calls(("find", {"order": 5})), sends(f"reply {number}")]
        state, _ = run(helper, f"question {number}", state)
    assert state is not None
    questions = [message["content"] for message in state.messages if message["role"] == "user"]
    assert questions == ["question 2", "question 3"]
    assert [message["role"] for message in state.messages] == ["user", "assistant", "tool", "assistant"] * 2


def test_an_agent_hands_over_and_the_other_one_has_the_next_records_too(server: ModelServer) -> None:
    shop = Shop()
    model = model_of(server)
    billing = ai.agent(model, name="billing", instructions="You pay.", tools=[shop.refund])
    triage = ai.agent(model, name="triage", instructions="You sort.", tools=[shop.find], handovers=[billing])
    assert triage.has_effects
    server.script += [calls(("hand_over_to_billing", {})), calls(("refund", {"order": 7})), sends("Paid.")]
    state, reply = run(triage, "?")
    assert (state.agent, reply.agent, reply.text) == ("billing", "billing", "Paid.")
    run(triage, "!", state)
    assert [asked.body["messages"][0]["content"] for asked in server.asked] == ["You sort.", *["You pay."] * 3]
    names = [[each["function"]["name"] for each in asked.body["tools"]] for asked in server.asked]
    assert names == [["find", "hand_over_to_billing"], *[["refund"]] * 3]


def test_calls_that_follow_a_hand_over_are_not_made_by_the_other_agent(server: ModelServer) -> None:
    shop = Shop()
    billing = ai.agent(model_of(server), name="billing", tools=[shop.refund])
    triage = ai.agent(model_of(server), name="triage", tools=[shop.find], handovers=[billing])
    server.script.append(calls(("hand_over_to_billing", {}), ("refund", {"order": 7})))
    run(triage, "?")
    assert shown(server) == ["billing has the conversation now", "not called: billing has the conversation now"]
    assert not shop.made


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (True, "refunded"),
        ({"approved": True}, "refunded"),
        ({"approved": "yes"}, "refused"),
        ({"approved": True, "arguments": {"order": 7}}, "refunded"),
        ({"approved": True, "arguments": {"order": 8}}, "refused: the approval is one of other arguments"),
        (False, "refused"),
        ("too much", "refused: too much"),
        ({"approved": False, "reason": "not ours"}, "refused: not ours"),
        (AwaitTimeout("refund of 7", "2d", False), "refused: the event 'refund of 7' has not come within 2d."),
    ],
    ids=str,
)
def test_a_tool_waits_for_an_approval_and_the_model_is_shown_a_refusal(
    server: ModelServer, answer: Any, result: str
) -> None:
    asked: list[ai.Approval] = []
    made: list[int] = []

    @ai.tool(effect=True, approve=lambda order: f"refund of {order}", approve_within="2d", notify=asked.append)
    def refund(order: int) -> str:
        made.append(order)
        return "refunded"

    server.script.append(calls(("refund", {"order": 7})))
    helper = ai.agent(model_of(server), tools=[refund])
    reported: dict[bytes, bytes] = {}
    with pytest.raises(EventAwaited) as awaited:
        run(helper, "?", reported=reported)
    assert (awaited.value.name, awaited.value.timeout) == ("refund of 7", "2d")
    assert asked == [ai.Approval("refund of 7", KEY, "refund", {"order": 7})]
    assert not made
    reported[awaited.value.part] = encode_outcome("event", answer)
    run(helper, "?", reported=reported)
    assert shown(server) == [result]
    assert (len(asked), len(made), len(server.asked)) == (1, int(result == "refunded"), 2)


@pytest.mark.parametrize("answered", ["late", "twice"])
def test_an_answer_that_comes_late_or_twice_approves_no_other_call(server: ModelServer, answered: str) -> None:
    made: list[int] = []
    asked: list[str] = []

    @ai.tool(effect=True, approve=True, approve_within="1s", notify=lambda approval: asked.append(approval.event))
    def pay(cents: int) -> str:
        made.append(cents)
        return "paid"

    late = AwaitTimeout("pay", "1s", False)
    script = [calls(("pay", {"cents": 9})), sends("Done."), calls(("pay", {"cents": 90_000}))]
    server.script += script
    helper = ai.agent(model_of(server), tools=[pay])
    reported: dict[bytes, bytes] = {}
    with pytest.raises(EventAwaited) as awaited:
        run(helper, "9", reported=reported)
    reported[awaited.value.part] = encode_outcome("event", late if answered == "late" else True)
    state, _ = run(helper, "9", reported=reported)
    with pytest.raises(EventAwaited) as again:
        run(helper, "90000", state)
    assert (awaited.value.name, again.value.name, asked) == ("pay", "pay (2)", ["pay", "pay (2)"])
    assert made == ([] if answered == "late" else [9])


def test_an_approval_of_an_earlier_attempt_approves_no_other_arguments(server: ModelServer) -> None:
    @ai.tool(effect=True, approve=True)
    def pay(cents: int) -> str:
        raise AssertionError

    server.script.append(calls(("pay", {"cents": 9})))
    helper = ai.agent(model_of(server), tools=[pay])
    reported: dict[bytes, bytes] = {}
    with pytest.raises(EventAwaited) as awaited:
        run(helper, "?", reported=reported)
    reported[awaited.value.part] = encode_outcome("event", True)
    asked = {"pay": 0}
    parts = life(reported)
    with parts.attempt(1, get_ident) as begin:
        begin()
        with pytest.raises(EventAwaited, match=r"pay \(2\)"):
            pay.refusal({"cents": 90_000}, KEY, asked)
    assert asked == {"pay": 2}


def test_a_call_needs_an_approval_that_depends_on_its_arguments(server: ModelServer) -> None:
    @ai.tool(approve=lambda cents: "large" if cents > 100 else None)
    def pay(cents: int) -> None: ...

    server.script.append(calls(("pay", {"cents": 100}), ("pay", {"cents": 101})))
    with pytest.raises(EventAwaited, match="large"):
        run(ai.agent(model_of(server), tools=[pay]), "?")


def test_a_cancelled_agent_replies_so_and_its_conversation_may_go_on(server: ModelServer) -> None:
    shop = Shop()
    helper = ai.agent(model_of(server), tools=[shop.find, shop.refund])
    server.script += [calls(("find", {"order": 7}), ("refund", {"order": 7}))]
    reported: dict[bytes, bytes] = {}
    with pytest.raises(Died):
        run(helper, "?", reported=reported, dies_after=2)
    reported[CANCELLED] = encode_outcome("event", CallCancelled("gone"))
    state, reply = run(helper, "?", reported=reported)
    assert (reply.ended, reply.turns) == ("cancelled", 1)
    assert [entry[0] for entry in shop.made] == ["find"]
    run(helper, "Hello?", state)
    assert shown(server) == ['{"cents":900,"order":7}', "not called: the call was cancelled: 'gone'"]


def test_a_record_is_a_text_or_has_one_and_a_result_is_chosen(server: ModelServer) -> None:
    helper = ai.agent(
        model_of(server), text=lambda row: str(row["text"]), select=lambda row, reply: {**row, "reply": reply.text}
    )
    server.script.append(sends("Hello, ann."))
    assert run(helper, {"text": "Hello."})[1] == {"text": "Hello.", "reply": "Hello, ann."}
    with pytest.raises(TypeError, match=r"is not a text\. Give text="):
        run(ai.agent(model_of(server)), {"text": "Hello."})


def test_an_agent_whose_calls_are_not_logged_is_refused_before_it_asks(server: ModelServer) -> None:
    with RecordingSuspended("key"), pytest.raises(ai.AgentInvalid, match="Add log_calls=True"):
        ai.agent(model_of(server))(KEY, None, "?")
    assert not server.asked


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda model, tool: ai.agent(model, name="a b"), "its name is not 1 to 64 letters"),
        (lambda model, tool: ai.agent(model, turns_max=0), "turns_max=0, expected an int of at least 1"),
        (lambda model, tool: ai.agent(model, history_max=True), "history_max=True, expected an int"),
        (lambda model, tool: ai.agent(model, tools=[tool, tool]), "two of its tools have one name"),
        (lambda model, tool: ai.agent(model, tools=[len]), "is not a tool. Put @ai.tool above"),  # type: ignore[list-item]
        (lambda model, tool: ai.agent(model, handovers=[ai.agent(model)]), "two agents with the name agent"),
    ],
)
def test_a_wrong_agent_is_refused_when_it_is_made(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ai.AgentInvalid) as refused:
        make(ai.chat("m"), Shop().find)
    assert message in str(refused.value)
