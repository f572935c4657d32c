"""Single-step mode: a task announces each element before it processes it, so that its death names the element."""

from __future__ import annotations

from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.model.options import Options
from clonos.core.ports.task_port import Delivered
from clonos.core.task.step_size import SINGLE_STEP_ELEMENTS_MAX, SINGLE_STEP_NS_MAX, StepSize
from tests.harnesses.task_harness import ScriptedTask, Start, barrier, rows
from tests.unit.core.task.test_task_replay import work
from tests.unit.core.task.test_task_steps import sent, source, union


def announced(life: ScriptedTask) -> list[str]:
    return [event for event in life.events if event.startswith("approaches")]


def everywhere(checkpoint: int) -> list[Delivered]:
    return [sent(channel, barrier(checkpoint)) for channel in range(3)]


def test_a_single_step_task_announces_each_element_until_the_second_barrier_after_one() -> None:
    life = union(
        sent(1, rows("a", "b")),
        *everywhere(1),
        sent(2, rows("c")),
        *everywhere(2),
        sent(1, rows("d", "e")),
        start=Start(is_single_step=True),
    ).run()
    assert announced(life) == ["approaches 0 of 1", "approaches 1 of 1", "approaches 1 of 2"]
    assert life.story == ["a", "b", "b1", "c", "b2", "d", "e"]


def test_barriers_before_any_element_do_not_end_single_step_mode() -> None:
    life = union(*everywhere(1), *everywhere(2), sent(1, rows("a", "b")), start=Start(is_single_step=True)).run()
    assert announced(life) == ["approaches 2 of 1", "approaches 3 of 1"]


def test_a_single_step_source_announces_the_number_of_its_next_record() -> None:
    life = source(start=Start(is_single_step=True), records=3).run()
    assert announced(life) == ["approaches 0 of None", "approaches 1 of None", "approaches 2 of None"]


def test_a_task_outside_single_step_mode_announces_nothing() -> None:
    assert announced(union(sent(1, rows("a", "b"))).run()) == []


def test_single_step_mode_ends_after_thousands_of_single_elements() -> None:
    life = ScriptedTask(work(), 1)
    size = StepSize(Options(), life, is_single_step=True, single_step_ns_max=1 << 60)
    for number in range(SINGLE_STEP_ELEMENTS_MAX + 100):
        size.announce_step(None, number)
    assert len(announced(life)) == SINGLE_STEP_ELEMENTS_MAX
    assert size.limit(UNLIMITED, 100) > 1


def test_single_step_mode_ends_after_a_second_of_single_elements() -> None:
    life = source(start=Start(is_single_step=True), records=SINGLE_STEP_ELEMENTS_MAX).run()
    # Each reading advances its clock by about 1 ms, and each element reads it a few times.
    assert SINGLE_STEP_NS_MAX / 20_000_000 < len(announced(life)) < SINGLE_STEP_NS_MAX / 500_000
    assert life.task.is_final


def test_a_step_takes_at_least_one_element_however_much_it_costs() -> None:
    life = ScriptedTask(work(), 1)
    size = StepSize(Options(step_cost_us=1), life, is_single_step=False)
    size.measure(1, size.begin() - 10**12)  # an element that took 1,000 s
    assert size.limit(UNLIMITED, 100) == 1
