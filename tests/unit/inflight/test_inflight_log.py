"""The in-flight log compared with a plain list, under every policy and every behaviour of the disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.channel.inflight_log import Chunk, InflightLog
from clonos.core.channel.segment import CHUNK_OVERHEAD_BYTES
from clonos.core.checkpoint.pending_snapshots import PendingSnapshots
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId
from clonos.core.model.options import SpillPolicy
from tests.harnesses.fake_disk import FakeDisk, new_budget, new_log, options_of, read, read_all
from tests.unit.inflight.samples import snapshot

POLICIES = tuple(SpillPolicy)


@dataclass
class PlainLog:
    """The dumb twin."""

    next_seq: int
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def start_seq(self) -> int:
        return self.chunks[0].first_seq if self.chunks else self.next_seq

    def append(self, kind: ElementKind, count: int, checkpoint: CheckpointId, payload: bytes) -> None:
        self.chunks.append(Chunk(self.next_seq, kind, count, checkpoint, payload))
        self.next_seq += count

    def truncate(self, before_seq: int) -> None:
        self.chunks = [chunk for chunk in self.chunks if chunk.first_seq + chunk.count > before_seq]

    def read(self, seq: int) -> Chunk:
        return next(chunk for chunk in self.chunks if chunk.first_seq <= seq < chunk.first_seq + chunk.count)

    def bytes_from(self, seq: int) -> int:
        return sum(len(chunk.payload) for chunk in self.chunks if chunk.first_seq + chunk.count > seq)


_APPENDS = st.tuples(st.just("append"), st.integers(1, 20), st.integers(0, 900))
_BARRIERS = st.tuples(st.just("barrier"), st.just(0), st.just(0))
_PLACES = st.tuples(st.sampled_from(["truncate", "read", "measure"]), st.floats(0, 1.1), st.integers(-1, 1))
_DISK = st.tuples(st.sampled_from(["disk", "disk", "fail", "heartbeat"]), st.integers(1, 5), st.just(0))
_ACTS = st.lists(st.one_of(_APPENDS, _APPENDS, _BARRIERS, _PLACES, _DISK), max_size=120)


class Pair:
    """A log and its twin, driven together."""

    def __init__(self, policy: SpillPolicy, memory_bytes: int, next_seq: int) -> None:
        self.log, self.disk = new_log(options_of(policy, memory_bytes), next_seq=next_seq)
        self.plain = PlainLog(next_seq)
        self.barriers = 0
        self.failed_once = False

    def act(self, what: str, amount: float, size: int) -> None:
        if what == "append":
            payload = bytes([self.plain.next_seq % 251]) * size
            for log in (self.log, self.plain):
                log.append(ElementKind.ROWS, int(amount), CheckpointId(0), payload)
        elif what == "barrier":
            self.barriers += 3  # ids have gaps
            for log in (self.log, self.plain):
                log.append(ElementKind.BARRIER, 1, CheckpointId(self.barriers), b"")
        elif what == "disk":
            self.disk.is_full = False
            self.disk.do(int(amount))
        elif what == "fail":
            self.disk.is_full = True
            self.disk.do(int(amount))
        elif what == "heartbeat":
            self.log.budget.try_again()
        else:
            self.look(what, amount, size)
        self.compare()

    def look(self, what: str, amount: float, offset: int) -> None:
        plain = self.plain
        seq = plain.start_seq + int(amount * (plain.next_seq - plain.start_seq)) + offset
        if what == "truncate":
            plain.truncate(seq)
            self.log.truncate(seq)
        elif what == "measure":
            assert self.log.bytes_from(seq) == plain.bytes_from(seq)
        elif plain.start_seq <= seq < plain.next_seq:
            assert read(self.log, self.disk, seq) == plain.read(seq)

    def compare(self) -> None:
        log, budget = self.log, self.log.budget
        assert (log.start_seq, log.next_seq) == (self.plain.start_seq, self.plain.next_seq)
        assert budget.memory_bytes == log.memory_bytes >= 0
        assert budget.disk_bytes == log.disk_bytes == self.disk.stored_bytes


@pytest.mark.parametrize("policy", POLICIES)
@given(acts=_ACTS, memory_bytes=st.sampled_from([1, 700, 4_000, 1 << 20]), next_seq=st.sampled_from([0, 77]))
@settings(max_examples=60, deadline=None)
def test_b9_every_spill_policy_returns_the_bytes_of_a_plain_list_for_every_disk_behaviour(
    policy: SpillPolicy, acts: list[tuple[str, float, int]], memory_bytes: int, next_seq: int
) -> None:
    pair = Pair(policy, memory_bytes, next_seq)
    for act in acts:
        pair.act(*act)
    pair.disk.is_full = False
    assert read_all(pair.log, pair.disk) == pair.plain.chunks
    pair.log.close()
    assert (pair.log.budget.memory_bytes, pair.log.budget.disk_bytes) == (0, 0)
    assert not pair.disk.files
    assert not pair.disk.asked


def _three_epochs(log: InflightLog) -> None:
    """Three epochs of six batches; the last one of each is the barrier. Ids have gaps."""
    for checkpoint in (1, 4, 9):
        for _ in range(5):
            log.append(ElementKind.ROWS, 10, CheckpointId(0), b"x" * 100)
        log.append(ElementKind.BARRIER, 1, CheckpointId(checkpoint), b"")


@pytest.mark.parametrize("policy", POLICIES)
def test_b7_a_completed_checkpoint_drops_the_first_of_three_epochs_of_six_batches(policy: SpillPolicy) -> None:
    log, disk = new_log(options_of(policy, memory_bytes=1_000))
    pending = PendingSnapshots(())
    _three_epochs(log)
    for number, checkpoint in enumerate((1, 4, 9), 1):
        pending.take(snapshot(checkpoint, outputs=((0, number * 51),)), (), 0)
    disk.do_all()
    assert len(read_all(log, disk)) == 18

    def complete(checkpoint: int) -> int:
        taken = pending.complete(CheckpointId(checkpoint))
        if taken is not None:
            log.truncate(dict(taken.outputs)[log.channel])
        return len(read_all(log, disk)) if log.start_seq < log.next_seq else 0

    assert complete(1) == 12
    assert complete(3) == 12  # no log has a barrier of that id
    assert complete(7) == 6  # stands for 4
    assert complete(9) == 0
    assert not disk.files


def test_a_segment_can_be_read_while_it_is_being_written() -> None:
    log, disk = new_log(options_of(SpillPolicy.EAGER))
    log.append(ElementKind.ROWS, 3, CheckpointId(0), b"abc")
    assert [work[0] for work in disk.asked] == ["write"]
    chunk = log.read(1)
    assert chunk is not None
    assert chunk.payload == b"abc"
    assert log.memory_bytes == 3 + CHUNK_OVERHEAD_BYTES
    disk.do()
    assert log.memory_bytes == 0
    assert log.read(1) is None
    assert read(log, disk, 1) == chunk


def test_the_eager_policy_spills_each_chunk_at_once_and_batches_only_while_the_disk_is_busy() -> None:
    log, disk = new_log(options_of(SpillPolicy.EAGER))
    for _ in range(3):
        log.append(ElementKind.ROWS, 1, CheckpointId(0), b"x")
    assert len(disk.asked) == 1
    disk.do()
    assert len(disk.asked) == 1  # the two that came meanwhile, as one segment
    disk.do()
    assert len(disk.files) == 2
    assert log.tail_bytes == 0


def test_the_availability_policy_spills_nothing_below_half_of_the_budget() -> None:
    log, disk = new_log(options_of(SpillPolicy.AVAILABILITY, memory_bytes=10_000))
    while log.budget.tail_bytes < 5_000 - 200 - CHUNK_OVERHEAD_BYTES:
        log.append(ElementKind.ROWS, 1, CheckpointId(0), b"x" * 200)
    assert not disk.asked
    log.append(ElementKind.ROWS, 1, CheckpointId(0), b"x" * 200)
    log.append(ElementKind.ROWS, 1, CheckpointId(0), b"x" * 200)
    assert disk.asked
    disk.do_all()
    assert log.budget.tail_bytes < 5_000
    assert log.read(0) is None  # the oldest went first
    assert log.read(log.next_seq - 1) is not None


def test_the_availability_policy_spills_the_largest_log_first() -> None:
    budget, disk = new_budget(options_of(SpillPolicy.AVAILABILITY, memory_bytes=10_000))
    small, large = (InflightLog(ChannelId(number), 0, budget) for number in (0, 1))
    small.append(ElementKind.ROWS, 1, CheckpointId(0), b"x" * 300)
    while not disk.asked:
        large.append(ElementKind.ROWS, 1, CheckpointId(0), b"x" * 300)
    assert not small.segments
    assert large.segments


def test_the_epoch_policy_spills_closed_epochs_when_memory_is_short_and_not_the_open_one() -> None:
    log, disk = new_log(options_of(SpillPolicy.EPOCH, memory_bytes=10_000))
    for _ in range(16):
        log.append(ElementKind.ROWS, 1, CheckpointId(0), b"x" * 200)
    assert log.budget.tail_bytes > 5_000
    assert not disk.asked  # short, but the epoch is still open
    log.append(ElementKind.BARRIER, 1, CheckpointId(1), b"")
    assert disk.asked
    assert log.budget.tail_bytes == 0
    log.append(ElementKind.ROWS, 1, CheckpointId(0), b"x" * 200)
    assert log.tail_bytes == 200 + CHUNK_OVERHEAD_BYTES


def test_the_epoch_policy_spills_an_open_epoch_larger_than_memory() -> None:
    log, disk = new_log(options_of(SpillPolicy.EPOCH, memory_bytes=10_000))
    for _ in range(100):
        log.append(ElementKind.ROWS, 1, CheckpointId(0), b"x" * 200)
        disk.do_all()
    assert log.budget.memory_bytes <= 7_500


def test_a_truncated_segment_is_deleted_even_during_its_write_or_load() -> None:
    log, disk = new_log(options_of(SpillPolicy.EAGER))
    log.append(ElementKind.ROWS, 1, CheckpointId(0), b"x")
    log.truncate(1)
    assert not disk.asked
    log.append(ElementKind.ROWS, 1, CheckpointId(0), b"y")
    disk.do_all()
    assert log.read(1) is None
    log.truncate(2)
    disk.do_all()
    assert (log.memory_bytes, log.disk_bytes, disk.files) == (0, 0, {})


def test_a_replay_reads_ahead_within_its_memory_limit() -> None:
    log, disk = new_log(options_of(SpillPolicy.EAGER, memory_bytes=100_000))
    for number in range(200):
        log.append(ElementKind.ROWS, 1, CheckpointId(0), bytes([number]) * 1_000)
        disk.do_all()
    assert log.memory_bytes == 0
    assert log.read(0) is None
    assert [work[1] for work in disk.asked] == [1, 2]
    for number in range(200):
        assert read(log, disk, number).payload == bytes([number]) * 1_000
        assert log.memory_bytes <= 20_000
    disk.do_all()
    assert disk.loaded <= 200 + 2  # each once


def test_a_segment_is_loaded_once_for_all_its_chunks_and_released_after_the_last() -> None:
    log, disk = new_log(options_of(SpillPolicy.EAGER, memory_bytes=100_000))
    for number in range(10):  # the first goes by itself, the others wait meanwhile and go together
        log.append(ElementKind.ROWS, 1, CheckpointId(0), bytes([number]) * 100)
    disk.do_all()
    assert [segment.next_seq for segment in log.segments] == [1, 10]
    for number in range(1, 10):
        assert read(log, disk, number).payload == bytes([number]) * 100
        assert (log.memory_bytes > 0) == (number < 9)
    assert disk.loaded == 1


def test_a_segment_takes_at_most_an_eighth_of_the_memory() -> None:
    log, disk = new_log(options_of(SpillPolicy.EAGER, memory_bytes=8_000))
    for number in range(60):
        log.append(ElementKind.ROWS, 1, CheckpointId(0), bytes([number]) * 100)
    disk.do_all()
    ends = [0, *(segment.next_seq for segment in log.segments)]
    assert ends[-1] == 60
    assert max(end - begin for begin, end in pairwise(ends)) * 100 <= 1_000


def test_channels_that_replay_at_once_share_the_load_memory_and_all_progress() -> None:
    budget, disk = new_budget(options_of(SpillPolicy.EAGER, memory_bytes=10_000))
    logs = [InflightLog(ChannelId(number), 0, budget) for number in range(20)]
    for log in logs:
        for number in range(10):
            log.append(ElementKind.ROWS, 1, CheckpointId(0), bytes([number]) * 400)
            disk.do_all()
    at = dict.fromkeys(range(20), 0)
    turns = 0
    while any(seq < 10 for seq in at.values()):
        turns += 1
        assert turns < 5_000
        for channel, log in enumerate(logs):
            if at[channel] < 10 and (chunk := log.read(at[channel])) is not None:
                assert chunk.payload == bytes([at[channel]]) * 400
                at[channel] += 1
        disk.do()
        assert budget.memory_bytes <= 10_000


def test_b9_a_disk_that_fails_while_spilling_loses_no_chunk_and_is_retried() -> None:
    log, disk = new_log(options_of(SpillPolicy.AVAILABILITY, memory_bytes=4_000))
    disk.is_full = True
    for number in range(50):
        log.append(ElementKind.ROWS, 1, CheckpointId(0), bytes([number]) * 200)
        disk.do_all()
    assert log.budget.failure == "no space left on the disk of the test"
    assert log.budget.memory_bytes == 50 * (200 + CHUNK_OVERHEAD_BYTES)
    assert [chunk.payload[0] for chunk in read_all(log, disk)] == list(range(50))
    failures = log.budget.failures
    log.budget.try_again()
    disk.do_all()
    assert log.budget.failures == failures + 1  # one probe a heartbeat
    disk.is_full = False
    log.budget.try_again()
    disk.do_all()
    assert log.budget.failure == ""
    log.append(ElementKind.ROWS, 1, CheckpointId(0), b"2" * 200)
    disk.do_all()
    assert log.budget.memory_bytes <= 4_000
    assert [chunk.payload[0] for chunk in read_all(log, disk)] == [*range(50), ord("2")]


def test_a_failed_disk_is_used_again_after_the_failed_segment_was_truncated() -> None:
    log, disk = new_log(options_of(SpillPolicy.EAGER))
    disk.is_full = True
    log.append(ElementKind.ROWS, 1, CheckpointId(0), b"x")
    disk.do_all()
    log.truncate(1)
    assert log.budget.failure
    disk.is_full = False
    log.budget.try_again()
    log.append(ElementKind.ROWS, 1, CheckpointId(0), b"y")
    disk.do_all()
    assert not log.budget.failure
    assert log.memory_bytes == 0


def test_a_budget_without_a_disk_never_spills() -> None:
    for policy in POLICIES:
        log, disk = new_log(options_of(policy, memory_bytes=100, inflight_disk_bytes=0))
        for number in range(20):
            log.append(ElementKind.ROWS, 1, CheckpointId(number), b"x" * 100)
        assert not disk.asked
        assert len(read_all(log, FakeDisk())) == 20


def test_sizes_of_spilled_chunks_are_known_without_reading_the_disk() -> None:
    log, disk = new_log(options_of(SpillPolicy.EAGER))
    for size in (10, 20, 30):
        log.append(ElementKind.ROWS, 2, CheckpointId(0), b"x" * size)
        disk.do_all()
    assert [log.bytes_from(seq) for seq in (0, 1, 2, 3, 4, 5, 6)] == [60, 60, 50, 50, 30, 30, 0]
    assert not disk.asked
    assert disk.loaded == 0
