"""Inputs of the tests of joins: two timed streams whose splits also wait, and runs that are restored now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.core.model.metric_series import late_records
from clonos.core.model.options import Options
from clonos.core.task.watermarks import InputWatermarks
from clonos.core.values import register
from clonos.operators.steps.context import Context
from clonos.operators.tags import Tag
from tests.unit.operators.driver import START_NS, Outbox, Run

SECOND_NS = 1_000_000_000
START = START_NS // SECOND_NS
LATE = Tag[Any]("late")


@register
class Given(NamedTuple):
    """Record of a side: its key, its time in seconds since the start, and its number, which is unique in the side."""

    key: Any
    at: int
    number: int


class Scripted:
    """Source of rows; None in place of one: it has nothing just now. Task i of n has every n-th."""

    def __init__(self, script: Iterable[Any]) -> None:
        self.script = list(script)

    def splits(self, parallelism: int) -> list[bytes]:
        return [f"{index} {parallelism}".encode() for index in range(parallelism)]

    def reader(self) -> ScriptedReader:
        return ScriptedReader(self.script)


class ScriptedReader:
    """Reader of a share of the script."""

    def __init__(self, script: list[Any]) -> None:
        self.script = script
        self.place = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        index, width = map(int, split.split())
        self.share = self.script[index::width]
        self.place = int(mark or b"0")

    def read(self, records_max: int) -> list[Any] | None:
        if self.place == len(self.share):
            return None
        found: list[Any] = []
        for row in self.share[self.place : self.place + records_max]:
            if row is None:
                self.place += not found
                break
            found.append(row)
        self.place += len(found)
        return found

    def mark(self) -> bytes:
        return str(self.place).encode()

    def close(self) -> None:
        pass


class Stamped:
    """Emits each record with its time, and sees that no record is late."""

    def process(self, value: Any, context: Context[Any, Any]) -> None:
        assert context.timestamp_ns is not None
        assert context.watermark_ns is None or context.timestamp_ns >= context.watermark_ns, "the step before is ahead"
        context.emit((value, (context.timestamp_ns - START_NS) // SECOND_NS))


def script_of(rows: Sequence[Sequence[Any] | None]) -> list[Given | None]:
    """Numbers the rows (key, time)."""
    return [None if row is None else Given(row[0], row[1], number) for number, row in enumerate(rows)]


def scripts(keys: Sequence[Any] = ("a", "b"), waits: bool = True) -> st.SearchStrategy[list[Given | None]]:
    """Rows of a side in the order of arrival; every sixth or so is a wait, which a restored run may repeat."""
    row = st.tuples(st.sampled_from(keys), st.integers(0, 30))
    rows = st.one_of(row, row, row, row, row, st.none()) if waits else row
    return st.lists(rows, max_size=25).map(script_of)


def ordered(script: Iterable[Given | None], disorder: int) -> list[Given]:
    """Sorts a script so that each record is at most ``disorder`` seconds behind an earlier one."""
    rows = [row for row in script if row is not None]
    return sorted(rows, key=lambda row: (row.at + row.number * 7 % (disorder + 1), row.number))


def timed(graph: JobGraph, script: Iterable[Given | None], disorder: int = 0, idle: bool = False) -> Stream[Given]:
    """Source of a side."""
    timestamps = Timestamps(
        _at,
        out_of_order=f"{disorder}s" if disorder else None,
        watermark_every="1s",
        idle_after="5s" if idle else None,
        future_max=None,
    )
    return graph.source(Scripted(script), timestamps=timestamps)


def _at(row: Given) -> int:
    return START + row.at


def key_of(row: Given) -> Any:
    """Returns the key of a row."""
    return row.key


def on_time(script: Iterable[Given | None], late: Iterable[Any]) -> list[Given]:
    """The records of a side that are not among the late ones."""
    left_out = set(late)
    return [row for row in script if row is not None and row not in left_out]


def odd_or_even(script: Iterable[Given | None], is_odd: bool) -> list[Given | None]:
    """Gives a side odd or even numbers, so that late records of both sides can be told apart."""
    return [None if row is None else row._replace(number=row.number * 2 + is_odd) for row in script]


def same(found: Iterable[Any], expected: Iterable[Any]) -> bool:
    """Compares two collections whatever their order."""
    return sorted(map(repr, found)) == sorted(map(repr, expected))


def sunk(joined: Stream[Any], late: bool = True, parallelism: int | None = None) -> None:
    """Shows the results in ``out``, and the late records in ``late``."""
    joined.process(Stamped, name="out", parallelism=parallelism).sink(Outbox())
    if late:
        joined.side_output(LATE).rebalance().map(_same, name="late", parallelism=1).sink(Outbox())


def _same(row: Any) -> Any:
    return row


def played(
    build: Callable[[JobGraph], None], parallelism: int, records_max: int, seconds: int = 1
) -> dict[str, list[Any]]:
    """Runs a job to its end; ``seconds`` pass at each turn. Returns what has reached the sinks."""
    graph = JobGraph("job")
    build(graph)
    running = Run(graph.compile(Options(), parallelism=parallelism))
    while running.read(records_max):
        running.drain()
        running.pass_time(seconds)
    running.finish(records_max)
    running.close()
    written = shown(running)
    if "late" in written:
        assert sum(late_records(running.clock.metric_table.families()).values()) == len(written["late"])
    return written


def shown(running: Run) -> dict[str, list[Any]]:
    """What has reached the sinks, by name."""
    return {name.removesuffix("-sink"): rows for name, rows in running.written.items()}


def restored(running: Run, checkpoint: int) -> Run:
    """A run that goes on where this one has taken a barrier."""
    taken, written = running.barrier(checkpoint), running.written
    running.close()
    found = Run(running.image, taken, running.clock)
    found.written = written
    found.watermarks = {
        task: InputWatermarks(found.channels_of(task), running.watermarks[task].event_time())
        for task in found.plan.tasks
    }
    return found


ACTIONS = st.lists(st.sampled_from(["read", "read", "read", "time", "barrier", "full barrier", "restore"]), max_size=40)


def steady_and_troubled(
    build: Callable[[JobGraph], None], actions: Sequence[str], parallelism: int, records_max: int
) -> tuple[Any, Any]:
    """What a run without restores has written, and one with them."""
    graph = JobGraph("job")
    build(graph)
    image = graph.compile(Options(), parallelism=parallelism)
    steady, troubled = Run(image), Run(image)
    for checkpoint, action in enumerate([*actions, "restore"], start=1):
        if action in ("read", "time"):
            for each in (steady, troubled):
                each.read(records_max) if action == "read" else each.pass_time(3)
                each.drain()
        elif action == "restore":
            troubled = restored(troubled, checkpoint)
        else:
            troubled.barrier(checkpoint, full=action.startswith("full"))
    for each in (steady, troubled):
        each.finish(records_max)
        each.close()
    return steady.written, troubled.written
