"""Jobs that were changed between their start and a resume, so that stored state does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos import ListState, Sliding, Tumbling, ValueState, each, last_values
from clonos.api.graph import JobGraph
from clonos.core.checkpoint.checkpoint_metadata import (
    PlanChanged,
    check_resumable,
    decode_metadata,
    encode_metadata,
    metadata_of_start,
)
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from tests.unit.operators.driver import Given, Outbox

Change = Callable[[Any], Any]


def plan_of(step: Change, key: Any = "word", parallelism: int = 2) -> Plan:
    graph = JobGraph("etl")
    step(graph.source(Given([]), name="read", timestamps="at").key_by(key)).sink(Outbox())
    return graph.compile(Options(), parallelism=parallelism).plan


def resumed(before: Plan, now: Plan) -> str:
    """Returns what a resume of a job that was started as ``before`` answers; an empty text if it is taken."""
    stored = decode_metadata(encode_metadata(metadata_of_start(before, "etl-1", 1)), "entry")
    try:
        check_resumable(now, stored)
    except PlanChanged as error:
        text = str(error)
    else:
        return ""
    assert len(text.splitlines()) == 1
    return text


class Totals:
    """A process function with a state of a kind."""

    def __init__(self, *states: Any) -> None:
        self.states = {state.name: state for state in states}
        self.__dict__.update(self.states)

    def process(self, value: Any, context: Any) -> None:
        """Does nothing."""


def process(*states: Any) -> Change:
    return lambda keyed: keyed.process(Totals(*states), name="total")


def count(keyed: Any) -> Any:
    return keyed.count(name="total")


def reduce(keyed: Any) -> Any:
    return keyed.reduce(max, name="total")


def windowed(size: str, what: str = "count", *arguments: Any) -> Change:
    return lambda keyed: getattr(keyed.window(Tumbling(size)), what)(*arguments, name="total")


def further(**arguments: Any) -> Change:
    """Windows that emit further results."""
    time = arguments.pop("time", None)
    return lambda keyed: keyed.window(Tumbling("5s", time=time), **arguments).count(name="total")


def sliding(merge: Any) -> Change:
    return lambda keyed: keyed.window(Sliding("5s", every="1s")).aggregate(list, add, merge=merge, name="total")


def add(accumulator: list[Any], other: Any) -> None:
    """Changes nothing."""


def once(**arguments: Any) -> Change:
    return lambda keyed: keyed.deduplicate(**arguments, within="5s", name="total")


def top(by: Any) -> Change:
    return lambda keyed: keyed.top_k(2, by, name="total")


@pytest.mark.parametrize(
    ("before", "now", "sentence"),
    [
        (count, reduce, 'the step "total" was count, is reduce'),
        (reduce, process(), 'the step "total" was reduce, is process'),
        (count, windowed("5s"), 'the step "total" was count, is window count'),
        (windowed("5s"), windowed("5s", "sum", "cents"), 'the step "total" was window count, is window sum'),
        (windowed("5s"), windowed("1min"), 'the window of the step "total" was Tumbling 5s, is Tumbling 1min'),
        (
            windowed("5s", "sum", "cents"),
            windowed("5s", "sum", "euros"),
            """the field of the step "total" was 'cents', is 'euros'""",
        ),
        (
            further(accumulate=True, lateness="1s"),
            further(accumulate=False, lateness="1s"),
            'the content of further results of the step "total" was all records, is the records since the last one',
        ),
        (
            further(accumulate=False, early=each(2)),
            further(accumulate=True, early=each(3)),
            'the content of further results of the step "total" was the records since the last one, is all records',
        ),
        (
            further(),
            further(trigger=each(2)),
            'the windows of the step "total" was in panes, is of each key, for a trigger or an evictor',
        ),
        (
            further(trigger=each(2), evictor=last_values(2)),
            further(trigger=each(2)),
            'the accumulators of the step "total" was values with times, is of the aggregate',
        ),
        (
            sliding(merge=None),
            sliding(merge=add),
            'the accumulators of the step "total" was values, is of the aggregate',
        ),
        (windowed("5s"), further(time="processing"), 'the time of the step "total" was event, is processing'),
        (once(by="id"), once(by=str), """the field of the step "total" was 'id', is a function"""),
        (once(), once(by="id"), """the field of the step "total" was none, is 'id'"""),
        (top("score"), top(str), """the field of the step "total" was 'score', is a function"""),
        (
            process(ValueState("seen", default=False)),
            process(ListState("seen")),
            'the state "seen" of the step "total" was ValueState, is ListState',
        ),
        (
            process(ValueState("seen", default=False)),
            process(ValueState("seen", default={})),
            'the type of state "seen" of the step "total" was bool, is dict',
        ),
    ],
)
def test_state_that_does_not_fit_is_refused_in_words(before: Change, now: Change, sentence: str) -> None:
    assert resumed(plan_of(before), plan_of(now)) == (
        f"job etl cannot resume from checkpoint 0, because the job has changed: {sentence}."
        " Resume with the job as it was, or start afresh with --overwrite."
    )
    assert resumed(plan_of(now), plan_of(now)) == ""


def test_another_key_is_refused() -> None:
    message = resumed(plan_of(count), plan_of(count, key="letter"))
    assert """the key of the step "total" was the field 'word', is the field 'letter'.""" in message
    message = resumed(plan_of(count), plan_of(count, key=str))
    assert """the key of the step "total" was the field 'word', is a function.""" in message


def test_every_difference_is_named() -> None:
    message = resumed(plan_of(count), plan_of(reduce, parallelism=3))
    assert (
        'the parallelism of "read" was 2, is 3; the parallelism of "total" was 2, is 3; the step "total" was' in message
    )


def test_state_that_fits_is_taken() -> None:
    seen, last = ValueState("seen", default=False), ValueState[int]("last")
    assert resumed(plan_of(process(seen)), plan_of(process(seen, last))) == ""
    assert resumed(plan_of(process(seen, last)), plan_of(process(seen))) == ""
    assert resumed(plan_of(process(last)), plan_of(process(ValueState("last", default=0)))) == ""
    assert resumed(plan_of(reduce), plan_of(lambda keyed: keyed.reduce(min, name="total"))) == ""
    assert resumed(plan_of(count), plan_of(lambda keyed: keyed.count(name="total").map(str))) == ""
