"""Benchmark: do the phases of a recovery sum to the silence that is seen outside?

A counting task is killed with SIGKILL again and again while words flow. The silence is measured at the output, by the
clock of the sink: from its last row before the kill to its first row after the recovery began. Beside it stands what
``handle.status()``, the history and the metrics say. ``--kills N`` sets the kills; the goal is for fifty.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks.harness.ab_session import Session
from benchmarks.harness.kill_loop import Kill, KillLoop
from benchmarks.workloads import failover_jobs, paced, words
from clonos.io.store.object_files import LocalFiles
from clonos.job.prometheus.job_counters import JobCounters
from clonos.job.run_history.history_events import TaskRecovered, read_events
from clonos.status import RecoveryState, Status

KILLS: Final = 12
KILLS_QUICK: Final = 2
SECONDS_A_KILL: Final = 5.5
WORDS_PER_S: Final = 20_000
MARKS_PER_S: Final = 500
VICTIM: Final = "count"
NEAR: Final = 0.1
"""Share of the silence by which the phases may differ from it."""


def run(session: Session) -> None:
    """Kills tasks, and compares the phases of each recovery with the silence at the output."""
    kills = session.kills or (KILLS_QUICK if session.is_quick else KILLS)
    seconds = kills * SECONDS_A_KILL + 4
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        folder = Path(name)
        words.prepare(folder)
        session.progress(f"{kills} kills of a counting task")
        pace = paced.at_rate(paced.Pace(name, 1, 1, 1), WORDS_PER_S, seconds, MARKS_PER_S)
        paced.begin_anew(folder)
        options = {**paced.OPTIONS, "spare_slots": 2}
        with failover_jobs.plain(pace).start(store=str(folder / "store"), overwrite=True, **options) as handle:
            kill_loop = KillLoop(handle, (VICTIM,), 1, seconds)
            done, recoveries = kill_loop.kill_repeatedly(kills)
            status = kill_loop.finish(recoveries)
        outputs = {task: [entry.at_ns for entry in of_task] for task, of_task in paced.written(pace, status).items()}
        recovered = [
            event for event in read_events(LocalFiles(folder / "store"))[0] if isinstance(event, TaskRecovered)
        ]
    _record(session, done, recoveries, outputs)
    _check_one_figure(session, status, recovered)


def _record(
    session: Session,
    kills: Sequence[Kill],
    recoveries: Mapping[tuple[str, int], RecoveryState],
    outputs: Mapping[str, Sequence[int]],
) -> None:
    found = []
    for kill in kills:
        recovery = recoveries.get((kill.tasks[0], kill.incarnations[0]))
        if recovery is not None and (duration_ns := recovery.duration_ns) is not None:
            sign_ns = next(iter(recovery.reached.values())) - kill.wall_ns
            found.append((_silence_ns(outputs, kill), duration_ns, sign_ns))
    if not found:
        raise RuntimeError("no kill led to a recovery that the job reports")
    silences, durations, signs = zip(*found, strict=True)
    ratios = [duration / silence for silence, duration, _ in found]
    near = sum(abs(ratio - 1) <= NEAR for ratio in ratios)
    session.figure("recovery phases: kills", len(found), "")
    session.figure("recovery phases: silence at the output p50", statistics.median(silences) / 1e6, "ms")
    session.figure("recovery phases: sum of the phases p50", statistics.median(durations) / 1e6, "ms")
    session.figure("recovery phases: last sign of life after the kill p50", statistics.median(signs) / 1e6, "ms")
    session.figure("recovery phases: all phases of all silences", sum(durations) / sum(silences), "times", "0.9 to 1.1")
    session.figure("recovery phases: phases of a silence p50", statistics.median(ratios), "times", "0.9 to 1.1")
    session.figure("recovery phases: kills within 10 %", near / len(found), "of all")


def _silence_ns(outputs: Mapping[str, Sequence[int]], kill: Kill) -> int:
    """Returns the pause of the killed task's output that spans the kill."""
    giver = kill.tasks[0] if kill.tasks[0] in outputs else f"sink/{kill.tasks[0].rpartition('/')[2]}"
    instants = outputs[giver]
    place = bisect_right(instants, kill.at_ns)
    # Rows that had left the task before the kill may be written a little after it: the longest pause near it counts.
    near = instants[place - 1 : place + 20]
    return max(later - before for before, later in pairwise(near))


def _check_one_figure(session: Session, status: Status, recovered: Sequence[TaskRecovered]) -> None:
    """Compares the figures of the history and of the metrics with those of the status."""
    counters = JobCounters()
    counters.add(status, (), time.monotonic())
    of_status = [recovery.duration_ns / 1e6 for recovery in status.recoveries if recovery.duration_ns is not None]
    of_history = [event.duration_ms for event in recovered]
    session.figure("recovery phases: recoveries in the status", len(of_status), "")
    session.figure("recovery phases: recoveries in the history", len(of_history), "")
    difference_ms = abs(sum(of_status) - sum(of_history)) + abs(
        sum(of_status) - counters.recovery_durations.sum_s * 1e3
    )
    session.figure("recovery phases: status, history and metrics differ by", difference_ms, "ms", "<= 1")
