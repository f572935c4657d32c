"""Whole jobs through real chains, compared with a plain Python loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.api.windows import Tumbling
from clonos.core.model.options import Options
from clonos.operators.chain_outputs import CombinedSinks
from clonos.operators.connector_contract import TransactionalSink
from clonos.operators.steps.context import Context
from clonos.operators.windows.window_results import WindowResult
from tests.unit.operators.driver import START_NS, Given, Outbox, Run, run
from tests.unit.operators.samples import Files

LINES = ["the quick brown fox", "jumps over", "the lazy dog", "the end"] * 5
WORDS = [word for line in LINES for word in line.split()]


def test_word_count_counts_every_word_once() -> None:
    graph = JobGraph("wordcount")
    words = graph.source(Given(LINES)).flat_map(str.split).filter(lambda word: word != "dog")
    words.key_by(lambda word: word).count().sink(Outbox())
    counted: list[tuple[str, int]] = run(graph).written["count-sink"]
    assert Counter(word for word, _ in counted) == Counter(word for word in WORDS if word != "dog")
    assert max(count for word, count in counted if word == "the") == 15
    assert sorted(counted) == sorted(set(counted))


def numbered(number: int, value: int) -> int:
    return value * 10 + number


@pytest.mark.parametrize("sinks", [1, 2])
def test_transactional_sinks_commit_the_rows_written_before_the_barrier(sinks: int) -> None:
    graph = JobGraph("sinks")
    numbers = graph.source(Given(range(5)))
    for number in range(sinks):
        numbers.map(partial(numbered, number)).sink(Files())
    job = Run(graph.compile(Options(), parallelism=1))
    job.read()
    job.barrier(1)
    first = job.prepared.pop(0)
    job.finish()
    job.barrier(2)
    committing = job.image.sink_of(0)
    assert isinstance(committing, TransactionalSink)
    for checkpoint, parts in ((1, first), (2, job.prepared[0])):
        committing.commit("job", checkpoint, parts)
    found = committing.sinks if isinstance(committing, CombinedSinks) else (committing,)
    assert [each.committed for each in found if isinstance(each, Files)] == [
        {1: [str(value * 10 + number) for value in (0, 1, 2)], 2: [str(value * 10 + number) for value in (3, 4)]}
        for number in range(sinks)
    ]
    job.close()


def test_broadcast_reaches_all_tasks_and_rebalance_one_in_turn() -> None:
    class Marked:
        def open(self, context: Context[Any, Any]) -> None:
            self.seen: list[int] = []

        def process(self, value: int, context: Context[Any, tuple[int, int]]) -> None:
            self.seen.append(value)  # clonos: ok the job never fails
            context.emit((value, len(self.seen)))

    def marked(spread: Callable[[Stream[int]], Stream[int]]) -> list[tuple[int, int]]:
        graph = JobGraph("spread")
        source = graph.source(Given(range(6)), parallelism=1)
        spread(source).process(Marked, parallelism=3).sink(Outbox())
        return sorted(run(graph, 1).written["process-sink"])

    assert marked(Stream.rebalance) == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2), (5, 2)]
    assert marked(Stream.broadcast) == sorted((value, value + 1) for value in range(6) for _ in range(3))


def test_windows_give_one_result_for_each_key_and_span() -> None:
    graph = JobGraph("windows")
    words = graph.source(Given(WORDS)).key_by(lambda word: (word,))
    words.window(Tumbling("5s")).count().sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=2))
    job.read()
    job.drain()
    first = list(WORDS[:6])
    job.pass_time(5)
    results: list[WindowResult[Any, int]] = list(job.written["window_count-sink"])
    assert {result.key[0]: result.value for result in results} == Counter(first)
    start = datetime.fromtimestamp(START_NS // 10**9 // 5 * 5, UTC)
    assert {(result.start, result.end) for result in results} == {(start, start + timedelta(seconds=5))}
    job.finish()
    results = job.written["window_count-sink"]
    assert sum((Counter({result.key[0]: result.value}) for result in results), Counter()) == Counter(WORDS)
    job.close()
