"""Benchmark: words counted per second, in rows and in columns, compared with plain processes and other systems."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.baselines import bare
from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import Measured, WrongResult
from benchmarks.peers import running as peers
from benchmarks.peers.running import PEERS
from benchmarks.workloads import word_job, words

SHAPES: Final = ("rows", "columns")
SECONDS: Final = 3.0
SECONDS_QUICK: Final = 1.5
WORDS_FIRST: Final = 2e6
"""Words of the first run, which gives the length of the others."""

GOALS: Final = {
    "rows/bare": ">= 0.85",
    "columns/bare": ">= 0.70",
    "rows/spark-udf": ">= 3.5",
    "rows/spark-arrow": ">= 2.5",
    "rows/spark-native": ">= 2",
    "rows/pathway": ">= 3",
    "rows/bytewax": ">= 4",
    "rows/pyflink": ">= 90",
    "columns/spark-udf": ">= 7",
    "columns/spark-arrow": ">= 5",
    "columns/spark-native": ">= 4",
    "columns/pathway": ">= 6",
    "columns/bytewax": ">= 8",
    "columns/pyflink": ">= 190",
}

Runner = Callable[[Any], Measured]


def run(session: Session) -> None:
    """Measures each shape against each selected side."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        folder = Path(name)
        words.prepare(folder)
        for shape in SHAPES:
            job = sized(session, folder, partial(word_job.run, shape=shape))
            if "bare" in session.against:
                _against_bare(session, folder, shape, job)
            for peer in session.against:
                if peer in PEERS:
                    against_peer(session, folder, shape, job, peer)


def _against_bare(session: Session, folder: Path, shape: str, job: Callable[[], Measured]) -> None:
    targets = word_job.targets(words.vocabulary(), 2)
    limit = sized(session, folder, lambda workload: bare.run(workload, shape, targets))
    name = f"{shape}/bare"
    found = in_turn(session, name, job, limit)
    record_rates(session, name, found, GOALS)
    record_core_rates(session, name, found)


def against_peer(
    session: Session,
    folder: Path,
    shape: str,
    job: Callable[[], Measured],
    peer: str,
    *,
    environments: Path = peers.ENVIRONMENTS,
) -> None:
    """Measures a peer in turn with the job, if it is installed."""
    name = f"{shape}/{peer}"
    try:
        found = in_turn(
            session, name, job, partial(peers.run, peer, PEERS[peer].workload(str(folder)), environments=environments)
        )
    except peers.PeerMissing as missing:
        session.leave_out(name, str(missing))
        return
    except (peers.PeerFailed, WrongResult) as error:  # reported at the end; the other sides are still measured
        session.fail(name, error)
        return
    record_rates(session, name, found, GOALS)


def sized(
    session: Session, folder: Path, runner: Runner, words_first: float = WORDS_FIRST, seconds_usual: float = SECONDS
) -> Callable[[], Measured]:
    """Returns a function that runs a side for about ``seconds_usual``."""
    return sized_of(session, words.Workload(str(folder)), runner, words_first, seconds_usual)


def sized_of(
    session: Session, kind: Any, runner: Runner, words_first: float, seconds_usual: float = SECONDS
) -> Callable[[], Measured]:
    """Returns a function that runs a side on any kind of workload for about ``seconds_usual``."""
    workload = kind.of_words(words_first)
    seconds = SECONDS_QUICK if session.is_quick else seconds_usual
    return partial(runner, workload.of_words(max(words_first, seconds * runner(workload).words_per_s)))


def in_turn(
    session: Session, name: str, one: Callable[[], Measured], other: Callable[[], Measured], pairs: int = 0
) -> tuple[list[Measured], list[Measured]]:
    """Runs both sides in turn, A B A B ...; sizing has warmed them up."""
    found: tuple[list[Measured], list[Measured]] = ([], [])
    pairs = pairs or session.pairs
    for pair in range(pairs):
        for side, runs in zip((one, other), found, strict=True):
            runs.append(side())
        rates = " and ".join(f"{runs[-1].words_per_s / 1e6:.2f}" for runs in found)
        session.progress(f"{name}: pair {pair + 1} of {pairs}: {rates} M words/s")
    return found


def record_rates(
    session: Session, name: str, found: tuple[list[Measured], list[Measured]], goals: Mapping[str, str]
) -> None:
    """Records the ratio, and the best rate of each side."""
    of_one, of_other = ([run.words_per_s for run in runs] for runs in found)
    session.compared(name, of_one, of_other, goals.get(name, ""))
    for part, rates in zip(name.split("/"), (of_one, of_other), strict=True):
        session.figure(f"{name}, {part.rpartition(', ')[2]}", max(rates), "words/s, best")


def record_core_rates(session: Session, name: str, found: tuple[list[Measured], list[Measured]]) -> None:
    """Records the ratio per second of processor time, which other load on the machine affects less.

    Also records how many cores each side had: with fewer than the machine has, the wall-clock ratio shows the load.
    """
    of_one, of_other = ([run.words_per_cpu_s for run in runs] for runs in found)
    session.compared(f"{name} per core", of_one, of_other)
    for part, runs in zip(name.split("/"), found, strict=True):
        had = statistics.median(run.cpu_s / run.seconds for run in runs)
        session.figure(f"{name}, {part.rpartition(', ')[2]} had", had, "cores, median")
