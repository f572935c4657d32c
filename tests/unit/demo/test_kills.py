"""Kills of the demo: their victims, their waits, and their check of healthy tasks."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from clonos.core.model.progress import TaskPhase
from clonos.demo.demo_report import DemoOutputs, kill_reports
from clonos.demo.demo_verdict import Row
from clonos.demo.kills import Kill, KillKind, Kills, choose, is_live, step_of
from clonos.status import Phase, RecoveryState, Status, TaskState

NAMES = ("read/0", "read/1", "ask/0", "ask/1", "count/0", "count/1")
OVER = {"detected": 5_000_000, "view": 7_000_000, "gathered": 8_000_000, "replayed": 9_000_000, "caught_up": 12_000_000}


def _task(name: str, pid: int, domain: str = "a", incarnation: int = 1) -> TaskState:
    return TaskState(name, incarnation, pid, pid, domain, TaskPhase.LIVE, {}, 1, 1)


def _status(tasks: list[TaskState], checkpoint: int = 1, recoveries: tuple[RecoveryState, ...] = ()) -> Status:
    return Status("job", Phase.RUNNING, checkpoint=checkpoint, tasks=tuple(tasks), recoveries=recoveries)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """One process per task, which ends when its standard input does."""
    program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    started = [subprocess.Popen(program, stdin=subprocess.PIPE) for _ in NAMES]
    yield started
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


@pytest.fixture
def tasks(processes: list[subprocess.Popen[bytes]]) -> list[TaskState]:
    return [_task(name, process.pid) for name, process in zip(NAMES, processes, strict=True)]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (KillKind.MAP, ["ask/0"]),
        (KillKind.WINDOW, ["count/0"]),
        (KillKind.LINKED, ["ask/0", "count/1"]),
        (KillKind.EXECUTOR, ["read/1", "ask/1", "count/0", "count/1"]),
    ],
)
def test_each_kind_of_kill_selects_its_own_victims(kind: KillKind, names: list[str]) -> None:
    domains = dict(zip(NAMES, "abacbb", strict=True)) | {"ask/1": "b"}
    tasks = [_task(name, pid, domains[name]) for pid, name in enumerate(NAMES, 1)]
    assert [task.name for task in choose(kind, tasks)] == names


def test_a_kill_waits_until_checkpoints_completed_without_a_recovery(
    tasks: list[TaskState], processes: list[subprocess.Popen[bytes]]
) -> None:
    kills = Kills([KillKind.MAP])
    assert kills.look(_status([replace(tasks[0], phase=TaskPhase.REPLAYING), *tasks[1:]], checkpoint=1)) is None
    assert kills.look(_status([replace(tasks[0], standbys=0), *tasks[1:]], checkpoint=1)) is None
    assert kills.look(_status(tasks, checkpoint=1)) is None
    assert kills.look(_status(tasks, checkpoint=2)) is None
    reported = kills.look(_status(tasks, checkpoint=3))
    assert reported is not None
    assert reported.startswith("SIGKILL map: ask/0")
    assert processes[2].wait(10) == -signal.SIGKILL
    assert [process.poll() for process in processes if process is not processes[2]] == [None] * 5


def _injected(tasks: list[TaskState]) -> Kills:
    kills = Kills([KillKind.MAP])
    for checkpoint in (1, 2, 3):
        kills.look(_status(tasks, checkpoint))
    return kills


def test_a_kill_has_ended_when_its_task_is_live_and_has_caught_up(tasks: list[TaskState]) -> None:
    kills = _injected(tasks)
    moved = [replace(task, incarnation=2, pid=1) if task.name == "ask/0" else task for task in tasks]
    unfinished = RecoveryState("ask/0", 1, 2, "killed", {"detected": 1})
    assert kills.look(_status(tasks)) is None
    assert kills.look(_status(moved, recoveries=(unfinished,))) is None
    reported = kills.look(_status(moved, recoveries=(replace(unfinished, reached=OVER),)))
    assert reported == "recovered ask/0; 5 healthy tasks kept their processes and incarnations"
    assert (kills.has_ended, kills.disturbed) == (True, [])


def test_a_healthy_task_with_another_process_is_noticed(tasks: list[TaskState]) -> None:
    kills = _injected(tasks)
    moved = [replace(task, incarnation=2) if task.name in ("ask/0", "read/1") else task for task in tasks]
    kills.look(_status(moved))
    assert kills.disturbed == ["read/1"]


def test_a_recovery_that_failed_again_does_not_count_as_unfinished() -> None:
    first = RecoveryState("ask/0", 1, 2, "killed", {"detected": 1})
    assert is_live(_status([_task("ask/0", 1)], recoveries=(first, replace(first, failed_incarnation=2, reached=OVER))))


def test_a_chain_of_steps_is_named_by_its_first_step() -> None:
    assert [step_of(name) for name in ("ask/0", "count -> map/12", "read+flat_map/1")] == ["ask", "count", "read"]


def test_a_report_joins_the_kill_with_its_recovery_and_its_gaps() -> None:
    kill = Kill("ask/0", KillKind.MAP, 1, at_ns=1_000_000)
    recoveries = [RecoveryState("ask/0", 1, 2, "killed", OVER), RecoveryState("ask/1", 1, 2, "other", {})]
    arrivals = [Row("ask/0", 9, {"at_ns": at_ns}) for at_ns in (0, 500_000, 10_500_000, 11_000_000)]
    others = [Row("ask/1", 4_000_000, {"at_ns": 3_000_000})]
    (report,) = kill_reports([kill], recoveries, DemoOutputs.of([], [*arrivals, *others]))
    assert (report.detected_ms, report.promoted_ms, report.replayed_ms, report.caught_up_ms) == (4, 6, 8, 11)
    assert (report.output_gap_ms, report.visible_gap_ms) == (10, 4)


def test_a_kill_without_a_recovery_has_nothing_to_report() -> None:
    (report,) = kill_reports([Kill("count/0", KillKind.WINDOW, 1, 0)], [], DemoOutputs.of([], []))
    assert report.detected_ms is report.caught_up_ms is report.output_gap_ms is None
