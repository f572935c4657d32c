"""Moments: a fault waits for calm; at a fault point it lays a trap, and strikes who is caught."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clonos.core.model.errors import JobError
from clonos.core.model.progress import TaskPhase
from clonos.io.process.fault_points import FaultPoint, FaultPoints
from clonos.status import Phase, SlotState, Status, TaskState
from clonos_chaos.real.fault_point_server import FaultPointServer
from clonos_chaos.real.fault_triggers import PATIENCE_S, FaultTriggers, Look, PlannedFault
from clonos_chaos.scenario.scenario import FaultKind, FaultSpec, FaultTrigger
from clonos_chaos.scenario.victims import Shape
from tests.speed import scaled

LIMIT_S = scaled(20.0)
SHAPE = Shape(("ask/0", "merge/0"), (("ask/0", "merge/0"),))


def _look(
    now_s: float, *, standbys: int = 1, killed: dict[str, int] | None = None, records: int = 0, is_spread: bool = False
) -> Look:
    tasks = tuple(
        TaskState(name, 1, 7 + number * is_spread, os.getpid(), "", TaskPhase.LIVE, {}, standbys, 1)
        for number, name in enumerate(SHAPE.tasks)
    )
    status = Status("job", Phase.RUNNING, slots=(SlotState(7, os.getpid(), "", ""),), tasks=tasks)
    return Look(now_s, 1.0, status, SHAPE, 1, (), killed or {}, is_disturbed=False, records=records)


def _planned(trigger: FaultTrigger, **keys: Any) -> PlannedFault:
    return PlannedFault.of(FaultSpec(FaultKind.KILL_WORKER, trigger, **keys))


def test_a_fault_waits_for_its_trigger_then_for_a_quiescent_job_with_a_time_limit() -> None:
    triggers, planned = FaultTriggers(None), _planned(FaultTrigger(seconds=2))
    assert not triggers.is_due(planned, _look(2.5))
    assert not triggers.is_due(planned, _look(3.5, standbys=0))
    assert triggers.is_due(planned, _look(3.6))
    assert triggers.is_due(planned, _look(3.6 + PATIENCE_S, standbys=0))
    assert not triggers.is_due(planned, _look(3.6, killed={"ask/0": 1}))


def test_a_fault_that_needs_no_quiescent_job_is_injected_at_once() -> None:
    assert FaultTriggers(None).is_due(
        _planned(FaultTrigger(records=5), quiescent=False), _look(1.5, standbys=0, records=5)
    )


def test_a_fault_that_waits_for_all_processes_needs_the_usual_number_of_slots_and_a_slot_for_each_task() -> None:
    triggers, planned = FaultTriggers(None), _planned(FaultTrigger(seconds=2), all_slots=True)
    assert not triggers.is_due(planned, replace(_look(2.5, is_spread=True), slots_usual=2))
    assert not triggers.is_due(planned, replace(_look(3.5, is_spread=True), slots_usual=2))
    assert not triggers.is_due(planned, replace(_look(3.5), slots_usual=1)), "two tasks share a slot"
    assert triggers.is_due(planned, replace(_look(3.5, is_spread=True), slots_usual=1))


def _has_breakpoint(planned: PlannedFault) -> bool:
    return planned.breakpoint is not None


def _waits(points: FaultPoints, point: str, task: str) -> Callable[[], bool]:
    thread = threading.Thread(target=points.reach, args=(point, task), daemon=True)
    thread.start()

    def is_over() -> bool:
        thread.join(LIMIT_S)
        return not thread.is_alive()

    return is_over


@pytest.mark.parametrize("task", ["merge/0", ""], ids=["a task's own point", "a point of its whole slot"])
def test_a_process_that_reaches_a_fault_point_is_held_and_becomes_the_victim(task: str) -> None:
    with FaultPointServer() as fault_point_server:
        triggers, planned, points = (
            FaultTriggers(fault_point_server),
            _planned(FaultTrigger(point="emission"), victim="merge"),
            FaultPoints(fault_point_server.address),
        )
        assert not triggers.is_due(planned, _look(2.0, standbys=0))
        assert not _has_breakpoint(planned), "a trap is laid in calm only"
        assert not triggers.is_due(planned, _look(2.1))
        assert _waits(points, "emission", "ask/0")()
        is_over = _waits(points, "emission", task)
        assert planned.breakpoint is not None
        planned.breakpoint.wait(LIMIT_S)
        assert triggers.is_due(planned, _look(2.2, standbys=0))
        assert planned.victim == "merge/0"
        planned.breakpoint.release()
        assert is_over()


def test_a_fault_point_of_simulated_worlds_only_is_refused() -> None:
    with pytest.raises(JobError, match=r"'barrier sent' can be reached in the simulated world only.*emission"):
        _planned(FaultTrigger(point="barrier sent"))


def test_a_slow_point_delays_the_named_processes_until_it_ends() -> None:
    with FaultPointServer() as fault_point_server:
        points = FaultPoints(fault_point_server.address)
        fault_point_server.slow(["spilling"], [os.getpid()], LIMIT_S)
        held = threading.Thread(target=points.reach, args=("spilling",), daemon=True)
        held.start()
        points.reach(FaultPoint.EMISSION)
        assert held.is_alive()
        fault_point_server.slow(["spilling"], [], 0.0)
        points.reach(FaultPoint.SPILLING)
    held.join(LIMIT_S)
    assert not held.is_alive()
