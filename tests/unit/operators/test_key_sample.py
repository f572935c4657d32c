"""Sample of the keys of a task: which key it names, and in which shapes of batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.operators.key_sample import OF_BATCH_MAX, STRIDE, KeySample
from tests.unit.operators.driver import Given, Outbox, Run


def _keys(count: int, every: int) -> list[Any]:
    return ["ann" if number % every == 0 else number for number in range(count)]


@pytest.mark.parametrize("width", [1, 7, 60, 61, 62, 1000])
def test_each_record_at_the_stride_is_sampled_wherever_batches_are_cut(width: int) -> None:
    whole, cut, pairs = KeySample(), KeySample(), KeySample()
    keys: list[Any] = [f"key {number * number % 5}" for number in range(100 * STRIDE)]
    whole.see_keys(keys)
    for start in range(0, len(keys), width):
        batch = keys[start : start + width]
        cut.see_keys(batch)
        pairs.see_pairs([(key, None) for key in batch])
    assert whole.hottest() == cut.hottest() == pairs.hottest()
    sampled = keys[STRIDE - 1 :: STRIDE]
    found = whole.hottest()
    assert found is not None
    assert found[1] == round(100 * max(sampled.count(key) for key in sampled) / len(sampled))


def test_a_key_is_named_when_the_sample_is_large_enough_and_it_stands_out() -> None:
    sample = KeySample()
    sample.see_keys(_keys(63 * STRIDE, 2))
    assert sample.hottest() is None
    sample.see_keys(_keys(STRIDE, 2))
    assert sample.hottest() == ("'ann'", 52)
    even = KeySample()
    even.see_keys(list(range(10_000)))
    assert even.hottest() is None


def test_the_sample_is_of_the_recent_past_and_does_not_grow() -> None:
    sample = KeySample()
    sample.see_keys(["ann"] * 100_000)
    sample.see_keys(["bob"] * 100_000)
    found = sample.hottest()
    assert found is not None
    assert found[0] == "'bob'"
    assert found[1] > 60
    for start in range(0, 1_000_000, 1_000):
        sample.see_keys(list(range(start, start + 1_000)))
    assert len(sample) < 1_100


def test_keys_that_are_equal_in_python_are_two_and_any_key_is_shown() -> None:
    sample = KeySample()
    sample.see_keys([b"1", True, 1, 1] * 61 * 20)
    assert sample.hottest() == ("1", 50)
    long = KeySample()
    long.see_keys(["x" * 100] * 10_000)
    assert long.hottest() == (f"'{'x' * 56}...", 100)


def test_columns_are_sampled_as_rows_are() -> None:
    rows, columns = KeySample(), KeySample()
    keys = [number * number % 5 for number in range(10_000)]
    rows.see_keys(keys)
    for start in range(0, len(keys), 700):
        batch = pa.RecordBatch.from_pydict({"key": keys[start : start + 700]})
        columns.see_columns(batch, ("key",))
    assert rows.hottest() == columns.hottest()


@pytest.mark.slow
@pytest.mark.parametrize("is_timed", [False, True])
@pytest.mark.parametrize("bare", [False, True])
def test_the_chain_of_a_keyed_step_knows_its_hottest_key(is_timed: bool, bare: bool) -> None:
    graph = JobGraph("job")
    records = ["ann" if number % 3 else str(number) for number in range(20_000)]
    stamps = (lambda _: 1_700_000_000) if is_timed else None
    stream = graph.source(Given(records), timestamps=stamps)
    stream.key_by((lambda word: word) if bare else (lambda word: word[:9])).count(name="count").sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=1))
    job.finish(1_000)
    found = {job.plan.task_name(task): job.chains[task].hottest_key() for task in job.plan.tasks}
    (counted,) = [key for name, key in found.items() if name.startswith("count")]
    assert counted is not None
    assert counted[0] == "'ann'"
    assert 60 <= counted[1] <= 73
    assert [key for name, key in found.items() if not name.startswith("count")] == [None] * (len(found) - 1)


def test_a_large_batch_of_columns_is_sampled_at_few_places_that_count_for_more() -> None:
    keys = [str(key) for key in _keys(100_000, 2)]  # every second one: an even stride would see all or none
    sample = KeySample()
    sample.see_columns(pa.record_batch({"k": pa.array(keys)}), ("k",))
    assert 1 < len(sample) <= OF_BATCH_MAX
    found = sample.hottest()
    assert found is not None
    assert found[0] == "'ann'"
    assert abs(found[1] - 50) <= 5
