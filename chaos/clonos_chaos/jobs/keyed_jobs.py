"""Fuzz jobs whose widths change: the state of their steps is keyed, so that it divides by the group of the key.

Every edge is by key, so a record's key decides at each width which task has its state. The count of a key goes on
through all tasks that it moves to. Sources deal their splits anew; a sink whose task returns goes on at its number.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, cast

from msgspec import structs

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, TaskEntry
from clonos.core.checkpoint.plan_shape import shape_of
from clonos.core.checkpoint.snapshot import SNAPSHOT_FORMAT, RestoredState, encode_snapshot, restore_from
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.model.plan import Partitioning, Plan
from clonos.core.ports.operator_chain import Chain
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.values import decode_value, encode_value
from clonos.core.values.key_encoding import encode_key
from clonos.core.values.keys import key_group, task_of_group
from clonos_chaos.jobs.fuzz_chain import KEYS, FuzzMirror, Work
from clonos_chaos.jobs.fuzz_jobs import FuzzJob
from clonos_chaos.jobs.keyed_chain import WAITING, KeyedChain, Position, SharedByKeyedChains, dealt
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS

SCALABLE = ("source", "a", "b", "sink")
"""Steps whose width changes."""


class KeyedJob(FuzzJob, SharedByKeyedChains):
    """Source, two keyed steps and sinks, of random widths. Every second source finds its splits while it runs."""

    is_keyed = True

    def __init__(self, topology: str, rng: Random, records: int, sharing_depth: int | None) -> None:
        super().__init__(topology, rng, 4 * records, sharing_depth, _build)
        span_ms = rng.choice((20, 200, 500))
        is_watching = self.vertices[0].is_watching
        self.appears_ns = [int(rng.random() * span_ms) * MILLISECOND_NS for _ in range(KEYS * is_watching)]

    def new_chain(self, vertex: int) -> Chain:
        return KeyedChain(self, vertex)

    def complaints_of_rows(self, rows: list[Any]) -> list[str]:
        """Checks that each step has counted the rows of a key in the order of its split."""
        return [
            f"row {offset}, number {offset // KEYS + 1} of its key, came as number {seen} to vertex {vertex}"
            for offset, lineage, *_ in rows
            for vertex, _, seen, *_ in lineage
            if seen != offset // KEYS + 1
        ]


def _build(job: FuzzJob) -> None:
    previous = job.vertex("source", job.rng.choice((1, 2)), (0,))
    for name in ("a", "b"):
        vertex = job.vertex(name, job.rng.choice((1, 2, 3)), (0,))
        job.connect(previous, vertex, Partitioning.HASH)
        previous = vertex
    job.connect(previous, job.sink(job.rng.choice((1, 2))), Partitioning.HASH)
    job.works = [_flushed(job.rng, work) if work.ports else work for work in job.works]
    is_watching = job.rng.random() < 0.5
    job.vertices[0] = replace(job.vertices[0], has_effects=job.works[0].effects, is_watching=is_watching)


def _flushed(rng: Random, work: Work) -> Work:
    """Lets the rows of every third step that has no windows wait for a flush."""
    is_flushed = not work.windows_ns and rng.random() < 0.33
    return replace(work, flush_count=rng.choice((2, 5, 20))) if is_flushed else work


# ------------------------------------------------------------------ a cut


def divided(
    metadata: CheckpointMetadata, before: Plan, plan: Plan, store: dict[str, tuple[bytes, ...]], term: int
) -> CheckpointMetadata:
    """Returns a cut with the tasks of ``plan``, whose snapshots are in the store; ``metadata`` has those of
    ``before``."""
    restored = [
        restore_from([(name, store[name]) for name in entry.objects], FuzzMirror()) if entry.objects else None
        for entry in metadata.tasks
    ]
    entries = []
    for task in plan.tasks:
        snapshot, prepared = _snapshot_of(task, metadata, before, plan, restored)
        name = f"snapshots/{task}/{metadata.checkpoint:012d}-{term << 32:x}-full"
        store[name] = (encode_snapshot(snapshot),)
        entries.append(TaskEntry(task, snapshot.incarnation, metadata.checkpoint, (name,), 0, snapshot.final, prepared))
    numbers = _next_rows(metadata, before, restored)
    retired = {name: number for name, number in numbers.items() if plan.task_named(name) is None}
    return structs.replace(metadata, tasks=tuple(entries), plan=shape_of(plan), retired=retired)


def steps_of_waiting_rows(
    metadata: CheckpointMetadata, before: Plan, store: dict[str, tuple[bytes, ...]]
) -> frozenset[str]:
    """Returns the steps in which rows wait for a flush. A start with other widths leaves them as they are."""
    found = set()
    for entry in metadata.tasks:
        mirror = restore_from([(name, store[name]) for name in entry.objects], FuzzMirror()).mirror
        if cast(FuzzMirror, mirror).state.get(WAITING):
            found.add(before.vertices[before.vertex_of[entry.task]].name)
    return frozenset(found)


def _next_rows(metadata: CheckpointMetadata, before: Plan, restored: list[RestoredState | None]) -> dict[str, int]:
    """Returns the number of the next row of each task with output outside the job, also of those that do not run."""
    found = dict(metadata.retired)
    for task, each in zip(before.tasks, restored, strict=True):
        outputs = dict(each.snapshot.outputs) if each is not None else {}
        for channel in before.outputs[task]:
            if channel.receiver is None:
                found[before.task_name(task)] = outputs.get(channel.id, 0)
    return found


def _snapshot_of(
    task: TaskId, metadata: CheckpointMetadata, before: Plan, plan: Plan, restored: list[RestoredState | None]
) -> tuple[Snapshot, tuple[tuple[CheckpointId, bytes], ...]]:
    vertex, index = plan.vertex_of[task], plan.index_of(task)
    width, first = plan.vertices[vertex].parallelism, before.first_task[vertex]
    old = range(first, first + before.vertices[vertex].parallelism)
    found = [restored[number] for number in old]
    same = before.task_named(plan.task_name(task))
    own = None if same is None else restored[same]
    head = own.snapshot if own is not None else None
    state: dict[Any, Any] = {}
    is_same_width = before.vertices[vertex].parallelism == width
    taken = [own] if is_same_width else found
    position: Any = 0
    if plan.vertices[vertex].is_source:
        positions = [_position_of(each) for each in taken if each is not None]
        position = positions[0] if is_same_width else dealt(positions, index, width)
    for each in taken:
        if each is not None and plan.vertices[vertex].is_source and not is_same_width:
            _take_splits(state, cast(FuzzMirror, each.mirror).state, position[0])
        elif each is not None:
            _take(state, cast(FuzzMirror, each.mirror).state, None if is_same_width else (index, width))
    written = _next_rows(metadata, before, restored).get(plan.task_name(task), 0)
    prepared = tuple(part for number in old for part in metadata.tasks[number].prepared) if index == 0 else ()
    snapshot = Snapshot(
        format=SNAPSHOT_FORMAT,
        task=task,
        incarnation=Incarnation(max(entry.incarnation for entry in metadata.tasks)),
        checkpoint=metadata.checkpoint,
        previous=None,
        inputs=tuple((channel.id, 0) for channel in plan.inputs[task]),
        outputs=tuple((channel.id, written if channel.receiver is None else 0) for channel in plan.outputs[task]),
        ended=tuple(each.id for each in plan.inputs[task] if _has_ended(each.sender, metadata, before, plan)),
        log_offset_bytes=0,
        instant_ns=max((each.snapshot.instant_ns for each in found if each is not None), default=0),
        final=_has_ended(task, metadata, before, plan),
        position=encode_value((position, 0, {})),
        changes=encode_value((state, [])),
        records_in=head.records_in if head is not None else 0,
        calls=head.calls if head is not None else (),
    )
    return snapshot, prepared


def _has_ended(task: TaskId, metadata: CheckpointMetadata, before: Plan, plan: Plan) -> bool:
    """Returns whether a task begins at the end of its stream: the task whose state it has ended, or all of them did."""
    vertex = plan.vertex_of[task]
    width, first = before.vertices[vertex].parallelism, before.first_task[vertex]
    if width == plan.vertices[vertex].parallelism:
        return metadata.tasks[first + plan.index_of(task)].final
    return all(entry.final for entry in metadata.tasks[first : first + width])


def _position_of(restored: RestoredState) -> Position:
    return cast(Position, cast(Any, decode_value(restored.snapshot.position))[0])


def _take_splits(state: dict[Any, Any], old: dict[Any, Any], splits: dict[int, int]) -> None:
    """Takes over what a source has counted of the splits that it reads now."""
    state.update({key: value for key, value in old.items() if key in splits})


def _take(state: dict[Any, Any], old: dict[Any, Any], place: tuple[int, int] | None) -> None:
    """Takes over what a task has of the state of an earlier one; ``place``: its index and width, None for all."""
    for key, value in old.items():
        if key == WAITING:
            _take_waiting(state, value, place)
        elif isinstance(key, tuple):
            rows = [row for row in value if place is None or task_of(row[0] % KEYS, place[1]) == place[0]]
            if rows:
                state[key] = [*state.get(key, []), *rows]
        elif place is None or task_of(key, place[1]) == place[0]:
            assert key not in state, f"two tasks have the state of key {key}"
            state[key] = value


def _take_waiting(state: dict[Any, Any], rows: list[Any], place: tuple[int, int] | None) -> None:
    """Takes over the rows that wait for a flush. Without their keys they stay with their task."""
    assert place is None or not rows, f"{len(rows)} rows wait at the barrier of a change of widths"
    state[WAITING] = rows


def task_of(key: int, width: int) -> int:
    """Returns the index of the task that has a key."""
    return task_of_group(key_group(encode_key(key), 128), width, 128)
