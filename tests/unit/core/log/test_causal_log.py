"""Conformance A 2 and A 3: causal logs and their replicas against a plain list of bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.log.causal_log import CausalLogs
from clonos.core.model.errors import LogDiverged
from clonos.core.model.ids import LogId, TaskId, journal_of, log_name, log_of, owner_of
from clonos.core.wire.log_delta import Delta, Length

OWNER = log_of(TaskId(3))


class Twin:
    """Model of a log: all bytes ever written, and how many of them have been dropped."""

    def __init__(self) -> None:
        self.written = b""
        self.start = 0

    @property
    def held(self) -> bytes:
        return self.written[self.start :]


def data_of(logs: CausalLogs, log: LogId = OWNER) -> bytes:
    return bytes(logs.replicas[log].data)


def take(holder: CausalLogs, delta: Delta) -> bool:
    """Applies a delta as a channel does: all of it or nothing."""
    if holder.has_gap(delta):
        return False
    holder.receive(delta)
    return True


@settings(deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 4))
def test_a2_consumers_that_lag_repeat_and_lose_deltas_hold_the_content_of_a_plain_list(
    seed: int, consumers: int
) -> None:
    rng = random.Random(seed)
    twin, owner = Twin(), CausalLogs()
    owner.begin(OWNER, 0)
    holders = [CausalLogs() for _ in range(consumers)]
    pending: list[list[Delta]] = [[] for _ in holders]
    barriers = [0]
    for _ in range(60):
        match rng.choice(("append", "append", "barrier", "ship", "ship", "deliver", "deliver", "truncate")):
            case "append":
                data = rng.randbytes(rng.randrange(6))
                twin.written += data
                owner.append(OWNER, data)
            case "barrier":
                barriers.append(len(twin.written))
            case "ship":
                k = rng.randrange(consumers)
                pending[k].append(owner.delta(OWNER, rng.choice((0, holders[k].end_bytes(OWNER)))))
            case "deliver":
                k = rng.randrange(consumers)
                if pending[k]:
                    index = rng.randrange(len(pending[k]))  # any of them, so earlier ones come later or never
                    delta = pending[k][index] if rng.random() < 0.3 else pending[k].pop(index)
                    take(holders[k], delta)
            case "truncate":
                # A checkpoint is complete only when every task has passed its barrier.
                twin.start = max(twin.start, rng.choice(barriers))
                for logs in rng.sample([owner, *holders], rng.randrange(consumers + 2)):
                    logs.truncate(OWNER, twin.start)
        assert owner.end_bytes(OWNER) == len(twin.written)
        for logs in (owner, *holders):
            if (replica := logs.replicas.get(OWNER)) is not None:
                end = min(replica.end_bytes, len(twin.written))
                assert replica.data[: end - replica.start_bytes] == twin.written[replica.start_bytes : end]
                assert logs.size_bytes == len(replica.data)
    for logs in holders:
        assert take(logs, owner.delta(OWNER, logs.end_bytes(OWNER)))
        logs.truncate(OWNER, twin.start)
        assert (data_of(logs), logs.end_bytes(OWNER)) == (twin.held, len(twin.written))


@settings(deadline=None)
@given(st.integers(0, 1 << 32))
def test_a3_diamond_two_paths_with_lags_duplicates_and_reordering_make_one_correct_copy(seed: int) -> None:
    rng = random.Random(seed)
    owner, left, right, join = (CausalLogs() for _ in range(4))
    owner.begin(OWNER, 0)
    written = b""
    to_join: list[Delta] = []
    for _ in range(50):
        data = rng.randbytes(rng.randrange(4))
        written += data
        owner.append(OWNER, data)
        for middle in (left, right):
            if rng.random() < 0.5:
                assert take(middle, owner.delta(OWNER, middle.end_bytes(OWNER)))
            if OWNER in middle.replicas and rng.random() < 0.7:
                to_join.append(middle.delta(OWNER, rng.randrange(middle.end_bytes(OWNER) + 1)))
        if to_join and rng.random() < 0.8:
            delta = rng.choice(to_join)
            if rng.random() < 0.5:
                to_join.remove(delta)
            take(join, delta)
            if OWNER in join.replicas:
                assert written.startswith(data_of(join))
    for middle in (left, right):
        take(middle, owner.delta(OWNER, middle.end_bytes(OWNER)))
        take(join, middle.delta(OWNER, join.end_bytes(OWNER)))
    assert data_of(join) == written


def test_a_delta_beyond_the_end_is_a_gap_unless_it_restarts_the_log() -> None:
    logs = CausalLogs()
    assert logs.has_gap(Delta(OWNER, 0, False, b"a"))  # nothing is held, and nothing says that nothing lies before
    assert not logs.has_gap(Delta(OWNER, 7, True, b"a"))
    logs.begin(OWNER, 0, b"abc")
    assert logs.has_gap(Delta(OWNER, 4, False, b"e"))
    assert not logs.has_gap(Delta(OWNER, 3, False, b"d"))
    assert not logs.has_gap(Delta(OWNER, 4, True, b"e"))


def test_a_replica_that_ends_before_a_completed_checkpoint_restarts_there() -> None:
    logs = CausalLogs()
    logs.begin(OWNER, 0, b"abc")
    assert logs.receive(Delta(OWNER, 10, True, b"klm"))
    assert (data_of(logs), logs.replicas[OWNER].start_bytes, logs.size_bytes) == (b"klm", 10, 3)


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=20), st.data())
def test_a_copy_that_differs_in_one_byte_is_a_divergence_at_that_byte(log: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(log) - 1))
    start = data.draw(st.integers(0, at))
    end = data.draw(st.integers(at + 1, len(log)))
    other = bytearray(log)
    other[at] ^= 0x10
    logs = CausalLogs()
    logs.begin(OWNER, 100, log)
    with pytest.raises(LogDiverged) as raised:
        logs.receive(Delta(OWNER, 100 + start, False, bytes(other[start:end])))
    assert (raised.value.log, raised.value.offset_bytes) == (log_name(OWNER), 100 + at)


def test_a_late_delta_with_bytes_before_a_completed_checkpoint_is_cut() -> None:
    logs = CausalLogs()
    logs.begin(OWNER, 0, b"abcdef")
    logs.truncate(OWNER, 4)
    assert not logs.receive(Delta(OWNER, 0, True, b"abcd"))
    assert logs.receive(Delta(OWNER, 2, False, b"cdefgh"))
    assert (data_of(logs), logs.replicas[OWNER].start_bytes) == (b"efgh", 4)


def test_a_copy_that_begins_late_is_cut_at_the_completed_checkpoint_that_the_slot_knows() -> None:
    """Its sender, or the holder that answered its sender, did not know of the checkpoint yet."""
    completed: dict[LogId, int] = {}
    logs = CausalLogs(completed)
    completed[OWNER] = 4
    assert logs.receive(Delta(OWNER, 0, True, b"abcdef"))
    assert (data_of(logs), logs.replicas[OWNER].start_bytes, logs.size_bytes) == (b"ef", 4, 2)
    completed[OWNER] = 5
    logs.drop_completed()
    assert (data_of(logs), logs.replicas[OWNER].start_bytes, logs.size_bytes) == (b"f", 5, 1)


def test_a_copy_that_begins_late_and_ends_before_the_completed_checkpoint_is_continued_after_it() -> None:
    logs = CausalLogs({OWNER: 4})
    assert logs.receive(Delta(OWNER, 0, True, b"abc"))
    assert (data_of(logs), logs.end_bytes(OWNER)) == (b"", 4)
    assert logs.receive(Delta(OWNER, 3, False, b"def"))
    assert (data_of(logs), logs.replicas[OWNER].start_bytes) == (b"ef", 4)


def test_truncating_beyond_the_end_leaves_an_empty_copy_at_that_offset() -> None:
    logs = CausalLogs()
    logs.begin(OWNER, 0, b"abc")
    logs.truncate(OWNER, 9)
    assert (logs.end_bytes(OWNER), logs.size_bytes) == (9, 0)
    assert not logs.has_gap(Delta(OWNER, 9, False, b"j"))
    assert logs.receive(Delta(OWNER, 5, False, b"fghijk"))
    assert data_of(logs) == b"jk"


def test_truncating_backwards_or_an_unknown_log_is_ignored() -> None:
    logs = CausalLogs()
    logs.begin(OWNER, 5, b"abc")
    logs.truncate(OWNER, 2)
    logs.truncate(log_of(TaskId(8)), 2)
    assert (data_of(logs), logs.lengths()) == (b"abc", (Length(OWNER, 8),))


def test_lengths_and_deltas_stand_in_the_order_of_tasks() -> None:
    logs = CausalLogs()
    one, two, three, five = (log_of(TaskId(task)) for task in (1, 2, 3, 5))
    for log, length in ((five, 5), (one, 1), (three, 3)):
        logs.begin(log, 0, bytes(length))
    assert logs.lengths() == (Length(one, 1), Length(three, 3), Length(five, 5))
    assert [delta.log for delta in logs.deltas((one, two, five))] == [one, five]


def test_a_journal_is_a_log_beside_that_of_its_task() -> None:
    task = TaskId(3)
    assert owner_of(log_of(task)) == owner_of(journal_of(task)) == task
    assert [log_name(log) for log in (log_of(task), journal_of(task))] == [
        "the causal log of task 3",
        "the journal of task 3",
    ]


def test_an_empty_log_is_sent_so_that_its_holder_knows_its_start() -> None:
    owner, holder = CausalLogs(), CausalLogs()
    owner.begin(OWNER, 40)
    assert take(holder, owner.delta(OWNER, 0))
    assert holder.end_bytes(OWNER) == 40


class LogsOfManyTasks(dict[LogId, int]):
    """Completed offsets that can be looked up, and are not gone through."""

    def items(self) -> Any:
        raise AssertionError("a slot goes through the logs of all tasks of the job")


def test_completed_bytes_are_dropped_without_a_look_at_the_logs_of_all_tasks() -> None:
    logs = CausalLogs(LogsOfManyTasks({log_of(TaskId(task)): 3 for task in range(2_000)}))
    logs.begin(log_of(TaskId(7)), 0, b"abcde")
    logs.drop_completed()
    assert logs.size_bytes == 2
