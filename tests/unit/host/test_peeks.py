"""Looks of the driver: which slots are asked, and which answers count."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import SlotId, TaskId
from clonos.core.values import encode_rows
from clonos.core.wire.control_messages import Peek, Peeked
from clonos_standby.driver.peeks import Peeks
from tests.harnesses.coordinator_harness import CoordinatorHarness, formed

TASKS = [TaskId(2), TaskId(3)]


class Slots:
    """Slots that answer at once with given rows."""

    def __init__(self, *answers: bytes) -> None:
        self.coordinator: Coordinator = formed().coordinator
        self.asked: list[tuple[SlotId, Peek]] = []
        self.answers = list(answers)
        self.peeks = Peeks(lambda question: question(self.coordinator), self.answer, lambda: True)

    def answer(self, slot: SlotId, asked: Peek) -> None:
        self.asked.append((slot, asked))
        if self.answers:
            self.peeks.on_peeked(slot, Peeked(asked.task, asked.number, self.answers.pop(0)))

    def look(self, rows_max: int = 5) -> list[Any]:
        return self.peeks.look("double", TASKS, rows_max, 30.0)


def test_the_slot_of_each_task_is_asked_and_their_rows_are_returned() -> None:
    slots = Slots(encode_rows([1, 2]), encode_rows([3]))
    assert slots.look() == [1, 2, 3]
    assert slots.coordinator.view is not None
    placements = slots.coordinator.view.placements
    assert [(slot, asked.task, asked.step, asked.rows_max) for slot, asked in slots.asked] == [
        (placements[task].slot, task, "double", 5) for task in TASKS
    ]


def test_a_look_has_at_most_the_newest_rows_that_were_asked_for() -> None:
    assert Slots(encode_rows([1, 2]), encode_rows([3])).look(rows_max=2) == [2, 3]
    assert Slots(encode_rows([1]), encode_rows([3, 4])).look(rows_max=2) == [3, 4]


def test_a_look_ends_with_the_job_and_takes_no_later_answer() -> None:
    slots = Slots(encode_rows([1]))
    assert slots.look() == [1]
    slots.peeks.on_peeked(SlotId(7), Peeked(TASKS[0], 1, encode_rows([2])))
    slots.answers = [encode_rows([3]), encode_rows([4])]
    assert slots.look() == [3, 4]


def test_a_request_is_repeated_for_the_tasks_that_have_not_answered() -> None:
    slots = Slots()
    later = iter([None, encode_rows([1]), None, encode_rows([2])])

    def answer(slot: SlotId, asked: Peek) -> None:
        slots.asked.append((slot, asked))
        for _ in range(2):  # a repeated answer does not count
            if asked.task == TASKS[1] and (rows := next(later, None)) is not None:
                slots.peeks.on_peeked(slot, Peeked(asked.task, asked.number, rows))
        if len(slots.asked) == 3:
            slots.peeks.on_peeked(slot, Peeked(asked.task, asked.number, encode_rows([3])))

    slots.peeks = Peeks(lambda question: question(slots.coordinator), answer, lambda: False)
    assert slots.look() == [1, 3]
    assert [asked.task for _, asked in slots.asked] == [*TASKS, TASKS[0]]


def test_a_job_without_a_view_is_asked_until_it_has_one() -> None:
    slots = Slots(encode_rows([1]), encode_rows([2]))
    begun = iter([CoordinatorHarness().coordinator])
    slots.peeks = Peeks(lambda question: question(next(begun, slots.coordinator)), slots.answer, lambda: False)
    assert slots.look() == [1, 2]


def test_rows_that_cannot_be_read_are_malformed() -> None:
    with pytest.raises(MessageMalformed, match=r"slot .* rows that cannot be read"):
        Slots(b"\xff\xff").look()
