"""The shipped job of scenarios, whose records describe themselves, and how a job is found by name.

    read -> ask (by key: service, luck, a count) -> direct --------------------------> tell -> files (transactional)
                                                 -> window (by key) -> taken apart ->      -> table (immediate)

Every record comes out by two paths into two sinks, with all that was drawn for it.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from clonos.api.windows import Tumbling
from clonos.connectors import files, sqlite
from clonos.core.errors import JobError
from clonos.job import Job
from clonos.operators.windows import WindowResult
from clonos_services import clock, http
from clonos_services import random as causal_random

KEYS: Final = 8
SOURCES: Final = 2
RECORDS: Final = 1_000
PER_SECOND: Final = 250.0
COLUMNS: Final = (
    *("source", "offset", "path", "key", "seen", "luck", "answer", "read_ns", "window", "at_ns"),
    "number",
)
CALL_TIMEOUT_S: Final = 0.4
NO_ANSWER: Final = -1
"""What stands for an answer that did not come in time."""

Row = dict[str, Any]


class Paced:
    """A source of ``records`` rows, half of them from each of two sources, at most so many a second; 0: no pace."""

    def __init__(self, records: int, per_second: float) -> None:
        self.records, self.per_second = records, per_second

    def splits(self, parallelism: int) -> list[bytes]:
        """One per source."""
        return [b"%d" % source for source in range(SOURCES)]

    def reader(self) -> PacedReader:
        """A reader that keeps the pace."""
        return PacedReader(self.records // SOURCES, self.per_second / SOURCES)


class PacedReader:
    """Reads one source. It goes on at its pace from where it was opened."""

    def __init__(self, records: int, per_second: float) -> None:
        self._records, self._per_second = records, per_second

    def open(self, split: bytes, mark: bytes | None) -> None:
        """From the mark on."""
        self._source = int(split)
        self._next = self._first = int(mark or 0)
        self._opened_s = time.monotonic()

    def read(self, records_max: int) -> Sequence[tuple[int, int]] | None:
        """What is due."""
        end = min(self._records, self._next + records_max)
        if self._next >= self._records:
            return None
        if self._per_second:
            end = min(end, self._first + int((time.monotonic() - self._opened_s) * self._per_second))
        found = [(self._source, offset) for offset in range(self._next, end)]
        self._next = max(self._next, end)
        return found

    def mark(self) -> bytes:
        """The next offset."""
        return b"%d" % self._next

    def close(self) -> None:
        """Nothing is open."""


def stamp(record: tuple[int, int]) -> Row:
    """The record, and when it was read."""
    source, offset = record
    return {"source": source, "offset": offset, "key": offset % KEYS, "read_ns": clock.time_ns()}


def key_of(row: Row) -> int:
    """What rows are counted and windowed by."""
    return int(row["key"])


def ask(url: str, _key: int, seen: int | None, row: Row) -> tuple[int, Row]:
    """A call, a draw and a count for a record. A service that fails or is silent is an answer too."""
    question = {"source": str(row["source"]), "offset": str(row["offset"])}
    try:
        reply = http.get(url, params=question, timeout=CALL_TIMEOUT_S, retries=0)
        answer = reply.json()["answer"]
    except http.HttpError:
        answer = NO_ANSWER
    count = (seen or 0) + 1
    return count, {**row, "seen": count, "luck": causal_random.getrandbits(40), "answer": answer}


def taken_apart(window: WindowResult[int, list[Row]]) -> list[Row]:
    """The records of a window, each with its window."""
    start = window.start.isoformat()
    return [{**row, "path": "window", "window": start} for row in window.value]


def directly(row: Row) -> Row:
    """The record on its short path."""
    return {**row, "path": "direct", "window": ""}


def tell(_everything: int, number: int | None, row: Row) -> tuple[int, Row]:
    """What goes to both sinks, numbered."""
    count = (number or 0) + 1
    return count, {**row, "at_ns": clock.time_ns(), "number": count}


def described(
    folder: Path, url: str, *, records: int = RECORDS, per_second: float = PER_SECOND, window: str = "200ms"
) -> Job:
    """The job, with its outputs in ``folder``."""
    job = Job("described", parallelism=2)
    rows = job.source(Paced(records, per_second), parallelism=1, name="read").map(stamp, parallelism=1)
    asked = rows.key_by(key_of).stateful_map(partial(ask, url), name="ask")
    windowed = asked.key_by(key_of).window(Tumbling(window)).aggregate(list, list.append, name="window")
    both = asked.map(directly).union(windowed.flat_map(taken_apart))
    told = both.key_by(lambda _row: 0).stateful_map(tell, name="tell", parallelism=1)
    told.sink(files.jsonl(str(folder / "output")), name="files", parallelism=1)
    told.rebalance().sink(sqlite(str(folder / "table.sqlite"), "rows", columns=COLUMNS), name="table", parallelism=1)
    return job


SHIPPED: Final[Mapping[str, Callable[..., Job]]] = {"described": described}
"""Shipped jobs by name: whoever makes one gets the folder for its output and the address of the service."""


def make_job(name: str, folder: Path, url: str, job_options: Mapping[str, Any]) -> Job:
    """The job of a scenario: a shipped one, or ``module:job`` (a ``Job``, or a function of (folder, **job_options))."""
    if name in SHIPPED:
        try:
            return SHIPPED[name](folder, url, **job_options)
        except TypeError as error:
            raise JobError(f"the job {name!r} does not take these job_options: {error}.") from None
    found = find_object(name, f"job is {name!r}, but a shipped one ({', '.join(SHIPPED)}) or module:job is expected.")
    if isinstance(found, Job):
        return found
    made = found(folder, **job_options)
    if not isinstance(made, Job):
        raise JobError(f"{name} made {made!r:.100}, but a Job is expected.")
    return made


def find_object(name: str, complaint: str) -> Any:
    """What ``module:attribute`` names; the current folder is searched too."""
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise JobError(complaint)
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise JobError(f"{name} cannot be had: {error}.") from None
