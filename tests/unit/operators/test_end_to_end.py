"""Whole jobs through real chains: what comes out is what the plain Python loop gives."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from clonos.api.graph import JobGraph
from clonos.api.windows import Tumbling
from clonos.core.options import Options
from clonos.operators.windows import WindowResult
from tests.unit.operators.driver import START_NS, Given, Outbox, Run, run

LINES = ["the quick brown fox", "jumps over", "the lazy dog", "the end"] * 5
WORDS = [word for line in LINES for word in line.split()]


def test_word_count_counts_every_word_once() -> None:
    graph = JobGraph("wordcount")
    words = graph.source(Given(LINES)).flat_map(str.split).filter(lambda word: word != "dog")
    words.key_by(lambda word: word).count().sink(Outbox())
    counted: list[tuple[str, int]] = run(graph).outside["count-sink"]
    assert Counter(word for word, _ in counted) == Counter(word for word in WORDS if word != "dog")
    assert max(count for word, count in counted if word == "the") == 15
    assert sorted(counted) == sorted(set(counted))


def test_windows_give_one_result_for_each_key_and_span() -> None:
    graph = JobGraph("windows")
    words = graph.source(Given(WORDS)).key_by(lambda word: (word,))
    words.window(Tumbling("5s")).count().sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=2))
    job.read()
    job.drain()
    first = list(WORDS[:6])
    job.pass_time(5)
    results: list[WindowResult[Any, int]] = list(job.outside["window_count-sink"])
    assert {result.key[0]: result.value for result in results} == Counter(first)
    start = datetime.fromtimestamp(START_NS // 10**9 // 5 * 5, UTC)
    assert {(result.start, result.end) for result in results} == {(start, start + timedelta(seconds=5))}
    job.finish()
    results = job.outside["window_count-sink"]
    assert sum((Counter({result.key[0]: result.value}) for result in results), Counter()) == Counter(WORDS)
    job.close()
