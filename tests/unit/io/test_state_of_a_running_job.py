"""``clonos state`` reads the store of a job that goes on and removes checkpoints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

import clonos
import clonos_services
from clonos.api.graph import JobGraph
from clonos.cli import main
from clonos.core.checkpoint.checkpoint_metadata import encode_metadata, metadata_of_start
from clonos.core.checkpoint.snapshot import encode_snapshot
from clonos.core.model.ids import CheckpointId
from clonos.core.model.options import Options
from clonos.io.store.store import OBJECTS, CheckpointStore
from clonos.job.checkpointed_state import CheckpointedState, StateNotTabular
from clonos.job.stored_state import CheckpointRemoved, StateLocation, StateLost, StateUnknown
from clonos.spark.frames.state_rows import REGISTERING
from clonos_services.ai_agent import Conversation
from tests.speed import scaled
from tests.unit.inflight.samples import snapshot
from tests.unit.operators.driver import Given, Outbox, Run


class Store:
    """Store of a job that counts by key in two tasks. Each checkpoint has read one record more of each key."""

    def __init__(self, folder: Path, key: Callable[[int], int | None] = int, function: Any = None) -> None:
        """``function``: (key, state, number) -> (state, result), which the step has in place of a count."""
        graph = JobGraph("job")
        numbers = graph.source(Given([number % 4 for number in range(100)])).key_by(key)
        step = numbers.count(name="count") if function is None else numbers.stateful_map(function, name="count")
        step.sink(Outbox())
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


def _state(store: Store, name: str | None = None, checkpoint: int | None = None) -> CheckpointedState:
    return CheckpointedState(StateLocation(str(store.folder), checkpoint), "count", name)


def test_the_value_of_each_key_is_that_of_the_last_checkpoint(store: Store) -> None:
    store.complete(1)
    store.complete(2)
    state, shown = _state(store), _shown(store)
    assert (state.checkpoint, state.name, len(state)) == (2, "state", 4)
    assert {key: state.get(key) for key in range(4)} == dict(state.items()) == shown
    assert (state.get(4), state.get("1", "none")) == (None, "none")
    assert sorted(state.table().to_pylist(), key=str) == [{"key": key, "value": shown[key]} for key in range(4)]


def test_a_state_that_was_read_stays_while_the_job_goes_on(store: Store) -> None:
    names = store.complete(1)
    state, shown = _state(store), _shown(store)
    assert dict(state.items()) == shown
    store.complete(2)
    store.store.delete_objects(names)
    assert dict(state.items()) == shown != dict(_state(store).items()) == _shown(store)


def test_the_state_of_a_removed_checkpoint_is_an_error(store: Store) -> None:
    names = store.complete(1)
    state = _state(store, "state")
    store.complete(2)
    store.store.delete_objects(names)
    with pytest.raises(CheckpointRemoved, match=r"checkpoint 1 of .* was removed by its job"):
        state.get(1)


def test_only_the_task_of_a_key_is_read_for_its_value(store: Store) -> None:
    names, shown = store.complete(1), {}
    shown = _shown(store)
    store.store.delete_objects(names[:1])
    found = {key: _value_or_none(store, key) for key in range(4)}
    assert {key for key in found if found[key] == shown[key]} | {key for key in found if found[key] is None} == {*shown}
    assert 0 < list(found.values()).count(None) < 4, found


def _shown(store: Store) -> dict[int, int]:
    """The entries as ``clonos state show`` has them."""
    place = StateLocation(str(store.folder), None)
    return {int(row.key): int(row.value) for row in place.rows("count")}


def _value_or_none(store: Store, key: int) -> Any:
    location = StateLocation(str(store.folder), None)
    with suppress(StateLost):
        return CheckpointedState(location, "count", "state").get(key)
    return None


@pytest.mark.parametrize(
    ("step", "name", "known"),
    [
        ("counts", None, "has no state of a step 'counts'"),
        ("count", "total", "has no state 'total' of the step 'count'"),
    ],
)
def test_an_unknown_state_is_refused_with_those_that_there_are(
    step: str, name: str | None, known: str, store: Store
) -> None:
    store.complete(1)
    with pytest.raises(StateUnknown, match=known):
        CheckpointedState(StateLocation(str(store.folder), None), step, name).get(1)


@pytest.mark.parametrize(
    "entries",
    [
        [("a", 1), (b"a", 2)],
        [(1, 1), (1.0, 2)],
        [("a", True), ("b", 1)],
        [("a", {"x": 1}), ("b", {"x": 1, "y": None})],
        [("a", 2**53 + 1), ("b", 0.5)],
        [("a", {1})],
    ],
    ids=str,
)
def test_a_table_is_refused_that_would_change_a_value(entries: list[tuple[Any, Any]], store: Store) -> None:
    store.complete(1)
    state = _state(store)
    state.items = lambda: iter(entries)  # type: ignore[method-assign]
    with pytest.raises(StateNotTabular, match=r"the state count/state is not a table, because .*items\(\)"):
        state.table()


def test_dicts_of_the_same_fields_are_columns_of_a_table(store: Store) -> None:
    store.complete(1)
    state = _state(store)
    state.items = lambda: iter([(("a", "b"), {"x": 1, "y": None}), (("a", "c"), {"x": None, "y": [1]})])  # type: ignore[method-assign]
    assert state.table().to_pylist() == [
        {"key": ["a", "b"], "x": 1, "y": None},
        {"key": ["a", "c"], "x": None, "y": [1]},
    ]


def test_the_key_none_has_an_entry_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path / "none", key=lambda number: number or None)
    store.complete(1)
    state = _state(store)
    assert {key for key, _ in state.items()} == {None, 1, 2, 3}
    assert state.get(None) == dict(state.items())[None]
    assert state.get(0) is None


@pytest.mark.parametrize(
    ("states", "name"),
    [
        ((), "state"),
        (("state",), "state"),
        (("balance",), "balance"),
        (("state", "next call", "open calls", "suspended calls"), "state"),
        (("next call", "open calls"), "state"),
        (("balance", "limits"), None),
    ],
    ids=str,
)
def test_the_state_of_a_user_needs_no_name_beside_those_of_the_library(
    states: tuple[str, ...], name: str | None, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.complete(1)
    monkeypatch.setattr(StateLocation, "entries", lambda *_: [(each, 7, each) for each in states])
    if name is None:
        with pytest.raises(StateUnknown, match="has several states of the step 'count'"):
            _state(store)
        return
    state = _state(store)
    assert (state.name, state.get(7, "none"), state.get(8)) == (name, name if name in states else "none", None)


def _talk(key: int, state: Any, number: int) -> tuple[Any, int]:
    return (Conversation("helper", []) if key else {b"part": 1}), number


def test_state_is_shown_with_classes_of_the_library_and_values_without_a_json_form(tmp_path: Path) -> None:
    Store(tmp_path / "talks", function=_talk).complete(1)
    command = [sys.executable, "-m", "clonos.cli", "state", "show", str(tmp_path / "talks"), "count", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=scaled(60))
    assert ended.returncode == 0, ended.stderr
    values = {row["key"]: row["value"] for row in map(json.loads, ended.stdout.splitlines())}
    assert values[0] == "{b'part': 1}"
    assert values[1] == msgspec.to_builtins(Conversation("helper", []))


def test_all_modules_that_register_a_class_are_imported_to_read_state() -> None:
    found = set[str]()
    for package in (clonos, clonos_services):
        for file in Path(*package.__path__).rglob("*.py"):
            if re.search(r"^@register\b", file.read_text(), re.MULTILINE):
                found.add(".".join((package.__name__, *file.relative_to(*package.__path__).with_suffix("").parts)))
    assert found == {*REGISTERING}
