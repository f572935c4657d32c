"""Benchmark: what event time costs: the word count in rows with timestamps and without, with watermarks and without.

A watermark follows every 200 ms: event time of a reader rises by a fixed time per line, which the rate of the job
without event time gives. The timestamp of a record is a constant, so that only its way through the job counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import Measured
from benchmarks.measures.throughput import WORDS_FIRST, in_turn, record_core_rates, record_rates, sized
from benchmarks.workloads import word_job, words
from benchmarks.workloads.word_job import PreparedLines
from clonos import Timestamps, WatermarkStrategy

EVERY_NS: Final = 200_000_000
AT_NS: Final = 1_700_000_000_000_000_000

GOALS: Final[Mapping[str, str]] = {
    "watermarks/without": ">= 0.99",
    "timestamps/without": ">= 0.8",
    "timestamps, with/without watermarks": ">= 0.99",
}


@dataclass(frozen=True)
class MarkedLines(PreparedLines):
    """Source of lines that makes watermarks; its records have no timestamps."""

    ns_per_line: int = 0
    watermark_every_ns: int = EVERY_NS
    idle_after_ns: int = 0

    def watermark(self, before_ns: int | None, records: Sequence[Any]) -> int | None:
        """Returns how far event time has come, by the number of lines."""
        return (before_ns or AT_NS) + len(records) * self.ns_per_line


class ByLines(WatermarkStrategy):
    """Watermark that rises by a fixed time per line; with 0 there is none."""

    def __init__(self, ns_per_line: int) -> None:
        self._ns_per_line = ns_per_line

    def watermark(self, before_ns: int | None, records: Sequence[Any], timestamps_ns: Sequence[int]) -> int | None:
        """Returns how far event time has come."""
        return (before_ns or AT_NS) + len(records) * self._ns_per_line if self._ns_per_line else None


def run(session: Session) -> None:
    """Compares watermarks and timestamps, each alone and both, with a job without event time."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        folder = Path(name)
        words.prepare(folder)
        session.progress("the job without event time")
        workload = words.Workload(name)
        first = plain(workload.of_words(WORDS_FIRST))
        ns_per_line = round(first.seconds * workload.readers / (first.words / words.WORDS_A_LINE) * 1e9)
        session.figure("watermarks, rise of event time", ns_per_line, "ns a line")
        without = sized(session, folder, plain)
        marked = sized(session, folder, partial(with_watermarks, ns_per_line=ns_per_line))
        timed = sized(session, folder, with_timestamps)
        both = sized(session, folder, partial(with_timestamps, ns_per_line=ns_per_line))
        _compare(session, "watermarks/without", marked, without)
        _compare(session, "timestamps/without", timed, without)
        _compare(session, "timestamps, with/without watermarks", both, timed)


def _compare(session: Session, name: str, one: Callable[[], Measured], other: Callable[[], Measured]) -> None:
    found = in_turn(session, name, one, other)
    record_rates(session, name, found, GOALS)
    record_core_rates(session, name, found)


def plain(workload: words.Workload) -> Measured:
    """Counts words without event time."""
    return word_job.run(workload, "rows")


def with_watermarks(workload: words.Workload, ns_per_line: int) -> Measured:
    """Counts words after a source that makes watermarks."""
    return word_job.run(workload, "rows", source=MarkedLines(workload, False, ns_per_line))


def with_timestamps(workload: words.Workload, ns_per_line: int = 0) -> Measured:
    """Counts words with timestamps, and with watermarks if lines take time."""
    return word_job.run(workload, "rows", timestamps=Timestamps(_at, unit="ns", watermarks=ByLines(ns_per_line)))


def _at(line: str) -> int:
    return AT_NS
