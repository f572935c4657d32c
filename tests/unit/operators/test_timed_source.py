"""Sources with watermarks: the minimum over their splits, idleness, and the same elements at every replay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from clonos.core.model.watermark import END_OF_TIME_NS, INSTANT_NS_MIN, Watermark
from clonos.core.ports.operator_chain import ChainContext, NothingToRead, StepFailed
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed, TimedSource
from clonos.operators.event_time.timed_source import TimedHead
from clonos.operators.event_time.timestamp_assigner import InvalidWatermark, TimestampAssigner
from clonos.operators.operator import Scope, Times
from clonos.operators.source_position import decode_position, encode_position
from clonos.operators.split_source import PositionMalformed
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.user_errors import Guard
from tests.unit.operators.driver import Clock, Given
from tests.unit.operators.test_source import Collects, Taken

SECOND_NS = 1_000_000_000


class Readings:
    """A source of instants; each split is a list of chunks, an empty one says that there is nothing now."""

    def __init__(self, *splits: list[list[int]], every_ns: int = 1, idle_after_ns: int = 0, delay_ns: int = 0) -> None:
        self.chunks = splits
        self.watermark_every_ns, self.idle_after_ns, self.delay_ns = every_ns, idle_after_ns, delay_ns

    def splits(self, parallelism: int) -> list[bytes]:
        return [str(number).encode() for number in range(len(self.chunks))]

    def reader(self) -> Any:
        return Reading(self.chunks)

    def watermark(self, before_ns: int | None, records: list[int]) -> int | None:
        return max(records) - self.delay_ns


class Reading:
    def __init__(self, chunks: Any) -> None:
        self.chunks = chunks

    def open(self, split: bytes, mark: bytes | None) -> None:
        self.mine, self.place = self.chunks[int(split)], int(mark or b"0")

    def read(self, records_max: int) -> list[int] | None:
        if self.place == len(self.mine):
            return None
        self.place += 1
        return list(self.mine[self.place - 1])

    def mark(self) -> bytes:
        return str(self.place).encode()

    def close(self) -> None:
        pass


class ReadingAsGiven(Reading):
    """Returns each chunk itself."""

    def read(self, records_max: int) -> list[int] | None:
        self.place += 1
        return self.mine[self.place - 1] if self.place <= len(self.mine) else None


class Sent(Taken):
    """Keeps rows and watermarks in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[Any] = []

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.elements.append(rows)

    def take(self, watermark: Watermark) -> None:
        self.elements.append(watermark if isinstance(watermark, int) else watermark.name)


def head(
    source: Any, state: StateBackend | None = None, assigner: TimestampAssigner | None = None
) -> tuple[TimedHead, Sent, StateBackend]:
    made = TimedHead("readings", source, source.splits(1), False, assigner)
    sent, state = Sent(), state or StateBackend(None)
    made.out, made.pass_watermark, made.guard = sent, sent.take, Guard("readings", True, Collects(), 0)  # type: ignore[arg-type]
    context = ChainContext("readings/0", 0, 0, 1, 128, "job", 0, 1, Clock(), Collects(), "")  # type: ignore[arg-type]
    made.open(Scope(context, StepState(state, "readings", made.state_specs)))
    return made, sent, state


def read_all(made: TimedHead) -> None:
    while not isinstance(found := made.poll(100), NothingToRead):
        made.read(*found)


def test_a_source_with_watermarks_is_known_by_its_attributes() -> None:
    assert isinstance(Readings([[1]]), TimedSource)
    assert not isinstance(Given([1]), TimedSource)


def test_the_watermark_of_a_source_is_the_minimum_over_its_splits_after_their_records() -> None:
    made, sent, _ = head(Readings([[10], [30]], [[5], [20]], delay_ns=1))
    made.read(0, 1)
    made.read(1, 1)
    made.read(0, 1)
    made.read(1, 1)
    assert sent.elements == [[10], [5], 4, [30], [20], 19]


def test_a_split_that_has_ended_holds_the_watermark_back_no_more() -> None:
    made, sent, _ = head(Readings([[3]], [[10], [30]]))
    for read in ((0, 1), (1, 1), (0, 0), (1, 1)):
        made.read(*read)
    assert sent.elements == [[3], [10], 3, 10, [30], 30]


def test_the_end_of_each_split_is_a_read_of_no_records_and_then_all_is_read() -> None:
    made, _, _ = head(Readings([[1]], [[2]]))
    found = []
    while not isinstance(read := made.poll(9), NothingToRead):
        made.read(*read)
        found.append(read)
    assert sorted(found) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert read is NothingToRead.ALL_READ


def test_a_watermark_is_sent_when_it_has_risen_by_watermark_every() -> None:
    made, sent, _ = head(Readings([[1], [5], [10], [11], [25]], every_ns=10))
    read_all(made)
    assert [each for each in sent.elements if isinstance(each, int)] == [1, 11, 25]


def test_a_watermark_that_falls_is_not_sent() -> None:
    made, sent, _ = head(Readings([[9], [4], [10]]))
    read_all(made)
    assert sent.elements == [[9], 9, [4], [10], 10]


class RoutesErrors:
    """Collector of the error output."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def reach_limit(self) -> None:
        pass

    def routed_error(self, message: bytes) -> bool:
        return True

    def rows(self, port: int, rows: list[Any]) -> None:
        self.errors += [row.error for row in rows]


def test_malformed_records_go_to_the_error_output_and_have_no_part_in_the_watermark() -> None:
    wrong = MalformedRecord("99", ValueError("no instant"))
    source: Any = Readings([PartlyMalformed([3, wrong]), PartlyMalformed([wrong]), [5]])
    source.reader = lambda: ReadingAsGiven(source.chunks)
    made, sent, _ = head(source)
    routes = RoutesErrors()
    made.guard = Guard("readings", True, routes, 1)  # type: ignore[arg-type]
    for count in (2, 1, 1):
        made.read(0, count)
    assert sent.elements == [[3], 3, [5], 5]
    assert routes.errors == ["ValueError: no instant"] * 2


def test_every_split_is_polled_though_one_always_has_records() -> None:
    made, _, _ = head(Readings([[n] for n in range(20)], [[1], [2]]))
    polled = []
    for _ in range(4):
        found = made.poll(1)
        assert isinstance(found, tuple)
        made.read(*found)
        polled.append(found[0])
    assert set(polled) == {0, 1}


def fire(made: TimedHead, instant_ns: int) -> None:
    due_ns = made.next_timer_ns()
    assert due_ns is not None
    assert due_ns <= instant_ns
    made.fire(made.due(instant_ns))


def poll_until(made: TimedHead, split: int) -> None:
    assert any(made.poll(1) == (split, 1) for _ in range(9))


def test_a_split_without_records_is_idle_at_the_second_check_and_active_before_its_next_record() -> None:
    source = Readings([[1], [20], [30]], [[2], [], [], [3]], idle_after_ns=SECOND_NS)
    made, sent, _ = head(source)
    fire(made, 5)  # the first check only sets the time
    made.read(0, 1)
    made.read(1, 1)
    fire(made, 5 + SECOND_NS)
    made.read(0, 1)
    while made.next_timer_ns() is None:  # split 1 was not found empty yet
        assert isinstance(made.poll(1), tuple)
    fire(made, 5 + 2 * SECOND_NS)
    assert sent.elements == [[1], [2], 1, [20], 2, 20]
    made.read(0, 1)
    poll_until(made, 1)
    made.read(1, 1)
    assert sent.elements[6:] == [[30], 30, [3]]  # 3 is behind what was sent


def test_a_source_is_idle_when_all_its_splits_are_and_active_before_its_next_record() -> None:
    made, sent, _ = head(Readings([[1], [], [], [7]], every_ns=3, idle_after_ns=SECOND_NS))
    fire(made, 0)
    made.read(0, 1)
    fire(made, SECOND_NS)
    assert made.poll(1) is NothingToRead.NOW
    fire(made, 2 * SECOND_NS)
    poll_until(made, 0)
    made.read(0, 1)
    assert sent.elements == [[1], 1, "IDLE", "ACTIVE", [7], 7]


def test_a_check_sends_what_watermark_every_has_held_back() -> None:
    made, sent, _ = head(Readings([[1], [2]], every_ns=10, idle_after_ns=SECOND_NS))
    fire(made, 0)
    made.read(0, 1)
    made.read(0, 1)
    fire(made, SECOND_NS)
    assert sent.elements == [[1], 1, [2], 2]


def test_a_split_that_was_not_polled_since_its_last_record_is_not_taken_for_idle() -> None:
    made, _, _ = head(Readings([[1], [2]], idle_after_ns=SECOND_NS))
    fire(made, 0)
    made.read(0, 1)
    fire(made, SECOND_NS)
    assert made.next_timer_ns() is None


def test_without_idle_after_there_is_no_timer() -> None:
    made, _, _ = head(Readings([[1]]))
    assert made.next_timer_ns() is None


def test_the_end_of_the_input_checks_nothing() -> None:
    made, _, _ = head(Readings([[1]], idle_after_ns=SECOND_NS))
    assert made.due(None) == []


SPLITS = st.lists(st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=3), max_size=6), min_size=1, max_size=3)


@settings(deadline=None)
@given(SPLITS, st.integers(1, 20), st.lists(st.integers(0, 3), max_size=30), st.data())
def test_a_restored_source_repeats_the_elements_after_every_snapshot(
    splits: list[list[list[int]]], every_ns: int, choices: list[int], data: st.DataObject
) -> None:
    source = Readings(*splits, every_ns=every_ns, idle_after_ns=SECOND_NS)
    made, sent, state = head(source)
    acts: list[tuple[int, int] | int] = []
    now_ns, cut = 0, data.draw(st.integers(0, len(choices)))
    saved: tuple[bytes, bytes] | None = None
    places: tuple[int, int] = (0, 0)
    for turn, choice in enumerate(choices):
        if turn == cut:
            saved, places = (state.changes(True), made.position()), (len(acts), len(sent.elements))
        due_ns = made.next_timer_ns()
        if choice == 0 and due_ns is not None:
            now_ns = max(now_ns, due_ns) + 1
            acts.append(now_ns)
            made.fire(made.due(now_ns))
        elif not isinstance(found := made.poll(choice or 1), NothingToRead):
            acts.append(found)
            made.read(*found)
    if saved is None:
        return
    image = StateImage()
    image.apply(saved[0])
    again, repeated, _ = head(source, StateBackend(image))
    again.restore(saved[1])
    for act in acts[places[0] :]:  # a replay does not poll
        again.fire(again.due(act)) if isinstance(act, int) else again.read(*act)
    assert repeated.elements == sent.elements[places[1] :]


@pytest.mark.parametrize("given", [1.5, "9", True, 1 << 63])
def test_a_watermark_that_is_no_instant_names_the_source_and_the_split(given: Any) -> None:
    source = Readings([[1]])
    source.watermark = lambda before_ns, records: given  # type: ignore[method-assign]
    made, _, _ = head(source)
    with pytest.raises(InvalidWatermark, match=r"the step readings got .* as the watermark of its split 0"):
        made.read(0, 1)


def test_an_exception_of_the_source_names_its_step() -> None:
    source = Readings([[1]])
    source.watermark = lambda before_ns, records: 1 // 0  # type: ignore[method-assign]
    made, _, _ = head(source)
    with pytest.raises(StepFailed) as caught:
        made.read(0, 1)
    assert caught.value.at.step == "readings"


def test_a_malformed_state_is_an_error_of_the_position() -> None:
    made, _, _ = head(Readings([[1]]))
    position = structs.replace(decode_position(made.position()), times=b"\xc1")
    with pytest.raises(PositionMalformed):
        made.restore(encode_position(position))


def test_a_source_that_had_no_watermarks_goes_on_with_the_splits_that_are_left() -> None:
    source = Readings([[1]], [[2]])
    old, _, _ = head(source)
    for read in ((0, 1), (0, 0)):
        old.read(*read)
    made, sent, _ = head(source)
    made.restore(encode_position(structs.replace(decode_position(old.position()), times=b"")))
    made.read(1, 1)
    assert sent.elements == [[2], 2]


# ------------------------------------------------------------------ drift alignment


def test_a_source_reports_the_lowest_of_the_splits_that_count() -> None:
    source = Readings([[10], [30]], [[5], [], [], [20]], idle_after_ns=SECOND_NS)
    made, _, _ = head(source)
    fire(made, 5)
    assert made.reached_ns() == INSTANT_NS_MIN
    made.read(0, 1)
    assert made.reached_ns() == INSTANT_NS_MIN  # split 1 has none yet
    made.read(1, 1)
    assert made.reached_ns() == 5
    fire(made, 5 + SECOND_NS)
    made.read(0, 1)
    assert made.reached_ns() == 5
    made.poll(1)
    while made.next_timer_ns() is None:
        made.poll(1)
    fire(made, 5 + 2 * SECOND_NS)
    assert made.reached_ns() == 30  # split 1 is idle
    made.read(0, 0)
    assert made.reached_ns() == END_OF_TIME_NS  # split 0 has ended


def test_a_source_that_is_held_back_is_not_idle_before_it_was_polled_again() -> None:
    made, sent, _ = head(Readings([[1], [], [], []], idle_after_ns=SECOND_NS))
    fire(made, 0)
    made.read(0, 1)
    fire(made, SECOND_NS)
    assert made.poll(1) is NothingToRead.NOW
    made.hold_back()
    assert made.next_timer_ns() is None
    assert made.poll(1) is NothingToRead.NOW
    fire(made, 2 * SECOND_NS)
    assert sent.elements == [[1], 1, "IDLE"]
