"""A job that is restored with another key function ends, in place of going on with the state of other keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.core.model.errors import Blame, blame_of
from clonos.core.model.options import Options
from clonos.operators.exchange_sample import SAMPLED_MAX, KeyChanged
from clonos.operators.job_image import JobImage
from clonos.operators.state.keyed_state import StateImage
from clonos_services import random as services
from tests.unit.operators.driver import Given, Outbox, Run

RECORDS = [{"user": f"u{number % 5}", "item": f"i{number % 3}"} for number in range(60)]


def job(key: Any, records: list[Any] = RECORDS) -> JobImage:
    graph = JobGraph("job")
    graph.source(Given(records)).key_by(key, name="by_user").count().sink(Outbox(), name="counts")
    return graph.compile(Options(), parallelism=2)


def restored(before: JobImage, after: JobImage, batches: int = 3) -> list[Any]:
    """Output of both jobs, of which the second one begins where the first one stopped."""
    first = Run(before)
    for _ in range(batches):
        first.read(4)
        first.drain()
    taken = first.barrier(1)
    first.close()
    second = Run(after, taken, first.clock)
    try:
        second.finish(7)
    finally:
        second.close()
    return [row for each in (first, second) for rows in each.written.values() for row in rows]


def by_user(record: Any) -> Any:
    return record["user"]


CHANGED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another field": (lambda record: record["item"], "and now it is 'i"),
    "another type": (lambda record: record["user"].encode(), "and now it is b'u"),
    "more of it": (lambda record: (record["user"], record["item"]), r"and now it is \('u"),
    "the record": (lambda record: record["customer"], "and now the function raises KeyError: 'customer'"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_another_key_function_ends_the_restored_job_and_its_error_has_the_step(change: str) -> None:
    key, text = CHANGED[change]
    with pytest.raises(KeyChanged, match=text) as raised:
        restored(job(by_user), job(key))
    assert 'the key of the step "by_user" has changed: the record {' in str(raised.value)
    assert "'user': 'u" in str(raised.value)
    assert 'The state of "count"' in str(raised.value)
    assert "had the key 'u" in str(raised.value)
    assert blame_of(raised.value) is Blame.JOB


def test_a_function_of_other_code_that_gives_the_same_keys_goes_on() -> None:
    for key in (by_user, lambda record: f"{record['user']}", lambda record: record.get("user")):
        assert len(restored(job(by_user), job(key))) == len(RECORDS)


def test_a_record_that_was_its_own_key_is_noticed_too() -> None:
    words = [f"w{number % 7}" for number in range(60)]
    with pytest.raises(KeyChanged, match=r"the record 'w.' had the key 'w.', and now it is 'W"):
        restored(job(lambda word: word, words), job(lambda word: word.upper(), words))


def test_the_sample_is_small_and_a_record_that_is_large_is_not_in_it() -> None:
    large = [{"user": "x" * 5000}] * 60
    assert len(restored(job(by_user, large), job(lambda record: "other", large))) == 60
    run = Run(job(by_user))
    run.finish(7)
    sizes = []
    for (changes,), _ in run.barrier(1):
        image = StateImage()
        image.apply(changes)
        sizes += [len(image.tables[name]) for name in image.tables if name == "count/keys of by_user"]
    run.close()
    assert sizes == [SAMPLED_MAX, SAMPLED_MAX]


def test_a_key_that_keeps_no_state_may_change() -> None:
    def without_state(key: Any) -> JobImage:
        graph = JobGraph("job")
        graph.source(Given(RECORDS)).key_by(key).sink(Outbox())
        return graph.compile(Options(), parallelism=2)

    assert len(restored(without_state(by_user), without_state(lambda record: record["item"]))) == len(RECORDS)


def test_a_function_that_uses_a_service_is_not_asked() -> None:
    assert len(restored(job(lambda record: services.randrange(4)), job(lambda record: services.randrange(4)))) == 60


def test_the_plan_has_the_key_fields_of_each_input() -> None:
    def key_of(right: str) -> tuple[tuple[str, str], ...]:
        graph = JobGraph("job")
        bids, users = graph.source(Given(RECORDS)), graph.source(Given(RECORDS))
        bids.key_by("user").join(users.key_by(right), ttl="1h", name="both").sink(Outbox())
        plan = graph.compile(Options(), parallelism=2).plan
        return next(step.properties for vertex in plan.vertices for step in vertex.steps if step.name == "both")

    assert dict(key_of("item"))["key"] == "the field 'user' and the field 'item'"
    assert dict(key_of("user"))["key"] == "the field 'user'"


def test_a_step_that_reads_one_stream_by_two_keys_has_a_sample_of_each() -> None:
    def joined(right: Any) -> JobImage:
        graph = JobGraph("job")
        bids = graph.source(Given(RECORDS))
        bids.key_by(by_user).join(bids.key_by(right, name="by_item"), ttl="1h", name="both").sink(Outbox())
        return graph.compile(Options(), parallelism=2)

    def by_item(record: Any) -> Any:
        return "u" + record["item"][1:]

    restored(joined(by_item), joined(by_item))
    with pytest.raises(KeyChanged, match='the key of the step "by_item" has changed'):
        restored(joined(by_item), joined(lambda record: record["item"]))
