"""A slot's threads for the store: what fails for a while is tried again, what is corrupt is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from clonos.core.checkpoint.snapshot import SNAPSHOT_FORMAT, RestoredState, Snapshot, encode_snapshot, standby_payload
from clonos.core.model.errors import ClonosError
from clonos.core.model.ids import Incarnation, TaskId
from clonos.core.ports.slot_shell import StandbyRead, TaskRead
from clonos.core.values import column_of
from clonos.core.wire.recovery_messages import Recourse
from clonos.io.store.envelope import seal_pieces
from clonos.io.store.object_files import LocalFiles, StoreFailed
from clonos.io.store.store import CheckpointStore
from clonos.operators.state.keyed_state import StateImage
from clonos.operators.state.state_changes import Section, StateUnsupported, encode_piece
from clonos_standby import store_thread
from clonos_standby.inbox import Inbox
from clonos_standby.store_thread import SnapshotStore, StoreThread
from tests.harnesses.lone_slot import lone_slot, small_image
from tests.unit.host.test_sink_thread import Told

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


class Desk:
    """A store, its threads, and what they have told."""

    def __init__(self, folder: Path) -> None:
        self.store = CheckpointStore(str(folder))
        self.files = self.store.files = FlakyFiles(folder)
        self.told = Told()
        self.threads = SnapshotStore(self.store, lone_slot(small_image()), self.told, lambda _: Story())


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(store_thread, "BACKOFF_FIRST_S", 0.001)
    made = Desk(tmp_path)
    yield made
    made.threads.close()


def test_what_is_written_is_read(desk: Desk) -> None:
    desk.threads.write("a/0", snapshot(1), None)
    assert desk.told.next() == ("on_snapshot_written", ("a/0", standby_payload([encode_snapshot(snapshot(1))]), ""))
    desk.threads.read(STANDBY_READ, ("a/0", "a/0"))
    name, (token, restored, error) = desk.told.next()
    assert (name, token, error) == ("on_objects_read", STANDBY_READ, "")
    assert restored == RestoredState(replace(snapshot(1), changes=b"", chain_length=2), Story([b"all", b"all"]))


def test_a_store_that_fails_for_a_while_is_tried_again(desk: Desk) -> None:
    desk.files.failures = store_thread.ATTEMPTS_MAX - 1
    desk.threads.write("a/0", snapshot(1), None)
    assert desk.told.next()[1][2] == ""
    desk.files.failures = store_thread.ATTEMPTS_MAX - 1
    desk.threads.read(TASK_READ, ("a/0",))
    assert desk.told.next()[1][1].mirror == Story([b"all"])


def test_a_store_that_fails_for_longer_is_an_event(desk: Desk) -> None:
    desk.files.failures = store_thread.ATTEMPTS_MAX
    desk.threads.write("a/0", snapshot(1), None)
    name, (_, encoded, error) = desk.told.next()
    assert (name, encoded) == ("on_snapshot_written", b"")
    assert "it is flaky" in error
    desk.files.failures = store_thread.ATTEMPTS_MAX
    desk.threads.read(TASK_READ, ("a/0",))
    name, (_, snapshots, error) = desk.told.next()
    assert (name, snapshots) == ("on_objects_read", None)
    assert "it is flaky" in error


@pytest.mark.parametrize("damage", ["lost", "torn"])
def test_a_task_whose_snapshot_is_damaged_fails_for_good_and_names_it(desk: Desk, damage: str) -> None:
    desk.threads.write("a/0", snapshot(1), None)
    desk.told.next()
    if damage == "lost":
        desk.store.delete_objects(["a/0"])
    else:
        desk.files.write("objects/a/0", desk.files.read("objects/a/0")[:-1])
    desk.threads.read(TASK_READ, ("a/0",))
    name, (failed,) = desk.told.next()
    assert name == "on_failed"
    assert failed.recourse is Recourse.STANDBY
    assert "objects/a/0" in failed.error
    desk.threads.read(STANDBY_READ, ("a/0",))
    assert desk.told.next()[0] == "on_objects_read"


def test_state_that_this_process_cannot_read_fails_its_task_instead_of_the_process(desk: Desk) -> None:
    values = column_of([{"n": 1}])
    unknown = replace(values, kind=99)
    changes = encode_piece((Section("a", column_of([]), column_of(["key"]), unknown),), is_full=True)
    desk.files.write("objects/a/0", b"".join(seal_pieces([encode_snapshot(replace(snapshot(1), changes=changes))])))
    threads = SnapshotStore(desk.store, lone_slot(small_image()), desk.told, lambda _: StateImage())
    threads.read(TaskRead(TaskId(0), Incarnation(1)), ("a/0",))
    name, (failed,) = desk.told.next()
    threads.close()
    assert (name, failed.recourse) == ("on_failed", Recourse.STANDBY)
    assert "ValueMalformed: " in failed.error


def test_a_bug_in_a_job_kills_the_process_instead_of_being_forgotten() -> None:
    inbox = Inbox(lambda: None)
    thread = StoreThread("buggy", inbox)
    thread.put(lambda: [][0])
    thread._thread.join()
    with pytest.raises(IndexError):
        inbox.drain()
    thread.close()


def test_pieces_that_are_made_later_are_part_of_the_object_and_released_when_it_is_stored(desk: Desk) -> None:
    more = LaterPieces(b"1", b"2")
    desk.files.failures = 1
    desk.threads.write("a/0", snapshot(1), more)
    assert desk.told.next()[1][1] == standby_payload([encode_snapshot(snapshot(1)), b"1", b"2"])
    assert more.is_released
    desk.threads.read(TASK_READ, ("a/0",))
    assert desk.told.next()[1][1].mirror == Story([b"all", b"1", b"2"])


def test_pieces_are_kept_as_long_as_the_store_fails(desk: Desk) -> None:
    more = LaterPieces(b"1")
    desk.files.failures = store_thread.ATTEMPTS_MAX
    desk.threads.write("a/0", snapshot(1), more)
    assert desk.told.next()[1][2]
    assert not more.is_released


def test_what_is_long_is_not_sent_to_standbys(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_thread, "STANDBY_BYTES_MAX", 300)
    desk.threads.write("a/0", snapshot(1), LaterPieces(b"1" * 200, b"2" * 200, b"3"))
    assert desk.told.next() == ("on_snapshot_written", ("a/0", b"", ""))


def test_a_whole_state_is_stored_beside_the_snapshots(desk: Desk) -> None:
    whole = LaterPieces(b"1", b"2")
    desk.threads.write_whole("a/0", replace(snapshot(1), changes=b""), whole)
    assert desk.told.next() == ("on_whole_written", ("a/0",))
    assert whole.is_released
    desk.threads.read(TASK_READ, ("a/0",))
    assert desk.told.next()[1][1].mirror == Story([b"1", b"2"])


def test_a_whole_state_that_cannot_be_stored_is_given_up(desk: Desk) -> None:
    whole = LaterPieces(b"1")
    desk.files.failures = 1
    desk.threads.write_whole("a/0", snapshot(1), whole)
    desk.threads.write_whole("a/1", snapshot(1), LaterPieces())
    assert desk.told.next() == ("on_whole_written", ("a/1",))
    assert whole.is_released


@pytest.mark.parametrize("kind", ["write", "write_whole"])
def test_a_task_whose_state_turns_out_to_be_no_value_fails_by_it(desk: Desk, kind: str) -> None:
    getattr(desk.threads, kind)("a/0", snapshot(1), LaterPieces(b"1", StateUnsupported("count/state", "a socket")))
    name, (failed,) = desk.told.next()
    assert (name, failed.recourse) == ("on_failed", Recourse.NONE)
    assert "the state count/state cannot be stored: a socket" in failed.error
    assert not desk.files.exists("objects/a/0")
