"""A slot's threads for the store: what fails for a while is tried again, what is corrupt is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clonos.core.snapshots import SNAPSHOT_FORMAT, Snapshot, encode_snapshot
from clonos.io.object_files import LocalFiles, StoreFailed
from clonos.io.store import CheckpointStore
from clonos_standby import store_thread
from clonos_standby.inbox import Inbox
from clonos_standby.store_thread import SnapshotStore, StoreThread
from tests.unit.host.lone_slot import lone_slot, small_image
from tests.unit.host.test_outside_thread import Told


class FlakyFiles(LocalFiles):
    """A folder whose next ``failures`` calls fail."""

    failures = 0

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreFailed(self.url, "do anything", "it is flaky")

    def write(self, name: str, data: bytes) -> None:
        self._fail()
        super().write(name, data)

    def read(self, name: str) -> bytes:
        self._fail()
        return super().read(name)


def snapshot(checkpoint: int) -> Snapshot:
    required = len(Snapshot.__struct_fields__) - len(Snapshot.__struct_defaults__)
    values: dict[str, Any] = dict.fromkeys(Snapshot.__struct_fields__[:required], 0)
    values |= dict.fromkeys(("inputs", "outputs", "ended"), ())
    values |= {"format": SNAPSHOT_FORMAT, "checkpoint": checkpoint, "final": False, "position": b"", "changes": b"all"}
    return Snapshot(**values)


class Desk:
    """A store, its threads, and what they have told."""

    def __init__(self, folder: Path) -> None:
        self.store = CheckpointStore(str(folder))
        self.files = self.store.files = FlakyFiles(folder)
        self.told = Told()
        self.threads = SnapshotStore(self.store, lone_slot(small_image()), self.told)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(store_thread, "BACKOFF_FIRST_S", 0.001)
    made = Desk(tmp_path)
    yield made
    made.threads.close()


def test_what_is_written_is_read(desk: Desk) -> None:
    desk.threads.write("a/0", snapshot(1))
    assert desk.told.next() == ("on_snapshot_written", ("a/0", encode_snapshot(snapshot(1)), ""))
    desk.threads.read(("standby", 0, 1), ("a/0", "a/0"))
    assert desk.told.next() == ("on_objects_read", (("standby", 0, 1), [snapshot(1), snapshot(1)], ""))


def test_a_store_that_fails_for_a_while_is_tried_again(desk: Desk) -> None:
    desk.files.failures = store_thread.ATTEMPTS_MAX - 1
    desk.threads.write("a/0", snapshot(1))
    assert desk.told.next()[1][2] == ""
    desk.files.failures = store_thread.ATTEMPTS_MAX - 1
    desk.threads.read(("task", 0, 1), ("a/0",))
    assert desk.told.next()[1][1] == [snapshot(1)]


def test_a_store_that_fails_for_longer_is_an_event(desk: Desk) -> None:
    desk.files.failures = store_thread.ATTEMPTS_MAX
    desk.threads.write("a/0", snapshot(1))
    name, (_, encoded, error) = desk.told.next()
    assert (name, encoded) == ("on_snapshot_written", b"")
    assert "it is flaky" in error
    desk.files.failures = store_thread.ATTEMPTS_MAX
    desk.threads.read(("task", 0, 1), ("a/0",))
    name, (_, snapshots, error) = desk.told.next()
    assert (name, snapshots) == ("on_objects_read", None)
    assert "it is flaky" in error


@pytest.mark.parametrize("damage", ["lost", "torn"])
def test_a_task_whose_snapshot_is_damaged_fails_for_good_and_names_it(desk: Desk, damage: str) -> None:
    desk.threads.write("a/0", snapshot(1))
    desk.told.next()
    if damage == "lost":
        desk.store.delete_objects(["a/0"])
    else:
        desk.files.write("objects/a/0", desk.files.read("objects/a/0")[:-1])
    desk.threads.read(("task", 0, 1), ("a/0",))
    name, (failed,) = desk.told.next()
    assert name == "on_raised"
    assert failed.is_fatal
    assert failed.is_unrestorable
    assert "objects/a/0" in failed.error
    desk.threads.read(("standby", 0, 1), ("a/0",))
    assert desk.told.next()[0] == "on_objects_read"


def test_a_bug_in_a_job_kills_the_process_instead_of_being_forgotten() -> None:
    inbox = Inbox(lambda: None)
    thread = StoreThread("buggy", inbox)
    thread.put(lambda: [][0])
    thread._thread.join()
    with pytest.raises(IndexError):
        inbox.drain()
    thread.close()
