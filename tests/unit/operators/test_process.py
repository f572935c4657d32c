"""Process functions: state per key, timers, and attributes that must not be set after ``open``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy
import pytest

from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.event_time.timestamps import InvalidTimestamp, from_timestamp_ns, to_timestamp_ns
from clonos.operators.state.state_descriptors import InvalidStateName, ListState, ValueState
from clonos.operators.state.state_errors import StateUnsupported
from clonos.operators.steps.context import DECLARE_STATE, Context, StateNameTaken
from clonos.operators.steps.process import AttributeSetLate
from tests.unit.operators.driver import START_NS, Given, Outbox, Run, run

START = from_timestamp_ns(START_NS)


class Numbered:
    """Numbers the records of a key, in the style of its instance."""

    count = ValueState[int]("count", default=0)

    def __init__(self, style: str = "{}") -> None:
        self.style = style

    def open(self, context: Context[str, str]) -> None:
        self.prefix = "no "

    def process(self, value: str, context: Context[str, str]) -> None:
        count = context.state(self.count)
        count.value += 1
        context.emit(self.prefix + self.style.format(count.value) + value)

    def close(self) -> None:
        self.prefix = "closed"


def outputs(function: Any, records: list[Any], parallelism: int = 1) -> list[Any]:
    graph = JobGraph("job")
    graph.source(Given(records)).key_by(lambda record: record).process(function).sink(Outbox())
    (found,) = run(graph, parallelism).written.values()
    return found


def failure(function: Any, records: list[Any]) -> BaseException | None:
    with pytest.raises(StepFailed) as raised:
        outputs(function, records)
    return raised.value.__cause__


@pytest.mark.parametrize("function", [Numbered, Numbered("{}")])
def test_each_key_has_its_own_state(function: Any) -> None:
    assert outputs(function, ["a", "b", "a", "a"]) == ["no 1a", "no 1b", "no 2a", "no 3a"]


def test_each_task_has_its_own_function_object() -> None:
    style = Numbered("#{}")
    assert sorted(outputs(style, ["a", "b", "a"], 2)) == ["no #1a", "no #1b", "no #2a"]
    assert not hasattr(style, "prefix")


def test_an_attribute_set_after_open_raises() -> None:
    class Late(Numbered):
        def process(self, value: str, context: Context[str, str]) -> None:
            self.last = value  # clonos: ok CLN503 to be refused

    class Deleting(Numbered):
        def process(self, value: str, context: Context[str, str]) -> None:
            del self.style  # clonos: ok CLN503 to be refused

    assert isinstance(failure(Deleting, ["a"]), AttributeSetLate)
    late = failure(Late, ["a"])
    assert isinstance(late, AttributeSetLate)
    assert "sets self.last after open()" in str(late)


def test_a_class_that_needs_arguments_is_refused() -> None:
    class Needy:
        def __init__(self, url: str) -> None:
            self.url = url

        def process(self, value: str, context: Context[str, str]) -> None: ...

    with pytest.raises(InvalidJob, match="cannot be created without arguments"):
        JobGraph("job").source(Given([])).process(Needy)


def test_the_key_of_a_timer_is_the_same_before_and_after_a_restore() -> None:
    class Waiting:
        def process(self, value: Any, context: Context[Any, Any]) -> None:
            context.set_timer(START + timedelta(seconds=9))

        def on_timer(self, timestamp: datetime, context: Context[Any, Any]) -> None:
            context.emit(repr(context.key))

    zone = timezone(timedelta(hours=2))
    keys = [
        START.astimezone(zone),
        ("a", START.astimezone(zone)),
        START,
        numpy.int64(7),
        (True, START.astimezone(zone)),
    ]
    graph = JobGraph("job")
    graph.source(Given(range(len(keys)))).key_by(lambda record: keys[record]).process(Waiting).sink(Outbox())
    image = graph.compile(Options())
    job = Run(image)
    while job.read():
        pass
    restored = Run(image, job.barrier(1))
    for each in (job, restored):
        each.pass_time(10)
        assert each.written["process-sink"] == [repr(START), repr(("a", START)), "7", repr((True, START))]


def test_timers_fire_in_order_of_time_then_registration_unless_cancelled() -> None:
    class Late:
        def process(self, value: int, context: Context[int, Any]) -> None:
            context.set_timer(START + timedelta(seconds=9 - value))
            context.set_timer(START + timedelta(seconds=9))
            context.set_timer(START + timedelta(seconds=9))
            if value == 2:
                context.delete_timer(START + timedelta(seconds=9))
                context.delete_timer(START + timedelta(seconds=100))

        def on_timer(self, timestamp: datetime, context: Context[int, Any]) -> None:
            context.emit((context.key, (timestamp - START).seconds))
            if context.key == 3 and timestamp == START + timedelta(seconds=9):
                context.set_timer(START)

    graph = JobGraph("job")
    graph.source(Given([1, 2, 3])).key_by(lambda record: record).process(Late).sink(Outbox())
    job = Run(graph.compile(Options()))
    job.read()
    job.drain()
    job.pass_time(5.5)
    assert job.written.get("process-sink") is None
    job.pass_time(10)
    assert job.written["process-sink"] == [(3, 6), (2, 7), (1, 8), (1, 9), (3, 9)]
    assert job.chains[1].next_timer_ns() == START_NS  # set while others fired: its turn is next
    job.fire()
    assert job.written["process-sink"][5:] == [(3, 0)]
    assert job.chains[1].next_timer_ns() is None
    job.close()


def test_without_a_key_the_state_belongs_to_the_task() -> None:
    graph = JobGraph("job")
    graph.source(Given(["a", "b", "c"])).process(Numbered).sink(Outbox())
    assert run(graph, 1).written["source-process-sink"] == ["no 1a", "no 2b", "no 3c"]


def test_a_mutable_default_is_copied_for_each_key() -> None:
    class Listing:
        values = ValueState[list[str]]("values", default=[])

        def process(self, value: str, context: Context[str, Any]) -> None:
            context.state(self.values).value.append(value)
            context.emit(list(context.state(self.values).value))

    assert outputs(Listing, ["a", "b", "a"]) == [["a"], ["b"], ["a", "a"]]


@pytest.mark.parametrize(
    "second",
    [ListState[int]("state"), ValueState("state", default=1), ValueState("state", default=0, ttl="1h")],
    ids=["another type", "another default", "a ttl"],
)
def test_two_different_states_with_one_name_are_refused(second: Any) -> None:
    class Double:
        one = ValueState[int]("state", default=0)
        other = second

        def process(self, value: str, context: Context[str, Any]) -> None:
            context.state(self.one)
            context.state(self.other)

    assert isinstance(failure(Double, ["a"]), StateNameTaken)


def test_a_descriptor_may_be_made_for_each_record_and_its_name_is_one_word() -> None:
    class Counting:
        def process(self, value: str, context: Context[str, Any]) -> None:
            count = context.state(ValueState("count", default=0))
            count.value += 1
            context.emit(count.value)

    assert outputs(Counting, ["a", "a", "b"]) == [1, 2, 1]
    with pytest.raises(InvalidStateName):
        ValueState[int]("a/b")


@pytest.mark.parametrize("given", ["count", ValueState])
def test_state_without_a_descriptor_and_output_without_a_tag_are_refused(given: Any) -> None:
    class Wrong:
        def process(self, value: str, context: Context[str, Any]) -> None:
            context.state(given) if value == "state" else context.output(given, value)

    refused = f"the step process calls context.{{}}({given!r})."
    assert str(failure(Wrong, ["state"])) == f"{refused.format('state')} {DECLARE_STATE}"
    assert str(failure(Wrong, ["output"])).startswith(f"{refused.format('output')} Give a tag: Tag(")


def test_a_state_may_have_any_name_that_the_step_uses_itself() -> None:
    class Counts:
        states = tuple(ValueState[int](name, default=0) for name in ("watermark", "timers", "event timers"))

        def process(self, value: str, context: Context[str, Any]) -> None:
            for state in self.states:
                context.state(state).value += 1
            context.emit([context.state(state).value for state in self.states])

    assert outputs(Counts, ["a", "a"]) == [[1, 1, 1], [2, 2, 2]]


def test_state_that_cannot_be_encoded_is_reported_with_its_table() -> None:
    class Holding:
        held = ValueState[object]("held")

        def process(self, value: str, context: Context[str, Any]) -> None:
            context.state(self.held).value = {"inside": object()}

    with pytest.raises(StateUnsupported, match="the state process/held cannot be stored"):
        outputs(Holding, ["a"])


def test_an_instant_is_an_aware_datetime_or_seconds() -> None:
    assert to_timestamp_ns(START) == START_NS
    assert to_timestamp_ns(START_NS / 10**9 + 0.25) == START_NS + 250_000_000
    assert from_timestamp_ns(to_timestamp_ns(datetime(2026, 1, 1, 0, 0, 0, 7, UTC))).microsecond == 7
    for wrong in (datetime(2026, 1, 1), float("nan"), 1e300, "now", True):
        with pytest.raises(InvalidTimestamp):
            to_timestamp_ns(wrong)  # type: ignore[arg-type]
