"""Shipped job of scenarios, whose records describe themselves, and the lookup of jobs by name.

    read -> ask (by key: service, draw, count) -> direct ----------------------------> merge -> files (transactional)
                                               -> window (by key) -> records of it ->       -> table (immediate)

Every record reaches two sinks by two paths, with everything drawn for it. Every step calls the service: ``ask`` for
each record, the others for some.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from clonos.api.windows import Tumbling
from clonos.connectors import files, sqlite
from clonos.core.model.errors import JobError
from clonos.job import Job
from clonos.operators.windows.window_results import WindowResult
from clonos_chaos.scenario.scenario_gate import SOURCES, Gated
from clonos_chaos.scenario.scenario_growth import growing, judge_growth
from clonos_chaos.scenario.scenario_oracle import Findings, judge_folder
from clonos_chaos.scenario.scenario_orders import judge_orders, ordered
from clonos_services import clock, http
from clonos_services import random as causal_random

KEYS: Final = 8
RECORDS: Final = 1_500
PER_SECOND: Final = 200.0
STEPS: Final = ("read", "ask", "window", "merge", "table")
"""Steps, each of which can be the victim of a fault."""

ASKED_EVERY: Final = 8
"""Steps other than ``ask`` call the service for every eighth record of a key, each step for different ones."""

COLUMNS: Final = (
    *("source", "offset", "path", "key", "seen", "draw", "answer", "read_ns", "window", "at_ns", "number"),
    *("by_read", "by_window", "by_merge", "by_table"),
)
CALL_TIMEOUT_S: Final = 0.4
NO_ANSWER: Final = -1
"""Answer recorded when none came in time."""

NOT_ASKED: Final = 0

Row = dict[str, Any]


class InjectedError(RuntimeError):
    """Error that a fault injects into user code."""


class ScenarioSteps:
    """Functions of the job. ``folder``: where a fault leaves a file that makes user code raise."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = str(folder), url

    def stamp(self, record: tuple[int, int]) -> Row:
        """Makes a row of a record, with the time of reading."""
        source, offset = record
        row = {"source": source, "offset": offset, "key": offset % KEYS, "read_ns": clock.time_ns()}
        return row | {"by_read": self.ask_some("read", row)}

    def ask(self, _key: int, seen: int | None, row: Row) -> tuple[int, Row]:
        """Adds a call, a draw and a count to a record."""
        answer = self._ask("ask", row)
        count = (seen or 0) + 1
        return count, {**row, "seen": count, "draw": causal_random.getrandbits(40), "answer": answer}

    def records_of(self, window: WindowResult[int, list[Row]]) -> list[Row]:
        """Returns the records of a window, each with its window."""
        start = window.start.isoformat()
        return [
            {**row, "path": "window", "window": start, "by_window": self.ask_some("window", row)}
            for row in window.value
        ]

    def merge(self, _everything: int, number: int | None, row: Row) -> tuple[int, Row]:
        """Numbers the rows for both sinks."""
        count = (number or 0) + 1
        by_merge = self.ask_some("merge", row)
        return count, {**row, "at_ns": clock.time_ns(), "number": count, "by_merge": by_merge, "by_table": NOT_ASKED}

    def sign(self, row: Row) -> Row:
        """Completes a row for the table."""
        return {**row, "by_table": self.ask_some("table", row)}

    def ask_some(self, step: str, row: Row) -> int:
        """Calls the service for every eighth record of a key; returns 0 for the others."""
        if row["offset"] // KEYS % ASKED_EVERY == STEPS.index(step):
            return self._ask(step, row)
        self._raise_if_injected(step, row)
        return NOT_ASKED

    def _ask(self, step: str, row: Row) -> int:
        """Calls the service; a failure or a timeout is an answer too."""
        self._raise_if_injected(step, row)
        question = {name: str(row.get(name, "")) for name in ("path", "source", "offset")} | {"step": step}
        try:
            reply = http.get(self.url, params=question, timeout=CALL_TIMEOUT_S, retries=0)
            return int(reply.json()["answer"])
        except http.HttpError:
            return NO_ANSWER

    def _raise_if_injected(self, step: str, row: Row) -> None:
        """Raises when a file demands it: once, or at one record in each incarnation. Bypasses the causal services."""
        word = Path(self.folder, f"raise-{step}")
        if not word.exists():
            return
        if word.read_text("utf-8") == "once":
            word.unlink()
            raise InjectedError(f"injected: {step} raises once, at {row['source']}, {row['offset']}")
        place = Path(self.folder, f"raised-{step}")
        here = f"{row['source']} {row['offset']}"
        if not place.exists():
            place.write_text(here, "utf-8")
        if place.read_text("utf-8") == here:
            raise InjectedError(f"injected: {step} raises each time at this record: {here}")


def key_of(row: Row) -> int:
    """Returns the key for counts and windows."""
    return int(row["key"])


def directly(row: Row) -> Row:
    """Makes the row of the direct path."""
    return {**row, "path": "direct", "window": "", "by_window": NOT_ASKED}


def described(
    folder: Path, url: str, *, records: int = RECORDS, per_second: float = PER_SECOND, window: str = "200ms"
) -> Job:
    """Makes the job with its outputs in ``folder``. The runner admits at most ``records``, ``per_second``."""
    assert records > 0, per_second
    steps = ScenarioSteps(folder, url)
    job = Job("described", parallelism=2)
    rows = job.source(Gated(folder), parallelism=1, name="read").map(steps.stamp, parallelism=1)
    asked = rows.key_by(key_of).stateful_map(steps.ask, name="ask")
    windowed = asked.key_by(key_of).window(Tumbling(window)).aggregate(list, list.append, name="window")
    both = asked.map(directly).union(windowed.flat_map(steps.records_of))
    merged = both.key_by(lambda _row: 0).stateful_map(steps.merge, name="merge", parallelism=1)
    merged.sink(files.jsonl(str(folder / "output")), name="files", parallelism=1)
    signed = merged.rebalance().map(steps.sign, name="table", parallelism=1)
    signed.sink(sqlite(str(folder / "table.sqlite"), "rows", columns=COLUMNS), name="rows", parallelism=1)
    return job


def judge_described(folder: Path) -> Findings:
    """Judges both outputs of the job ``described`` in a run's folder."""
    return judge_folder(folder, SOURCES)


SHIPPED: Final[Mapping[str, Callable[..., Job]]] = {"described": described, "ordered": ordered, "growing": growing}
"""Shipped jobs by name: functions of the output folder and the address of the service."""

ORACLES: Final[Mapping[str, Callable[[Path], Findings]]] = {
    "described": judge_described,
    "ordered": judge_orders,
    "growing": judge_growth,
}
"""Oracles of the shipped jobs: functions of the run's folder."""


def pace_of(job_options: Mapping[str, Any]) -> tuple[int, float]:
    """Returns the number of records of a shipped job and its rate per second. Raises JobError: an option is invalid."""
    found = {"records": RECORDS, "per_second": PER_SECOND} | dict(job_options)
    for key in ("records", "per_second"):
        value = found[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise JobError(f"the job option {key} is {value!r}, but a number above 0 is expected.")
    return int(found["records"]), float(found["per_second"])


def make_job(name: str, folder: Path, url: str, job_options: Mapping[str, Any]) -> Job:
    """Makes a shipped job, or ``module:job`` (a ``Job`` or a function of (folder, **job_options)).

    Raises JobError: the name or the options are invalid.
    """
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
        raise JobError(f"{name} returned {made!r:.100}, but a Job is expected.")
    return made


def find_oracle(name: str) -> Callable[[Path], Mapping[str, Any]] | None:
    """Returns the oracle of a user's job, a function of the run's folder, or None. Raises JobError."""
    if not name:
        return None
    found = find_object(name, f"oracle is {name!r}, but module:function is expected.")
    if not callable(found):
        raise JobError(f"oracle is {name!r}, which is {found!r:.100}, but a function of the run's folder is expected.")
    return found  # type: ignore[no-any-return]


def find_object(name: str, complaint: str) -> Any:
    """Returns the object named by ``module:attribute``; searches the current folder too. Raises JobError."""
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise JobError(complaint)
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise JobError(f"{name} cannot be imported: {error}.") from None
