"""Benchmark: fail-over times. Processes of tasks are killed repeatedly with SIGKILL while words flow at a given rate.

For a killed counting task, the first new output row counts; for a killed source, the first mark of a line that was due
after the kill. Tasks of other keys, or the other source, show whether the kill disturbed them. ``--kills N`` sets the
kills of each case; goals are for a hundred. ``--cases NAME,...`` selects cases.
"""

from __future__ import annotations

import itertools
import re
import shutil
import statistics
import tempfile
import traceback
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import plots
from benchmarks.harness.ab_session import Session
from benchmarks.harness.kill_loop import Kill, KillLoop
from benchmarks.harness.timestamp_sink import Entry
from benchmarks.measures.latency import percentile
from benchmarks.workloads import column_failover, failover_jobs, paced, words
from benchmarks.workloads.failover_cases import TITLES
from benchmarks.workloads.paced import Pace
from clonos.status import RecoveryState, Status

KILLS: Final = 3
KILLS_QUICK: Final = 2
EPOCHS_A_KILL: Final = 5.5
WATCHED_S_MAX: Final = 4
"""Time after a kill in which latency is measured: two epochs, which end before the next kill."""

LAST_NS: Final = 1_000_000_000
"""A kill in this time before the end of the input does not count: little output is due after it."""

UNIT: Final = "ms after it"
MILESTONES: Final = ("detected", "view", "gathered", "replayed", "caught_up")
"""Milestones of a recovery; once the log is gathered, a standby has been promoted."""

NORMAL_MS: Final = 50.0
SPAN_NS: Final = 50_000_000
"""Latency is back to normal when the median of each span is below ``NORMAL_MS`` or twice the median before the
kill."""

MARKS_PER_S: Final = 500
PEERS_WORDS_PER_S: Final = 20_000
"""2,000 lines a second: a record of the peers is a line."""

AROUND_S: Final = (-1.0, 3.0)
"""Time around a kill, in plots."""


@dataclass
class Found:
    """Times of a series of kills in ms, with an entry per kill."""

    output_ms: list[float] = field(default_factory=list)
    normal_ms: list[float] = field(default_factory=list)
    others_ms: list[float] = field(default_factory=list)
    milestones_ms: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MILESTONES})


@dataclass(frozen=True, slots=True)
class Case:
    """Case of the benchmark. ``name``: of ``TITLES``. ``victims``: steps of which one task each is killed. ``half_of``:
    job whose maximal load is halved; None: the peers' load. ``goals``: first output p50 and p99, back to normal.
    ``fill_s``: time to fill the state."""

    name: str
    victims: tuple[str, ...]
    half_of: failover_jobs.Build | None
    goals: tuple[str, str, str]
    options: tuple[tuple[str, Any], ...] = ()
    job: failover_jobs.Build = failover_jobs.plain
    is_executor: bool = False
    fill_s: float = 0.0
    is_quick: bool = False
    pace: type[Pace] = Pace

    @property
    def title(self) -> str:
        """Returns what figures are called."""
        return TITLES[self.name]

    @property
    def standbys(self) -> int:
        """Returns the number of standbys of each task."""
        return int(dict(self.options).get("standbys", 1))

    @property
    def epoch_s(self) -> int:
        """Returns the time between checkpoints."""
        return int(str(dict(self.options).get("checkpoint_every", "1s")).removesuffix("s"))

    @property
    def is_on_spark(self) -> bool:
        """Returns whether the job runs on Spark."""
        return dict(self.options).get("slots") == "spark"


PEERS_GOALS: Final = ("<= 40", "<= 150", "<= 1000")
HALF_GOALS: Final = ("<= 200", "<= 400", "<= 1000")
NO_STANDBY: Final = ("standbys", 0)
ON_SPARK: Final = ("slots", "spark")
EPOCHS_OF_5_S: Final = ("checkpoint_every", "5s")
THREE_KEEPERS: Final = (("keepers", 3),)
"""Keepers of the sink's log: more than can be among the killed processes."""

RATIOS: Final = {
    "500 MB of state to 1 MB": ("count-500mb", "count"),
    "a million keys in columns to few": ("columns-1m", "columns"),
}
CASES: Final = (
    Case("count", ("count",), None, PEERS_GOALS, is_quick=True),
    Case("count-half", ("count",), failover_jobs.plain, HALF_GOALS, is_quick=True),
    Case(
        "count-half-5s",
        ("count",),
        failover_jobs.plain,
        ("", "", "<= 3000"),
        (EPOCHS_OF_5_S,),
    ),
    Case("hot", ("count",), None, PEERS_GOALS, job=failover_jobs.hot),
    Case("hot-half", ("count",), failover_jobs.plain, PEERS_GOALS, job=failover_jobs.hot),
    Case("hot-own-half", ("count",), failover_jobs.hot, PEERS_GOALS, job=failover_jobs.hot),
    Case("source-half", ("lines",), failover_jobs.plain, HALF_GOALS),
    Case("linked-half", ("lines", "count"), failover_jobs.plain, ("", "", "<= 1500"), (("keepers", 2),)),
    Case(
        "linked-three",
        ("count", "pass", "lines"),
        None,
        ("", "", "<= 1500"),
        THREE_KEEPERS,
        failover_jobs.linked,
    ),
    Case("count-no-standby", ("count",), None, ("<= 2000", "", ""), (NO_STANDBY,)),
    Case("count-500mb", ("count",), None, PEERS_GOALS, (), failover_jobs.large, fill_s=30.0),
    Case("columns", ("count",), None, PEERS_GOALS, (), column_failover.column_job, pace=column_failover.FewKeys),
    Case(
        "columns-1m",
        ("count",),
        None,
        PEERS_GOALS,
        (),
        column_failover.column_job,
        fill_s=10.0,
        pace=column_failover.ManyKeys,
    ),
    Case("worker", ("count",), None, PEERS_GOALS, (ON_SPARK,)),
    Case("executor", ("count",), None, ("<= 300", "", "<= 1000"), (ON_SPARK,), is_executor=True, fill_s=5.0),
    Case("executor-no-standby", ("count",), None, ("<= 8000", "", ""), (ON_SPARK, NO_STANDBY), is_executor=True),
)


def selected(session: Session) -> list[Case]:
    """Returns the cases that are asked for, in their own order; without any, all, or in a short run the quick ones."""
    if session.cases:
        return [case for case in CASES if case.name in session.cases]
    return [case for case in CASES if case.is_quick or not session.is_quick]


def run(session: Session) -> None:
    """Measures each case; a failed case does not stop the others."""
    kills = session.kills or (KILLS_QUICK if session.is_quick else KILLS)
    outputs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        folder = Path(name)
        words.prepare(folder)
        cases = selected(session)
        maxima = {}
        for build in dict.fromkeys(case.half_of for case in cases if case.half_of is not None):
            session.progress(f"the maximal load of the {build.__name__} job")
            maxima[build] = paced.maximal_words_per_s(folder, 2e6 if session.is_quick else 6e6, build)
            session.figure(f"fail-over, maximal load of the {build.__name__} job", maxima[build], "words/s")
        for case in cases:
            if case.is_on_spark and (reason := _why_no_spark()):
                session.leave_out(case.title, reason)
                continue
            rate = PEERS_WORDS_PER_S if case.half_of is None else maxima[case.half_of] / 2
            session.progress(f"{case.title}: {kills} kills at {rate:,.0f} words/s")
            seconds = kills * EPOCHS_A_KILL * case.epoch_s + 4 + case.fill_s
            pace = paced.at_rate(case.pace(name, 1, 1, 1), rate, seconds, MARKS_PER_S)
            try:
                outputs[case.name] = _record_figures(
                    session, case, *_killed(folder, pace, case, kills, seconds)
                ).output_ms
            except Exception as error:  # noqa: BLE001  reported at the end; other cases are still measured
                traceback.print_exc()
                session.fail(f"failover: {case.title}", error)
    for name, (large, small) in RATIOS.items():
        if outputs.get(small) and outputs.get(large):
            ratio = statistics.median(outputs[large]) / statistics.median(outputs[small])
            session.figure(f"{name}: first new output", ratio, "times", "<= 1.2")


def _why_no_spark() -> str:
    """Returns why Spark cannot run here; empty where it can."""
    if find_spec("pyspark") is None:
        return "there is no pyspark here"
    return "" if shutil.which("java") else "there is no Java here, which Spark needs"


def _killed(
    folder: Path, pace: Pace, case: Case, kills: int, seconds: float
) -> tuple[Pace, list[Kill], Mapping[Any, Any], Status]:
    """Runs the job, kills tasks, and waits for the end."""
    paced.begin_anew(folder)
    for path in folder.glob("filled-*"):
        path.unlink()
    options = {**paced.OPTIONS, "spare_slots": len(case.victims) + 1, **dict(case.options)}
    with case.job(pace).start(store=str(folder / "store"), overwrite=True, **options) as handle:
        kill_loop = KillLoop(handle, case.victims, case.standbys, seconds, case.epoch_s, case.is_executor)
        if case.job is failover_jobs.hot:
            kill_loop.is_hot = True
        if case.job in (failover_jobs.large, column_failover.column_job):
            kill_loop.is_ready = lambda: failover_jobs.is_filled(pace)
        done, recoveries = kill_loop.kill_repeatedly(kills)
        return pace, done, recoveries, kill_loop.finish(recoveries)


def _record_figures(
    session: Session, case: Case, pace: Pace, kills: list[Kill], recoveries: Mapping[Any, Any], status: Status
) -> Found:
    written = paced.written(pace, status)
    end_ns = pace.begun_ns() + round(pace.lines / pace.lines_per_s * 1e9)
    kills = [kill for kill in kills if kill.at_ns < end_ns - LAST_NS]
    found = _found(pace, kills, recoveries, written, min(2 * case.epoch_s, WATCHED_S_MAX))
    session.figure(f"{case.title}: kills", len(kills), "")
    output_p50, output_p99, normal = case.goals
    for name, values in found.milestones_ms.items():
        if values:
            goal = "<= 40" if name == "gathered" and case.standbys else ""
            session.figure(f"{case.title}: {name.replace('_', ' ')} p50", statistics.median(values), UNIT, goal)
    for name, values, share, goal in (
        ("first new output", found.output_ms, 50, output_p50),
        ("first new output", found.output_ms, 99, output_p99),
        ("back to normal", found.normal_ms, 50, normal),
        ("silence of others beyond before", found.others_ms, 50, "<= 50"),
        ("silence of others beyond before", found.others_ms, 99, ""),
    ):
        if values:
            value = statistics.median(values) if share == 50 else percentile(values, share)
            session.figure(f"{case.title}: {name} p{share}", value, UNIT, goal)
    _draw(session, case, pace, kills, written)
    return found


def _draw(session: Session, case: Case, pace: Pace, kills: list[Kill], external: dict[str, list[Entry]]) -> None:
    """Plots output words over time: of the whole run, and around the first kill."""
    begun_ns = pace.begun_ns()
    rates = {task: _rates(of_task, begun_ns) for task, of_task in external.items()}
    instants = [(kill.at_ns - begun_ns) / 1e9 for kill in kills]
    labels = ("s", "words/s")
    name = re.sub(r"\W+", "-", case.title)
    title = f"{case.title}: output"
    plots.lines(session.results / f"failover-{name}.png", rates, title, labels, instants=instants)
    if instants:
        first, last = (instants[0] + around for around in AROUND_S)
        near = {
            task: [(at - instants[0], rate) for at, rate in points if first < at < last]
            for task, points in rates.items()
        }
        file = session.results / f"failover-{name}-one-kill.png"
        plots.lines(
            file,
            {task: points for task, points in near.items() if points},
            title,
            ("s from the kill", "words/s"),
            instants=[0.0],
        )


def _found(
    pace: Pace,
    kills: list[Kill],
    recoveries: Mapping[Any, RecoveryState],
    external: dict[str, list[Entry]],
    watched_s: int,
) -> Found:
    found = Found()
    outputs = {task: [entry.at_ns for entry in of_task] for task, of_task in external.items()}
    marks = sorted(
        (entry.at_ns, reader, pace.due_ns(number))
        for of_task in external.values()
        for entry in of_task
        for reader, number in entry.marks
    )
    for kill in kills:
        is_source = kill.tasks[0].startswith("lines")
        recovery = recoveries.get((kill.tasks[0], kill.incarnations[0]))
        reader = int(kill.tasks[0].rpartition("/")[2])
        if is_source:
            mine = [at_ns for at_ns, of, due_ns in marks if of == reader and due_ns > kill.at_ns]
            others = [at_ns for at_ns, of, _ in marks if of != reader]
            found.output_ms.append((min(mine) - kill.at_ns) / 1e6)
        else:
            giver = kill.tasks[0] if kill.tasks[0] in outputs else f"sink/{reader}"
            mine = outputs[giver]
            others = next((of for task, of in outputs.items() if task not in (*kill.tasks, giver)), [])
            found.output_ms.append((mine[bisect_right(mine, _gathered_ns(kill, recovery))] - kill.at_ns) / 1e6)
        if len(kill.tasks) == 1 and others:
            found.others_ms.append(_silence_ms(others, kill.at_ns, kill.at_ns + 10**9))
            found.others_ms[-1] -= _silence_ms(others, kill.at_ns - 10**9, kill.at_ns)
        found.normal_ms.append(_back_to_normal_ms(marks, kill.at_ns, watched_s))
        for name, values in found.milestones_ms.items():
            if recovery is not None and name in recovery.reached:
                values.append((recovery.reached[name] - kill.wall_ns) / 1e6)
    return found


def _gathered_ns(kill: Kill, recovery: RecoveryState | None) -> int:
    """Returns from when output is the successor's: workers of a killed executor live on for a while."""
    wall_ns = recovery.reached.get("gathered", kill.wall_ns) if recovery is not None else kill.wall_ns
    return kill.at_ns + wall_ns - kill.wall_ns


def _silence_ms(instants_ns: list[int], from_ns: int, until_ns: int) -> float:
    """Returns the longest pause that overlaps a span."""
    pauses = [b - a for a, b in itertools.pairwise(sorted(instants_ns)) if b > from_ns and a < until_ns]
    return max(pauses, default=0) / 1e6


def _back_to_normal_ms(marks: list[tuple[int, int, int]], kill_ns: int, watched_s: int) -> float:
    """Returns the end of the last span within ``watched_s`` after the kill in which most marks were late.

    Single late marks do not count, because each checkpoint has some.
    """
    before = [(at - due) / 1e6 for at, _, due in marks if kill_ns - 10**9 < due < kill_ns - 10**8]
    usual_ms = max(NORMAL_MS, 2 * statistics.median(before)) if before else NORMAL_MS
    spans: dict[int, list[tuple[float, int]]] = {}
    for at, _, due in marks:
        if kill_ns < due < kill_ns + watched_s * 10**9:
            spans.setdefault((due - kill_ns) // SPAN_NS, []).append(((at - due) / 1e6, at))
    late = [max(span, key=itemgetter(1))[1] for span in spans.values() if statistics.median_low(span)[0] > usual_ms]
    return (max(late, default=kill_ns) - kill_ns) / 1e6


def _rates(of_task: list[Entry], begun_ns: int, span_s: float = 0.05) -> list[tuple[float, float]]:
    """Returns words per second in spans of time."""
    spans: dict[int, int] = {}
    for entry in of_task:
        span = int((entry.at_ns - begun_ns) / 1e9 / span_s)
        spans[span] = spans.get(span, 0) + entry.rows
    return [(span * span_s, spans.get(span, 0) / span_s) for span in range(max(spans) + 1)]
