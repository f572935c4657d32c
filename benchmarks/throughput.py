"""Words counted in a second, in rows and in columns, with everything on, beside what else there is."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final

from benchmarks import bare, word_job, words
from benchmarks.comparing import Session
from benchmarks.tally import Measured

SHAPES: Final = ("rows", "columns")
SECONDS: Final = 5.0
SECONDS_QUICK: Final = 1.5
REPEATS_FIRST: Final = 3
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
    name = f"{shape}/bare"
    found = in_pairs(session, name, job, limit)
    for suffix, rate, goal in (("", WORDS_PER_S, GOALS.get(name, "")), (" per core", WORDS_PER_CPU_S, "")):
        session.compared(f"{name}{suffix}", [rate(one) for one in found[0]], [rate(one) for one in found[1]], goal)
    for side, runs in zip((f"{shape} clonos", f"{shape} bare"), found, strict=True):
        session.figure(side, max(one.words_per_s for one in runs), "words/s, best")


def sized(session: Session, folder: Path, runner: Runner) -> Callable[[], Measured]:
    """Runs of a side, each so long as a measurement should be."""
    first = runner(words.Workload(str(folder), REPEATS_FIRST))
    seconds = SECONDS_QUICK if session.is_quick else SECONDS
    repeats = max(1, round(seconds * first.words_per_s / (words.POOL_LINES * words.WORDS_A_LINE)))
    return partial(runner, words.Workload(str(folder), repeats))


def in_pairs(
    session: Session, name: str, one: Callable[[], Measured], other: Callable[[], Measured]
) -> tuple[list[Measured], list[Measured]]:
    """Both sides in turn; they were warmed up when they were sized."""
    found: tuple[list[Measured], list[Measured]] = ([], [])
    for pair in range(session.pairs):
        for side, runs in zip((one, other), found, strict=True):
            runs.append(side())
        told = " and ".join(f"{runs[-1].words_per_s / 1e6:.2f}" for runs in found)
        session.say(f"{name}: pair {pair + 1} of {session.pairs}: {told} M words/s")
    return found
