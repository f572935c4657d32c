"""Where the oracle of logs expects that channels are truncated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, TaskEntry
from clonos.core.checkpoint.plan_shape import PlanShape
from clonos.core.checkpoint.snapshot import SNAPSHOT_FORMAT, encode_snapshot
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.ports.task_snapshot import Snapshot
from clonos_chaos.checks.log_watch import LogWatch


def snapshot(checkpoint: int, previous: int | None, sent: int, is_final: bool) -> bytes:
    return encode_snapshot(
        Snapshot(
            SNAPSHOT_FORMAT,
            TaskId(0),
            Incarnation(1),
            CheckpointId(checkpoint),
            None if previous is None else CheckpointId(previous),
            (),
            ((ChannelId(0), sent),),
            (),
            0,
            0,
            is_final,
            b"",
            b"",
        )
    )


def test_a_task_truncates_by_its_snapshot_of_the_checkpoint_and_not_by_a_later_final_one() -> None:
    """A coordinator that begins anew may complete checkpoint 3 with final states, which tasks number 4."""
    store = {"3": (snapshot(3, None, 23, False),), "4": (snapshot(4, 3, 63, True),)}
    world = SimpleNamespace(store=store, clock=SimpleNamespace(now_ns=0), fail=lambda text: None)
    watch = LogWatch(cast(Any, world))
    objects = ("3", "4")
    entry = TaskEntry(TaskId(0), Incarnation(1), CheckpointId(4), objects, 0, True, ())
    watch.completed(
        CheckpointMetadata(1, "job", "job", 1, 1, CheckpointId(3), CheckpointId(3), (entry,), PlanShape(1, (), ()))
    )
    assert watch.positions[CheckpointId(3)] == {ChannelId(0): 23}
