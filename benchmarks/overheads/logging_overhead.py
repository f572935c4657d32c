"""Benchmark: cost of causal logging, by the same job with and without it, for each kind of determinant.

Each comparison is the rate with logging to the rate without: a cost of 5 % is a ratio of 0.95.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import Measured
from benchmarks.measures.throughput import WORDS_FIRST, in_turn, record_core_rates, record_rates, sized
from benchmarks.workloads import word_job, words
from clonos import clock, random, service

OUTCOME: Final = "an outcome of a hundred bytes, as a lookup in a table of a few columns would have for its answer...."
assert len(OUTCOME) == 100


@service
def looked_up(word: str) -> str:
    """Makes a recorded call that is answered at once."""
    return OUTCOME


def with_instant(word: str) -> str:
    """Reads one timestamp per step."""
    clock.time_ns()
    return word


def with_exact_instant(word: str) -> str:
    """Reads one exact timestamp per record."""
    clock.time_ns(exact=True)
    return word


def with_rng(word: str) -> str:
    """Draws one random number per record."""
    random.random()
    return word


def with_call(word: str) -> str:
    """Makes one recorded call per record."""
    looked_up(word)
    return word


@dataclass(frozen=True, slots=True)
class Case:
    """Kind of determinant. ``words_first``: size of the first run, which gives the size of the others."""

    name: str
    shape: str
    touch: Callable[[str], str] | None
    goal: str
    words_first: float = WORDS_FIRST


CASES: Final = (
    Case("batches in rows", "rows", None, ">= 0.98"),
    Case("batches in columns", "columns", None, ">= 0.96"),
    Case("an instant a record", "rows", with_instant, ">= 0.95"),
    Case("an exact instant a record", "rows", with_exact_instant, "", 2e5),
    Case("a random number a record", "rows", with_rng, ">= 0.97"),
    Case("an outcome of 100 bytes a record", "rows", with_call, ">= 0.80", 5e4),
)
SECONDS: Final = 1.5
BYTES_GOAL: Final = "<= 0.05"


def run(session: Session) -> None:
    """Measures each kind of determinant."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
        words.prepare(Path(folder))
        for case in CASES:
            name = f"{case.name}, logged/not"
            logged = sized(session, Path(folder), partial(_count, case, True), case.words_first, SECONDS)
            unlogged = sized(session, Path(folder), partial(_count, case, False), case.words_first, SECONDS)
            found = in_turn(session, name, logged, unlogged)
            record_rates(session, name, found, {name: case.goal})
            record_core_rates(session, name, found)
            bytes_a_word = max(run.determinant_bytes / run.words for run in found[0])
            goal = BYTES_GOAL if case.touch is None else ""
            session.figure(f"{case.name}, determinants", bytes_a_word, "bytes a word", goal)


def _count(case: Case, is_logged: bool, workload: words.Workload) -> Measured:
    return word_job.run(workload, case.shape, case.touch, causal_logging=is_logged)
