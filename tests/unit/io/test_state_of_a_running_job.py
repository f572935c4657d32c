"""``clonos state`` reads the store of a job that goes on and removes checkpoints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from clonos.api.graph import JobGraph
from clonos.cli import main
from clonos.core.checkpoint.checkpoint_metadata import encode_metadata, metadata_of_start
from clonos.core.checkpoint.snapshot import encode_snapshot
from clonos.core.model.ids import CheckpointId
from clonos.core.model.options import Options
from clonos.io.store.store import OBJECTS, CheckpointStore
from tests.unit.inflight.samples import snapshot
from tests.unit.operators.driver import Given, Outbox, Run


class Store:
    """Store of a job that counts by key in two tasks. Each checkpoint has read one record more of each key."""

    def __init__(self, folder: Path) -> None:
        graph = JobGraph("job")
        numbers = graph.source(Given([number % 4 for number in range(100)]))
        numbers.key_by(lambda number: number).count(name="count").sink(Outbox())
        self.run = Run(graph.compile(Options(), parallelism=2))
        self.folder, self.store = folder, CheckpointStore(str(folder))
        self.record = self.store.open_job("job")

    def complete(self, number: int) -> list[str]:
        """Writes a checkpoint; returns the names of its objects with keys."""
        self.run.read(4)
        start, entries, names = metadata_of_start(self.run.plan, self.record.job_id, 1), [], []
        for entry, (changes, _) in zip(start.tasks, self.run.barrier(number, full=True), strict=True):
            name = f"checkpoint-{number}/task-{entry.task}"
            taken = msgspec.structs.replace(snapshot(number, (), entry.task), changes=changes[-1])
            self.store.write_object(name, [encode_snapshot(taken)])
            entries.append(msgspec.structs.replace(entry, objects=(name,)))
            names += [name] if self.run.plan.vertices[self.run.plan.vertex_of[entry.task]].name == "count" else []
        metadata = msgspec.structs.replace(start, checkpoint=CheckpointId(number), tasks=tuple(entries))
        self.store.append_checkpoint(number, encode_metadata(metadata))
        return names

    def hold(self, name: str) -> Path:
        """Replaces an object by a pipe: who reads it waits until it is written. Returns the pipe."""
        held = self.folder / OBJECTS / name
        held.unlink()
        os.mkfifo(held)
        return held


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def _go_on(store: Store, names: list[str]) -> Thread:
    """The job completes checkpoint 2 and removes checkpoint 1, while the first object of that is read."""
    content = (store.folder / OBJECTS / names[0]).read_bytes()
    pipe = store.hold(names[0])

    def go_on() -> None:
        with pipe.open("wb") as writer:  # once it is read
            store.complete(2)
            store.store.delete_objects(names[1:])
            writer.write(content)

    thread = Thread(target=go_on)
    thread.start()
    return thread


def _show(store: Store, *arguments: str) -> int:
    return main(["state", "show", str(store.folder), "count", *arguments])


def test_the_newest_checkpoint_is_read_again_when_the_job_removes_it_meanwhile(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    thread = _go_on(store, store.complete(1))
    assert _show(store, "--json", "--limit", "0") == 0
    thread.join()
    shown = capsys.readouterr().out
    assert sorted(json.loads(line)["key"] for line in shown.splitlines()) == [0, 1, 2, 3]
    assert _show(store, "--json", "--limit", "0", "--checkpoint", "2") == 0
    assert shown == capsys.readouterr().out


def test_a_chosen_checkpoint_that_the_job_removes_is_an_error_that_names_it(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    thread = _go_on(store, store.complete(1))
    assert _show(store, "--json", "--checkpoint", "1") == 3
    thread.join()
    printed = capsys.readouterr()
    assert f"checkpoint 1 of {store.folder} was removed by its job before all of it was read." in printed.err
    assert not printed.out


def test_a_missing_object_of_the_last_checkpoint_is_not_called_removed_by_the_job(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    names = store.complete(1)
    store.store.delete_objects(names[:1])
    assert _show(store) == 3
    assert f"{names[0]} of checkpoint 1, the last one, is missing" in capsys.readouterr().err
