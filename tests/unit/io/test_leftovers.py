"""What killed processes leave in a store is removed at a start, and nothing that a checkpoint or a stranger needs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from clonos.core.checkpoint.checkpoint_metadata import encode_metadata, metadata_of_start
from clonos.core.model.ids import CheckpointId
from clonos.io.store.object_files import LocalFiles, StoreFailed
from clonos.io.store.store import CheckpointStore, remove_leftovers
from tests.harnesses.coordinator_harness import chain_plan

UNFINISHED = ("chain/.00000000000000000004.0123456789ab", "objects/snapshots/0/.000000000005-1-full.0123456789ab")
FOREIGN = ("objects/notes.txt", "objects/snapshots/0/copy", "objects/snapshots/0/.nfs0001", "chain/.keep", ".x")


def name_of(checkpoint: int, incarnation: int = 1, kind: str = "delta") -> str:
    return f"snapshots/0/{checkpoint:012d}-{incarnation:x}-{kind}"


def complete(store: CheckpointStore, checkpoint: int, *objects: str) -> None:
    start = metadata_of_start(chain_plan(), store.record.job_id, 1)
    first = msgspec.structs.replace(start.tasks[0], objects=objects)
    metadata = msgspec.structs.replace(start, checkpoint=CheckpointId(checkpoint), tasks=(first, *start.tasks[1:]))
    store.append_checkpoint(checkpoint, encode_metadata(metadata))


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """A store of a job that was killed: two checkpoints, and what else there was."""
    first = CheckpointStore(str(tmp_path))
    first.open_job("one")
    full, one, two = name_of(1, kind="full"), name_of(2), name_of(3)
    for name in (full, one, two, name_of(4), name_of(4, 2), name_of(9, kind="final")):
        first.write_object(name, [b"state"])
    complete(first, 1, full)
    complete(first, 3, full, one, two)
    for name in UNFINISHED:
        (tmp_path / name).write_bytes(b"torn")
    for name in FOREIGN:
        (tmp_path / name).write_bytes(b"mine")
    return first


def found(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def resumed(folder: Path) -> CheckpointStore:
    again = CheckpointStore(str(folder))
    again.find_job()
    again.acquire_term()
    return again


def test_a_start_removes_what_no_checkpoint_names_and_nothing_else(store: CheckpointStore, tmp_path: Path) -> None:
    before = found(tmp_path)
    assert remove_leftovers(resumed(tmp_path)) == 5
    assert before - found(tmp_path) == {
        f"objects/{name_of(4)}",
        f"objects/{name_of(4, 2)}",
        f"objects/{name_of(9, kind='final')}",
        *UNFINISHED,
    }
    assert remove_leftovers(resumed(tmp_path)) == 0


def test_the_last_snapshot_of_a_void_checkpoint_stays_until_a_later_one_is_complete(
    store: CheckpointStore, tmp_path: Path
) -> None:
    def snapshots() -> set[str]:
        return {path.name for path in (tmp_path / "objects/snapshots/0").iterdir() if not path.name.startswith(".")}

    again = CheckpointStore(str(tmp_path))
    for _ in range(3):  # starts that end before a checkpoint
        again.find_job()
        again.acquire_term(resume_from=1)
        remove_leftovers(again)
    assert snapshots() - {"copy"} == {Path(each).name for each in (name_of(1, kind="full"), name_of(3))}
    complete(again, 4, name_of(1, kind="full"))
    remove_leftovers(resumed(tmp_path))
    assert snapshots() - {"copy"} == {Path(name_of(1, kind="full")).name}


def test_a_driver_that_was_replaced_removes_nothing(store: CheckpointStore, tmp_path: Path) -> None:
    late = resumed(tmp_path)
    resumed(tmp_path).write_object(name_of(12, 3), [b"state of a running job"])
    before = found(tmp_path)
    assert remove_leftovers(late) == 0
    assert found(tmp_path) == before


def test_a_damaged_entry_of_the_chain_leaves_everything_as_it_is(
    store: CheckpointStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    again = resumed(tmp_path)
    (tmp_path / "chain" / f"{2:020}").write_bytes(b"damaged")
    before = found(tmp_path)
    assert remove_leftovers(again) == 0
    assert found(tmp_path) == before
    assert "stays there" in caplog.text


def test_a_store_that_fails_does_not_keep_the_job_from_starting(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: LocalFiles, name: str) -> None:
        raise StoreFailed(self.url, f"delete {name}", "it is read-only")

    again = resumed(tmp_path)
    monkeypatch.setattr(LocalFiles, "delete", failing)
    assert remove_leftovers(again) == 0


def test_a_job_without_a_checkpoint_begins_with_an_empty_store(tmp_path: Path) -> None:
    CheckpointStore(str(tmp_path)).open_job("one")
    CheckpointStore(str(tmp_path)).write_object(name_of(1), [b"state"])
    assert remove_leftovers(resumed(tmp_path)) == 1
