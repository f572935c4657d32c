"""Benchmark: cost of metrics, by the same job with and without them.

With: latency marks, and an endpoint for Prometheus that is scraped each second. Without: no marks and no endpoint. The
other counters of a slot go to the coordinator in any case. A counter of user code is measured by itself.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import urllib.request
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import Measured
from benchmarks.measures.throughput import in_turn, record_core_rates, record_rates, sized
from benchmarks.workloads import word_job, words
from clonos import metrics
from clonos.core.task import latency

if TYPE_CHECKING:
    from collections.abc import Iterator

SHAPES: Final = ("rows", "columns")
GOAL: Final = ">= 0.99"
SCRAPE_EVERY_S: Final = 1.0
COUNTED: Final = metrics.Counter("words_touched", "Words that a step has taken.")


class UnmarkedLines(word_job.PreparedLines):
    """The same lines from a source that makes no latency marks."""

    def reader(self) -> UnmarkedReader:
        """Makes the reader of a share."""
        return UnmarkedReader(self.workload, self.is_columnar)


class UnmarkedReader(word_job.LineReader):
    """Reader in whose process no source makes marks."""

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Turns the marks off in the process of the source."""
        latency.MARK_EVERY_NS = 1 << 62  # type: ignore[misc]
        super().open(split, mark)


def same(word: str) -> str:
    """Does nothing."""
    return word


def counted(word: str) -> str:
    """Counts each word in a metric of user code."""
    COUNTED.inc()
    return word


def run(session: Session) -> None:
    """Measures both shapes, and a counter for each record."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        folder = Path(name)
        words.prepare(folder)
        for shape in SHAPES:
            _compare(session, folder, f"{shape}, with/without", partial(_with, shape), partial(_without, shape), GOAL)
        touched, not_touched = (partial(word_job.run, shape="rows", touch=touch) for touch in (counted, same))
        _compare(session, folder, "a counter for each word, with/without", touched, not_touched, "")


def _compare(session: Session, folder: Path, name: str, one: Any, other: Any, goal: str) -> None:
    first, second = (sized(session, folder, side) for side in (one, other))
    found = in_turn(session, name, first, second)
    record_rates(session, name, found, {name: goal})
    record_core_rates(session, name, found)


def _with(shape: str, workload: words.Workload) -> Measured:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with _scraped(port):
        return word_job.run(workload, shape, metrics_port=port)


def _without(shape: str, workload: words.Workload) -> Measured:
    return word_job.run(workload, shape, source=UnmarkedLines(workload, shape == "columns"))


@contextmanager
def _scraped(port: int) -> Iterator[None]:
    """Scrapes an endpoint each second, as Prometheus does."""
    is_over = threading.Event()

    def scrape() -> None:
        while not is_over.wait(SCRAPE_EVERY_S):
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                answer.read()

    thread = threading.Thread(target=scrape, name="scraper", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
