"""A cautious task tells each element before it takes it, so that a process which dies of one names it."""

from __future__ import annotations

import pytest

from clonos.core.ports.task_port import Delivered
from clonos.core.task import step_size
from clonos.core.task.step_size import SINGLE_STEP_ELEMENTS_MAX, SINGLE_STEP_NS_MAX
from tests.harnesses.task_harness import Start, barrier, rows
from tests.unit.core.task.test_task_steps import Scripted, sent, source, union


def approached(life: Scripted) -> list[str]:
    return [event for event in life.events if event.startswith("approaches")]


def everywhere(checkpoint: int) -> list[Delivered]:
    return [sent(channel, barrier(checkpoint)) for channel in range(3)]


def test_a_cautious_task_tells_each_element_before_it_takes_it_until_the_second_barrier_that_follows_one() -> None:
    life = union(
        sent(1, rows("a", "b")),
        *everywhere(1),
        sent(2, rows("c")),
        *everywhere(2),
        sent(1, rows("d", "e")),
        start=Start(is_cautious=True),
    ).run()
    assert approached(life) == ["approaches 0 of 1", "approaches 1 of 1", "approaches 1 of 2"]
    assert life.story == ["a", "b", "b1", "c", "b2", "d", "e"]


def test_barriers_before_any_element_leave_a_task_cautious() -> None:
    life = union(*everywhere(1), *everywhere(2), sent(1, rows("a", "b")), start=Start(is_cautious=True)).run()
    assert approached(life) == ["approaches 2 of 1", "approaches 3 of 1"]


def test_a_cautious_source_tells_which_record_of_its_life_comes_next() -> None:
    life = source(start=Start(is_cautious=True), records=3).run()
    assert approached(life) == ["approaches 0 of None", "approaches 1 of None", "approaches 2 of None"]


def test_a_task_that_is_not_cautious_tells_nothing() -> None:
    assert approached(union(sent(1, rows("a", "b"))).run()) == []


def test_a_task_that_has_survived_thousands_of_elements_one_by_one_is_cautious_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_size, "SINGLE_STEP_NS_MAX", 1 << 60)
    life = source(start=Start(is_cautious=True), records=SINGLE_STEP_ELEMENTS_MAX + 100).run()
    assert len(approached(life)) == SINGLE_STEP_ELEMENTS_MAX
    assert life.task.is_final


def test_a_task_that_has_taken_elements_one_by_one_for_a_second_is_cautious_no_longer() -> None:
    life = source(start=Start(is_cautious=True), records=SINGLE_STEP_ELEMENTS_MAX).run()
    # Its clock goes on by a ms or so whenever it is asked, which each element does a few times.
    assert SINGLE_STEP_NS_MAX / 20_000_000 < len(approached(life)) < SINGLE_STEP_NS_MAX / 500_000
    assert life.task.is_final
