"""Standbys (protocol 5, 6.2, conformance G 33): state at exactly the checkpoint that a view names."""

from __future__ import annotations

import itertools

from clonos.core.checkpoint.snapshot import SNAPSHOT_FORMAT, encode_snapshot, restore_from, standby_payload
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.standby.state_mirror import Standby
from clonos.core.wire.replication_messages import StandbyUpdate

TASK, LIFE = TaskId(2), Incarnation(7)


class Story:
    """A mirror that remembers what was applied to it."""

    def __init__(self) -> None:
        self.applied = b""

    def apply(self, changes: bytes | memoryview) -> None:
        self.applied += changes


def _number(checkpoint: int | None) -> CheckpointId | None:
    return None if checkpoint is None else CheckpointId(checkpoint)


def snapshot(checkpoint: int, previous: int | None = None, final: bool = False, life: int = LIFE) -> Snapshot:
    changes = b"<%d>" % checkpoint
    number, base = CheckpointId(checkpoint), _number(previous)
    return Snapshot(SNAPSHOT_FORMAT, TASK, Incarnation(life), number, base, (), (), (), 0, 0, final, b"", changes)


def update(checkpoint: int, previous: int | None = None, life: int = LIFE) -> tuple[StandbyUpdate, bytes]:
    names = tuple(f"object-{c}" for c in range(1, checkpoint + 1))
    message = StandbyUpdate(TASK, Incarnation(life), CheckpointId(checkpoint), _number(previous), names)
    return message, standby_payload([encode_snapshot(snapshot(checkpoint, previous, life=life))])


def standby(*updates: tuple[StandbyUpdate, bytes]) -> Standby:
    found = Standby(TASK, LIFE, Story)
    for message, data in updates:
        found.hold(message, data)
    return found


def story(found: Standby) -> bytes:
    assert isinstance(found.mirror, Story)
    return found.mirror.applied


CHAIN = (update(1), update(2, 1), update(3, 2))


def test_changes_are_applied_when_their_checkpoint_completes_and_not_before() -> None:
    found = standby(*CHAIN)
    assert (found.checkpoint, found.mirror) == (0, None)
    assert found.complete(CheckpointId(2)) == ()
    assert (found.checkpoint, story(found)) == (2, b"<1><2>")
    assert found.complete(CheckpointId(3)) == ()
    assert story(found) == b"<1><2><3>"


def test_changes_in_any_order_give_the_same_mirror() -> None:
    for order in itertools.permutations(CHAIN):
        found = standby(*order)
        assert [found.complete(CheckpointId(c)) for c in (1, 2, 3)] == [(), (), ()]
        assert story(found) == b"<1><2><3>"


def test_repeated_changes_are_applied_once() -> None:
    found = standby(*CHAIN[:1], *CHAIN, *CHAIN[1:])
    found.complete(CheckpointId(3))
    assert story(found) == b"<1><2><3>"


def test_a_full_snapshot_restarts_the_mirror() -> None:
    found = standby(update(1), update(2, 1), update(3), update(4, 3))
    found.complete(CheckpointId(2))
    found.complete(CheckpointId(4))
    assert story(found) == b"<3><4>"


def test_missing_changes_are_requested_by_the_names_of_the_latest_chain() -> None:
    found = standby(update(1))
    found.complete(CheckpointId(1))
    for message, data in (update(4, 3), update(3, 2)):
        found.hold(message, data)
    assert found.complete(CheckpointId(4)) == ("object-1", "object-2", "object-3", "object-4")
    chain = [snapshot(1), snapshot(2, 1), snapshot(3, 2), snapshot(4, 3)]
    found.adopt(restore_from([("", [encode_snapshot(each)]) for each in chain], Story()))
    assert (found.checkpoint, story(found)) == (4, b"<1><2><3><4>")


def test_changes_too_large_for_a_message_are_fetched_from_the_store() -> None:
    message, _ = update(2, 1)
    found = standby(update(1), (message, standby_payload([])))
    assert found.complete(CheckpointId(2)) == ("object-1", "object-2")
    assert not found.is_at(CheckpointId(2))


def test_a_restored_state_knows_the_length_of_its_chain() -> None:
    found = standby(*CHAIN)
    found.complete(CheckpointId(3))
    assert found.applied is not None
    assert found.applied.chain_length == 3


def test_g33_an_activated_standby_that_missed_the_completion_applies_the_checkpoint_itself() -> None:
    found = standby(*CHAIN)
    found.complete(CheckpointId(1))
    assert not found.is_at(CheckpointId(2))
    assert found.complete(CheckpointId(2)) == ()  # what a slot does when the view names 2
    assert found.is_at(CheckpointId(2))
    assert story(found) == b"<1><2>"  # and not 3


def test_a_standby_without_the_changes_of_the_checkpoint_is_not_ready() -> None:
    found = standby(update(1))
    found.complete(CheckpointId(1))
    assert found.complete(CheckpointId(2)) == ()
    assert not found.is_at(CheckpointId(2))


def test_changes_of_a_dead_incarnation_beyond_the_restored_checkpoint_are_dropped() -> None:
    found = standby(*CHAIN)
    found.complete(CheckpointId(1))
    found.apply_view(Incarnation(9), CheckpointId(2))
    found.hold(*update(4, 3))  # late, of the dead one
    found.hold(*update(5, 2, life=9))
    assert found.complete(CheckpointId(5)) == ()
    assert story(found) == b"<1><2><5>"


def test_every_later_checkpoint_restores_a_final_state() -> None:
    found = Standby(TASK, LIFE, Story)
    message, _ = update(3)
    found.hold(message, standby_payload([encode_snapshot(snapshot(3, final=True))]))
    found.complete(CheckpointId(6))
    assert found.is_at(CheckpointId(6))
    assert not found.is_at(CheckpointId(2))


def test_a_malformed_snapshot_update_is_fetched_from_the_store() -> None:
    found = standby(update(1), (update(2, 1)[0], b"no snapshot"))
    assert found.complete(CheckpointId(1)) == ()
    assert found.complete(CheckpointId(2)) == ("object-1", "object-2")
    assert (found.checkpoint, found.mirror) == (0, None)
