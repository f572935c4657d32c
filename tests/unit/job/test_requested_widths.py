"""Requests for other widths of a running job, and the answers to them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, cast

import pytest

from clonos.connectors import stdout, values
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_events import Event
from clonos.core.model.options import Options
from clonos.job import Job
from clonos.job.description import graph_of
from clonos.job.rescaling import RequestedWidths, RescaleRefused
from clonos.operators.job_image import JobImage
from clonos_standby.driver.driver import Driver

LIMIT_S = 60


class FakeDriver:
    """A driver whose job has not begun."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.result: Future[object] = Future()
        self.posted: list[Event] = []

    def ask(self, question: Callable[[Coordinator], Any]) -> Any:
        return question(self.coordinator)

    def post(self, event: Event) -> None:
        self.posted.append(event)


def _image() -> JobImage:
    job = Job("numbers")
    numbers = job.source(values(range(10)), name="read", parallelism=2)
    numbers.key_by(lambda n: n % 3).count(name="total", parallelism=2).sink(stdout(), name="show")
    return graph_of(job).compile(Options(), parallelism=2)


def _requested(image: JobImage, driver: FakeDriver) -> RequestedWidths:
    return RequestedWidths(image, cast(Driver, driver))


def test_a_time_limit_that_passes_before_the_tasks_run_reports_that_nothing_was_requested() -> None:
    image = _image()
    driver = FakeDriver(Coordinator(image.plan, Options()))
    with pytest.raises(TimeoutError, match=r"do not run yet.* nothing was requested"):
        _requested(image, driver).change({"total": 3}, 0)
    assert not driver.posted


def test_a_request_with_a_time_limit_waits_for_no_other_that_waits_for_the_tasks() -> None:
    image = _image()
    driver = FakeDriver(Coordinator(image.plan, Options()))
    requested = _requested(image, driver)
    refused: list[RescaleRefused] = []

    def wait_without_limit() -> None:
        with pytest.raises(RescaleRefused) as caught:
            requested.change({"total": 3}, None)
        refused.append(caught.value)

    waiting = Thread(target=wait_without_limit, daemon=True)
    waiting.start()
    ended: list[type[BaseException]] = []

    def wait_with_limit() -> None:
        with pytest.raises(TimeoutError) as caught:
            requested.change({"total": 3}, 0)
        ended.append(caught.type)

    other = Thread(target=wait_with_limit, daemon=True)
    other.start()
    other.join(LIMIT_S)
    assert ended == [TimeoutError]
    driver.result.set_result(None)
    waiting.join(LIMIT_S)
    assert [str(each) for each in refused] == ["job numbers has ended: nothing was changed."]


@pytest.mark.parametrize("given", ["count=5", ["total=3"], 3, b"total"])
def test_widths_that_are_no_dict_are_refused_with_the_expected_form(given: Any) -> None:
    image = _image()
    requested = _requested(image, FakeDriver(Coordinator(image.plan, Options())))
    with pytest.raises(RescaleRefused, match=r'given as rescale\(count=4\) or rescale\(\{"count": 4\}\), and not as'):
        requested.named(given, {})


def test_a_step_with_two_numbers_of_tasks_is_refused() -> None:
    image = _image()
    requested = _requested(image, FakeDriver(Coordinator(image.plan, Options())))
    assert requested.named({"total": 3, "read": 2}, {"total": 3}) == {"total": 3, "read": 2}
    with pytest.raises(RescaleRefused, match='"total" cannot have 3 tasks and 4'):
        requested.named({"total": 3}, {"total": 4})
