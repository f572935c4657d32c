"""The test harness of steps with two inputs: joins, connected streams, and their replay."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clonos import Context, CountTumbling, MapState, Tag, Timestamps, Tumbling, TwoInputContext, ValueState
from clonos.testing import Harness, HarnessMisused, OutputDiverged

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATE = Tag[dict[str, Any]]("late")


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def record(key: str, seconds: float, **rest: Any) -> dict[str, Any]:
    return {"key": key, "at": at(seconds).isoformat(), **rest}


class Balance:
    """Adds what the first input brings and subtracts what the second brings, and tells the balance after 10 s."""

    balance = ValueState[int]("balance", default=0)

    def process_first(self, value: Any, context: Context[str, Any]) -> None:
        context.state(self.balance).value += value[1]
        context.emit((context.key, context.state(self.balance).value))

    def process_second(self, value: Any, context: Context[str, Any]) -> None:
        context.state(self.balance).value -= value[0]
        context.emit((context.key, context.state(self.balance).value))


class Rules:
    """Emits what is above the limit that the second input sets; counts outside state."""

    limits = MapState[str, int]("limits")

    def open(self, context: Any) -> None:
        self.seen: list[int] = []

    def process_first(self, value: int, context: TwoInputContext[Any, Any]) -> None:
        if value > context.broadcast_state(self.limits).get("all", 10):
            self.seen.append(value)  # clonos: ok to be detected
            context.emit((value, len(self.seen)))

    def process_second(self, value: int, context: TwoInputContext[Any, Any]) -> None:
        context.broadcast_state(self.limits)["all"] = value


@pytest.mark.slow
def test_both_inputs_of_a_connected_step_have_its_keys_and_share_its_state(harness: Callable[..., Harness]) -> None:
    balance = harness(Balance, key=lambda row: row[0], second_key=lambda row: row[1])
    assert balance.push_first([("ann", 5), ("bob", 3)]) == [("ann", 5), ("bob", 3)]
    assert balance.push_second([(2, "ann")]) == [("ann", 3)]
    balance.snapshot()
    assert balance.push_second([(1, "bob")]) == [("bob", 2)]
    assert balance.push_first([("bob", 4)]) == [("bob", 6)]
    balance.crash()
    balance.restore()
    assert balance.replay(elsewhere=True) == [("bob", 2), ("bob", 6)]
    assert balance.push_first([("ann", 1)]) == [("ann", 4)]
    assert len(balance.outputs) == 6


def test_a_second_input_without_a_key_is_broadcast_and_hidden_memory_is_found(harness: Callable[..., Harness]) -> None:
    rules = harness(Rules)
    assert rules.push_first([5, 20]) == [(20, 1)]
    rules.push_second([3])
    rules.snapshot()
    assert rules.push_first([5, 2]) == [(5, 2)]
    rules.crash()
    rules.restore()
    with pytest.raises(OutputDiverged, match=r"it was \(5, 2\), replay makes \(5, 1\)"):
        rules.replay()


def test_a_join_gets_a_watermark_on_both_inputs(harness: Callable[..., Harness]) -> None:
    def joined(left: Any, right: Any) -> Any:
        return left.join(right, on="key", window=Tumbling("10s"), how="left", late=LATE)

    join = harness(steps=joined, timestamps="at", side_outputs=[LATE])
    first, second, alone = record("a", 1), record("a", 2, n=1), record("b", 3)
    assert join.push_first([first, alone]) == []
    assert join.push_second([second]) in ([], [(first, second)])
    join.advance_watermark(at(10))
    assert sorted(join.outputs, key=repr) == [(first, second), (alone, None)]
    assert join.push_second([second]) == []
    assert join.side_output(LATE) == [second]
    join.crash()
    join.restore()
    join.replay()
    assert join.push_first([record("c", 11)]) == []
    assert join.end() == [(record("c", 11), None)]


def test_the_second_input_may_have_other_timestamps(harness: Callable[..., Harness]) -> None:
    def joined(left: Any, right: Any) -> Any:
        return left.join(right, on=("key", "user"), between=("-10s", "10s"))

    join = harness(steps=joined, timestamps="at", second_timestamps=Timestamps("when", unit="s"))
    assert join.push_first([record("a", 5), record("a", 50)]) == []
    second = {"user": "a", "when": at(7).timestamp()}
    assert join.push_second([second]) == [(record("a", 5), second)]
    assert join.timestamps == [at(7)]


def test_mistakes_with_inputs_are_named(harness: Callable[..., Harness]) -> None:
    with pytest.raises(
        HarnessMisused, match=r"push\(\): the steps have two inputs\. Call push_first\(\) or push_second"
    ):
        harness(Balance, key=lambda row: row[0], second_key=lambda row: row[1]).push([("ann", 1)])
    with pytest.raises(HarnessMisused, match=r"push_second\(\): the steps have one input\. Call push\(\)\."):
        harness(str).push_second([1])
    with pytest.raises(HarnessMisused, match="second_key= and second_timestamps= need a function with process_second"):
        harness(str, second_key=str)


@pytest.mark.parametrize("size", [1, 2])
def test_a_lambda_of_a_loop_that_binds_its_variable_has_one_input(harness: Callable[..., Harness], size: int) -> None:
    driven = harness(steps=lambda stream, size=size: stream.window(CountTumbling(size)).count(), key=lambda n: 1)
    assert [row.value for row in driven.push([1, 2])] == [[1, 1], [2]][size - 1]


def test_steps_of_two_streams_may_have_parameters_with_defaults(harness: Callable[..., Harness]) -> None:
    def joined(left: Any, right: Any, /, text: str = "x", *, more: str = "y") -> Any:
        return left.union(right).map(lambda row: (row, text + more))

    driven = harness(steps=joined)
    assert [*driven.push_first([1]), *driven.push_second([2])] == [(1, "xy"), (2, "xy")]


def test_steps_of_a_wrong_number_of_streams_are_named(harness: Callable[..., Harness]) -> None:
    with pytest.raises(HarnessMisused, match=r"steps= takes a, b, c\. Give a function of one stream or of two"):
        harness(steps=lambda a, b, c: a)
    with pytest.raises(HarnessMisused, match=r"steps= takes no argument\. Give a function of one stream or of two"):
        harness(steps=lambda: None)
