"""``history.then(live)``: all of the history, then all that follows, from every snapshot on; and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import Job, LateCut, MessagesLost, Timestamps, Tumbling, files, kafka, values
from clonos.api.event_time import assigner_of
from clonos.api.graph_errors import InvalidJob
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.history import HistorySource, part_of
from clonos.core.ports.operator_chain import NothingToRead, StepFailed
from clonos.operators.split_source import SourceHead
from tests.unit.operators.driver import Given
from tests.unit.operators.test_source import head
from tests.unit.operators.test_timed_source import Readings
from tests.unit.operators.test_timed_source import head as timed_head


class Numbers(Given, HistorySource):
    """Numbers in three splits, whatever the parallelism."""

    def splits(self, parallelism: int) -> list[bytes]:
        return super().splits(3)


def read_all(made: SourceHead, records_max: int = 100) -> list[tuple[int, int]]:
    reads = []
    while not isinstance(found := made.poll(records_max), NothingToRead) or found is NothingToRead.NOW:
        if not isinstance(found, NothingToRead):
            made.read(*found)
            reads.append(found)
    return reads


@settings(deadline=None)
@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 9), st.data())
def test_each_snapshot_continues_with_the_rest_of_the_history_and_then_what_follows(
    size: int, live_size: int, step: int, data: st.DataObject
) -> None:
    source = Numbers(range(size)).then(Numbers(range(size, size + live_size)))
    splits = source.splits(1)
    first, taken = head(source, splits)
    positions, reads = [(first.position(), 0)], list[tuple[int, int]]()
    while (found := first.poll(step)) is not NothingToRead.ALL_READ:
        if not isinstance(found, NothingToRead):
            first.read(*found)
            reads.append(found)
        positions.append((first.position(), len(reads)))
    assert sorted(taken.records[:size]) == list(range(size))
    assert sorted(taken.records[size:]) == list(range(size, size + live_size))
    position, done = data.draw(st.sampled_from(positions))
    again, taken_again = head(source, splits)
    again.restore(position)
    replayed = data.draw(st.integers(done, len(reads)))
    for read in reads[done:replayed]:  # a replay does not poll
        again.read(*read)
    read_all(again, step)
    rest = [row for batch in taken.batches[done:] for row in batch]
    assert sorted(taken_again.records) == sorted(rest)
    assert [row >= size for row in taken_again.records] == sorted(row >= size for row in rest)


class Chunks(Readings, HistorySource):
    """Instants by chunks, without watermarks of their own."""

    watermark = None  # type: ignore[assignment]


def instant(row: int) -> int:
    return row * 1_000_000


ASSIGNER = assigner_of(Timestamps(instant, unit="ns", watermark_every="1ms", future_max=None))


def test_the_watermark_stands_at_the_cut_until_each_live_split_has_records() -> None:
    source = Chunks([[10], [20]], [[5], [40]]).then(Chunks([[50], [60]], [[], [45], [70]]))
    made, sent, state = timed_head(source, assigner=ASSIGNER)
    for read in ((0, 1), (1, 1), (0, 1), (1, 1), (0, 0)):
        made.read(*read)
    at_history_end = list(sent.elements)
    made.read(1, 0)
    assert at_history_end[-1] == 40_000_000
    assert sent.elements == at_history_end  # the end of the history sends nothing
    made.prepare(1)
    position = made.position()
    again, sent_again, _ = timed_head(source, state, assigner=ASSIGNER)
    again.restore(position)
    for one, elements in ((made, sent), (again, sent_again)):
        before = len(elements.elements)
        one.read(2, 1)
        assert elements.elements[before:] == [[50]]
        read_all(one)
        assert elements.elements[-1] in (60_000_000, 70_000_000)
    assert sent_again.elements == sent.elements[len(at_history_end) :]


def test_a_live_split_that_was_not_begun_does_not_hold_back_the_history() -> None:
    made, sent, _ = timed_head(Chunks([[10]]).then(Chunks([[50]])), assigner=ASSIGNER)
    made.read(0, 1)
    assert sent.elements == [[10], 10_000_000]


class Watched(Numbers):
    """Finds a split at each search."""

    discovery_interval_ns = 1

    def discover(self, known: Sequence[bytes], index: int, parallelism: int) -> list[bytes]:
        return [b"0 1"] if len(known) < 4 else []


def test_new_splits_of_the_live_half_are_looked_for_after_the_history_alone() -> None:
    source = Numbers(range(3)).then(Watched(range(3, 6)))
    made, taken = head(source, source.splits(1))
    assert made.discover_splits(1) == b""
    while len(taken.records) < 6:
        if not isinstance(read := made.poll(9), NothingToRead):
            made.read(*read)
    made.add_splits(found := made.discover_splits(2))
    assert [part_of(each).place for each in msgspec.msgpack.decode(found)] == [1]
    while len(taken.records) < 9:
        if not isinstance(read := made.poll(9), NothingToRead):
            made.read(*read)
    assert taken.records[6:] == [3, 4, 5]
    again, _ = head(source, source.splits(1))
    again.restore(made.position())
    assert again.position() == made.position()


class Lost(Numbers):
    """Has lost what comes next."""

    def reader(self) -> Any:
        return self

    def open(self, split: bytes, mark: bytes | None) -> None:
        raise MessagesLost("the topic orders", "offset 5", "it begins at 7")


@pytest.mark.parametrize(("mark", "expected"), [(None, LateCut), (b"0", MessagesLost)])
def test_records_that_are_gone_at_the_cut_are_a_late_cut_and_later_a_loss(
    mark: bytes | None, expected: type[Exception]
) -> None:
    source = Numbers([]).then(Lost([]))
    live = next(split for split in source.splits(1) if source.phase_of(split) == 1)
    with pytest.raises(expected, match="offset 5 is next, but it begins at 7"):
        source.reader().open(live, mark)


def test_a_late_cut_ends_the_task_with_one_sentence_and_its_advice() -> None:
    source = Numbers([]).then(Lost([]))
    made, _ = head(source, source.splits(1))
    with pytest.raises(StepFailed) as failed:
        read_all(made)
    text = str(failed.value.__cause__)
    assert text.endswith("it begins at 7. Take a history that ends later, and start afresh with --overwrite.")
    assert "cannot begin where the history ends" in text


TOPIC = kafka.source("orders", servers="localhost:1", decode=int)


@pytest.mark.parametrize(
    ("history", "live", "problem"),
    [
        (files.lines("*.txt", watch="1s"), values([1]), "does not end"),
        (TOPIC, values([1]), "does not end"),
        (values([1]), 5, "the live source is a int, not a source"),
        (values([1]), Readings([[1]]), "makes watermarks of its own"),
        (values([1]), kafka.source("orders", servers="localhost:1", out_of_order="1s"), "only one of the halves"),
    ],
)
def test_halves_that_cannot_be_joined_are_refused_when_the_job_is_described(
    history: Any, live: Any, problem: str
) -> None:
    with pytest.raises(InvalidConnector, match=problem):
        history.then(live)


def test_a_live_source_that_begins_at_latest_is_refused_before_anything_is_asked() -> None:
    live = kafka.source("orders", servers="localhost:1", start="latest")
    with pytest.raises(LateCut, match='start="latest" is not a fixed place'):
        values([1]).then(live).splits(1)


def test_only_one_task_reads_both_halves() -> None:
    job = Job("one")
    with pytest.raises(InvalidJob, match="in one order"):
        job.source(values([1]).then(values([2])), parallelism=2)


def test_a_window_over_the_cut_has_records_of_both_halves_as_python_objects(tmp_path: Path) -> None:
    lines = [f'{{"item": "tea", "at": {second}}}\n' for second in range(5)]
    (tmp_path / "history.jsonl").write_text("".join(lines))
    live = values([{"item": "tea", "at": second} for second in range(5, 8)])
    job = Job("cut")
    both = job.source(files.jsonl(tmp_path / "*.jsonl").then(live), timestamps=Timestamps("at", unit="s"))
    both.key_by("item").window(Tumbling("4s")).count(name="count")
    plan = job.explain()
    assert "history.jsonl" not in plan
    assert ".then(values(<3 records>)), 2 splits" in plan
    assert "1 task" in plan


def test_a_chain_of_three_sources_is_read_in_its_order() -> None:
    source = values([1, 2]).then(values([3])).then(values([4, 5]))
    made, taken = head(source, source.splits(1))
    read_all(made)
    assert taken.records == [1, 2, 3, 4, 5]
