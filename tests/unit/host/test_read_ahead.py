"""State that a slot reads before a change of widths: a task begins with it, reads the rest, and has an equal state."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from clonos.connectors import blackhole, values
from clonos.core.checkpoint.snapshot import RestoredState, encode_snapshot
from clonos.core.checkpoint.warm_states import WARM_BYTES_MAX
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.model.options import Options
from clonos.core.ports.slot_effects import ReadAhead, TaskRead
from clonos.core.ports.task_snapshot import StateSource
from clonos.core.wire.control_messages import TaskWarmUp, WarmSource
from clonos.io.store.object_files import LocalFiles
from clonos.io.store.store import CheckpointStore
from clonos.job import Job
from clonos.job.description import graph_of
from clonos.operators.job_image import JobImage
from clonos.operators.state.declared_state import full_name
from clonos.operators.state.dividing import OwnImage
from clonos.operators.state.keyed_state import StateBackend
from clonos_standby.store_thread import SnapshotStore
from tests.harnesses.lone_slot import LIMIT_S, WaitingInbox, lone_surroundings
from tests.unit.host.test_snapshot_store import snapshot
from tests.unit.operators.dividing.division_twins import owner_of
from tests.waiting import await_condition

WIDTH, NEXT_WIDTH, CHECKPOINTS = 2, 3, 4


def keyed_image() -> JobImage:
    """A job that counts words with two tasks."""
    job = Job("keyed")
    job.source(values(["a"]), name="words").key_by(str).count(name="count").sink(blackhole(), name="out")
    return graph_of(job).compile(Options(), parallelism=WIDTH)


def files_of(*chains: tuple[str, ...]) -> set[str]:
    """The files of objects, whose names have digests besides."""
    return {name.rpartition(".")[0] for chain in chains for name in chain}


def images() -> int:
    """The number of images of divided state in this process."""
    gc.collect()
    return sum(isinstance(each, OwnImage) for each in gc.get_objects())


class WatchedFiles(LocalFiles):
    """A folder that notes what is read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.names: list[str] = []

    def read(self, name: str) -> bytes:
        self.names.append(name.removeprefix("objects/"))
        return super().read(name)


class Slot:
    """Threads of a slot, and the chains of two tasks in their store."""

    def __init__(self, folder: Path, warm_bytes_max: int = WARM_BYTES_MAX) -> None:
        self.images_before = images()
        self.image = keyed_image()
        self.vertex = next(v.name for v in self.image.plan.vertices if any(s.name == "count" for s in v.steps))
        number = next(n for n, v in enumerate(self.image.plan.vertices) if v.name == self.vertex)
        self.declared = self.image.vertices[number].declared_state()
        self.store = CheckpointStore(str(folder))
        self.files = self.store.files = WatchedFiles(folder)
        self.reported = WaitingInbox()
        self.context = lone_surroundings(self.image, self.reported)
        self.threads = SnapshotStore(self.store, self.context, self.context.new_mirror, warm_bytes_max=warm_bytes_max)
        self.chains = [self.chain(index) for index in range(WIDTH)]
        self.next_plan = self.image.plan.with_widths({self.vertex: NEXT_WIDTH})
        self.task = TaskId(self.next_plan.first_task[number] + 1)

    def chain(self, index: int, of_life: int = 1) -> tuple[str, ...]:
        """Stores snapshots of a task, the first of them full; in each of them some keys change and one is gone."""
        name = next(full_name(step, spec) for step, spec in self.declared if step == "count")
        backend = StateBackend(None)
        table = backend.table(name)
        names = []
        for checkpoint in range(1, CHECKPOINTS + 1):
            for key in [f"{place}" for place in range(checkpoint * 40) if place % checkpoint == 0]:
                if owner_of(key, WIDTH, self.image.plan.max_parallelism) == index:
                    table.set(key, checkpoint * of_life)
            table.delete(next(iter(table.entries)))
            changes = backend.changes(full=checkpoint == 1)
            head = replace(snapshot(checkpoint), changes=changes, task=TaskId(index))
            kind = "full" if checkpoint == 1 else "delta"
            stored = f"snapshots/{index}/{checkpoint:012d}-{of_life}-{kind}"
            names.append(self.store.write_object(stored, [encode_snapshot(head)]))
        return tuple(names)

    def read_ahead(self, *chains: tuple[str, ...], number: int = 5, width: int = NEXT_WIDTH) -> None:
        """Reads these chains, and waits until that is done."""
        sources = tuple(WarmSource(self.vertex, index, WIDTH, each) for index, each in enumerate(chains))
        task = self.next_plan.task_name(self.task)
        self.threads.read_ahead(ReadAhead(number, ((self.vertex, width),), (TaskWarmUp(task, sources),)))
        assert self.reported.next() == ("WarmedUp", (number,))
        self.files.names.clear()

    def begin(self, *chains: tuple[str, ...]) -> tuple[bytes, set[str]]:
        """The state of the next task as bytes, and the objects that were read for it."""
        sources = tuple(StateSource(self.vertex, index, WIDTH, len(each)) for index, each in enumerate(chains))
        head = replace(snapshot(CHECKPOINTS), changes=b"", task=self.task, sources=sources)
        name = f"snapshots/{self.task}/{CheckpointId(CHECKPOINTS):012d}-9-moved"
        moved = self.store.write_object(name, [encode_snapshot(head)])
        self.context.adopt(self.next_plan)
        self.threads.read(TaskRead(self.task, Incarnation(9)), (*(n for each in chains for n in each), moved))
        event, (_, restored, error) = self.reported.next()
        assert (event, error) == ("SnapshotsRead", ""), error
        assert isinstance(restored, RestoredState)
        mirror: Any = restored.mirror
        return StateBackend(mirror).changes(full=True), set(self.files.names) - {name}


@pytest.fixture
def slot(tmp_path: Path) -> Any:
    made = Slot(tmp_path / "read")
    yield made
    made.threads.close()


@pytest.fixture
def cold(tmp_path: Path) -> Any:
    """A slot that reads nothing ahead."""
    made = Slot(tmp_path / "cold")
    yield made
    made.threads.close()


@pytest.mark.parametrize("known", range(1, CHECKPOINTS + 1))
def test_a_task_reads_only_what_its_slot_has_not_read_and_has_an_equal_state(
    slot: Slot, cold: Slot, known: int
) -> None:
    slot.read_ahead(*(chain[:known] for chain in slot.chains))
    state, names = slot.begin(*slot.chains)
    assert names == files_of(*(chain[known:] for chain in slot.chains))
    assert state == cold.begin(*cold.chains)[0]


def test_a_later_request_reads_what_has_come_since(slot: Slot, cold: Slot) -> None:
    slot.read_ahead(*(chain[:1] for chain in slot.chains))
    slot.read_ahead(*(chain[:3] for chain in slot.chains), number=6)
    state, names = slot.begin(*slot.chains)
    assert names == files_of(*(chain[3:] for chain in slot.chains))
    assert state == cold.begin(*cold.chains)[0]


def test_a_chain_of_other_objects_is_read_as_a_whole(slot: Slot, cold: Slot) -> None:
    slot.read_ahead(*slot.chains)
    other = slot.chain(1, of_life=2)
    state, names = slot.begin(slot.chains[0], other)
    assert names == files_of(other)
    assert state == cold.begin(cold.chains[0], cold.chain(1, of_life=2))[0]


def test_a_chain_that_is_shorter_than_what_was_read_is_read_as_a_whole(slot: Slot, cold: Slot) -> None:
    slot.read_ahead(*slot.chains)
    shorter = [chain[:2] for chain in slot.chains]
    state, names = slot.begin(*shorter)
    assert names == files_of(*shorter)
    assert state == cold.begin(*(chain[:2] for chain in cold.chains))[0]


def test_a_state_that_was_read_for_other_widths_is_not_used(slot: Slot, cold: Slot) -> None:
    slot.read_ahead(*slot.chains, width=NEXT_WIDTH + 1)
    state, names = slot.begin(*slot.chains)
    assert names == files_of(*slot.chains)
    assert state == cold.begin(*cold.chains)[0]


def test_a_state_that_was_read_ahead_is_used_once(slot: Slot) -> None:
    slot.read_ahead(*slot.chains)
    assert slot.begin(*slot.chains)[1] == set()
    assert slot.begin(*slot.chains)[1] == files_of(*slot.chains)


def test_a_chain_that_cannot_be_read_ahead_is_read_when_the_task_begins(slot: Slot, cold: Slot) -> None:
    missing = f"snapshots/0/{1:012d}-7-full.0123456789abcdef"
    slot.read_ahead((missing,), slot.chains[1])
    state, names = slot.begin(*slot.chains)
    assert names == files_of(slot.chains[0])
    assert state == cold.begin(*cold.chains)[0]


def test_the_memory_of_a_state_that_is_dropped_is_free(slot: Slot) -> None:
    slot.read_ahead(*slot.chains)
    assert images() > slot.images_before
    slot.threads.drop_read_ahead()
    await_condition(LIMIT_S, lambda: images() == slot.images_before)  # also if no request follows
    assert slot.begin(*slot.chains)[1] == files_of(*slot.chains)


def size_of(slot: Slot, *chains: tuple[str, ...]) -> int:
    """The bytes of the pieces of objects."""
    return sum(len(piece) for chain in chains for name in chain for piece in slot.store.read_object(name))


@pytest.mark.parametrize("short_bytes", [0, 1])
def test_a_slot_reads_ahead_up_to_its_limit_of_bytes_and_a_task_reads_the_rest(
    tmp_path: Path, slot: Slot, cold: Slot, short_bytes: int
) -> None:
    limited = Slot(tmp_path / "limited", size_of(slot, *slot.chains) - short_bytes)
    limited.read_ahead(*(chain[:2] for chain in limited.chains))
    limited.read_ahead(*limited.chains, number=6)  # the objects before do not count twice
    state, names = limited.begin(*limited.chains)
    limited.threads.close()
    assert names == (files_of(limited.chains[1]) if short_bytes else set())
    assert state == cold.begin(*cold.chains)[0]


def test_a_state_that_is_read_from_its_first_object_again_counts_once(tmp_path: Path, slot: Slot) -> None:
    limited = Slot(tmp_path / "limited", size_of(slot, *slot.chains))
    limited.read_ahead(*limited.chains)
    shorter = [chain[:2] for chain in limited.chains]
    limited.read_ahead(*shorter, number=6)
    assert limited.begin(*shorter)[1] == set()
    limited.threads.close()


def test_a_state_that_could_not_be_read_does_not_count(tmp_path: Path, slot: Slot) -> None:
    limited = Slot(tmp_path / "limited", max(size_of(slot, chain) for chain in slot.chains))
    missing = f"snapshots/0/{CHECKPOINTS + 1:012d}-7-delta.0123456789abcdef"
    limited.read_ahead((*limited.chains[0], missing), limited.chains[1])
    assert limited.begin(*limited.chains)[1] == files_of(limited.chains[0])
    limited.threads.close()


def test_the_chain_with_which_a_task_goes_on_is_read_ahead_too(slot: Slot) -> None:
    task = slot.task
    asked = TaskWarmUp(slot.next_plan.task_name(task), (WarmSource("", 0, 0, slot.chains[0][:2]),))
    slot.threads.read_ahead(ReadAhead(5, ((slot.vertex, NEXT_WIDTH),), (asked,)))
    assert slot.reported.next() == ("WarmedUp", (5,))
    slot.context.adopt(slot.next_plan)
    slot.files.names.clear()
    slot.threads.read(TaskRead(task, Incarnation(9)), slot.chains[0])
    restored: Any = slot.reported.next()[1][1]
    assert set(slot.files.names) == files_of(slot.chains[0][2:])
    assert (restored.snapshot.checkpoint, restored.snapshot.chain_length) == (CHECKPOINTS, CHECKPOINTS)
