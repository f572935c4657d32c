"""A task's process is killed with SIGKILL, again and again, while words flow at a given rate: how long is who silent.

Of a killed counting task the first new row outside counts, of a killed source the first mark of a line that was due
after the kill. Each task of the other side of the key space, or the other source, tells whom the kill disturbed.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import paced, plots, words
from benchmarks.comparing import Session
from benchmarks.latency import percentile
from benchmarks.ledger import Entry
from benchmarks.paced import Pace
from clonos.demo.kills import is_live
from clonos.job import Handle
from clonos.status import RecoveryState, Status, TaskState

KILLS: Final = 12
KILLS_QUICK: Final = 3
CALM_CHECKPOINTS: Final = 2
"""Completed from when the job is whole again to the next kill, which then comes anywhere in an epoch."""

SECONDS_A_KILL: Final = 4.5
SECONDS_MAX: Final = 150.0
LOOK_EVERY_S: Final = 0.02
LAST_NS: Final = 1_000_000_000
"""A kill so shortly before the input's end does not count: little is due behind it."""

UNIT: Final = "ms behind it"
MILESTONES: Final = ("detected", "view", "gathered", "replayed", "caught_up")
"""Of a recovery; with the log gathered, a standby has been promoted."""

NORMAL_MS: Final = 50.0
"""A latency is back to normal when no mark takes longer than this and twice the median before the kill."""

MARKS_PER_S: Final = 500
PEERS_WORDS_PER_S: Final = 20_000
"""2,000 lines a second: a record of the peers is a line."""


@dataclass(frozen=True, slots=True)
class Kill:
    """``at_ns``: monotonic, just before the signal. ``tasks``: whose processes were ended."""

    tasks: tuple[str, ...]
    at_ns: int
    wall_ns: int
    incarnations: tuple[int, ...]


@dataclass
class Found:
    """What a series of kills did, in ms, one entry a kill."""

    output_ms: list[float] = field(default_factory=list)
    normal_ms: list[float] = field(default_factory=list)
    others_ms: list[float] = field(default_factory=list)
    milestones_ms: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MILESTONES})


@dataclass(frozen=True, slots=True)
class Case:
    """``victims``: steps of which one task each is killed. ``goals``: first output p50 and p99, back to normal."""

    name: str
    victims: tuple[str, ...]
    is_half_load: bool
    goals: tuple[str, str, str]
    options: tuple[tuple[str, Any], ...] = ()


HALF_GOALS: Final = ("<= 200", "<= 400", "<= 1000")
CASES: Final = (
    Case("counting task, 2,000 lines/s", ("count",), False, ("<= 40", "<= 150", "<= 1000")),
    Case("counting task, half load", ("count",), True, HALF_GOALS),
    Case("source task, half load", ("lines",), True, HALF_GOALS),
    Case("linked tasks, half load", ("lines", "count"), True, ("", "", "<= 1500")),
    Case("counting task without standby", ("count",), False, ("<= 2000", "", ""), (("standbys", 0),)),
)


def run(session: Session) -> None:
    """Each case."""
    kills = KILLS_QUICK if session.is_quick else KILLS
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        folder = Path(name)
        words.prepare(folder)
        session.say("the maximal load")
        maximal = paced.maximal_words_per_s(folder, 2e6 if session.is_quick else 6e6)
        session.figure("fail-over, maximal load", maximal, "words/s")
        for case in CASES[: 2 if session.is_quick else None]:
            rate = maximal / 2 if case.is_half_load else PEERS_WORDS_PER_S
            session.say(f"{case.name}: {kills} kills at {rate:,.0f} words/s")
            seconds = min(SECONDS_MAX, kills * SECONDS_A_KILL + 4)
            pace = paced.at_rate(Pace(name, 1, 1, 1), rate, seconds, MARKS_PER_S)
            _tell(session, case, *_killed(folder, pace, case, kills))


def _killed(folder: Path, pace: Pace, case: Case, kills: int) -> tuple[Pace, list[Kill], Mapping[Any, Any], Status]:
    """Runs the job, kills, waits for its end."""
    paced.begin_anew(folder)
    options = {**paced.OPTIONS, "spare_slots": len(case.victims) + 1, **dict(case.options)}
    done: list[Kill] = []
    recoveries: dict[tuple[str, int], RecoveryState] = {}
    with paced.paced_job(pace).start(store=str(folder / "store"), overwrite=True, **options) as handle:
        while len(done) < kills and _is_calm(handle, options["standbys"], recoveries):
            time.sleep(len(done) / kills)
            done.append(_strike(handle.status(), case.victims))
            while not _is_replaced(handle.status(), done[-1]):
                time.sleep(LOOK_EVERY_S)
        result = handle.wait()
    _note(recoveries, result.status)
    return pace, done, recoveries, result.status


def _is_calm(handle: Handle, standbys: int, recoveries: dict[tuple[str, int], RecoveryState]) -> bool:
    """Waits until every task lives, its standby could take over, and some checkpoints are complete since.

    Two deaths of a task within an epoch would be taken for the work of a record. False: the input has ended before.
    """
    calm_from = -1
    while True:
        status = handle.status()
        _note(recoveries, status)
        if status.phase == "ended" or any(task.phase == "final" for task in status.tasks):
            return False
        if not is_live(status) or any(task.standbys < standbys for task in status.tasks):
            calm_from = -1
        elif calm_from < 0:
            calm_from = status.checkpoint
        elif status.checkpoint >= calm_from + CALM_CHECKPOINTS:
            return True
        time.sleep(LOOK_EVERY_S)


def _note(recoveries: dict[tuple[str, int], RecoveryState], status: Status) -> None:
    recoveries.update({(one.task, one.failed_incarnation): one for one in status.recoveries})


def _strike(status: Status, steps: tuple[str, ...]) -> Kill:
    struck = [_victim(status, step) for step in steps]
    at_ns, wall_ns = time.monotonic_ns(), time.time_ns()
    for pid in {task.pid for task in struck}:
        os.kill(pid, signal.SIGKILL)
    return Kill(tuple(t.name for t in struck), at_ns, wall_ns, tuple(t.incarnation for t in struck))


def _victim(status: Status, step: str) -> TaskState:
    """A task of the step, if possible one that has its process for itself."""
    pids = Counter(task.pid for task in status.tasks)
    return min((task for task in status.tasks if task.name.startswith(step)), key=lambda task: pids[task.pid])


def _is_replaced(status: Status, kill: Kill) -> bool:
    now = {task.name: task.incarnation for task in status.tasks}
    return all(now[name] > before for name, before in zip(kill.tasks, kill.incarnations, strict=True))


def _tell(
    session: Session, case: Case, pace: Pace, kills: list[Kill], recoveries: Mapping[Any, Any], status: Status
) -> None:
    outside = paced.written(pace, status)
    end_ns = pace.begun_ns() + round(pace.lines / pace.lines_per_s * 1e9)
    kills = [kill for kill in kills if kill.at_ns < end_ns - LAST_NS]
    found = _found(pace, kills, recoveries, outside)
    session.figure(f"{case.name}: kills", len(kills), "")
    output_p50, output_p99, normal = case.goals
    for name, values in found.milestones_ms.items():
        if values:
            goal = "<= 40" if name == "gathered" and dict(case.options).get("standbys", 1) else ""
            session.figure(f"{case.name}: {name.replace('_', ' ')} p50", percentile(values, 50), UNIT, goal)
    for name, values, share, goal in (
        ("first new output", found.output_ms, 50, output_p50),
        ("first new output", found.output_ms, 99, output_p99),
        ("back to normal", found.normal_ms, 50, normal),
        ("silence of others beyond before", found.others_ms, 50, "<= 50"),
        ("silence of others beyond before", found.others_ms, 99, ""),
    ):
        if values:
            session.figure(f"{case.name}: {name} p{share}", percentile(values, share), UNIT, goal)
    if case.is_half_load:
        file = session.results / f"failover-{case.name.split(',')[0].replace(' ', '-')}.png"
        begun_ns = pace.begun_ns()
        rates = {task: _rates(of_task, begun_ns) for task, of_task in outside.items()}
        instants = [(kill.at_ns - begun_ns) / 1e9 for kill in kills]
        plots.lines(file, rates, f"{case.name}: words outside", ("s", "words/s"), instants=instants)


def _found(
    pace: Pace, kills: list[Kill], recoveries: Mapping[Any, RecoveryState], outside: dict[str, list[Entry]]
) -> Found:
    found = Found()
    outputs = {task: [entry.at_ns for entry in of_task] for task, of_task in outside.items()}
    marks = sorted(
        (entry.at_ns, reader, pace.due_ns(number))
        for of_task in outside.values()
        for entry in of_task
        for reader, number in entry.marks
    )
    for kill in kills:
        is_source = kill.tasks[0] not in outside
        reader = int(kill.tasks[0].rpartition("/")[2])
        if is_source:
            mine = [at_ns for at_ns, of, due_ns in marks if of == reader and due_ns > kill.at_ns]
            others = [at_ns for at_ns, of, _ in marks if of != reader]
            found.output_ms.append((min(mine) - kill.at_ns) / 1e6)
        else:
            mine = outputs[kill.tasks[0]]
            others = next(of_task for task, of_task in outputs.items() if task != kill.tasks[0])
            found.output_ms.append((mine[bisect_right(mine, kill.at_ns)] - kill.at_ns) / 1e6)
        if len(kill.tasks) == 1:
            found.others_ms.append(_silence_ms(others, kill.at_ns, kill.at_ns + 10**9))
            found.others_ms[-1] -= _silence_ms(others, kill.at_ns - 10**9, kill.at_ns)
        found.normal_ms.append(_back_to_normal_ms(marks, kill.at_ns))
        recovery = recoveries.get((kill.tasks[0], kill.incarnations[0]))
        for name, values in found.milestones_ms.items():
            if recovery is not None and name in recovery.reached:
                values.append((recovery.reached[name] - kill.wall_ns) / 1e6)
    return found


def _silence_ms(instants_ns: list[int], from_ns: int, until_ns: int) -> float:
    """The longest pause that touches a span."""
    pauses = [b - a for a, b in itertools.pairwise(sorted(instants_ns)) if b > from_ns and a < until_ns]
    return max(pauses, default=0) / 1e6


def _back_to_normal_ms(marks: list[tuple[int, int, int]], kill_ns: int) -> float:
    """When the last mark came that had taken unusually long, of those due in the seconds behind the kill."""
    before = [(at - due) / 1e6 for at, _, due in marks if kill_ns - 10**9 < due < kill_ns - 10**8]
    usual_ms = max(NORMAL_MS, 2 * statistics.median(before)) if before else NORMAL_MS
    late = [at for at, _, due in marks if kill_ns < due < kill_ns + 2 * 10**9 and (at - due) / 1e6 > usual_ms]
    return (max(late, default=kill_ns) - kill_ns) / 1e6


def _rates(of_task: list[Entry], begun_ns: int, span_s: float = 0.05) -> list[tuple[float, float]]:
    """Words a second in spans of time."""
    spans: dict[int, int] = {}
    for entry in of_task:
        span = int((entry.at_ns - begun_ns) / 1e9 / span_s)
        spans[span] = spans.get(span, 0) + entry.rows
    return [(span * span_s, spans.get(span, 0) / span_s) for span in range(max(spans) + 1)]
