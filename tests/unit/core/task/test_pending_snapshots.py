"""Snapshots on the task's side (protocol 5): when they are acknowledged, and what a completed checkpoint truncates."""

from __future__ import annotations

from clonos.core.checkpoint.pending_snapshots import PendingSnapshots
from clonos.core.checkpoint.snapshot import SNAPSHOT_FORMAT
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.ports.task_snapshot import Snapshot

TASK, LIFE = TaskId(2), Incarnation(0x10)


def snapshot(checkpoint: int, previous: int | None = None, final: bool = False) -> Snapshot:
    outputs = ((ChannelId(0), checkpoint * 100),)
    return Snapshot(
        SNAPSHOT_FORMAT,
        TASK,
        LIFE,
        CheckpointId(checkpoint),
        None if previous is None else CheckpointId(previous),
        (),
        outputs,
        (),
        checkpoint * 10,
        0,
        final,
        b"",
        b"",
    )


def acknowledged(pending: PendingSnapshots, confirmed_seq: int = 0) -> list[int]:
    return [message.checkpoint for message in pending.acknowledgements(TASK, LIFE, confirmed_seq)]


def test_a_snapshot_is_acknowledged_when_it_is_durable() -> None:
    pending = PendingSnapshots(())
    name = pending.take(snapshot(1), (), 0)
    assert (name, acknowledged(pending)) == ("snapshots/2/000000000001-10-full", [])
    entry = pending.written(name)
    assert entry is not None
    assert entry.objects == (name,)
    assert acknowledged(pending) == [1]


def test_a_snapshot_is_acknowledged_repeatedly_until_its_checkpoint_has_ended() -> None:
    pending = PendingSnapshots(())
    pending.written(pending.take(snapshot(1), (), 0))
    assert [acknowledged(pending), acknowledged(pending)] == [[1], [1]]
    pending.complete(CheckpointId(1))
    assert acknowledged(pending) == []


def test_a_chain_of_snapshots_counts_only_when_every_object_is_durable() -> None:
    pending = PendingSnapshots(("base",))
    first = pending.take(snapshot(2, 1), (), 0)
    second = pending.take(snapshot(3, 2), (), 0)
    pending.written(second)
    assert acknowledged(pending) == []
    pending.written(first)
    assert [m.objects for m in pending.acknowledgements(TASK, LIFE, 0)] == [("base", first), ("base", first, second)]


def test_a_full_snapshot_needs_no_earlier_object() -> None:
    pending = PendingSnapshots(("base",))
    pending.take(snapshot(2, 1), (), 0)
    name = pending.take(snapshot(3), (), 0)
    pending.written(name)
    assert [m.objects for m in pending.acknowledgements(TASK, LIFE, 0)] == [(name,)]


def test_a_sinks_snapshot_counts_when_the_external_system_confirmed_all_earlier_output() -> None:
    pending = PendingSnapshots(())
    pending.written(pending.take(snapshot(1), (), 50))
    pending.written(pending.take(snapshot(2, 1), (), 80))
    assert [acknowledged(pending, n) for n in (49, 50, 79, 80)] == [[], [1], [1], [1, 2]]


def test_a_completed_checkpoint_subsumes_earlier_ones_that_never_completed() -> None:
    pending = PendingSnapshots(())
    for checkpoint in (1, 2, 3):
        pending.written(pending.take(snapshot(checkpoint, checkpoint - 1 or None), (), 0))
    completed = pending.complete(CheckpointId(2))
    assert completed is not None
    assert completed.outputs == ((0, 200),)
    assert acknowledged(pending) == [3]
    assert pending.complete(CheckpointId(2)) is None


def test_parts_of_transactions_are_named_with_every_later_snapshot_until_they_are_committed() -> None:
    pending = PendingSnapshots(())
    pending.written(pending.take(snapshot(1), (b"a", b"b"), 0))
    pending.written(pending.take(snapshot(2, 1), (b"c",), 0))
    first, second = pending.acknowledgements(TASK, LIFE, 0)
    assert first.prepared == ((1, b"a"), (1, b"b"))
    assert second.prepared == ((1, b"a"), (1, b"b"), (2, b"c"))
    pending.complete(CheckpointId(1))
    (second,) = pending.acknowledgements(TASK, LIFE, 0)
    assert second.prepared == ((2, b"c"),)


def test_g45_a_final_snapshot_counts_for_every_later_checkpoint() -> None:
    pending = PendingSnapshots(())
    pending.written(pending.take(snapshot(4, final=True), (), 0))
    completed = pending.complete(CheckpointId(6))
    assert completed is not None
    assert completed.outputs == ((0, 400),)
    (message,) = pending.acknowledgements(TASK, LIFE, 0)
    assert (message.final, message.checkpoint) == (True, 4)


def test_logs_are_truncated_to_the_log_offset_of_the_barrier() -> None:
    pending = PendingSnapshots(())
    pending.written(pending.take(snapshot(3), (), 0))
    assert [m.log_offset_bytes for m in pending.acknowledgements(TASK, LIFE, 0)] == [30]


def test_a_snapshot_names_the_digests_of_all_objects_of_its_chain() -> None:
    pending = PendingSnapshots(("restored.0",))
    first = pending.take(snapshot(1, 0), (), 0)
    second = pending.take(snapshot(2, 1), (), 0)
    entry = pending.written(first, f"{first}.1")
    assert entry is not None
    assert entry.update.objects == ("restored.0", f"{first}.1")
    pending.written(second, f"{second}.2")
    chains = [each.objects for each in pending.acknowledgements(TaskId(0), Incarnation(1), 0)]
    assert chains == [("restored.0", f"{first}.1"), ("restored.0", f"{first}.1", f"{second}.2")]
