"""The jobs of the golden stores. Each output is a function of the input alone, for any number of tasks."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow

import clonos
from clonos.agg import collect, count, max_, mean, sum_
from clonos.api.emission import at_end
from clonos.api.windows import Session, Sliding, Tumbling
from clonos.connectors import files, sqlite, values
from clonos.job import Job
from tests.processes.harness.gated_source import Gate, GatedNumbers, GatedReader

Row = dict[str, int]

SPLITS, KEYS, BEGIN_S = 3, 7, 1_700_000_000
CALLS_ANSWERED: Final = 84
"""Calls for numbers from here on wait until there is the file ``answers``."""
CALLS_ASKED: Final = 96


class Numbers(GatedNumbers):
    """Three splits for any number of tasks."""

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns the splits."""
        return super().splits(SPLITS)


class NumbersInColumns(Numbers):
    """Batches with a number, its key and its time."""

    is_columnar = True

    def reader(self) -> GatedReader:
        """Returns a reader of batches."""
        return ReaderOfColumns(self.path, self.batch)


class ReaderOfColumns(GatedReader):
    """Reader of one split."""

    def read(self, records_max: int) -> Any:
        """Returns a batch."""
        if not (numbers := super().read(records_max)):
            return numbers
        times = pyarrow.array([(BEGIN_S + n) * 1_000_000 for n in numbers], pyarrow.timestamp("us", "UTC"))
        words = pyarrow.array([n % KEYS for n in numbers], pyarrow.int64())
        return pyarrow.record_batch({"n": pyarrow.array(numbers, pyarrow.int64()), "word": words, "at": times})


class GoldenJob:
    """A job in a folder, with its outputs: a table, and files in one folder for each of ``names``."""

    name: ClassVar[str]
    names: ClassVar[tuple[str, ...]]
    widths: ClassVar[tuple[tuple[str, ...], ...]]
    """Widths with which tests let it go on, other than its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gate, self.store = folder, Gate(folder / "gate"), str(folder / "store")

    def job(self) -> Job:
        """Returns the job."""
        job = Job(self.name, slots="thread", checkpoint_every="1h", store=self.store, parallelism=2, standbys=0)
        self._describe(job)
        return job

    def _describe(self, job: Job) -> None:
        raise NotImplementedError

    def answer_calls(self) -> None:
        """Lets all calls return."""
        (self.folder / "answers").touch()

    def rows(self) -> list[Any]:
        """Returns the rows of the table, sorted."""
        try:
            with closing(sqlite3.connect(self.folder / "table.db", timeout=20)) as connection:
                return connection.execute("SELECT n, word FROM rows ORDER BY n").fetchall()
        except sqlite3.OperationalError:
            return []

    def output(self) -> dict[str, list[Any]]:
        """Returns all output, sorted."""
        found = {name: sorted(map(repr, files.read_committed(self.folder / name))) for name in self.names}
        return {**found, "table": self.rows()}

    def _table(self, stream: Any) -> None:
        stream.sink(self._moved(sqlite(str(self.folder / "table.db"), "rows", ["n", "word"])), name="table")

    def _written(self, stream: Any, name: str) -> None:
        stream.sink(self._moved(files.jsonl(str(self.folder / name))), name=name)

    def _moved(self, sink: Any) -> Any:
        """Returns a sink whose place a checkpoint names without the folder, so that the folder may be moved."""
        place = os.path.realpath(self.folder)
        described = [(what, text.replace(place, ".")) for what, text in sink.describe_output()]
        sink.describe_output = lambda: described
        return sink

    def _numbers(self, job: Job) -> Any:
        numbers = job.source(Numbers(self.gate), name="read", timestamps=lambda n: BEGIN_S + n)
        return numbers.map(lambda n: {"n": n, "word": n % KEYS}, name="row")


@clonos.register
@dataclass(frozen=True)
class Seen:
    """State of a key of ``stateful_map``."""

    count: int
    last: datetime


class Rows(GoldenJob):
    """Windows, joins, aggregates and choices over rows."""

    name = "rows"
    names = ("windows", "sessions", "sliding", "joined", "versions", "before", "totals", "distinct", "least")
    widths = (
        ("read=3", "seen=4", "windows-of=1", "sessions-of=3", "join=3", "as-of=3", "lag=4", "total=1", "once=4"),
        ("read=1", "seen=1", "windows-of=3", "sliding-of=4", "join=1", "as-of=1", "lag=1", "total=5", "most=3"),
    )

    def _describe(self, job: Job) -> None:
        rows = self._numbers(job)
        words = rows.key_by("word")
        self._table(words.stateful_map(_numbered, name="seen"))
        windows = words.window(Tumbling("20s")).aggregate(
            rows=count(), sum=sum_("n"), all=collect("n"), name="windows-of"
        )
        self._written(windows.map(_shown_window), "windows")
        sparse = rows.filter(lambda row: row["n"] % 50 < 25, name="sparse").key_by("word")
        sessions = sparse.window(Session("10s")).aggregate(rows=count(), mean=mean("n"), name="sessions-of")
        self._written(sessions.map(_shown_window), "sessions")
        sliding = words.window(Sliding("40s", every="10s")).aggregate(rows=count(), max=max_("n"), name="sliding-of")
        self._written(sliding.map(_shown_window), "sliding")
        threes = rows.filter(lambda row: row["n"] % 3 == 0, name="threes")
        joined = rows.join(threes, on="word", between=("-25s", "25s"), how="left", name="join")
        self._written(joined.map(_shown_pair), "joined")
        self._written(rows.join_as_of(threes, on="word", name="as-of").map(_shown_pair), "versions")
        self._written(words.lag(name="lag").map(_shown_pair), "before")
        self._written(words.aggregate(rows=count(), mean=mean("n"), emit=at_end(), name="total"), "totals")
        halves = rows.map(lambda row: row["n"] // 2, name="half")
        self._written(halves.distinct(name="once"), "distinct")
        least = words.top_k(2, lambda row: -row["n"], name="most").key_by(lambda pair: pair[0])
        self._written(least.fold(list[int](), _last_list, emit=at_end(), name="last"), "least")


def _numbered(word: int, seen: Seen | None, row: Row) -> tuple[Seen, Row]:
    found = seen or Seen(0, datetime.fromtimestamp(0).astimezone())
    return Seen(found.count + 1, datetime.fromtimestamp(BEGIN_S + row["n"]).astimezone()), {
        "word": word,
        "n": found.count * KEYS + word,
    }


def _last_list(_: list[int], pair: tuple[int, list[Row]]) -> list[int]:
    return [row["n"] for row in pair[1]]


def _shown_window(window: Any) -> list[Any]:
    value = {name: sorted(found) if isinstance(found, list) else found for name, found in window.value.items()}
    return [window.key, window.start.timestamp(), window.end.timestamp(), value]


def _shown_pair(pair: tuple[Row, Row | None]) -> list[Any]:
    return [pair[0]["n"], pair[1]["n"] if pair[1] else None]


class UserState(GoldenJob):
    """State of user code of each kind, timers, broadcast state, and calls of which some have no answer yet."""

    name = "user-state"
    names = ("late", "dealt", "checked", "asked", "enriched")
    widths = (("read=3", "seen=4", "timers=4", "deal=3"), ("read=1", "seen=1", "timers=1", "deal=1"))
    # Steps in which rows wait for calls, and those with broadcast state, keep their width.

    def _describe(self, job: Job) -> None:
        rows, answers = self._numbers(job), self.folder / "answers"
        words = rows.key_by("word")
        self._table(words.stateful_map(_numbered, name="seen"))
        self._written(words.process(Late, name="timers"), "late")
        self._written(rows.rebalance().process(Dealt, name="deal"), "dealt")
        rules = job.source(values(range(KEYS)), name="rules", parallelism=1, timestamps=lambda _: BEGIN_S)
        self._written(words.connect(rules.broadcast()).process(Checked, name="check"), "checked")

        # More calls than these would wait for room, and the source for them.
        def answered(row: Row) -> int:
            while row["n"] >= CALLS_ANSWERED and not answers.exists():
                threading.Event().wait(0.01)
            return -row["n"]

        first = rows.filter(lambda row: row["n"] < CALLS_ASKED, name="first").rebalance()
        self._written(first.map_async(answered, capacity=8, ordered=False, name="ask"), "asked")

        def squares(keys: list[int]) -> dict[int, int]:
            while max(keys) >= CALLS_ANSWERED and not answers.exists():
                threading.Event().wait(0.01)
            return {key: key * key for key in keys}

        enriched = first.enrich_batch(squares, on="n", into="square", cache=4, capacity=16, name="enrich")
        self._written(enriched.map(lambda row: [row["n"], row["square"]]), "enriched")


class Late(clonos.ProcessFunction[Row, list[Any]]):
    """Emits each number 30 s of event time later, by a timer, with what the other kinds of state have."""

    waiting = clonos.MapState[float, int]("waiting")
    passed = clonos.ListState[int]("passed", ttl="1h")
    seen = clonos.ValueState[Seen | None]("seen", default=None)

    def process(self, record: Row, context: clonos.Context[Any, list[Any]]) -> None:
        at_s = BEGIN_S + record["n"] + 30
        context.state(self.waiting)[at_s] = record["n"]
        context.set_event_timer(at_s)
        context.set_timer(4_000_000_000)  # in the year 2096, or at the end of the input

    def on_event_timer(self, timestamp: datetime, context: clonos.Context[Any, list[Any]]) -> None:
        number = context.state(self.waiting).pop(timestamp.timestamp())
        passed, seen = context.state(self.passed), context.state(self.seen)
        passed.append(number)
        del passed[:-5]
        seen.value = Seen(seen.value.count + 1 if seen.value else 1, timestamp)
        context.emit([number, seen.value.count, [*passed]])

    def on_timer(self, timestamp: datetime, context: clonos.Context[Any, list[Any]]) -> None:
        context.emit(["end", context.key])


class Dealt(clonos.ProcessFunction[Row, int]):
    """Keeps all numbers in the state of the task, and emits them at the end of the input."""

    retained = clonos.ListState[int]("retained", on_rescale="deal")

    def process(self, record: Row, context: clonos.Context[Any, int]) -> None:
        context.state(self.retained).append(record["n"])
        context.set_timer(4_000_000_000)

    def on_timer(self, timestamp: datetime, context: clonos.Context[Any, int]) -> None:
        retained = context.state(self.retained)
        for number in retained:
            context.emit(number)
        retained.clear()


class Checked:
    """Compares numbers with broadcast rules, when all rules of their time have come."""

    rules = clonos.MapState[int, int]("rules")
    waiting = clonos.ListState[int]("waiting")

    def process_first(self, record: Row, context: clonos.TwoInputContext[int, list[int]]) -> None:
        context.state(self.waiting).append(record["n"])
        context.set_event_timer(BEGIN_S + record["n"] + 20)

    def process_second(self, rule: int, context: clonos.TwoInputContext[int, list[int]]) -> None:
        context.broadcast_state(self.rules)[rule] = rule * 10

    def on_event_timer(self, timestamp: datetime, context: clonos.TwoInputContext[int, list[int]]) -> None:
        due = timestamp.timestamp() - BEGIN_S - 20
        waiting = context.state(self.waiting)
        for number in [n for n in waiting if n <= due]:
            waiting.remove(number)
            context.emit([number, context.broadcast_state(self.rules)[number % KEYS]])


class Columns(GoldenJob):
    """Running totals, windows, joins and choices in columns."""

    name = "columns"
    names = ("windows", "sessions", "joined", "versions", "distinct")
    widths = (
        ("read=3", "seen=4", "windows-of=1", "sessions-of=3", "join=3", "as-of=1", "once=4"),
        ("read=1", "seen=1", "windows-of=3", "sessions-of=1", "join=1", "as-of=3", "once=1"),
    )

    def _describe(self, job: Job) -> None:
        rows = job.source(NumbersInColumns(self.gate), name="read", timestamps="at")
        words = rows.key_by("word")
        totals = words.aggregate(rows=count(), name="seen")
        self._table(totals.map(_of_total, name="number"))
        self._written(words.window(Tumbling("20s")).aggregate(n=sum_("n"), name="windows-of"), "windows")
        self._written(words.window(Session("5s")).aggregate(n=count(), name="sessions-of"), "sessions")
        threes = rows.filter(clonos.col("n") % 3 == 0, name="threes")
        self._written(rows.join(threes, on="word", between=("-25s", "25s"), name="join"), "joined")
        self._written(rows.join_as_of(threes, on="word", name="as-of"), "versions")
        once = words.deduplicate(name="once")
        self._written(once.map(_word, name="word"), "distinct")


def _word(row: Any) -> int:
    word: int = row["word"]
    return word


def _of_total(pair: tuple[int, dict[str, int]]) -> Row:
    return {"n": (pair[1]["rows"] - 1) * KEYS + pair[0], "word": pair[0]}


class Moved(UserState):
    """State of user code whose widths were changed twice, without a checkpoint of a task in between."""


JOBS: Final[dict[str, type[GoldenJob]]] = {"rows": Rows, "user-state": UserState, "columns": Columns, "moved": Moved}
"""The jobs by the names of their golden stores."""
