"""Tools: what a model is shown of a function, and how its arguments become those of the function."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from clonos import CallInDoubt, ai
from clonos.core.ports.recorder import running
from clonos.core.values import register
from clonos.io.process.pickling import pickled
from tests.harnesses.fake_recorder import FakeRecorder


class Reason(Enum):
    BROKEN = "broken"
    LATE = "late"


@dataclass
class Item:
    name: str
    amount: int = 1


@register
@dataclass
class Receipt:
    number: int
    day: date


@ai.tool(key="customer")
def refund(
    customer: str,
    order: str,
    cents: Annotated[int, msgspec.Meta(ge=1)],
    items: list[Item],
    reason: Reason | None = None,
    way: Literal["bank", "card"] = "bank",
    idempotency_key: str = "",
) -> Any:
    """Pay a customer back.

    Only for orders of this customer.

    Args:
        order: number of the order,
            as on the bill.
        cents (int): amount.

    Returns: the receipt.
    """
    return customer, order, cents, items, reason, way


def test_a_model_is_shown_the_docstring_and_a_schema_without_key_and_idempotency_key() -> None:
    function = refund.definition["function"]
    assert refund.definition["type"] == "function"
    assert (function["name"], function["description"]) == (
        "refund",
        "Pay a customer back.\n\nOnly for orders of this customer.\n\nReturns: the receipt.",
    )
    parameters = function["parameters"]
    assert parameters["required"] == ["order", "cents", "items"]
    assert parameters["additionalProperties"] is False
    assert parameters["properties"] == {
        "order": {"type": "string", "description": "number of the order, as on the bill."},
        "cents": {"type": "integer", "minimum": 1, "description": "amount."},
        "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        "reason": {"anyOf": [{"$ref": "#/$defs/Reason"}, {"type": "null"}], "default": None},
        "way": {"enum": ["bank", "card"], "default": "bank"},
    }
    assert parameters["$defs"]["Reason"]["enum"] == ["broken", "late"]
    assert set(parameters["$defs"]) == {"Item", "Reason"}


def test_arguments_become_objects_of_the_annotations_and_defaults_are_those_of_the_function() -> None:
    given = {"order": "a", "cents": 5, "items": [{"name": "cup"}], "reason": "late"}
    again = pickle.loads(pickled(refund))  # noqa: S301  what the test has pickled
    for tool in (refund, again):
        arguments = tool.checked(given)
        assert arguments == {"order": "a", "cents": 5, "items": [Item("cup")], "reason": Reason.LATE}
        assert tool.service.function(customer="17", **arguments)[3:] == ([Item("cup")], Reason.LATE, "bank")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cents": 5, "items": []}, "missing required field `order`"),
        ({"order": "a", "cents": 0, "items": []}, "Expected `int` >= 1 - at `$.cents`"),
        ({"order": "a", "cents": 5, "items": [{}]}, "at `$.items[0]`"),
        ({"order": "a", "cents": 5, "items": [], "way": "cash"}, "Invalid enum value 'cash' - at `$.way`"),
        ({"order": "a", "cents": 5, "items": [], "customer": "18"}, "unknown field `customer`"),
        ({"order": "a", "cents": 5, "items": [], "idempotency_key": "k"}, "unknown field `idempotency_key`"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_their_place(given: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match="the arguments are wrong") as refused:
        refund.checked(given)
    assert message in str(refused.value)


def test_a_call_of_the_same_tool_is_recorded_and_a_successor_gets_its_outcome() -> None:
    made: list[str] = []

    @ai.tool
    def receipt(item: Item, day: date) -> Receipt | None:
        made.append(item.name)
        return Receipt(len(made), day) if item.name else None

    recorder = FakeRecorder()
    arguments = receipt.checked({"item": {"name": "cup"}, "day": "2026-11-30"})
    with running(recorder):
        assert receipt.shown(arguments, "17") == '{"number":1,"day":"2026-11-30"}'
        assert receipt.shown({**arguments, "item": Item("")}, "17") == "done"
    with running(recorder.successor()):
        assert receipt.shown(arguments, "17") == '{"number":1,"day":"2026-11-30"}'
    assert made == ["cup", ""]
    assert receipt(Item("pot"), date(2026, 12, 1)) == Receipt(3, date(2026, 12, 1))


def test_a_set_is_the_same_argument_and_the_same_result_in_each_process() -> None:
    made: list[object] = []

    @ai.tool
    def sorts(numbers: set[int]) -> set[int]:
        made.append(numbers)
        return numbers

    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other), "they differ as those of two hash seeds do"
    recorder = FakeRecorder()
    with running(recorder):
        assert sorts.shown({"numbers": other}, "17") == "[0,8]"
    with running(recorder.successor()):
        assert sorts.shown({"numbers": one}, "17") == "[0,8]"
    assert made == [other]


def test_a_result_without_a_form_in_json_is_no_null_for_the_model() -> None:
    @ai.tool
    def score(of: str) -> dict[str, float]:
        return {"score": float(of)}

    assert score.shown({"of": "1.5"}, "17") == '{"score":1.5}'
    for each in ("nan", "inf", "-inf"):
        assert score.shown({"of": each}, "17").startswith("done, but the result cannot be shown as JSON: ")


def test_an_empty_name_of_an_event_approves_no_call() -> None:
    @ai.tool(effect=True, approve=lambda note: note)
    def pay(note: str) -> None: ...

    assert pay.refusal({"note": None}, "17", {}) is None
    with pytest.raises(ai.ToolInvalid, match="approve= returned '', expected the name of an event"):
        pay.refusal({"note": ""}, "17", {})


def test_an_effect_in_doubt_is_resolved_by_the_external_system_and_not_shown_to_the_model() -> None:
    made: list[str] = []

    def find(key: str, *, order: str) -> str:
        return f"paid before: {order}"

    @ai.tool(effect=True, reconcile=find)
    def pay(order: str) -> str:
        made.append(order)
        raise KeyboardInterrupt

    @ai.tool(name="pay", effect=True)
    def pay_without_a_way_back(order: str) -> str:
        raise AssertionError

    recorder = FakeRecorder()
    with running(recorder), pytest.raises(KeyboardInterrupt):
        pay.shown({"order": "a"}, "17")
    with running(recorder.successor()):
        assert pay.shown({"order": "a"}, "17") == "paid before: a"
    with running(recorder.successor()), pytest.raises(CallInDoubt):
        pay_without_a_way_back.shown({"order": "a"}, "17")
    assert made == ["a"]


def _without_annotation(order) -> None: ...  # type: ignore[no-untyped-def]


def _of_any_number(*orders: str) -> None: ...


def _of_a_function(order: Callable[[], None]) -> None: ...


def _of_an_unknown_class(order: Unknown) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ai.tool(_without_annotation), "its parameter order has no annotation, such as order: str"),
        (lambda: ai.tool(_of_any_number), "its parameter *orders: 'str' cannot be given by name"),
        (lambda: ai.tool(_of_a_function), "a parameter cannot be described as JSON"),
        (lambda: ai.tool(_of_an_unknown_class), "its annotations cannot be read: NameError"),
        (lambda: ai.tool(name="a b")(_of_any_number), "its name is not 1 to 64 letters, digits, _ and -"),
        (lambda: ai.tool(key="customer")(_of_any_number), "key= names 'customer', which is none of its parameters"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ai.ToolInvalid) as refused:
        make()
    assert message in str(refused.value)
