"""Sources: reading again from any position returns the same records."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.log import determinants as d
from clonos.core.model.errors import EnvironmentFault, InternalError
from clonos.core.ports.operator_chain import ChainContext, NothingToRead
from clonos.operators.operator import Operator, Scope, Times
from clonos.operators.split_source import (
    NotColumnar,
    PositionMalformed,
    SourceChanged,
    SourceHead,
    SourceRecordsMissing,
    marks_of,
)
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.keyed_state import StateBackend
from tests.unit.operators.driver import Clock, Given
from tests.unit.operators.samples import ColumnsGiven


class Taken(Operator):
    """Keeps what a source emits."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.batches.append(rows)

    @property
    def records(self) -> list[Any]:
        return [row for batch in self.batches for row in batch]


class Collects:
    """No collector is used here."""

    rows = columns = prepared = routed_error = None


def head(
    source: Any, splits: list[bytes], index: int = 0, parallelism: int = 1, is_columnar: bool | None = None
) -> tuple[SourceHead, Taken]:
    """The first step of task ``index``; ``is_columnar`` None takes what the source declares."""
    declared = getattr(source, "is_columnar", False) if is_columnar is None else is_columnar
    made = SourceHead("numbers", source, splits, declared)
    made.out = taken = Taken()
    context = ChainContext(
        "numbers/0",
        0,
        index,
        parallelism,
        128,
        "job",
        0,
        1,
        Clock(),
        Collects(),  # type: ignore[arg-type]
        "",
    )
    made.open(Scope(context, StepState(StateBackend(None), "numbers", made.state_specs)))
    return made, taken


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(1, 4), st.lists(st.integers(1, 9), max_size=20), st.data())
def test_a_restored_source_continues_at_the_snapshot(
    size: int, splits: int, steps: list[int], data: st.DataObject
) -> None:
    source = Given(range(size))
    names = source.splits(splits)
    first, taken = head(source, names)
    reads: list[tuple[int, int]] = []
    positions = [(first.position(), 0)]
    for step in [*steps, *[1_000] * (size + 1)]:
        found = first.poll(step)
        if isinstance(found, NothingToRead):
            break
        first.read(*found)
        reads.append(found)
        positions.append((first.position(), len(reads)))
    first.close()
    assert sorted(taken.records) == list(range(size))
    position, done = data.draw(st.sampled_from(positions))
    again, taken_again = head(source, names)
    again.restore(position)
    for read in reads[done:]:  # a replay does not poll
        again.read(*read)
    assert taken_again.batches == taken.batches[done:]
    again.close()


def test_tasks_share_the_splits_without_a_gap() -> None:
    source = Given(range(20))
    names = source.splits(5)
    records: list[int] = []
    for index in range(3):
        made, taken = head(source, names, index, 3)
        while not isinstance(found := made.poll(4), NothingToRead):
            made.read(*found)
        records += taken.records
        made.close()
    assert sorted(records) == list(range(20))


class Stubborn:
    """A reader that answers from a list."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = deque(answers)
        self.is_open = False

    def splits(self, parallelism: int) -> list[bytes]:
        return [b""]

    def reader(self) -> Stubborn:
        return self

    def open(self, split: bytes, mark: bytes | None) -> None:
        self.is_open = True

    def read(self, records_max: int) -> Any:
        return self.answers.popleft()

    def mark(self) -> bytes:
        return b"here"

    def close(self) -> None:
        self.is_open = False


def test_a_source_without_data_is_read_again_later() -> None:
    source = Stubborn([[], [], ["a"], [], None])
    made, taken = head(source, [b""])
    assert [made.poll(9) for _ in range(2)] == [NothingToRead.NOW] * 2
    assert made.poll(9) == (0, 1)
    made.read(0, 1)
    assert [made.poll(9), made.poll(9)] == [NothingToRead.NOW, NothingToRead.ALL_READ]
    assert taken.records == ["a"]
    assert not source.is_open


class Counted(Stubborn):
    """Its mark is the number of reads."""

    reads = 0

    def read(self, records_max: int) -> Any:
        self.reads += 1
        return super().read(records_max)

    def mark(self) -> bytes:
        return b"%d" % self.reads


def test_the_position_of_a_split_that_has_nothing_now_lies_after_what_was_taken() -> None:
    made, _ = head(Counted([["a", "b"], []]), [b"split"])
    made.poll(9)
    made.read(0, 1)
    assert marks_of(made.position(), [b"split"]) == [(b"split", b"0")]
    made.read(0, 1)
    assert marks_of(made.position(), [b"split"]) == [(b"split", b"0")]
    made.poll(9)
    assert marks_of(made.position(), [b"split"]) == [(b"split", b"1")]
    again, taken = head(Counted([["c"], None]), [b"split"])
    again.restore(made.position())
    assert again.poll(9) == (0, 1)
    again.read(0, 1)
    assert taken.records == ["c"]


def test_a_split_that_ends_early_when_read_again_is_an_error() -> None:
    made, _ = head(Stubborn([["a"], None]), [b""])
    with pytest.raises(SourceChanged, match="ended 2 records earlier in its split 0"):
        made.read(0, 3)
    made, _ = head(Stubborn([["a"], []]), [b""])
    with pytest.raises(SourceRecordsMissing, match="2 fewer records"):
        made.read(0, 3)


def test_a_position_of_other_splits_is_refused() -> None:
    source = Given([1])
    first, _ = head(source, source.splits(1))
    second, _ = head(source, source.splits(2))
    with pytest.raises(PositionMalformed, match="have different splits"):
        second.restore(first.position())
    with pytest.raises(PositionMalformed):
        second.restore(b"\xc1")
    with pytest.raises(InternalError):
        first.read(7, 1)


class Watching(Given):
    """Finds a split, and says which splits can be its own."""

    discovery_interval_ns = 1

    def discover(self, known: Any, index: int, parallelism: int) -> list[bytes]:
        return [self.splits(1)[0]]

    def check_split(self, split: bytes) -> None:
        if split not in self.splits(1):
            raise Foreign(repr(split))


class Foreign(EnvironmentFault):
    pass


def test_discovered_splits_are_checked_on_restore_and_on_discovery() -> None:
    source = Watching(range(5))
    first, _ = head(source, [])
    first.add_splits(first.discover_splits(1))
    again, _ = head(source, [])
    again.restore(first.position())
    foreign, _ = head(source, [])
    with pytest.raises(Foreign):
        foreign.restore(first.position().replace(source.splits(1)[0], b"x" * len(source.splits(1)[0])))
    with pytest.raises(Foreign):
        foreign.add_splits(msgspec.msgpack.encode([b"x"]))


def test_records_of_splits_that_were_found_at_run_time_are_read_again() -> None:
    live, taken = head(source := Watching(range(5)), [])
    found = live.discover_splits(1)
    live.add_splits(found)
    log = d.blob(d.SPLITS, found)
    while isinstance(polled := live.poll(2), tuple):
        live.read(*polled)
        log += d.numbers(d.READ, *polled)
    again, _ = head(source, [])
    batches = [(number, list(batch)) for number, _, batch in again.read_again(0, 1, b"", log)]
    assert [batch for _, batch in batches] == taken.batches
    assert taken.records == list(range(5))


def test_a_position_with_a_negative_record_count_is_malformed() -> None:
    source = Given(range(5))
    made, _ = head(source, source.splits(1))
    made.restore(msgspec.msgpack.encode([[[0, None, 3, False, b""]]]))
    for skip in (-1, 1 << 62):
        with pytest.raises(PositionMalformed):
            made.restore(msgspec.msgpack.encode([[[0, None, skip, False, b""]]]))


@pytest.mark.parametrize("splits", [b"", b"\xc1", b"\x91\x01", b"\x91" * 5_000])
def test_a_malformed_list_of_splits_raises_only_the_malformed_error(splits: bytes) -> None:
    made, _ = head(Watching(range(5)), [])
    with pytest.raises(PositionMalformed):
        made.add_splits(splits)
    with pytest.raises(PositionMalformed):
        made.restore(splits)


def test_columns_stay_columns_only_when_declared() -> None:
    rows = [{"n": n} for n in range(10)]
    columns = ColumnsGiven(rows)
    made, _ = head(columns, columns.splits(1))
    batches: list[Any] = []
    made.out.columns = batches.append  # type: ignore[method-assign, assignment]
    made.read(0, 7)
    assert [batch.to_pylist() for batch in batches] == [rows[:7]]
    made.close()

    undeclared, taken = head(columns, columns.splits(1), is_columnar=False)
    undeclared.read(0, 7)
    assert taken.records == rows[:7]
    undeclared.close()

    lying, _ = head(Given(rows), [b"0 1"], is_columnar=True)
    with pytest.raises(NotColumnar, match="its reader returned a list"):
        lying.read(0, 1)
    lying.close()
