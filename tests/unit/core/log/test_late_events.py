"""Events of threads about an ended incarnation, or about a task that is not hosted here, are ignored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clonos.core.model.ids import ChannelId, Incarnation, TaskId, ThreadId
from clonos.core.ports.slot_effects import TaskRead
from clonos.core.ports.task_failure import failure_of
from clonos.core.ports.task_port import TaskEmission
from clonos.core.slot.slot_events import (
    ElementsNeeded,
    Event,
    JournalMissed,
    JournalWanted,
    LogEndReached,
    ProducerDataRead,
    ProducerFailed,
    ReplicationAwaited,
    SinkConfirmed,
    SinkOpened,
    SinkWriterFenced,
    SnapshotsRead,
    SnapshotWritten,
    StepAnnounced,
    StepEmitted,
    ThreadRaised,
    WholeStateWritten,
)
from tests.harnesses.sample_plans import number
from tests.harnesses.slot_dialogue import SlotDialogue

GONE, SUCCEEDED = (TaskId(1), Incarnation(number(1))), (TaskId(2), Incarnation(number(1)))
"""``b.1``, which lives elsewhere now, and ``c.1``, whose successor lives here."""

THREAD = ThreadId(1)
"""Of ``c.1`` on slot 2: the first that the slot has numbered."""

LATE: dict[str, Callable[[TaskId, Incarnation], Event]] = {
    "emission": lambda task, _: StepEmitted(task, THREAD, TaskEmission(b"")),
    "log end": lambda task, _: LogEndReached(task, THREAD, {}),
    "needs": lambda task, _: ElementsNeeded(task, THREAD, ChannelId(0), 7),
    "await kept": lambda task, _: ReplicationAwaited(task, THREAD, 7),
    "approach": lambda task, _: StepAnnounced(task, THREAD, ChannelId(0), 7),
    "open journal": lambda task, _: JournalWanted(task, THREAD),
    "journal": lambda task, life: ProducerDataRead(task, life, b"x"),
    "producer failed": lambda task, life: ProducerFailed(task, life, "refused"),
    "journal lost": lambda task, _: JournalMissed(task, THREAD),
    "raised": lambda task, life: ThreadRaised(THREAD, failure_of(task, life, ValueError("no"))),
    "sink opened": lambda task, life: SinkOpened(task, life, 7, None),
    "outside fenced": lambda task, life: SinkWriterFenced(task, life, 7, Incarnation(7)),
    "outside confirmed": lambda task, life: SinkConfirmed(task, life, 7),
    "objects read": lambda task, life: SnapshotsRead(TaskRead(task, life), None, "missing"),
    "snapshot written": lambda task, life: SnapshotWritten(_object(task, life), b"x", ""),
    "snapshot not written": lambda task, life: SnapshotWritten(_object(task, life), b"", "full"),
    "whole state written": lambda task, life: WholeStateWritten(_object(task, life)),
}


def _object(task: TaskId, incarnation: Incarnation) -> str:
    return f"snapshots/{task}/000000000001-{incarnation:x}-full"


@pytest.mark.parametrize("life", [GONE, SUCCEEDED], ids=["elsewhere", "succeeded here"])
@pytest.mark.parametrize("event", LATE)
def test_events_of_an_ended_incarnation_are_ignored(event: str, life: tuple[TaskId, Incarnation]) -> None:
    dialogue = SlotDialogue()
    dialogue.run("slot 2")
    dialogue.run("view 1  a 1@1 fresh  b 1@2 fresh  c 1@2 fresh keepers=1")
    dialogue.run("view 2  a 1@1  b 2@3  c 2@2 keepers=1")
    dialogue.shell.lines.clear()
    dialogue.post(LATE[event](*life))
    assert dialogue.shell.lines == []
    sent_at_the_heartbeat = dialogue.run("tick")
    assert sent_at_the_heartbeat == _undisturbed()


def _undisturbed() -> list[str]:
    dialogue = SlotDialogue()
    dialogue.run("slot 2")
    dialogue.run("view 1  a 1@1 fresh  b 1@2 fresh  c 1@2 fresh keepers=1")
    dialogue.run("view 2  a 1@1  b 2@3  c 2@2 keepers=1")
    return dialogue.run("tick")
