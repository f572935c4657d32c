"""Live rescale on child processes: a running job gets other widths, and nothing is lost, repeated or contradicted."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from clonos.core.model.progress import TaskPhase
from clonos.core.scaling.functions import ScalingEvent
from clonos.io.system.process_identity import started_at
from clonos.job.handle import Handle
from clonos.job.job_options import StartOptions
from clonos.job.rescaling import RequestedWidths, RescaleRefused
from tests.processes.jobs.test_width_changes import LIMIT_S, SPLITS, Columns, Flow, States, wait_until

pytestmark = pytest.mark.processes


def all_rows(records: int) -> list[int]:
    """The numbers that all splits have."""
    return list(range(records * SPLITS))


def expected(flow: States, records: int) -> dict[str, list[Any]]:
    """What a run of fixed width shows."""
    flow.gate.end(records)
    with flow.job().start() as handle:
        handle.wait(LIMIT_S)
    return flow.written()


@pytest.mark.parametrize("kind", [States, Columns])
def test_the_output_over_live_changes_of_widths_equals_that_of_a_run_without(
    tmp_path: Path, kind: type[States]
) -> None:
    flow, pids = kind(tmp_path / "live"), set[int]()
    with flow.job().start() as handle:
        for place, width in enumerate((4, 2, 3), 1):
            flow.gate.open_to(place * 40)
            done = handle.rescale(seen=width, timeout=LIMIT_S)
            assert done.widths["seen"] == width
            assert done.checkpoint > 0
            status = handle.status()
            assert sum(task.name.startswith("seen") for task in status.tasks) == width
            assert len(status.slots) == len(status.tasks)
            pids |= {slot.pid for slot in status.slots}
            unneeded = pids - {slot.pid for slot in status.slots}
            wait_until(lambda: not any(map(started_at, unneeded)))  # noqa: B023 waits here
        flow.gate.end(160)
        handle.wait(LIMIT_S)
    assert flow.written() == expected(kind(tmp_path / "fixed"), 160)


SHORT: Final[StartOptions] = {"scale_window": "200ms", "scale_down_after": "200ms"}


def test_the_output_of_a_job_that_scales_itself_equals_that_of_a_run_of_fixed_width(tmp_path: Path) -> None:
    needed, events = {"seen": 2}, list[ScalingEvent]()
    flow = States(tmp_path / "live")
    job = flow.job(scale={"seen": (1, 4)}, scale_policy=lambda _sample: needed, on_scale=events.append, **SHORT)
    with job.start() as handle:
        for place, width in enumerate((4, 3), 1):
            flow.gate.open_to(place * 40)
            needed["seen"] = width
            wait_until(partial(_has_width, handle, width))
            assert sum(task.name.startswith("seen") for task in handle.status().tasks) == width
        flow.gate.end(120)
        handle.wait(LIMIT_S)
    assert [(each.tasks_before, each.tasks_wanted, each.outcome.value) for each in events] == [
        (2, 4, "changed"),
        (4, 3, "changed"),
    ]
    assert flow.written() == expected(States(tmp_path / "fixed"), 120)


def test_a_job_whose_change_is_refused_reports_the_reason_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RequestedWidths, "change", _refuse)
    sentence = "asks for 3, but the change was not made: no slot came"
    flow = Flow(tmp_path / "flow")
    flow.gate.open_to(40)
    job = flow.job(scale={"number": (1, 4)}, scale_policy=lambda _sample: {"number": 3}, **SHORT)
    with job.start() as handle:
        wait_until(lambda: any(sentence in each.text for each in handle.status().scaling))
        flow.gate.end(80)
        handle.wait(LIMIT_S)
    assert flow.files() == all_rows(80)


def test_rows_of_sinks_come_once_over_live_changes_of_the_tasks_of_sources_and_sinks(tmp_path: Path) -> None:
    """In between, the source has more tasks than splits, so that one of them ends."""
    flow = Flow(tmp_path / "flow")
    with flow.job().start() as handle:
        for place, (sources, sinks) in enumerate(((1, 4), (4, 2), (2, 4)), 1):
            flow.gate.open_to(place * 40)
            _wait_for_rows(flow, (place - 1) * 40 * SPLITS)
            done = handle.rescale({"number": sinks, "table": sinks}, read=sources, timeout=LIMIT_S)
            assert [done.widths[name] for name in ("read", "number", "copy")] == [sources, sinks, sinks]
        flow.gate.end(160)
        handle.wait(LIMIT_S)
    assert flow.table() == all_rows(160)
    assert flow.files() == all_rows(160)


def test_a_job_that_has_rescaled_itself_resumes_with_its_last_widths(tmp_path: Path) -> None:
    flow = States(tmp_path / "resumed")
    flow.gate.open_to(40)
    with flow.job().start() as handle:
        handle.rescale(seen=4, timeout=LIMIT_S)
        handle.stop()
        handle.wait(LIMIT_S)
    flow.gate.end(80)
    with flow.job().start(resume=True) as handle:
        assert {vertex.name: vertex.parallelism for vertex in handle.plan.vertices}["seen"] == 4
        handle.wait(LIMIT_S)
    assert flow.written() == expected(States(tmp_path / "fixed"), 80)


def test_a_change_that_cannot_be_is_refused_with_its_reason_and_the_job_goes_on(tmp_path: Path) -> None:
    flow = Flow(tmp_path / "flow")
    flow.gate.open_to(40)
    with flow.job().start() as handle:
        assert _refusal(handle, number=200) == '"number" cannot have 200 tasks: 1 to 128 (max_parallelism) are possible'
        assert _refusal(handle, count=2) == 'there is no step "count" among copy, files, number, read, row, table'
        assert handle.rescale(number=2, timeout=LIMIT_S).checkpoint == 0  # it has them
        flow.gate.end(80)
        handle.wait(LIMIT_S)
        assert _refusal(handle, number=4) == "nothing was changed"
    assert flow.files() == all_rows(80)


def _has_width(handle: Handle, width: int) -> bool:
    """Whether the status of the job says that its step has a width."""
    return any(each.width == each.wanted == width for each in handle.status().scaling)


def _refuse(*_: object) -> None:
    raise RescaleRefused("flow", "no slot came")


def test_tasks_that_share_processes_after_losses_are_spread_again_by_a_placement(tmp_path: Path) -> None:
    flow = States(tmp_path / "spread")
    with flow.job(move_tasks=False).start() as handle:
        for place, widths in enumerate(({}, {"seen": 3}), 1):
            flow.gate.open_to(place * 40)
            wait_until(lambda: _is_settled(handle))
            _lose(handle, 3)
            shared = _pids(handle)
            assert len(set(shared.values())) < len(shared)
            done = handle.place_anew(widths, timeout=LIMIT_S)
            spread = _pids(handle)
            assert (done.widths["seen"], done.checkpoint > 0) == (widths.get("seen", 2), True)
            assert len(set(spread.values())) == len(spread) == len(shared) + len(widths)
        flow.gate.end(120)
        handle.wait(LIMIT_S)
    assert flow.written() == expected(States(tmp_path / "fixed"), 120)


def _pids(handle: Handle) -> dict[str, int | None]:
    """The process of each task."""
    return {task.name: task.pid for task in handle.status().tasks}


def _is_settled(handle: Handle) -> bool:
    """Whether all tasks are live, and each has a process, used or not."""
    status = handle.status()
    are_live = bool(status.tasks) and all(task.phase is TaskPhase.LIVE for task in status.tasks)
    return are_live and len(status.slots) >= len(status.tasks)


def _lose(handle: Handle, count: int) -> None:
    """Ends the processes of tasks, one after the other, and waits for the successors and for other processes."""

    def is_over() -> bool:
        return lost not in _pids(handle).values() and _is_settled(handle)

    for name in list(_pids(handle))[:count]:
        lost = _pids(handle)[name]
        assert lost is not None
        os.kill(lost, signal.SIGKILL)
        wait_until(is_over)


def _wait_for_rows(flow: Flow, rows: int) -> None:
    wait_until(lambda: len(flow.table()) > rows)


def _refusal(handle: Handle, **widths: int) -> str:
    with pytest.raises(RescaleRefused) as refused:
        handle.rescale(widths, timeout=LIMIT_S)
    return refused.value.reason
