"""Fuzz jobs whose widths change: the state of their steps is keyed, so that it divides by the group of the key.

Every edge is by key, so a record's key decides at each width which task has its state. The count of a key goes on
through all tasks that it moves to.
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
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.values import decode_value, encode_value
from clonos.core.values.key_encoding import encode_key
from clonos.core.values.keys import key_group, task_of_group
from clonos_chaos.jobs.fuzz_chain import KEYS, FuzzMirror
from clonos_chaos.jobs.fuzz_jobs import FuzzJob

SCALABLE = ("a", "b")
"""Steps whose width changes."""


class KeyedJob(FuzzJob):
    """Source, two keyed steps and sinks, of random widths."""

    is_keyed = True

    def __init__(self, topology: str, rng: Random, records: int, sharing_depth: int | None) -> None:
        super().__init__(topology, rng, 4 * records, sharing_depth, _build)


def _build(job: FuzzJob) -> None:
    previous = job.vertex("source", job.rng.choice((1, 2)), (0,))
    for name in SCALABLE:
        vertex = job.vertex(name, job.rng.choice((1, 2, 3)), (0,))
        job.connect(previous, vertex, Partitioning.HASH)
        previous = vertex
    job.connect(previous, job.sink(job.rng.choice((1, 2))), Partitioning.HASH)
    job.vertices[0] = replace(job.vertices[0], has_effects=job.works[0].effects)


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
        entries.append(TaskEntry(task, snapshot.incarnation, metadata.checkpoint, (name,), 0, False, prepared))
    return structs.replace(metadata, tasks=tuple(entries), plan=shape_of(plan))


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
    for number, each in zip(old, found, strict=True):
        if each is not None and not (is_same_width and number != same):
            _take(state, cast(FuzzMirror, each.mirror).state, None if is_same_width else (index, width))
    position = cast(Any, decode_value(head.position))[0] if head is not None else 0
    external = {channel.id for channel in before.outputs[same] if channel.receiver is None} if same is not None else ()
    written = sum(number for channel, number in head.outputs if channel in external) if head is not None else 0
    prepared = tuple(part for number in old for part in metadata.tasks[number].prepared) if index == 0 else ()
    snapshot = Snapshot(
        format=SNAPSHOT_FORMAT,
        task=task,
        incarnation=Incarnation(max(entry.incarnation for entry in metadata.tasks)),
        checkpoint=metadata.checkpoint,
        previous=None,
        inputs=tuple((channel.id, 0) for channel in plan.inputs[task]),
        outputs=tuple((channel.id, written if channel.receiver is None else 0) for channel in plan.outputs[task]),
        ended=(),
        log_offset_bytes=0,
        instant_ns=max((each.snapshot.instant_ns for each in found if each is not None), default=0),
        final=False,
        position=encode_value((position, 0, {})),
        changes=encode_value((state, [])),
        records_in=head.records_in if head is not None else 0,
        calls=head.calls if head is not None else (),
    )
    return snapshot, prepared


def _take(state: dict[Any, Any], old: dict[Any, Any], place: tuple[int, int] | None) -> None:
    """Takes over what a task has of the state of an earlier one; ``place``: its index and width, None for all."""
    for key, value in old.items():
        if isinstance(key, tuple):
            rows = [row for row in value if place is None or task_of(row[0] % KEYS, place[1]) == place[0]]
            if rows:
                state[key] = [*state.get(key, []), *rows]
        elif place is None or task_of(key, place[1]) == place[0]:
            assert key not in state, f"two tasks have the state of key {key}"
            state[key] = value


def task_of(key: int, width: int) -> int:
    """Returns the index of the task that has a key."""
    return task_of_group(key_group(encode_key(key), 128), width, 128)
