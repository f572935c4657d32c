"""Snapshots on the task's side (protocol 5): when they are acknowledged, what a completed checkpoint lets go."""

from __future__ import annotations

from clonos.core.checkpoint.pending_snapshots import Settling
from clonos.core.checkpoint.snapshot import SNAPSHOT_FORMAT, Snapshot
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId

TASK, LIFE = TaskId(2), Incarnation(0x10)


def snapshot(checkpoint: int, previous: int = -1, final: bool = False) -> Snapshot:
    outputs = ((ChannelId(0), checkpoint * 100),)
    return Snapshot(
        SNAPSHOT_FORMAT,
        TASK,
        LIFE,
        CheckpointId(checkpoint),
        CheckpointId(previous),
        (),
        outputs,
        (),
        checkpoint * 10,
        0,
        final,
        b"",
        b"",
    )


def acknowledged(settling: Settling, confirmed_seq: int = 0) -> list[int]:
    return [message.checkpoint for message in settling.acknowledgements(TASK, LIFE, confirmed_seq)]


def test_a_snapshot_is_acknowledged_when_it_is_durable() -> None:
    settling = Settling(())
    name = settling.take(snapshot(1), (), 0)
    assert (name, acknowledged(settling)) == ("snapshots/2/000000000001-10-full", [])
    entry = settling.written(name)
    assert entry is not None
    assert entry.objects == (name,)
    assert acknowledged(settling) == [1]


def test_it_is_acknowledged_again_until_its_checkpoint_is_over() -> None:
    settling = Settling(())
    settling.written(settling.take(snapshot(1), (), 0))
    assert [acknowledged(settling), acknowledged(settling)] == [[1], [1]]
    settling.complete(CheckpointId(1))
    assert acknowledged(settling) == []


def test_a_chain_counts_only_when_all_of_it_is_durable_in_whatever_order_it_is_written() -> None:
    settling = Settling(("base",))
    first = settling.take(snapshot(2, 1), (), 0)
    second = settling.take(snapshot(3, 2), (), 0)
    settling.written(second)
    assert acknowledged(settling) == []
    settling.written(first)
    assert [m.objects for m in settling.acknowledgements(TASK, LIFE, 0)] == [("base", first), ("base", first, second)]


def test_a_full_snapshot_needs_no_earlier_object() -> None:
    settling = Settling(("base",))
    settling.take(snapshot(2, 1), (), 0)
    name = settling.take(snapshot(3), (), 0)
    settling.written(name)
    assert [m.objects for m in settling.acknowledgements(TASK, LIFE, 0)] == [(name,)]


def test_a_sinks_snapshot_counts_when_the_outside_has_confirmed_all_output_before_it() -> None:
    settling = Settling(())
    settling.written(settling.take(snapshot(1), (), 50))
    settling.written(settling.take(snapshot(2, 1), (), 80))
    assert [acknowledged(settling, n) for n in (49, 50, 79, 80)] == [[], [1], [1], [1, 2]]


def test_a_completed_checkpoint_stands_for_earlier_ones_that_never_completed() -> None:
    settling = Settling(())
    for checkpoint in (1, 2, 3):
        settling.written(settling.take(snapshot(checkpoint, checkpoint - 1 or -1), (), 0))
    completed = settling.complete(CheckpointId(2))
    assert completed is not None
    assert completed.outputs == ((0, 200),)
    assert acknowledged(settling) == [3]
    assert settling.complete(CheckpointId(2)) is None


def test_parts_of_transactions_are_named_with_every_later_snapshot_until_they_are_committed() -> None:
    settling = Settling(())
    settling.written(settling.take(snapshot(1), (b"a", b"b"), 0))
    settling.written(settling.take(snapshot(2, 1), (b"c",), 0))
    first, second = settling.acknowledgements(TASK, LIFE, 0)
    assert first.prepared == ((1, b"a"), (1, b"b"))
    assert second.prepared == ((1, b"a"), (1, b"b"), (2, b"c"))
    settling.complete(CheckpointId(1))
    (second,) = settling.acknowledgements(TASK, LIFE, 0)
    assert second.prepared == ((2, b"c"),)


def test_g45_a_final_snapshot_goes_on_counting_for_every_later_checkpoint() -> None:
    settling = Settling(())
    settling.written(settling.take(snapshot(4, final=True), (), 0))
    completed = settling.complete(CheckpointId(6))
    assert completed is not None
    assert completed.outputs == ((0, 400),)
    (message,) = settling.acknowledgements(TASK, LIFE, 0)
    assert (message.final, message.checkpoint) == (True, 4)


def test_the_log_offset_of_the_barrier_is_what_logs_are_truncated_to() -> None:
    settling = Settling(())
    settling.written(settling.take(snapshot(3), (), 0))
    assert [m.log_offset_bytes for m in settling.acknowledgements(TASK, LIFE, 0)] == [30]
