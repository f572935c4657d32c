"""The jobs of the golden records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import clonos
from clonos import Job, clock, col, random
from clonos.agg import count, max_, sum_
from clonos.api.windows import Tumbling
from clonos.connectors import files, sqlite
from clonos.demo.wordcount import READ, count_words
from tests.golden_stores.jobs import BEGIN_S, KEYS, NumbersInColumns
from tests.processes.harness.gated_source import Gate, GatedNumbers, GatedReader

TEXT: Final = "text.txt"
LINE_BYTES: Final = 40
WORDS: Final = ("cat", "dog", "owl", "bee")


class Lines(GatedNumbers):
    """Lines as the demo reads them, as far as the gate is open."""

    def reader(self) -> GatedReader:
        """Returns a reader of lines."""
        return ReaderOfLines(self.path, self.batch)


class ReaderOfLines(GatedReader):
    """Reader of one split."""

    def read(self, records_max: int) -> Any:
        """Returns lines with their file and offset."""
        numbers = super().read(records_max)
        return numbers and [(TEXT, n * LINE_BYTES, f"the {WORDS[n % 4]} and the house") for n in numbers]


def demo(folder: Path, url: str) -> Job:
    """Returns the job of the demo: rows, calls, and windows whose timers fire."""
    job = Job("demo", slots="process", parallelism=1, checkpoint_every="1h", store=str(folder / "store"))
    count_words(job.source(Lines(Gate(folder / "gate")), name=READ), {TEXT: TEXT}, url, folder / "output")
    return job


def columns(folder: Path, url: str) -> Job:
    """Returns a job on columns: an expression, totals and windows by key, and an immediate sink."""
    job = Job("columns", slots="thread", parallelism=1, checkpoint_every="1h", store=str(folder / "store"))
    rows = job.source(NumbersInColumns(Gate(folder / "gate")), name="read", timestamps="at")
    words = rows.with_columns(double=col("n") * 2).filter(col("n") % 5 > 0, name="some").key_by("word")
    words.window(Tumbling("20s")).aggregate(rows=count(), sum=sum_("double"), name="windows").sink(
        files.jsonl(str(folder / "windows")), name="written"
    )
    totals = words.aggregate(rows=count(), most=max_("double"), name="totals")
    table = sqlite(str(folder / "table.db"), "rows", ["word", "rows", "most"])
    totals.map(lambda pair: (pair[0], pair[1]["rows"], pair[1]["most"]), name="row").sink(table, name="table")
    return job


def failing(folder: Path, url: str) -> Job:
    """Returns a job with timers and state of each kind, the clock and random numbers, whose code raises in the end."""
    job = Job("failing", slots="thread", parallelism=1, checkpoint_every="1h", store=str(folder / "store"))
    numbers = job.source(GatedNumbers(Gate(folder / "gate")), name="read", timestamps=lambda n: BEGIN_S + n)
    keyed = numbers.map(lambda n: {"n": n, "key": n % KEYS}, name="row").key_by("key")
    keyed.process(Late, name="late").key_by(lambda row: row[0]).stateful_map(_checked, name="checked").sink(
        clonos.collect(), name="out"
    )
    return job


class Late(clonos.ProcessFunction[dict[str, int], tuple[Any, ...]]):
    """Emits each number 30 s of event time later, by a timer, with what the other kinds of state have."""

    waiting = clonos.MapState[float, int]("waiting")
    passed = clonos.ListState[int]("passed")

    def process(self, record: dict[str, int], context: clonos.Context[Any, tuple[Any, ...]]) -> None:
        """Sets a timer."""
        at_s = BEGIN_S + record["n"] + 30
        context.state(self.waiting)[at_s] = record["n"]
        context.set_event_timer(at_s)

    def on_event_timer(self, timestamp: datetime, context: clonos.Context[Any, tuple[Any, ...]]) -> None:
        """Emits what has waited."""
        passed = context.state(self.passed)
        passed.append(context.state(self.waiting).pop(timestamp.timestamp()))
        context.emit((context.key, passed[-1], clock.time_ns()))


def _checked(key: int, seen: int | None, row: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]]:
    if row[1] >= FAILS_AT:
        raise ValueError(f"{row[1]} is too large")
    return (seen or 0) + 1, (*row, seen, random.random())


FAILS_AT: Final = 55
JOBS: Final[dict[str, Callable[..., Job]]] = {"demo": demo, "columns": columns, "failing": failing}
KILLED: Final = {"demo": ("ask/0", "count/0")}
"""Tasks that are killed before their records are captured."""
