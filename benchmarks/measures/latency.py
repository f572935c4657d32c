"""Benchmark: exactly-once latency from reading a record to its external output, at two loads."""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.harness import plots
from benchmarks.harness.ab_session import Session
from benchmarks.workloads import paced, words

SECONDS: Final = 12.0
SECONDS_QUICK: Final = 5.0
WARM_S: Final = 2.0
MARKS_PER_S: Final = 1_000
PEERS_WORDS_PER_S: Final = 2_000


def run(session: Session) -> None:
    """Measures half of the maximal load, and the load of the peers."""
    seconds = SECONDS_QUICK if session.is_quick else SECONDS
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        folder = Path(name)
        words.prepare(folder)
        session.progress("the maximal load")
        maximal = paced.maximal_words_per_s(folder, 2e6 if session.is_quick else 6e6)
        session.figure("latency, maximal load", maximal, "words/s")
        found: dict[str, list[float]] = {}
        for load, words_per_s in (("half of it", maximal / 2), ("2,000 words/s", PEERS_WORDS_PER_S)):
            session.progress(f"latency at {load}: {words_per_s:,.0f} words/s for {seconds:g} s")
            pace = paced.at_rate(paced.Pace(name, 1, 1, 1), words_per_s, seconds, MARKS_PER_S)
            found[load] = latencies_ms(folder, pace)
            for share, goal in ((50, "<= 3"), (99, "<= 12")):
                session.figure(f"latency at {load}, p{share}", percentile(found[load], share), "ms", goal)
        plots.histogram(session.results / "latency.png", found, "ms from record read to record outside")


def latencies_ms(folder: Path, pace: paced.Pace) -> list[float]:
    """Returns the latency of each mark that was read after the warm-up."""
    paced.begin_anew(folder)
    options = dict(paced.OPTIONS)
    result = paced.paced_job(pace).run(store=str(folder / "store"), overwrite=True, **options)
    read_ns: dict[tuple[int, int], int] = {}
    for reader in range(pace.readers):
        given = msgspec.msgpack.decode((folder / f"given-{reader}").read_bytes(), type=list[tuple[int, int]])
        ends = [end for end, _ in given]
        for mark in range(-(-pace.lines // pace.mark_every)):
            read_ns[reader, mark] = given[bisect_right(ends, mark * pace.mark_every)][1]
    warm_ns = pace.begun_ns() + round(WARM_S * 1e9)
    return [
        (entry.at_ns - read_ns[mark]) / 1e6
        for of_task in paced.written(pace, result.status).values()
        for entry in of_task
        for mark in entry.marks
        if read_ns[mark] > warm_ns
    ]


def percentile(values: list[float], share: float) -> float:
    """Returns the percentile ``share`` of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))]
