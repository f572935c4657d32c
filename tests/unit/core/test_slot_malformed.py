"""A peer that sends what no slot of this job would send costs its connection, not the process."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clonos.core import messages as m
from clonos.core.chain import Kind
from clonos.core.errors import MessageMalformed
from clonos.core.ids import ChannelId, CheckpointId, Incarnation, SlotId, TaskId
from tests.unit.core.plans import number
from tests.unit.core.slot_dialogue import Dialogue

LIFE = Incarnation(number(1))
BATCH = m.Batch(ChannelId(0), LIFE, LIFE, 1, 0, 0, int(Kind.ROWS), 1, CheckpointId(0), ())
POSITION = m.Position(ChannelId(0), LIFE, LIFE, 1, 0, 0, 5, ())
STATEMENT = m.Statement(ChannelId(1), number(1), LIFE, LIFE, 2, 0, 0, 77, ())
QUESTION = m.Question(TaskId(0), LIFE, number(1), TaskId(1), False)


def living_slot() -> Dialogue:
    dialogue = Dialogue()
    dialogue.run("slot 2")
    dialogue.run("view 1  a 1@1 fresh  b 1@2 fresh  c 1@3 fresh")
    dialogue.run("statement b->c")
    return dialogue


def test_what_a_peer_may_say_is_taken() -> None:
    dialogue = living_slot()
    inlets, sending = dialogue.slot.hosted[TaskId(1)].inlets, dialogue.slot.hosted[TaskId(1)].sendings[ChannelId(1)]
    dialogue.slot.on_message(SlotId(1), POSITION)
    assert inlets.backlog == 5
    dialogue.slot.on_message(SlotId(1), msgspec.structs.replace(BATCH, ordinal=1), b"x")
    dialogue.slot.on_message(SlotId(1), STATEMENT)
    assert (sending.session, sending.credit_bytes) == (2, 77)
    dialogue.slot.on_message(SlotId(1), QUESTION)
    assert dialogue.shell.said == ["b.1 <- x (1) on a->b", "slot 1 <- answer to a.1 from b: nothing"]


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (BATCH, {"channel": 3}),
        (BATCH, {"channel": -1}),
        (BATCH, {"kind": 4}),
        (BATCH, {"count": 0}),
        (BATCH, {"kind": int(Kind.BARRIER), "count": 2, "checkpoint": 1}),
        (BATCH, {"kind": int(Kind.BARRIER)}),
        (POSITION, {"channel": 99}),
        (STATEMENT, {"channel": -2}),
        (QUESTION, {"task": 3}),
        (QUESTION, {"task": -1}),
    ],
)
def test_what_names_nothing_of_the_plan_is_malformed_and_names_the_peer(
    message: m.Message, changes: dict[str, Any]
) -> None:
    dialogue = living_slot()
    with pytest.raises(MessageMalformed, match="slot 77"):
        dialogue.slot.on_message(SlotId(77), msgspec.structs.replace(message, **changes), b"")
    assert dialogue.run("tick")[-1].endswith("b.1 replaying")


def test_what_is_for_the_coordinator_is_malformed_in_a_slot() -> None:
    with pytest.raises(MessageMalformed, match="Accusation is not for a slot"):
        living_slot().slot.on_message(SlotId(1), m.Accusation(SlotId(1), SlotId(2), number(1), True))


def test_early_messages_have_a_limit() -> None:
    slot = living_slot().slot
    for n in range(2, 10_050):
        slot.on_message(SlotId(1), msgspec.structs.replace(STATEMENT, view=number(n)))
    assert len(slot._early) == 10_000
