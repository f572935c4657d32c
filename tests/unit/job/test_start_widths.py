"""Numbers of tasks with which a job starts, as a user gives them."""

from __future__ import annotations

import pytest

from clonos.connectors import sqlite, stdout, values
from clonos.core.checkpoint.plan_shape import shape_of
from clonos.core.model.options import Options
from clonos.job import Job
from clonos.job.continuing.start_widths import WidthMalformed, WidthsRefused, at_widths, widths_of
from clonos.job.description import graph_of
from clonos.operators.job_image import JobImage


def _image(name: str = "double") -> JobImage:
    job = Job("numbers")
    numbers = job.source(values(range(10)), name="read", parallelism=2)
    doubled = numbers.map(lambda n: 2 * n, name=name).rebalance()
    halves = doubled.map(lambda n: n / 2, name="halve", parallelism=2)
    halves.key_by(lambda n: n % 3).count(name="total", parallelism=2).sink(stdout(), name="show")
    return graph_of(job).compile(Options(), parallelism=2)


def _widths(image: JobImage) -> dict[str, int]:
    return {
        node.step: image.plan.vertices[number].parallelism
        for number, v in enumerate(image.vertices)
        for node in v.nodes
    }


@pytest.mark.parametrize(
    "asked", [("read=4", "total=3"), ("read=4,total=3",), (" read=4, total=3 ,",), ("read=4", "double=4", "total=3")]
)
def test_numbers_of_tasks_are_given_one_by_one_or_with_commas(asked: tuple[str, ...]) -> None:
    found = _widths(at_widths(_image(), asked, None))
    assert (found["read"], found["double"], found["halve"], found["total"]) == (4, 4, 2, 3)


@pytest.mark.parametrize("asked", [("read=4,double=3",), ("read=4", "double=3")])
def test_two_numbers_for_steps_in_one_task_are_refused_with_both_steps(asked: tuple[str, ...]) -> None:
    reason = '"read" cannot have 4 tasks and "double" 3: they run in the same tasks'
    with pytest.raises(WidthsRefused, match=reason):
        at_widths(_image(), asked, None)


def test_two_numbers_for_steps_whose_tasks_are_connected_one_to_one_are_refused_with_both_steps() -> None:
    image = _connected()
    reason = '"read" cannot have 4 tasks and "to-call" 3: their tasks are connected one to one'
    with pytest.raises(WidthsRefused, match=reason):
        at_widths(image, ("read=4", "to-call=3"), None)
    assert set(_widths(at_widths(image, ("read=4", "to-call=4"), None)).values()) == {4}


def test_two_numbers_for_one_step_are_refused() -> None:
    with pytest.raises(WidthsRefused, match='"read" cannot have 4 tasks and 3'):
        at_widths(_image(), ("read=4", "read=3"), None)


@pytest.mark.parametrize(("asked", "part"), [("read=4,total", "total"), ("read=4,total=x", "total=x"), ("=3", "=3")])
def test_a_text_without_a_number_is_quoted_alone(asked: str, part: str) -> None:
    with pytest.raises(WidthMalformed) as refused:
        at_widths(_image(), (asked,), None)
    assert str(refused.value).startswith(f"{part!r} gives no step one number of tasks: STEP=TASKS is expected")


def test_two_numbers_of_one_step_in_a_command_are_refused() -> None:
    assert widths_of(["count=4,sum=2", "count=4"]) == {"count": 4, "sum": 2}
    with pytest.raises(WidthMalformed, match="'count=4,count=5' gives no step one number of tasks"):
        widths_of(["count=4", "count=5"])


def test_the_log_names_the_option_also_when_it_gives_the_number_of_the_code(caplog: pytest.LogCaptureFixture) -> None:
    stored = shape_of(at_widths(_image(), ("read=1",), None).plan)
    assert "read-double runs in 1 task, as --width says (the code says 2)" in caplog.text
    at_widths(_image(), ("read=2",), stored)
    assert "read-double runs in 2 tasks, as --width says (it ran in 1)" in caplog.text


def test_the_log_names_a_change_of_the_running_job_also_when_it_gives_the_number_of_the_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stored = shape_of(at_widths(_image(), ("total=4",), None).plan)
    at_widths(_image(), (), stored, {"total": 2})
    assert "total runs in 2 tasks, as a change of the running job says (it ran in 4)" in caplog.text
    at_widths(_image(), (), stored, {"total": 3})
    assert "total runs in 3 tasks, as a change of the running job says (the code says 2)" in caplog.text
    at_widths(_image(), (), stored)
    assert "total runs in 4 tasks, as it did before (the code says 2)" in caplog.text


def _connected() -> JobImage:
    job = Job("connected")
    numbers = job.source(values(range(10)), name="read")
    for name in ("first", "call"):
        numbers.map(lambda n: {"n": n}, name=name).sink(sqlite(":memory:", name, ["n"]), name=f"to-{name}")
    return graph_of(job).compile(Options(), parallelism=2)
