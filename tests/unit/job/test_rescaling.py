"""Requests for other widths from several threads: each caller learns what became of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_events import Event, OutputCommitted, RescaleRequested, StopRequested
from clonos.core.coordinator.rescale_machine import Steady
from clonos.core.model.ids import CheckpointId
from clonos.job.rescaling import RequestedWidths, RescaleEnded, RescaleRefused
from clonos.status import REQUESTS_PER_DRIVER
from tests.harnesses.coordinator_harness import CoordinatorHarness, live_chain
from tests.speed import scaled

LIMIT_S = scaled(10.0)
CUT = CheckpointId(2)
FIRST = REQUESTS_PER_DRIVER + 1


class DriverOfHarness:
    """Driver whose coordinator is that of a harness."""

    def __init__(self) -> None:
        self.harness = live_chain()
        self.harness.complete(1)
        self.harness.do(OutputCommitted(CheckpointId(1)))
        self.lock, self.is_asked, self.result = threading.Lock(), threading.Event(), Future[Any]()

    def ask(self, question: Callable[[Coordinator], Any]) -> Any:
        """The answer of the coordinator."""
        with self.lock:
            return question(self.harness.coordinator)

    def post(self, event: Event) -> None:
        """Lets the coordinator handle an event."""
        with self.lock:
            self.harness.do(event)
            self.is_asked.set()


def _change(meanwhile: Callable[[CoordinatorHarness], None]) -> Any:
    """Requests one task of the step "map", and lets things happen before its caller sees any of them."""
    driver = DriverOfHarness()
    plan = driver.harness.coordinator.plan
    vertices = [SimpleNamespace(name=v.name, nodes=(SimpleNamespace(step=v.name),)) for v in plan.vertices]
    image: Any = SimpleNamespace(plan=plan, vertices=vertices, splits={})
    requested: Any = driver
    with ThreadPoolExecutor(1) as pool:
        changed = pool.submit(RequestedWidths(image, requested).change, {"map": 1}, LIMIT_S)
        assert driver.is_asked.wait(LIMIT_S)
        with driver.lock:
            while not driver.harness.view.cut:
                driver.harness.tick(100)
            meanwhile(driver.harness)
            if driver.harness.coordinator.phase == "running":
                driver.harness.do(RescaleRequested(FIRST + 1, ()))
                assert driver.harness.coordinator.rescale.request == FIRST + 1
            else:
                driver.result.set_result(None)
        return changed.result()


def test_the_caller_of_a_change_that_was_given_up_learns_it_although_another_one_has_begun() -> None:
    def give_up(harness: CoordinatorHarness) -> None:
        harness.gone(harness.of(0).hosting_slot)

    with pytest.raises(RescaleRefused, match="source/0 has failed"):
        _change(give_up)


def test_the_caller_of_a_change_that_is_done_does_not_wait_for_another_one() -> None:
    def complete(harness: CoordinatorHarness) -> None:
        harness.tick(300)
        harness.acknowledge(CUT)
        harness.durable(CUT)
        harness.tick(300)
        assert harness.coordinator.rescale == Steady(FIRST)

    assert _change(complete).widths == {"source": 2, "map": 1, "sink": 2}


@pytest.mark.parametrize(("is_cut", "sentence"), [(True, "its last checkpoint has the change"), (False, "not changed")])
def test_the_caller_of_a_change_learns_of_a_job_that_has_ended_whether_its_checkpoint_has_the_change(
    is_cut: bool, sentence: str
) -> None:
    def end(harness: CoordinatorHarness) -> None:
        harness.divides = False
        harness.tick(300)
        if is_cut:
            harness.acknowledge(CUT)
            harness.durable(CUT)
        harness.do(StopRequested(drain=False))

    with pytest.raises(RescaleEnded, match=f"has ended: .*{sentence}"):
        _change(end)
