"""Threads of a slot for the store: temporary failures are retried, corrupt objects are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from clonos.core.checkpoint.snapshot import (
    SNAPSHOT_FORMAT,
    STANDBY_BYTES_MAX,
    RestoredState,
    encode_snapshot,
    standby_payload,
)
from clonos.core.model.errors import ClonosError
from clonos.core.model.ids import Incarnation, TaskId
from clonos.core.ports.slot_effects import StandbyRead, TaskRead
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.values import column_of
from clonos.core.wire.recovery_messages import Recourse
from clonos.io.store.envelope import seal_pieces
from clonos.io.store.object_files import LocalFiles, StoreFailed
from clonos.io.store.store import CheckpointStore
from clonos.io.system.entropy import random_bytes
from clonos.operators.state.dividing import StateUndivided
from clonos.operators.state.keyed_state import StateImage
from clonos.operators.state.state_changes import Section, encode_piece
from clonos.operators.state.state_errors import StateUnsupported
from clonos_standby import store_thread
from clonos_standby.inbox import Inbox
from clonos_standby.store_thread import SnapshotStore, StoreThread
from tests.harnesses.lone_slot import WaitingInbox, lone_surroundings, small_image

TASK_READ, STANDBY_READ = TaskRead(TaskId(0), Incarnation(1)), StandbyRead(TaskId(0), Incarnation(1))


class FlakyFiles(LocalFiles):
    """A folder whose next ``failures`` calls fail."""

    failures = 0

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreFailed(self.url, "do anything", "it is flaky")

    def write_parts(self, name: str, parts: Iterable[bytes]) -> None:
        self._fail()
        super().write_parts(name, parts)

    def read(self, name: str) -> bytes:
        self._fail()
        return super().read(name)


@dataclass
class Story:
    """A mirror that remembers what was applied to it."""

    applied: list[bytes] = field(default_factory=list)

    def apply(self, changes: bytes | memoryview) -> None:
        self.applied.append(bytes(changes))


class LaterPieces:
    """Pieces that are made when they are asked for."""

    def __init__(self, *pieces: bytes | ClonosError) -> None:
        self.pieces = pieces
        self.is_released = False

    def __iter__(self) -> Iterator[bytes]:
        assert not self.is_released
        for piece in self.pieces:
            if isinstance(piece, ClonosError):
                raise piece
            yield piece

    def release(self) -> None:
        self.is_released = True


def snapshot(checkpoint: int) -> Snapshot:
    required = len(Snapshot.__struct_fields__) - len(Snapshot.__struct_defaults__)
    values: dict[str, Any] = dict.fromkeys(Snapshot.__struct_fields__[:required], 0)
    values |= dict.fromkeys(("inputs", "outputs", "ended"), ())
    values |= {
        "format": SNAPSHOT_FORMAT,
        "checkpoint": checkpoint,
        "final": False,
        "position": b"",
        "changes": b"all",
        "chain_length": 1,
    }
    return Snapshot(**values)


class StoreHarness:
    """A store, its threads, and what they have told."""

    def __init__(
        self, folder: Path, standby_bytes_max: int = STANDBY_BYTES_MAX, mirror: Callable[[], Story] = Story
    ) -> None:
        self.store = CheckpointStore(str(folder))
        self.files = self.store.files = FlakyFiles(folder)
        self.reported = WaitingInbox()
        self.threads = SnapshotStore(
            self.store,
            lone_surroundings(small_image(), self.reported),
            lambda _: mirror(),
            backoff_first_s=0.001,
            standby_bytes_max=standby_bytes_max,
        )


@pytest.fixture
def harness(tmp_path: Path) -> Any:
    made = StoreHarness(tmp_path)
    yield made
    made.threads.close()


def test_a_stored_snapshot_is_read_back(harness: StoreHarness) -> None:
    harness.threads.write("a/0", snapshot(1), None)
    name, (*written, stored_as) = harness.reported.next()
    assert (name, written) == ("SnapshotWritten", ["a/0", standby_payload([encode_snapshot(snapshot(1))]), ""])
    harness.threads.read(STANDBY_READ, ("a/0", stored_as))
    name, (token, restored, error) = harness.reported.next()
    assert (name, token, error) == ("SnapshotsRead", STANDBY_READ, "")
    assert restored == RestoredState(replace(snapshot(1), changes=b"", chain_length=2), Story([b"all", b"all"]))


def test_how_much_of_the_state_of_a_task_has_been_read_is_known_while_it_is_read(tmp_path: Path) -> None:
    seen = list[int | None]()
    life = TASK_READ.task, TASK_READ.incarnation

    class Watching(Story):
        def apply(self, changes: bytes | memoryview) -> None:
            seen.append(watched.threads.restored_permille(*life))

    watched = StoreHarness(tmp_path, mirror=Watching)
    names = [watched.store.write_object(f"a/{n}", [encode_snapshot(snapshot(n)), random_bytes(2_000)]) for n in (1, 2)]
    watched.threads.read(TASK_READ, tuple(names))
    assert watched.reported.next()[0] == "SnapshotsRead"
    watched.threads.close()
    first, second, third, fourth = [each or 0 for each in seen]
    assert 0 < first < second <= 500 < third < fourth <= 1_000
    assert watched.threads.restored_permille(*life) is None


def test_a_store_that_fails_for_a_while_is_retried(harness: StoreHarness) -> None:
    harness.files.failures = store_thread.ATTEMPTS_MAX - 1
    harness.threads.write("a/0", snapshot(1), None)
    assert harness.reported.next()[1][2] == ""
    harness.files.failures = store_thread.ATTEMPTS_MAX - 1
    harness.threads.read(TASK_READ, ("a/0",))
    assert harness.reported.next()[1][1].mirror == Story([b"all"])


def test_a_store_that_fails_for_too_long_is_reported(harness: StoreHarness) -> None:
    harness.files.failures = store_thread.ATTEMPTS_MAX
    harness.threads.write("a/0", snapshot(1), None)
    name, (_, encoded, error, _) = harness.reported.next()
    assert (name, encoded) == ("SnapshotWritten", b"")
    assert "it is flaky" in error
    harness.files.failures = store_thread.ATTEMPTS_MAX
    harness.threads.read(TASK_READ, ("a/0",))
    name, (_, snapshots, error) = harness.reported.next()
    assert (name, snapshots) == ("SnapshotsRead", None)
    assert "it is flaky" in error


@pytest.mark.parametrize("damage", ["lost", "torn", "exchanged"])
def test_a_task_whose_snapshot_is_damaged_fails_for_good_and_names_it(harness: StoreHarness, damage: str) -> None:
    harness.threads.write("a/0", snapshot(1), None)
    harness.reported.next()
    if damage == "lost":
        harness.store.delete_objects(["a/0"])
    elif damage == "exchanged":
        harness.store.write_object("b/0", [encode_snapshot(snapshot(2))])
        harness.files.write("objects/a/0", harness.files.read("objects/b/0"))
    else:
        harness.files.write("objects/a/0", harness.files.read("objects/a/0")[:-1])
    harness.threads.read(TASK_READ, ("a/0",))
    name, (failed,) = harness.reported.next()
    assert name == "PartFailed"
    assert failed.recourse is Recourse.STANDBY
    assert "objects/a/0" in failed.error
    harness.threads.read(STANDBY_READ, ("a/0",))
    assert harness.reported.next()[1][1] is None


def test_unreadable_state_fails_its_task_instead_of_the_process(harness: StoreHarness) -> None:
    values = column_of([{"n": 1}])
    unknown = replace(values, kind=99)
    changes = encode_piece((Section("a", column_of([]), column_of(["key"]), unknown),), is_full=True)
    pieces = [encode_snapshot(replace(snapshot(1), changes=changes))]
    harness.files.write("objects/a/0", b"".join(seal_pieces(pieces, "objects/a/0")))
    threads = SnapshotStore(harness.store, lone_surroundings(small_image(), harness.reported), lambda _: StateImage())
    threads.read(TaskRead(TaskId(0), Incarnation(1)), ("a/0",))
    name, (failed,) = harness.reported.next()
    threads.close()
    assert (name, failed.recourse) == ("PartFailed", Recourse.STANDBY)
    assert "ValueMalformed: " in failed.error


def test_state_that_cannot_be_divided_fails_its_task_for_good(harness: StoreHarness) -> None:
    def undivided(_: TaskId) -> StateImage:
        raise StateUndivided("late", "rows", "rows wait in it")

    threads = SnapshotStore(harness.store, lone_surroundings(small_image(), harness.reported), undivided)
    threads.read(TaskRead(TaskId(0), Incarnation(1)), ("a/0",))
    name, (failed,) = harness.reported.next()
    threads.close()
    assert (name, failed.recourse) == ("PartFailed", Recourse.NONE)
    assert "the number of tasks of the step late cannot change: rows wait in it" in failed.error


def test_a_bug_in_the_store_thread_ends_the_process() -> None:
    inbox = Inbox(lambda: None)
    thread = StoreThread("buggy", inbox)
    thread.put(lambda: [][0])
    thread.thread.join()
    with pytest.raises(IndexError):
        inbox.drain()
    thread.close()


def test_lazily_encoded_pieces_are_part_of_the_object_and_released_when_it_is_stored(harness: StoreHarness) -> None:
    more = LaterPieces(b"1", b"2")
    harness.files.failures = 1
    harness.threads.write("a/0", snapshot(1), more)
    assert harness.reported.next()[1][1] == standby_payload([encode_snapshot(snapshot(1)), b"1", b"2"])
    assert more.is_released
    harness.threads.read(TASK_READ, ("a/0",))
    assert harness.reported.next()[1][1].mirror == Story([b"all", b"1", b"2"])


def test_pieces_are_held_while_the_store_fails(harness: StoreHarness) -> None:
    more = LaterPieces(b"1")
    harness.files.failures = store_thread.ATTEMPTS_MAX
    harness.threads.write("a/0", snapshot(1), more)
    assert harness.reported.next()[1][2]
    assert not more.is_released


def test_a_large_snapshot_is_not_sent_to_standbys(tmp_path: Path) -> None:
    harness = StoreHarness(tmp_path, standby_bytes_max=300)
    harness.threads.write("a/0", snapshot(1), LaterPieces(b"1" * 200, b"2" * 200, b"3"))
    assert harness.reported.next()[1][:3] == ("a/0", b"", "")
    harness.threads.close()


def test_a_full_state_is_stored_beside_the_snapshots(harness: StoreHarness) -> None:
    whole = LaterPieces(b"1", b"2")
    harness.threads.write_whole("a/0", replace(snapshot(1), changes=b""), whole)
    name, (written, stored_as) = harness.reported.next()
    assert (name, written) == ("WholeStateWritten", "a/0")
    assert whole.is_released
    harness.threads.read(TASK_READ, (stored_as,))
    assert harness.reported.next()[1][1].mirror == Story([b"1", b"2"])


def test_a_full_state_that_cannot_be_stored_is_dropped(harness: StoreHarness) -> None:
    whole = LaterPieces(b"1")
    harness.files.failures = 1
    harness.threads.write_whole("a/0", snapshot(1), whole)
    harness.threads.write_whole("a/1", snapshot(1), LaterPieces())
    assert harness.reported.next()[1][0] == "a/1"
    assert whole.is_released


@pytest.mark.parametrize("kind", ["write", "write_whole"])
def test_a_task_whose_state_cannot_be_encoded_fails(harness: StoreHarness, kind: str) -> None:
    getattr(harness.threads, kind)("a/0", snapshot(1), LaterPieces(b"1", StateUnsupported("count/state", "a socket")))
    name, (failed,) = harness.reported.next()
    assert (name, failed.recourse) == ("PartFailed", Recourse.NONE)
    assert "the state count/state cannot be stored: a socket" in failed.error
    assert not harness.files.exists("objects/a/0")
