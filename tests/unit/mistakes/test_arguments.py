"""Functions that do not fit their step, and fields that records do not have: refused in one sentence."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow
import pytest

from clonos import Job, Tumbling, register, values
from clonos.agg import sum_
from clonos.api.graph import JobGraph
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.values.key_encoding import KeyUnsupported
from clonos.operators.user_errors import RoutedError
from tests.harnesses.mistakes import check, describe
from tests.unit.columns.test_column_windows import UnknownColumns
from tests.unit.operators.driver import Given, Outbox, run

FUNCTIONS = """
def nothing(): ...
def pair(a, b): ...
class Adder:
    def add(self, a, b): ...
    def __call__(self, a, b, c): ...
class Narrow:
    def process(self, value): ...
class Timed:
    def process(self, value, context): context.set_timer(0)
    def on_timer(self, context): ...
class OnEvent:
    def process(self, value, context): ...
    def on_event_timer(self, context): ...
class Element:
    def process_element(self, value, context): ...
class Opened:
    def open(self): ...
    def process(self, value, context): ...
rows = Job('etl').source(values([{'a': 1}]))
keyed = rows.key_by('a')
windowed = keyed.window(Tumbling('1s'))
"""


@pytest.mark.parametrize(
    ("step", "sentences"),
    [
        ("rows.map(nothing)", ("the step map calls nothing(record)", "nothing() takes no argument")),
        (
            "rows.map(pair, name='parse')",
            ("the step parse calls pair(record), but pair(a, b) takes 2 arguments", "Give it a function"),
        ),
        ("rows.filter(lambda: True)", ("the step filter calls <lambda>(record)",)),
        ("rows.flat_map(Adder().add)", ("the step flat_map calls Adder.add(record), but Adder.add(a, b)",)),
        ("rows.map_async(pair)", ("the step map_async calls pair(record)",)),
        ("rows.map_batches(pair)", ("the step map_batches calls pair(batch)",)),
        ("rows.key_by(nothing)", ("the step key_by calls nothing(record)",)),
        ("keyed.stateful_map(pair)", ("calls pair(key, state, value), but pair(a, b) takes 2 arguments",)),
        ("keyed.stateful_map(Adder())", ()),
        ("keyed.reduce(nothing)", ("the step reduce calls nothing(so_far, value)",)),
        ("windowed.reduce(nothing)", ("calls nothing(so_far, value)",)),
        ("windowed.sum(pair)", ("calls pair(record)",)),
        ("windowed.aggregate(list, nothing)", ("calls nothing(accumulator, value)",)),
        ("windowed.aggregate(pair, list.append)", ("calls pair(), but pair(a, b) takes 2 arguments",)),
        ("windowed.aggregate(list, list.append, pair)", ("calls pair(accumulator)",)),
        ("rows.process(Narrow)", ("calls process(value, context), but Narrow.process(value) takes 1 argument",)),
        ("rows.process(Narrow())", ("calls process(value, context), but Narrow.process(value) takes 1 argument",)),
        ("rows.process(Timed)", ("calls on_timer(timestamp, context), but Timed.on_timer(context)",)),
        ("rows.process(OnEvent)", ("calls on_event_timer(timestamp, context), but OnEvent.on_event_timer(context)",)),
        ("rows.process(Opened)", ("calls open(context), but Opened.open() takes no argument",)),
        ("rows.map(5)", ("the step map gets 5, which is no function",)),
        ("rows.map(print(1))", ("the step map gets None, which is no function", "without calling it")),
        ("keyed.reduce('sum')", ("the step reduce gets 'sum', which is no function",)),
        ("windowed.sum(5)", ("gets 5", "name of a field")),
        ("windowed.aggregate([], list.append)", ("gets [], which is no function",)),
        ("rows.key_by(['a', 'b'])", ("the step key_by gets ['a', 'b']", 'key_by("a", "b")')),
        ("rows.key_by(('a', 'b'))", ("gets ('a', 'b')", "without brackets")),
        ("rows.key_by(5)", ("the step key_by gets 5", "key_by(lambda record: record[5])")),
        ("rows.key_by(5.5)", ("the step key_by gets 5.5", "name of a field")),
        ("rows.map({'a': 1})", ("the step map gets {'a': 1}", "map(lambda record: table[record]), or table.get")),
        ("rows.process(lambda value, context: value)", ("has no method process", "is for map, filter or flat_map")),
        (
            "rows.process(Element)",
            ("has no method process", "Rename process_element: def process(self, value, context)"),
        ),
        ("rows.union([rows.map(dict)])", ("the step union gets a list of streams", "an argument of its own")),
        (
            "rows.union(values([1]))",
            ("the step union gets values(", "which is not a stream", "job.source(...) makes one"),
        ),
        ("rows.connect('other')", ("the step connect gets 'other', which is not a stream",)),
        ("rows.join([rows], on='a', ttl='1s')", ("the step join gets a list of streams",)),
        ("rows.merge_ordered(5)", ("the step merge_ordered gets 5, which is not a stream",)),
        ("ValueState('n', int)", ("the state 'n' has the type int as its default", "default=int()")),
        ("rows.sink(sqlite('x.db', 'rows', upsert=True))", ("sqlite: upsert is True", "Name each key column once")),
    ],
)
def test_a_function_that_does_not_fit_its_step_is_refused_when_it_is_added(
    step: str, sentences: tuple[str, ...]
) -> None:
    text = describe(FUNCTIONS + step)
    check(text, *sentences)
    assert bool(text) == bool(sentences)


def added(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(record: Any) -> Any:
        return function(record, 1)

    return wrapper


@added
def two(record: Any, more: Any) -> Any:
    return record


class Named(NamedTuple):
    a: int
    b: int = 0


@register
class Registered(NamedTuple):
    a: int
    b: float


class Process:
    @staticmethod
    def process(value: Any, context: Any) -> None: ...

    @classmethod
    def open(cls, *_: Any) -> None: ...


FITTING: list[Any] = [
    str,
    len,
    print,
    str.upper,
    "x".join,
    itemgetter("a"),
    Named,
    two,
    lambda record, more=1: record,
    lambda *records: records,
    lambda record, **rest: record,
    partial(pow, 2),
    partial(lambda a, b: a, 1),
    partial(lambda a, b: a, b=1),
]


@pytest.mark.parametrize("function", FITTING, ids=map(str, range(len(FITTING))))
def test_a_function_that_may_fit_is_taken(function: Any) -> None:
    rows = Job("etl").source(values([1]))
    rows.map(function)
    rows.key_by(function)


def test_other_steps_take_functions_that_may_fit() -> None:
    rows = Job("etl").source(values([1]))
    keyed = rows.key_by(str)
    keyed.reduce(max)
    keyed.reduce(lambda *values: values[0])
    takes_more: Any = lambda key, state, value, more=1: (state, value)  # noqa: E731
    keyed.stateful_map(takes_more)
    keyed.window(Tumbling("1s")).aggregate(list, list.append, len)
    rows.process(Process)
    rows.process(Process())


def test_map_async_may_take_the_key_of_its_call() -> None:
    rows = Job("etl").source(values([1]))
    takes_key: Any = lambda record, idempotency_key: record  # noqa: E731
    rows.map_async(takes_key)
    rows.map_async(lambda record, *, idempotency_key: record)


RECORDS = [{"a": 1, "v": 2}, {"b": 1, "v": 2}, {"a": 3}]


def outcome(step: Callable[[Any], Any], records: list[Any], errors: Outbox | None = None) -> list[RoutedError]:
    graph = JobGraph("etl", errors=errors)
    step(graph.source(Given(records), name="read")).sink(Outbox(), name="out")
    return run(graph, parallelism=1).written.get("errors", [])


def test_a_record_without_the_field_of_its_key_is_named_with_the_fields_that_it_has() -> None:
    with pytest.raises(StepFailed) as raised:
        outcome(lambda rows: rows.key_by("a").count(), RECORDS)
    assert (raised.value.at.step, raised.value.at.record) == ("key_by", "{'b': 1, 'v': 2}")
    assert str(raised.value.__cause__).startswith("the record has no field 'a'; it has b, v.")
    (routed,) = outcome(lambda rows: rows.key_by("a").count(), RECORDS, Outbox())
    assert routed.error == (
        "FieldMissing: the record has no field 'a'; it has b, v. Correct the name, or give a function of the record."
    )


def test_a_record_without_the_field_of_a_sum_is_named_with_the_fields_that_it_has() -> None:
    with pytest.raises(StepFailed) as raised:
        outcome(lambda rows: rows.key_by(str).window(Tumbling("1s")).sum("v"), RECORDS)
    assert str(raised.value.__cause__).startswith("the record has no field 'v'; it has a.")
    assert raised.value.at.record == "{'a': 3}"


@pytest.mark.parametrize("record", ["text", 5, Named(1), None, [1]])
def test_a_record_of_another_type_without_the_field_is_named_with_its_type(record: Any) -> None:
    with pytest.raises(StepFailed) as raised:
        outcome(lambda rows: rows.key_by("c").count(), [record])
    kind = type(record).__name__
    assert f"the record is a {kind}, which has no field 'c'" in str(raised.value.__cause__)


def test_an_error_about_a_field_that_the_record_has_stays_as_it_is() -> None:
    with pytest.raises(StepFailed) as raised:
        outcome(lambda rows: rows.key_by("b").count(), [Registered(1, 0.5)])
    assert type(raised.value.__cause__) is KeyUnsupported


BY_FIELD: dict[str, Callable[[Any], Any]] = {
    "partition_custom": lambda rows: rows.partition_custom(lambda key, tasks: 0, "c"),
    "top_k": lambda rows: rows.key_by("v").top_k(1, by="c"),
    "deduplicate": lambda rows: rows.key_by("v").deduplicate(by="c"),
    "distinct": lambda rows: rows.distinct("c"),
    "aggregate": lambda rows: rows.aggregate(total=sum_("c")),
}


@pytest.mark.parametrize("step", BY_FIELD)
def test_a_step_that_is_given_the_name_of_a_field_names_those_of_the_record(step: str) -> None:
    routed = outcome(BY_FIELD[step], [{"a": 1, "v": 2}], Outbox())
    assert [error.error.partition(";")[0] for error in routed] == ["FieldMissing: the record has no field 'c'"]


def test_columns_without_that_of_the_key_or_the_sum_are_named() -> None:
    schema = pyarrow.schema([("b", pyarrow.int64()), ("v", pyarrow.int64())])

    def failed(step: Callable[[Any], Any]) -> str:
        graph = JobGraph("etl")
        step(graph.source(UnknownColumns([{"b": 1, "v": 2}], schema))).sink(Outbox())  # the plan knows no column
        with pytest.raises(StepFailed) as raised:
            run(graph, parallelism=1)
        return f"{raised.value.at.step}: {raised.value.__cause__}"

    assert failed(lambda rows: rows.key_by("a").count()).startswith("key_by: the batch has no column 'a'; it has b, v.")
    missing = failed(lambda rows: rows.key_by("b").window(Tumbling("1s")).sum("w"))
    assert missing.startswith("window_sum: the record has no field 'w'; it has b, v.")


def test_an_error_of_the_users_own_key_function_stays_as_it_is() -> None:
    with pytest.raises(StepFailed) as raised:
        outcome(lambda rows: rows.key_by(lambda record: record["a"]).count(), RECORDS)
    assert type(raised.value.__cause__) is KeyError
