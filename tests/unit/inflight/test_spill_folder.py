"""Segments on a real disk: exact, checked and cleaned up, without delaying reads."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.core.channel.inflight_budget import InflightBudget
from clonos.core.channel.inflight_log import InflightLog
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId
from clonos.core.model.options import SpillPolicy
from clonos.io.local.spill import SegmentDamaged, SpillFolder, decode_segment, encode_segment
from clonos.io.process.fault_points import FaultPoints
from clonos_chaos.real.fault_point_server import FaultPointServer
from tests.harnesses.fake_disk import options_of
from tests.speed import scaled

ANSWER_TIMEOUT_S = scaled(20.0)
PAYLOADS = [b"heads", b"", b"x" * 100_000, bytes(range(256))]


class Disk:
    """A spill folder and its answers, in the order in which they came."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: SimpleQueue[tuple[str, int, Any, str]] = SimpleQueue()
        self.before_answer: Callable[[], object] = lambda: None
        self.store = SpillFolder(folder, self._spilled, self._loaded)

    def _spilled(self, segment: int, stored_bytes: int, error: str) -> None:
        self.before_answer()
        self.answers.put(("spilled", segment, stored_bytes, error))

    def _loaded(self, segment: int, payloads: list[bytes] | None, error: str) -> None:
        self.before_answer()
        self.answers.put(("loaded", segment, payloads, error))

    def answer(self) -> tuple[str, int, Any, str]:
        return self.answers.get(timeout=ANSWER_TIMEOUT_S)

    def file(self, segment: int) -> Path:
        return self.folder / f"{segment:08d}.segment"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    found = Disk(tmp_path / "slot" / "spill")
    yield found
    found.before_answer = lambda: None
    found.store.close()
    assert not found.folder.exists()


def test_a_written_segment_is_loaded_unchanged(disk: Disk) -> None:
    disk.store.write_segment(7, PAYLOADS)
    what, segment, stored_bytes, error = disk.answer()
    assert (what, segment, error) == ("spilled", 7, "")
    assert 0 < stored_bytes == disk.file(7).stat().st_size < 10_000  # compressed
    for _ in range(2):
        disk.store.load(7)
        assert disk.answer() == ("loaded", 7, PAYLOADS, "")


def test_other_users_cannot_read_a_segment(disk: Disk) -> None:
    disk.store.write_segment(1, PAYLOADS)
    disk.answer()
    assert stat.S_IMODE(disk.file(1).stat().st_mode) == 0o600
    assert stat.S_IMODE(disk.folder.stat().st_mode) == 0o700


def test_a_slot_that_never_spills_creates_neither_thread_nor_folder(tmp_path: Path) -> None:
    before = threading.active_count()
    disk = Disk(tmp_path / "spill")
    assert threading.active_count() == before
    disk.store.close()
    assert not disk.folder.exists()


def test_a1_a_flipped_byte_anywhere_in_a_segment_is_found() -> None:
    data = b"".join(encode_segment(3, [b"some", b"payloads " * 10]))
    assert decode_segment(3, data, "file") == [b"some", b"payloads " * 10]
    for at in range(len(data)):
        flipped = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        with pytest.raises(SegmentDamaged):
            decode_segment(3, flipped, "file")
    for end in range(len(data)):
        with pytest.raises(SegmentDamaged):
            decode_segment(3, data[:end], "file")


def test_a_file_of_another_segment_is_refused() -> None:
    with pytest.raises(SegmentDamaged, match="segment 4"):
        decode_segment(4, b"".join(encode_segment(3, [b"some"])), "file")


@given(payloads=st.lists(st.binary(max_size=200), max_size=20), segment=st.integers(1, 2**63))
def test_arbitrary_payloads_are_loaded_unchanged(payloads: list[bytes], segment: int) -> None:
    assert decode_segment(segment, b"".join(encode_segment(segment, payloads)), "file") == payloads


def test_b9_a_damaged_or_missing_file_is_reported_with_its_name(disk: Disk) -> None:
    disk.store.write_segment(1, PAYLOADS)
    disk.answer()
    data = bytearray(disk.file(1).read_bytes())
    data[-1] ^= 1
    disk.file(1).write_bytes(data)
    disk.store.load(1)
    what, segment, payloads, error = disk.answer()
    assert (what, segment, payloads) == ("loaded", 1, None)
    assert str(disk.file(1)) in error
    assert "damaged" in error
    disk.file(1).unlink()
    disk.store.load(1)
    assert "No such file" in disk.answer()[3]


def test_b9_a_full_disk_is_reported_and_the_next_write_is_attempted(disk: Disk) -> None:
    disk.store.write_segment(1, PAYLOADS)
    disk.answer()
    disk.file(2).symlink_to("/dev/full")
    disk.store.write_segment(2, PAYLOADS)
    what, segment, stored_bytes, error = disk.answer()
    assert (what, segment, stored_bytes) == ("spilled", 2, 0)
    assert "No space left" in error
    assert not disk.file(2).is_symlink()  # nothing of it stays behind
    disk.store.write_segment(2, PAYLOADS)
    assert disk.answer()[3] == ""


def test_a_segment_waits_at_an_armed_fault_point_before_it_is_written(tmp_path: Path) -> None:
    answers: SimpleQueue[int] = SimpleQueue()
    with FaultPointServer() as fault_point_server:
        pause_point = fault_point_server.set_breakpoint("spilling", nth=2)
        store = SpillFolder(
            tmp_path / "spill",
            lambda *outcome: answers.put(outcome[0]),
            lambda *_: None,
            FaultPoints(fault_point_server.address),
        )
        store.write_segment(1, PAYLOADS)
        assert answers.get(timeout=ANSWER_TIMEOUT_S) == 1
        store.write_segment(2, PAYLOADS)
        assert pause_point.wait(ANSWER_TIMEOUT_S).detail == "2"
        assert [path.name for path in (tmp_path / "spill").iterdir()] == ["00000001.segment"]
        pause_point.release()
        assert answers.get(timeout=ANSWER_TIMEOUT_S) == 2
        store.close()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    disk = Disk(tmp_path / "file" / "spill")
    disk.store.write_segment(1, PAYLOADS)
    assert "Not a directory" in disk.answer()[3]
    disk.store.delete(1)
    disk.store.write_segment(2, PAYLOADS)
    assert "Not a directory" in disk.answer()[3]
    disk.store.close()


def test_a_load_does_not_wait_for_queued_writes(disk: Disk) -> None:
    disk.store.write_segment(1, PAYLOADS)
    disk.answer()
    go_on = threading.Event()
    disk.before_answer = lambda: go_on.wait(ANSWER_TIMEOUT_S)
    for segment in (2, 3, 4):
        disk.store.write_segment(segment, PAYLOADS)
    disk.store.load(1)
    go_on.set()
    order = [disk.answer()[:2] for _ in range(4)]
    assert order.index(("loaded", 1)) <= 1  # after the segment that was being written, if any
    assert [segment for what, segment in order if what == "spilled"] == [2, 3, 4]


def test_a_segment_deleted_before_its_write_is_never_written(disk: Disk) -> None:
    go_on = threading.Event()
    disk.before_answer = lambda: go_on.wait(ANSWER_TIMEOUT_S)
    disk.store.write_segment(1, PAYLOADS)
    disk.store.write_segment(2, PAYLOADS)
    disk.store.delete(2)
    go_on.set()
    disk.store.write_segment(3, PAYLOADS)
    answered = [disk.answer()[1]]
    while answered[-1] != 3:
        answered.append(disk.answer()[1])
    assert answered == [1, 3]
    disk.store.delete(1)
    disk.store.delete(3)
    disk.store.write_segment(4, PAYLOADS)
    while disk.answer()[1] != 4:
        pass
    assert [path.name for path in disk.folder.iterdir()] == [disk.file(4).name]


def test_closing_ends_the_thread_with_work_queued(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "spill")
    for segment in range(50):
        disk.store.write_segment(segment, PAYLOADS)
    disk.store.close()
    assert "clonos-spill" not in {thread.name for thread in threading.enumerate()}
    assert not disk.folder.exists()


@pytest.mark.parametrize("policy", SpillPolicy)
def test_b9_a_log_on_a_real_disk_returns_its_chunks_unchanged(disk: Disk, policy: SpillPolicy) -> None:
    budget = InflightBudget(options_of(policy, memory_bytes=50_000), disk.store)

    def take_answer() -> None:
        what, segment, result, error = disk.answer()
        assert not error
        if what == "spilled":
            budget.spilled(segment, result, error)
        else:
            budget.loaded(segment, result)

    log = InflightLog(ChannelId(0), 0, budget)
    expected = [bytes([number % 251]) * (number * 7 % 900) for number in range(400)]
    for number, payload in enumerate(expected):
        log.append(ElementKind.ROWS, 1, CheckpointId(number // 100 if number % 100 == 0 else 0), payload)
    seq = 0
    while seq < log.next_seq:
        chunk = log.read(seq)
        if chunk is None:
            take_answer()
            continue
        assert chunk.payload == expected[seq]
        seq += 1
    log.close()
    assert (budget.memory_bytes, budget.disk_bytes) == (0, 0)
