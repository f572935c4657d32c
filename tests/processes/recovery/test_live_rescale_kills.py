"""Processes die while a job gets other widths: it has the old ones or the new ones, and its output is that of a run
without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from clonos.connectors import files
from clonos.job.handle import Handle
from clonos.job.rescaling import Rescaled, RescaleRefused
from clonos.job.stored_state import StateLocation
from clonos.status import RescalePhase
from clonos_chaos.real.fault_point_server import Breakpoint, FaultPointServer
from tests.processes.jobs.test_width_changes import LIMIT_S, States, wait_until

pytestmark = pytest.mark.processes

RECORDS = 80
PROGRAM = """
import sys
from pathlib import Path
from tests.processes.jobs.test_width_changes import States, wait_until

flow = States(Path(sys.argv[1]))
flow.gate.open_to(int(sys.argv[3]))
with flow.job(fault_points=sys.argv[2]).start(checkpoint_every="1h") as handle:
    wait_until((flow.folder / "go").exists)
    handle.rescale(seen=4)
    handle.wait()
"""


def has_output(flow: States) -> bool:
    """Whether a first checkpoint has committed output, so that the next one is the cut."""
    return len(flow.table()) == RECORDS // 2 * 3 and bool(list(files.read_committed(flow.folder / "joined")))


def width_of(handle: Handle) -> int:
    """How many tasks the step with state has."""
    return next(vertex.parallelism for vertex in handle.plan.vertices if vertex.name == "seen")


def pid_of(handle: Handle, task: str) -> int:
    """The process of a task."""
    return next(each.pid for each in handle.status().tasks if each.name == task)


def is_at_the_cut(handle: Handle) -> bool:
    """Whether a change of widths has got as far as its checkpoint."""
    rescale = handle.status().rescale
    return rescale is not None and rescale.phase in (RescalePhase.CUTTING, RescalePhase.SWITCHING)


@contextmanager
def changing(
    flow: States, point: str, task: str, where: Callable[[Handle], bool]
) -> Iterator[tuple[Handle, Breakpoint, Future[Rescaled]]]:
    """A job that has read half of its input, and the change of its widths that comes to a point. It ends with the
    block, after all of its input."""
    flow.gate.open_to(RECORDS // 2)
    with (
        FaultPointServer() as server,
        ThreadPoolExecutor(1) as asker,
        flow.job(fault_points=server.address, heartbeat="50ms").start(checkpoint_every="1h") as handle,
    ):
        wait_until(lambda: has_output(flow))
        held = server.set_breakpoint(point, task, where=lambda _: where(handle))
        yield handle, held, asker.submit(handle.rescale, seen=4, timeout=LIMIT_S)
        flow.gate.end(RECORDS)
        handle.wait(LIMIT_S)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[object]]:
    """What a run of fixed width shows."""
    flow = States(tmp_path_factory.mktemp("fixed") / "flow")
    flow.gate.end(RECORDS)
    with flow.job().start() as handle:
        handle.wait(LIMIT_S)
    return flow.written()


@pytest.mark.parametrize(
    ("point", "task", "is_given_up"),
    [
        ("aligned", "seen/0", True),
        ("metadata begun", "", False),
        ("metadata written", "", False),
        ("division begun", "", False),
        ("divided", "", False),
        ("start", "seen/3", False),
    ],
)
def test_the_death_of_a_process_gives_a_change_up_before_its_checkpoint_and_never_after(
    tmp_path: Path, expected: dict[str, list[object]], point: str, task: str, is_given_up: bool
) -> None:
    flow = States(tmp_path / "flow")
    with changing(flow, point, task, is_at_the_cut) as (handle, held, asked):
        hit = held.wait(LIMIT_S)
        os.kill(hit.pid if task else pid_of(handle, "seen/1"), signal.SIGKILL)
        held.release()
        if is_given_up:
            with pytest.raises(RescaleRefused, match="has failed"):
                asked.result(LIMIT_S)
            assert width_of(handle) == 2
            handle.rescale(seen=4, timeout=LIMIT_S)  # and again
        else:
            assert asked.result(LIMIT_S).widths["seen"] == 4
    assert flow.written() == expected


@pytest.mark.parametrize("task", ["seen/0", "seen/3"])
def test_the_death_of_a_process_that_reads_ahead_delays_a_change_and_does_not_give_it_up(
    tmp_path: Path, expected: dict[str, list[object]], task: str
) -> None:
    flow = States(tmp_path / "flow")
    with changing(flow, "read ahead", task, lambda _: True) as (_, held, asked):
        held.kill(LIMIT_S)
        assert asked.result(LIMIT_S).widths["seen"] == 4
    assert flow.written() == expected


@pytest.mark.parametrize(
    ("point", "widths", "width"),
    [
        ("read ahead", (), 2),
        ("metadata begun", (), 2),
        ("metadata written", (), None),  # of the cut, or of a checkpoint before it
        ("metadata written", ("seen=2",), 2),
        ("divided", (), 4),
        ("divided", ("seen=3",), 3),
    ],
)
def test_the_start_after_the_death_of_the_driver_has_the_widths_of_the_last_checkpoint_or_those_asked_for(
    tmp_path: Path, expected: dict[str, list[object]], point: str, widths: tuple[str, ...], width: int | None
) -> None:
    flow = States(tmp_path / "flow")
    flow.gate.open_to(RECORDS // 2)
    with FaultPointServer() as server:
        arguments = [sys.executable, "-c", PROGRAM, str(flow.folder), server.address, str(RECORDS // 2)]
        with subprocess.Popen(arguments, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}) as driver:
            wait_until(lambda: has_output(flow))
            held = server.set_breakpoint(point)
            (flow.folder / "go").touch()
            if point == "read ahead":  # a slot reads, and the driver dies
                held.wait(LIMIT_S)
                driver.kill()
                held.release()
            else:
                held.kill(LIMIT_S)
            driver.wait(LIMIT_S)
    flow.gate.end(RECORDS)
    stored = dict(StateLocation(str(flow.folder / "store"), None).metadata.widths).get("seen", 2)
    with flow.job().start(resume=True, widths=widths) as handle:
        assert width_of(handle) == (width or stored)
        handle.wait(LIMIT_S)
    assert flow.written() == expected
