"""Types of jobs for a type checker: mypy runs over this file too, so a wrong type fails a gate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, assert_type

from clonos.api.emission import each
from clonos.api.graph import JobGraph
from clonos.api.keyed_stream import KeyedStream
from clonos.api.stream import Stream
from clonos.api.windowed import WindowedStream
from clonos.api.windows import Range, Tumbling
from clonos.operators.state.state_descriptors import ListState, MapState, Value, ValueState
from clonos.operators.steps.context import Context
from clonos.operators.steps.two_input_process import TwoInputContext
from clonos.operators.tags import Tag
from clonos.operators.windows.window_results import WindowResult
from tests.unit.operators.driver import Given, Outbox


class Lines:
    """A source whose reader says what it reads."""

    def splits(self, parallelism: int) -> list[bytes]:
        return []

    def reader(self) -> LinesReader:
        return LinesReader()


class LinesReader:
    def open(self, split: bytes, mark: bytes | None) -> None: ...

    def read(self, records_max: int) -> Sequence[str] | None:
        return None

    def mark(self) -> bytes:
        return b""

    def close(self) -> None: ...


class Lengths:
    """A process function of str that emits int."""

    count = ValueState[int]("count", default=0)
    last = ValueState[str | None]("last")
    seen = ListState[str]("seen")
    by_length = MapState[int, str]("by_length")

    def process(self, value: str, context: Context[str, int]) -> None:
        assert_type(context.key, str)
        assert_type(context.state(self.count), Value[int])
        assert_type(context.state(self.count).value, int)
        assert_type(context.state(self.last).value, str | None)
        assert_type(context.state(self.seen), list[str])
        assert_type(context.state(self.by_length), dict[int, str])
        context.emit(len(value))

    def on_timer(self, timestamp: datetime, context: Context[str, int]) -> None: ...


def test_a_type_checker_knows_the_records_of_each_stream() -> None:
    graph = JobGraph("types")
    lines = graph.source(Lines())
    assert_type(lines, Stream[str])
    assert_type(graph.source(Given([1])), Stream[Any])

    words = lines.flat_map(str.split)
    assert_type(words, Stream[str])
    assert_type(words.map(len), Stream[int])
    assert_type(words.filter(lambda word: word > "a"), Stream[str])
    assert_type(words.union(lines).rebalance().broadcast(), Stream[str])
    assert_type(words.union(words.map(len)), Stream[str | int])
    assert_type(words.map(len).union(words, lines), Stream[int | str])
    assert_type(words.union(graph.source(Given([1]))), Stream[str | Any])
    assert_type(words.process(Lengths), Stream[int])
    assert_type(words.process(Lengths()), Stream[int])

    keyed = words.key_by(len)
    assert_type(keyed, KeyedStream[int, str])
    assert_type(words.key_by("field"), KeyedStream[Any, str])
    assert_type(words.key_by("field", "other"), KeyedStream[tuple[Any, ...], str])
    assert_type(keyed.count(), Stream[tuple[int, int]])
    assert_type(keyed.reduce(max), Stream[tuple[int, str]])
    assert_type(keyed.process(Lengths), Stream[int])
    assert_type(keyed.union(keyed), KeyedStream[int, str])
    assert_type(keyed.union(words.map(len).key_by(abs)), KeyedStream[int, str | int])
    assert_type(words.process(Lengths).side_output(Tag[str]("late")), Stream[str])
    late = words.process(Lengths).side_output(Tag("late"))
    assert_type(late, Stream[Any])
    keyed.count().sink(Outbox())


def test_a_type_checker_knows_the_records_of_transformations() -> None:
    words = JobGraph("types").source(Lines()).flat_map(str.split)
    assert_type(words.distinct(), Stream[str])
    assert_type(words.deduplicate(len, within="1min").sample(0.5).peek(print), Stream[str])
    assert_type(words.branch(str.isupper, True), tuple[Stream[str], ...])
    assert_type(words.split(str.isupper), tuple[Stream[str], Stream[str]])
    assert_type(words.shuffle().rescale().global_(), Stream[str])
    assert_type(words.partition_custom(lambda length, tasks: length % tasks, len), Stream[str])
    assert_type(words.fold(0, lambda total, word: total + len(word), emit=each(1)), Stream[int])
    keyed = words.key_by(len)
    assert_type(keyed.deduplicate(keep="last", within="1s"), Stream[str])
    assert_type(keyed.distinct(), Stream[str])
    assert_type(keyed.top_k(3), Stream[tuple[int, list[str]]])
    assert_type(keyed.fold(0.5, lambda total, word: total + len(word), emit=each(1)), Stream[tuple[int, float]])


def test_a_type_checker_knows_states_and_windows() -> None:
    def tally(key: int, state: int | None, word: str) -> tuple[int | None, float]:
        return (state or 0) + len(word), 1.5

    keyed = JobGraph("types").source(Lines()).key_by(len)
    assert_type(keyed.stateful_map(tally), Stream[float])
    assert_type(keyed.stateful_map(lambda key, state, word: (state, word)), Stream[str])

    windows = keyed.window(Tumbling("1s"))
    assert_type(windows, WindowedStream[int, str])
    assert_type(windows.count(), Stream[WindowResult[int, int]])
    assert_type(windows.sum(), Stream[WindowResult[int, str]])
    assert_type(windows.sum(len), Stream[WindowResult[int, int]])
    assert_type(windows.reduce(max), Stream[WindowResult[int, str]])
    assert_type(windows.aggregate(list[str], list.append), Stream[WindowResult[int, list[str]]])
    assert_type(windows.aggregate(int, lambda total, word: total + len(word), str), Stream[WindowResult[int, str]])
    assert_type(windows.count().map(lambda result: result.start), Stream[datetime])


def joined_types() -> None:
    """A type checker knows the results of joins; this is never called."""
    graph = JobGraph("job")
    words: Stream[str] = graph.source(Lines(), timestamps=lambda _: 0)
    numbers: Stream[int] = words.map(len)

    def word_key(word: str) -> int:
        return len(word)

    def number_key(number: int) -> int:
        return number

    def select(word: str, number: int) -> float:
        return len(word) / number

    def select_left(word: str, number: int | None) -> float:
        return len(word) / (number or 1)

    assert_type(words.join(numbers, on=(word_key, number_key), between=(0, 1)), Stream[tuple[str, int]])
    assert_type(words.join(numbers, on="n", how="left", ttl="1h"), Stream[tuple[str, int | None]])
    assert_type(words.join(numbers, on="n", how="right", ttl="1h"), Stream[tuple[str | None, int]])
    assert_type(words.join(numbers, on="n", how="full", ttl="1h"), Stream[tuple[str | None, int | None]])
    assert_type(words.join(numbers, on="n", how="semi", window=Tumbling("1h")), Stream[str])
    assert_type(words.join(numbers, on="n", select=select, ttl="1h"), Stream[float])
    assert_type(words.join(numbers, on="n", how="left", select=select_left, ttl="1h"), Stream[float])
    words.join(numbers, on="n", how="left", select=select, ttl="1h")  # type: ignore[call-overload]
    words.join(numbers, on="n", how="outer", ttl="1h")  # type: ignore[call-overload]
    words.join(numbers, on=(number_key, number_key), ttl="1h")  # type: ignore[arg-type]
    assert_type(words.join_as_of(numbers, on="n"), Stream[tuple[str, int | None]])
    assert_type(words.join_as_of(numbers, on="n", how="inner", tolerance="1h"), Stream[tuple[str, int]])
    assert_type(words.join_as_of(numbers, on="n", select=select_left), Stream[float])
    assert_type(words.lookup(numbers, on="n"), Stream[tuple[str, int | None]])
    assert_type(words.lookup(numbers, on="n", how="inner", select=select), Stream[float])
    keyed_words, keyed_numbers = words.key_by(word_key), numbers.key_by(number_key)
    assert_type(keyed_words.join(keyed_numbers, ttl="1h"), Stream[tuple[str, int]])
    assert_type(keyed_words.join(keyed_numbers, how="left", between=(0, 1)), Stream[tuple[str, int | None]])
    assert_type(keyed_words.join(keyed_numbers, how="anti", ttl="1h"), Stream[str])
    assert_type(keyed_words.join(keyed_numbers, select=select, ttl="1h"), Stream[float])
    assert_type(keyed_words.join_as_of(keyed_numbers, select=select_left), Stream[float])
    assert_type(keyed_words.lookup(keyed_numbers), Stream[tuple[str, int | None]])
    keyed_words.join(numbers.key_by(str), ttl="1h")  # type: ignore[arg-type]
    keyed_words.join(numbers, ttl="1h")  # type: ignore[call-overload]
    assert_type(words.merge_ordered(words), Stream[str])
    assert_type(words.key_by(len).lag(), Stream[tuple[str, str | None]])
    assert_type(words.key_by(len).lead(2), Stream[tuple[str, str | None]])
    assert_type(words.key_by(len).last(3), WindowedStream[int, str])
    assert_type(words.key_by(len).window(Range("5s")).count(), Stream[WindowResult[int, int]])
    assert_type(words.key_by(len).window(Tumbling("5s")).map_frames(len), Stream[dict[str, Any]])
    assert_type(words.connect(numbers).process(BothInputs), Stream[float])
    words.connect(words).process(BothInputs)  # type: ignore[arg-type]
    words.key_by(word_key).connect(numbers.key_by(str))  # type: ignore[arg-type]


def options_of_steps_are_typed(words: Stream[str]) -> None:
    words.map(len, name="lengths", parallelism=2, standby="hot", effects=True)
    words.map(len, paralelism=2)  # type: ignore[call-arg]
    words.map(len, parallelism="2")  # type: ignore[arg-type]
    words.map(len, standby="warm")  # type: ignore[arg-type]
    words.distinct(effects=True)  # type: ignore[call-arg]
    words.join(words, on="n", ttl="1h", closed="none")  # type: ignore[call-overload]
    words.enrich(len, on=str, into="n", capacity="1")  # type: ignore[call-overload]
    words.enrich_batch(sorted, on=str, keys="1")  # type: ignore[call-overload]


class BothInputs:
    """A process function of str and int that emits float."""

    def process_first(self, value: str, context: TwoInputContext[Any, float]) -> None: ...

    def process_second(self, value: int, context: TwoInputContext[Any, float]) -> None: ...
