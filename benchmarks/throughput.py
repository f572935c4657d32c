"""Words counted in a second, in rows and in columns, with everything on, beside what else there is."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final

from benchmarks import bare, word_job, words
from benchmarks.comparing import Session
from benchmarks.tally import Measured

SHAPES: Final = ("rows", "columns")
SECONDS: Final = 4.0
SECONDS_QUICK: Final = 1.5
WORDS_FIRST: Final = 2e6
"""Of the run from which the length of the others follows."""

GOALS: Final = {"rows/bare": ">= 0.85", "columns/bare": ">= 0.70"}

WORDS_PER_S: Final = attrgetter("words_per_s")
WORDS_PER_CPU_S: Final = attrgetter("words_per_cpu_s")
Runner = Callable[[words.Workload], Measured]


def run(session: Session) -> None:
    """Each shape against each side that was asked for."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        folder = Path(name)
        words.prepare(folder)
        for shape in SHAPES:
            if "bare" in session.against:
                _against_bare(session, folder, shape)


def _against_bare(session: Session, folder: Path, shape: str) -> None:
    targets = word_job.targets(words.vocabulary(), 2)
    job = sized(session, folder, lambda workload: word_job.run(workload, shape))
    limit = sized(session, folder, lambda workload: bare.run(workload, shape, targets))
    compare_runs(session, f"{shape}/bare", job, limit, GOALS)


def sized(session: Session, folder: Path, runner: Runner, words_first: float = WORDS_FIRST) -> Callable[[], Measured]:
    """Runs of a side, each so long as a measurement should be."""
    workload = words.Workload(str(folder)).of_words(words_first)
    seconds = SECONDS_QUICK if session.is_quick else SECONDS
    return partial(runner, workload.of_words(max(words_first, seconds * runner(workload).words_per_s)))


def compare_runs(
    session: Session,
    name: str,
    one: Callable[[], Measured],
    other: Callable[[], Measured],
    goals: Mapping[str, str],
) -> list[Measured]:
    """Both sides in turn; they were warmed up when they were sized. Answers the runs of the first."""
    found: tuple[list[Measured], list[Measured]] = ([], [])
    for pair in range(session.pairs):
        for side, runs in zip((one, other), found, strict=True):
            runs.append(side())
        told = " and ".join(f"{runs[-1].words_per_s / 1e6:.2f}" for runs in found)
        session.say(f"{name}: pair {pair + 1} of {session.pairs}: {told} M words/s")
    for suffix, rate, goal in (("", WORDS_PER_S, goals.get(name, "")), (" per core", WORDS_PER_CPU_S, "")):
        session.compared(f"{name}{suffix}", [rate(run) for run in found[0]], [rate(run) for run in found[1]], goal)
    for part, runs in zip(name.split("/"), found, strict=True):
        session.figure(f"{name}, {part.rpartition(', ')[2]}", max(run.words_per_s for run in runs), "words/s, best")
    return found[0]
