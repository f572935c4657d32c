"""Events of threads about an ended incarnation, or about a task that is not hosted here, are ignored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clonos.core.model.ids import ChannelId, Incarnation, TaskId, ThreadId
from clonos.core.ports.slot_shell import TaskRead
from clonos.core.ports.task_failure import failure_of
from clonos.core.ports.task_port import Emission
from clonos.core.slot.slot import Slot
from tests.harnesses.sample_plans import number
from tests.harnesses.slot_dialogue import Dialogue

GONE, SUCCEEDED = (TaskId(1), Incarnation(number(1))), (TaskId(2), Incarnation(number(1)))
"""``b.1``, which lives elsewhere now, and ``c.1``, whose successor lives here."""

THREAD = ThreadId(1)
"""Of ``c.1`` on slot 2: the first that the slot has numbered."""

Tell = Callable[[Slot, TaskId, Incarnation], None]
LATE: dict[str, Tell] = {
    "emission": lambda slot, task, _: slot.on_emission(task, THREAD, Emission(b"")),
    "log end": lambda slot, task, _: slot.on_log_end(task, THREAD, {}),
    "needs": lambda slot, task, _: slot.on_needs(task, THREAD, ChannelId(0), 7),
    "await kept": lambda slot, task, _: slot.on_await_replicated(task, THREAD, 7),
    "approach": lambda slot, task, _: slot.on_announce_step(task, THREAD, ChannelId(0), 7),
    "open journal": lambda slot, task, _: slot.on_open_journal(task, THREAD),
    "journal": lambda slot, *life: slot.on_journal(*life, b"x"),
    "producer failed": lambda slot, *life: slot.on_producer_failed(*life, "refused"),
    "journal lost": lambda slot, task, _: slot.on_journal_lost(task, THREAD),
    "raised": lambda slot, task, life: slot.on_raised(THREAD, failure_of(task, life, ValueError("no"))),
    "outside opened": lambda slot, *life: slot.on_outside_opened(*life, 7, None),
    "outside fenced": lambda slot, *life: slot.on_outside_fenced(*life, 7, 7),
    "outside confirmed": lambda slot, *life: slot.on_outside_confirmed(*life, 7),
    "objects read": lambda slot, task, life: slot.on_objects_read(TaskRead(task, life), None, "missing"),
    "snapshot written": lambda slot, task, life: slot.on_snapshot_written(_object(task, life), b"x", ""),
    "snapshot not written": lambda slot, task, life: slot.on_snapshot_written(_object(task, life), b"", "full"),
    "whole state written": lambda slot, task, life: slot.on_whole_written(_object(task, life)),
}


def _object(task: TaskId, incarnation: Incarnation) -> str:
    return f"snapshots/{task}/000000000001-{incarnation:x}-full"


@pytest.mark.parametrize("life", [GONE, SUCCEEDED], ids=["elsewhere", "succeeded here"])
@pytest.mark.parametrize("event", LATE)
def test_events_of_an_ended_incarnation_are_ignored(event: str, life: tuple[TaskId, Incarnation]) -> None:
    dialogue = Dialogue()
    dialogue.run("slot 2")
    dialogue.run("view 1  a 1@1 fresh  b 1@2 fresh  c 1@2 fresh keepers=1")
    dialogue.run("view 2  a 1@1  b 2@3  c 2@2 keepers=1")
    dialogue.shell.said.clear()
    LATE[event](dialogue.slot, *life)
    assert dialogue.shell.said == []
    said_at_the_heartbeat = dialogue.run("tick")
    assert said_at_the_heartbeat == _undisturbed()


def _undisturbed() -> list[str]:
    dialogue = Dialogue()
    dialogue.run("slot 2")
    dialogue.run("view 1  a 1@1 fresh  b 1@2 fresh  c 1@2 fresh keepers=1")
    dialogue.run("view 2  a 1@1  b 2@3  c 2@2 keepers=1")
    return dialogue.run("tick")
