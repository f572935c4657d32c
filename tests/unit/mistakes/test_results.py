"""What other habits return: generators, coroutines, strings and values where Clonos expects results or emits them."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

import clonos
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.values import ValueUnsupported
from clonos.operators.steps.function_results import returns_nothing
from tests.unit.operators.driver import Given, Outbox, run


def rows_of(code: str, *, parallelism: int = 1) -> list[Any]:
    """Executes code that builds ``job`` as a user writes it, runs the job in this thread and returns its rows."""
    names: dict[str, Any] = {name: getattr(clonos, name) for name in clonos.__all__}
    names |= {"Job": JobGraph, "values": Given, "collect": Outbox}
    exec(compile(dedent(code), "job.py", "exec"), names)  # noqa: S102  the code of the test itself
    (rows,) = run(names["job"], parallelism).written.values()
    return rows


def refused(step: str) -> str:
    """Returns the sentence that refuses a job with this step, of a stream of words."""
    with pytest.raises(InvalidJob) as raised:
        rows_of(f"{FUNCTIONS}\njob = Job('etl')\njob.source(values(['a b', 'c'])).{step}.sink(collect())")
    return str(raised.value)


def failed(step: str) -> str:
    """Returns the sentence that ends a job with this step, and the name of the step."""
    with pytest.raises(StepFailed) as raised:
        rows_of(f"{FUNCTIONS}\njob = Job('etl')\njob.source(values(['a b', 'c'])).{step}.sink(collect())")
    return f"{raised.value.at.step}: {raised.value.__cause__}"


FUNCTIONS = """
from datetime import UTC, datetime

LATER = datetime(2099, 1, 1, tzinfo=UTC)

def split(line):
    yield from line.split()

async def fetch(line):
    return line

def delegates(line):
    return split(line)

def forgets(line):
    return fetch(line)

class Yielding:
    def process(self, value, context):
        for word in value.split():
            yield word

class Delegating:
    def process(self, value, context):
        context.emit("first")
        return self.words(value)
    def words(self, value):
        yield from value.split()
        context = None

class Returning:
    def process(self, value, context):
        return value.upper()

class YieldingAndReturning:
    def process(self, value, context):
        yield value
        return 5

class Awaiting:
    async def process(self, value, context):
        context.emit(value)

class Forgetting:
    def process(self, value, context):
        return fetch(value)

class YieldingInOpen:
    def open(self, context):
        yield 1
    def process(self, value, context):
        context.emit(value)

class WithStateCalledOpen:
    open = ValueState("open", default=False)
    def process(self, value, context):
        context.emit(value)

class WithoutOnTimer:
    def process(self, value, context):
        def later():
            context.set_timer(clock.now())
        later()

class Timed:
    def process(self, value, context):
        context.set_timer(LATER)
    def on_timer(self, instant, context):
        yield "from a"
        yield "timer"

class TimedReturning:
    def process(self, value, context):
        context.set_timer(LATER)
    def on_timer(self, instant, context):
        return ["from a timer"]
"""


def words_of(step: str) -> list[Any]:
    return rows_of(f"{FUNCTIONS}\njob = Job('etl')\njob.source(values(['a b', 'c'])).{step}.sink(collect())")


def test_results_that_process_yields_are_emitted() -> None:
    assert words_of("process(Yielding)") == ["a", "b", "c"]
    assert words_of("key_by(lambda line: line).process(Yielding())") == ["a", "b", "c"]


def test_a_generator_that_process_returns_is_emitted_in_place() -> None:
    assert words_of("process(Delegating)") == ["first", "a", "b", "first", "c"]


def test_results_that_on_timer_yields_are_emitted() -> None:
    assert words_of("process(Timed)") == ["from a", "timer"]


@pytest.mark.parametrize("errors", ["", ", errors=collect()"], ids=["without", "with"])
def test_any_other_value_is_refused_at_the_first_record_with_and_without_an_error_output(errors: str) -> None:
    def message(cls: str) -> str:
        with pytest.raises(StepFailed) as raised:
            rows_of(
                f"{FUNCTIONS}\njob = Job('etl'{errors})\n"
                f"job.source(values(['a b', 'c'])).process({cls}, name='shout').sink(collect())"
            )
        assert raised.value.at.step == "shout"
        assert raised.value.at.record in ("'a b'", "None")
        return str(raised.value.__cause__)

    emit_it = "and a returned value is not emitted. Call context.emit(result) for each result, or yield it."
    assert message("Returning") == f"process() returned a str, {emit_it}"
    assert message("YieldingAndReturning") == f"process() returned a int, {emit_it}"
    assert message("Forgetting") == f"process() returned a coroutine, {emit_it}"
    assert message("TimedReturning") == f"on_timer() returned a list, {emit_it}"


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ("map(split)", "the step map gets split, a generator function, and a call of it returns a generator"),
        ("map(split)", "Use flat_map, which gives every item that the function yields."),
        ("filter(split, name='new')", "the step new gets split, a generator function"),
        ("filter(split)", "Return the result instead of yielding it."),
        ("key_by(split).count()", "the step key_by gets split, a generator function"),
        ("key_by(len).reduce(split)", "the step reduce gets split, a generator function"),
        ("key_by(len).stateful_map(split)", "the step stateful_map gets split, a generator function"),
        ("key_by(len).window(Tumbling(1)).sum(split)", "the step window_sum gets split, a generator function"),
        ("key_by(len).window(Tumbling(1)).aggregate(list, split)", "the step window_aggregate gets split, a generator"),
        ("map(__import__('functools').partial(split))", "the step map gets split, a generator function"),
        ("map(type('Split', (), {'__call__': split})())", "the step map gets Split, a generator function"),
        ("map(fetch)", "the step map gets fetch, an async function, and nothing here would await it."),
        ("map(fetch)", "Use map_async, which awaits up to capacity= of these calls at once, or write it with def."),
        ("flat_map(fetch)", "the step flat_map gets fetch, an async function"),
        ("filter(fetch)", "the step filter gets fetch, an async function"),
        ("process(Awaiting)", "the step process has an async method as process(). Write it with def"),
        ("process(YieldingInOpen)", "the step process has a generator as open(). It cannot yield results"),
        (
            "process(WithStateCalledOpen)",
            "the step process has a ValueState as its attribute open, the name of a method",
        ),
        (
            "process(WithoutOnTimer)",
            "the step process sets timers and has no method on_timer(timestamp, context). Add it",
        ),
    ],
)
def test_a_function_that_shows_the_mistake_is_refused_when_the_step_is_added(step: str, sentence: str) -> None:
    message = refused(step)
    assert sentence in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ("map(delegates)", "map: the function of map returned a generator. Use flat_map, which gives every item"),
        ("map(forgets)", "map: the function of map returned a coroutine, which has not run. Use map_async"),
        ("filter(forgets)", "filter: the function of filter returned a coroutine, which has not run."),
        ("filter(delegates)", "filter: the function of filter returned a generator. Return the result instead"),
        ("flat_map(str.upper)", "flat_map: the function of flat_map returned a str, whose characters would each be"),
        ("flat_map(str.upper)", "Return a list of results: [result] for one, [] for none, list(...) if its characters"),
        (
            "flat_map(str.encode)",
            "flat_map: the function of flat_map returned a bytes, whose bytes would each be a result",
        ),
        (
            "flat_map(lambda line: {'a': 1})",
            "flat_map: the function of flat_map returned a dict, whose keys would each",
        ),
        ("flat_map(lambda line: None)", "flat_map: the function of flat_map returned None. Return a list of results"),
        ("flat_map(len)", "flat_map: the function of flat_map returned 3, which is not several results. Return a list"),
        (
            "key_by(len).stateful_map(lambda key, state, line: 5)",
            "stateful_map: the function of stateful_map returned 5, which is not a pair. Return the new state and the",
        ),
        (
            "key_by(len).stateful_map(lambda key, state, line: {'n': 1, 'm': 2})",
            "stateful_map: the function of stateful_map returned {'n': 1, 'm': 2}, which is not a pair.",
        ),
        ("key_by(len).stateful_map(lambda key, state, line: 'ok')", "returned 'ok', which is not a pair."),
        ("key_by(len).stateful_map(lambda key, state, line: {len(line)} | {-1})", "1}, which is not a pair."),
        ("key_by(len).stateful_map(lambda key, state, line: None)", "the function of stateful_map returned None."),
        ("flat_map(forgets)", "flat_map: the function of flat_map returned a coroutine, which has not run."),
    ],
)
def test_a_mistake_that_only_a_result_shows_is_refused_at_the_first_result(step: str, sentence: str) -> None:
    message = failed(step)
    assert sentence in message
    assert len(message.splitlines()) == 1


def returns_in_a_branch(value: Any, context: Any) -> Any:
    if value:
        return value
    return None


def returns_nothing_in_two_places(value: Any, context: Any) -> None:
    if value:
        return
    context.emit(value)


def yields(value: Any, context: Any) -> Any:
    yield value


def test_only_a_function_that_shows_that_it_returns_none_runs_without_a_check() -> None:
    assert returns_nothing(lambda value, context: None)
    assert returns_nothing(returns_nothing_in_two_places)
    may_return: list[Any] = [
        lambda value, context: value or None,
        lambda value, context: None if value else value,
        lambda value, context: value and context.emit(value),
        returns_in_a_branch,
        yields,
        len,
    ]
    assert not any(map(returns_nothing, may_return))


def test_functions_without_a_mistake_give_the_same_as_before() -> None:
    assert words_of("flat_map(split)") == ["a", "b", "c"]
    assert words_of("flat_map(delegates)") == ["a", "b", "c"]
    assert words_of("flat_map(str.split)") == ["a", "b", "c"]
    assert words_of("flat_map(list)") == ["a", " ", "b", "c"]
    assert words_of("map(str.upper)") == ["A B", "C"]
    assert words_of("filter(lambda line: ' ' in line)") == ["a b"]


def test_a_dataclass_that_travels_unregistered_is_one_short_sentence() -> None:
    order = "from dataclasses import dataclass\n@dataclass\nclass Order:\n    who: str\n"
    orders = f"{order}\njob = Job('etl')\norders = job.source(values(['ann', 'bob'])).map(Order)\n"
    with pytest.raises(ValueUnsupported) as raised:
        rows_of(f"{orders}\norders.rebalance().map(str).sink(collect())")
    assert str(raised.value) == (
        "record is a Order, which cannot travel between tasks or be kept in state."
        " Register its class: put @register (from clonos import register) above it."
    )
    assert raised.value.__cause__ is None
    assert rows_of(f"{orders}\norders.map(lambda order: order.who).sink(collect())") == ["ann", "bob"]


LATER = """
def sometimes(line):
    return [line] if line != "c" else line

def later(line):
    return (line,) if line != "c" else {line: 1}
"""


@pytest.mark.parametrize(
    ("function", "sentence"),
    [("sometimes", "a str, whose characters would each be"), ("later", "a dict, whose keys would each be a result")],
)
def test_flat_map_refuses_what_only_a_later_record_returns(function: str, sentence: str) -> None:
    job = f"{LATER}\njob = Job('etl')\njob.source(values(['a b', 'b', 'c', 'd'])).flat_map({function}).sink(collect())"
    with pytest.raises(StepFailed) as raised:
        rows_of(job)
    assert sentence in str(raised.value.__cause__)
    assert raised.value.at.record == "'c'"
    routed = f"{LATER}\njob = Job('etl', errors=collect())\njob.source(values(['a', 'c', 'd'])).flat_map({function})"
    with pytest.raises(StepFailed):
        rows_of(f"{routed}.sink(collect())")
