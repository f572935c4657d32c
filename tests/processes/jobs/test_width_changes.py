"""A job that goes on with another number of tasks of its steps: nothing is lost, repeated or contradicted."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow
import pytest

import clonos
from clonos.agg import count, sum_
from clonos.api.windows import Session, Tumbling
from clonos.connectors import files, sqlite
from clonos.connectors.connector_errors import TableUnavailable
from clonos.core.checkpoint.checkpoint_metadata import decode_metadata, encode_metadata
from clonos.core.model.progress import TaskPhase
from clonos.io.store.metadata_chain import FOLDER
from clonos.io.store.store import CheckpointStore
from clonos.job import Job
from clonos.job.continuing.start_widths import WidthMalformed, WidthsRefused
from clonos.job.continuing.state_transfer import head_of
from clonos.operators.connector_contract import Registration, WriterIdentity
from tests.processes.harness.gated_source import Gate, GatedNumbers, GatedReader
from tests.speed import scaled
from tests.waiting import await_condition

pytestmark = pytest.mark.processes

LIMIT_S = scaled(30.0)
wait_until = partial(await_condition, LIMIT_S)
SPLITS, KEYS, BEGIN_S = 3, 7, 1_700_000_000


class Numbers(GatedNumbers):
    """Three splits for any number of tasks."""

    def splits(self, parallelism: int) -> list[bytes]:
        return super().splits(SPLITS)


class Flow:
    """Job that writes numbers into files and into a table."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.gate = folder, Gate(folder / "gate")
        self.database = str(folder / "table.db")

    def job(self, parallelism: int = 2, **options: Any) -> Job:
        store = str(self.folder / "store")
        job = Job("flow", slots="process", checkpoint_every="200ms", store=store, parallelism=parallelism, **options)
        numbers = job.source(Numbers(self.gate), name="read")
        rows = numbers.map(lambda n: {"n": n, "word": n % KEYS}, name="row").rebalance()
        rows.map(lambda row: row["n"], name="number").sink(files.jsonl(str(self.folder / "files")), name="files")
        rows.map(lambda row: row, name="copy").sink(sqlite(self.database, "rows", ["n", "word"]), name="table")
        return job

    def files(self) -> list[int]:
        """Numbers in the files, sorted."""
        return sorted(files.read_committed(self.folder / "files"))

    def table(self, query: str = "SELECT n FROM rows ORDER BY n") -> list[Any]:
        """First column of rows of the table."""
        try:
            with closing(sqlite3.connect(self.database, timeout=20)) as connection:
                return [first for first, *_ in connection.execute(query)]
        except sqlite3.OperationalError:
            return []

    def run_to(self, records: int, parallelism: int = 2, *, is_aborted: bool = False, **options: Any) -> None:
        """Runs until each split has given ``records`` records, and stops the job, with or without a checkpoint."""
        self.gate.open_to(records)
        with self.job(parallelism).start(resume=True, **options) as handle:
            wait_until(lambda: len(self.table()) == records * SPLITS)
            handle.stop(drain=not is_aborted)
            handle.wait(LIMIT_S)


class WatchedTable:
    """Table whose registrations wait or fail where a test wants it."""

    can_roll_back = True
    #: Registrations of a driver in this process that succeed; more than that fail
    registrations_left: ClassVar[int] = 1_000

    def __init__(self, sink: Any, folder: Path) -> None:
        self.sink, self.folder, self.driver_pid = sink, folder, os.getpid()

    def immediate_writer(self) -> WatchedWriter:
        return WatchedWriter(self)


class WatchedWriter:
    """Connection of a task. A first task that runs registers after the second has written, if that is ``awaited``."""

    def __init__(self, table: WatchedTable) -> None:
        self._table, self._writer = table, table.sink.immediate_writer()
        self._task = ""

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        table, self._task = self._table, identity.task_name
        if os.getpid() == table.driver_pid:
            WatchedTable.registrations_left -= 1
            if WatchedTable.registrations_left < 0:
                raise TableUnavailable("rows", "registering", "the test ends the start here")
        elif self._task.endswith("/0") and (table.folder / "awaited").exists():
            wait_until((table.folder / "written").exists)
        registration: Registration = self._writer.register(identity, restored_number)
        return registration

    def write(self, first_number: int, rows: list[Any]) -> int:
        next_number: int = self._writer.write(first_number, rows)
        if self._task.endswith("/1"):
            (self._table.folder / "written").touch()
        return next_number

    def forget(self, before_number: int) -> None:
        self._writer.forget(before_number)

    def close(self) -> None:
        self._writer.close()


class Upserts(Flow):
    """Job that writes the last number of each key into a table with a key."""

    def job(self, parallelism: int = 2, **options: Any) -> Job:
        store = str(self.folder / "store")
        job = Job("upserts", slots="process", store=store, parallelism=parallelism, **options)
        rows = job.source(Numbers(self.gate), name="read").map(lambda n: {"n": n, "word": n % 99}, name="row")
        sink = sqlite(self.database, "rows", ["word", "n"], upsert=["word"])
        rows.key_by("word").sink(WatchedTable(sink, self.folder), name="last")
        return job

    def store(self) -> CheckpointStore:
        """The store of its checkpoints."""
        found = CheckpointStore(str(self.folder / "store"))
        found.find_job()
        return found

    def run(self, records: int, tasks: int, *, is_aborted: bool = False) -> None:
        """Runs until all records of the splits are in the table."""
        self.gate.open_to(records)
        # Later checkpoints would forget what rows have replaced.
        job = self.job(checkpoints_retained=50, checkpoint_every="1h")
        with job.start(resume=True, widths=(f"last={tasks}",)) as handle:
            wait_until(lambda: self.table() == _last_of_each_word(records * SPLITS))
            handle.stop(drain=not is_aborted)
            handle.wait(LIMIT_S)

    def restart(self, **options: Any) -> None:
        """Lets the job go on with no further records until its tasks have begun."""
        self.gate.open_to(50)
        with self.job().start(resume=True, checkpoints_retained=50, **options) as handle:
            wait_until(lambda: all(task.phase is TaskPhase.LIVE for task in handle.status().tasks))
            handle.stop()
            handle.wait(LIMIT_S)


class Waiting(Flow):
    """Job in which records wait: for a call until the test lets it return, or for rows that leave with them."""

    def __init__(self, folder: Path, has_calls: bool) -> None:
        super().__init__(folder)
        self.has_calls = has_calls
        self.state = "call/open calls" if has_calls else "table.flush/waiting"

    def job(self, parallelism: int = 2, **options: Any) -> Job:
        store, answers = str(self.folder / "store"), self.folder / "answers"
        job = Job("waiting", slots="process", checkpoint_every="200ms", store=store, parallelism=parallelism, **options)

        def call(row: dict[str, int]) -> dict[str, int]:
            wait_until(answers.exists)
            return row

        numbers = job.source(Numbers(self.gate), name="read")
        rows = numbers.map(lambda n: {"n": n, "word": n % KEYS}, name="row").rebalance()
        if self.has_calls:
            rows = rows.map_async(call, name="call")
        flush = None if self.has_calls else clonos.each(3)
        rows.map(lambda row: row, name="copy").sink(
            sqlite(self.database, "rows", ["n", "word"]), flush=flush, name="table"
        )
        return job

    def waiting(self) -> tuple[int, set[str]]:
        """Number of the last checkpoint, and the state of its tasks in which records wait."""
        store = CheckpointStore(str(self.folder / "store"))
        store.find_job()
        if not store.checkpoints():
            return 0, set()
        metadata = decode_metadata(store.checkpoint_metadata(), "the chain")
        heads = [head_of(entry, store.read_object) for entry in metadata.tasks]
        return metadata.checkpoint, {name for head in heads if head is not None for name in head.waiting}

    def chain(self) -> list[str]:
        """Names of the entries of the chain."""
        return sorted(path.name for path in (self.folder / "store" / "chain").iterdir())


class States(Flow):
    """Job with keyed state, windows, a join, and timers. Each output is a function of the input alone."""

    def job(self, parallelism: int = 2, **options: Any) -> Job:
        store = str(self.folder / "store")
        job = Job("states", slots="process", checkpoint_every="200ms", store=store, parallelism=parallelism, **options)
        numbers = job.source(Numbers(self.gate), name="read", timestamps=lambda n: BEGIN_S + n)
        rows = numbers.map(lambda n: {"n": n, "word": n % KEYS}, name="row")
        by_word = rows.key_by("word")
        seen = by_word.stateful_map(_numbered, name="seen")
        seen.sink(sqlite(self.database, "rows", ["n", "word"]), name="table")
        windows = by_word.window(Tumbling("20s")).aggregate(rows=count(), name="per-window")
        self._written(windows.map(lambda each: [each.key, each.end.timestamp(), each.value["rows"]]), "windows")
        threes = rows.filter(lambda row: row["n"] % 3 == 0, name="threes")
        joined = rows.join(threes, on="word", between=("-25s", "25s"), name="join")
        self._written(joined.map(lambda pair: [pair[0]["n"], pair[1]["n"]]), "joined")
        self._written(rows.key_by(lambda row: row["word"]).process(Late, name="late"), "timers")
        return job

    def _written(self, stream: Any, name: str) -> None:
        stream.sink(files.jsonl(str(self.folder / name)), name=name)

    def written(self) -> dict[str, list[Any]]:
        """What each output shows, sorted."""
        found = {name: sorted(files.read_committed(self.folder / name)) for name in ("windows", "joined", "timers")}
        return {**found, "rows": self.table()}


class Late(clonos.ProcessFunction[dict[str, int], list[int]]):
    """Emits each number 30 s of event time later, by a timer."""

    waiting = clonos.MapState[float, int]("waiting")

    def process(self, record: dict[str, int], context: clonos.Context[Any, list[int]]) -> None:
        context.state(self.waiting)[BEGIN_S + record["n"] + 30] = record["n"]
        context.set_event_timer(BEGIN_S + record["n"] + 30)

    def on_event_timer(self, timestamp: datetime, context: clonos.Context[Any, list[int]]) -> None:
        context.emit([int(timestamp.timestamp()), context.state(self.waiting).pop(int(timestamp.timestamp()))])


class Columns(States):
    """The same in columns: running totals, windows, and a join."""

    def job(self, parallelism: int = 2, **options: Any) -> Job:
        store = str(self.folder / "store")
        job = Job("columns", slots="process", checkpoint_every="200ms", store=store, parallelism=parallelism, **options)
        rows = job.source(NumbersInColumns(self.gate), name="read", timestamps="at")
        by_word = rows.key_by("word")
        totals = by_word.aggregate(rows=count(), name="seen")
        numbers = totals.map(lambda pair: {"n": (pair[1]["rows"] - 1) * KEYS + pair[0], "word": pair[0]}, name="number")
        numbers.sink(sqlite(self.database, "rows", ["n", "word"]), name="table")
        self._written(by_word.window(Tumbling("20s")).aggregate(n=sum_("n"), name="per-window"), "windows")
        threes = rows.filter(clonos.col("n") % 3 == 0, name="threes")
        self._written(rows.join(threes, on="word", between=("-25s", "25s"), name="join"), "joined")
        self._written(by_word.window(Session("5s")).aggregate(n=count(), name="late"), "timers")
        return job

    def written(self) -> dict[str, list[Any]]:
        """What each output shows, sorted."""
        names = ("windows", "joined", "timers")
        found = {name: sorted(map(repr, files.read_committed(self.folder / name))) for name in names}
        return {**found, "rows": self.table()}


class NumbersInColumns(Numbers):
    """Batches with a number, its key and its time."""

    is_columnar = True

    def reader(self) -> GatedReader:
        return ReaderOfColumns(self.path, self.batch)


class ReaderOfColumns(GatedReader):
    """Reader of one split."""

    def read(self, records_max: int) -> Any:
        numbers = super().read(records_max)
        if not numbers:
            return numbers
        times = [(BEGIN_S + n) * 1_000_000 for n in numbers]
        words = pyarrow.array([n % KEYS for n in numbers], pyarrow.int64())
        at = pyarrow.array(times, pyarrow.timestamp("us", "UTC"))
        return pyarrow.record_batch({"n": pyarrow.array(numbers, pyarrow.int64()), "word": words, "at": at})


def _numbered(word: int, seen: int | None, row: dict[str, int]) -> tuple[int, dict[str, int]]:
    number = (seen or 0) + 1
    return number, {"word": word, "n": (number - 1) * KEYS + word}


def _last_of_each_word(numbers: int) -> list[int]:
    return sorted({n % 99: n for n in range(numbers)}.values())


def test_a_job_goes_on_with_more_and_with_fewer_tasks(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    flow.run_to(100)
    flow.run_to(200, widths=("read=4", "number=3", "copy=4"))
    assert flow.table("SELECT COUNT(DISTINCT clonos_task) FROM rows") == [4]
    flow.run_to(300)  # it keeps its widths
    flow.run_to(400, widths=("read=1", "number=1", "copy=2"), is_aborted=True)
    flow.run_to(500, widths=("copy=3",))
    flow.gate.end(600)
    assert flow.job().run(resume=True).has_finished
    assert flow.files() == flow.table() == list(range(600 * SPLITS))


def test_a_job_from_a_savepoint_at_other_widths_goes_on_in_outputs_of_its_own(tmp_path: Path) -> None:
    old, new = Flow(tmp_path / "old"), Flow(tmp_path / "new")
    old.run_to(100)
    old.gate.open_to(200)
    place = str(tmp_path / "savepoint")
    with old.job().start(resume=True) as handle:
        wait_until(lambda: len(old.table()) == 200 * SPLITS)
        handle.stop(savepoint=place)
        handle.wait(LIMIT_S)
    new.gate.open_to(300)
    widths = ("read=3", "number=4", "copy=1")
    with new.job().start(from_savepoint=place, widths=widths) as handle:
        wait_until(lambda: len(new.table()) == 100 * SPLITS and len(new.files()) == 100 * SPLITS)
        handle.stop()
        handle.wait(LIMIT_S)
    assert sorted(old.files() + new.files()) == sorted(old.table() + new.table()) == list(range(300 * SPLITS))
    assert new.table("SELECT COUNT(DISTINCT clonos_task) FROM rows") == [1]


@pytest.mark.parametrize(("made", "widths"), [(States, (4, 1, 3)), (Columns, (3, 4, 1))])
def test_state_goes_with_its_keys_to_more_and_to_fewer_tasks(
    tmp_path: Path, made: type[States], widths: tuple[int, ...]
) -> None:
    fixed, flow = made(tmp_path / "fixed"), made(tmp_path / "changed")
    fixed.gate.end(100)
    assert fixed.job().run().has_finished
    flow.run_to(20)
    steps = ("read", "seen", "per-window", "join", "late")
    for number, tasks in enumerate(widths, 2):
        chosen = tuple(f"{step}={tasks}" for step in steps)
        flow.run_to(20 * number, widths=chosen, is_aborted=number == 3)
    flow.gate.end(100)
    assert flow.job().run(resume=True).has_finished
    found, expected = flow.written(), fixed.written()
    for name, rows in expected.items():
        assert found[name] == rows, name


def test_output_of_tasks_that_do_not_run_any_more_is_withdrawn_by_a_start_from_before_they_ran(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    flow.run_to(50)
    checkpoint = CheckpointStore(str(tmp_path / "store"))
    checkpoint.find_job()
    before = checkpoint.checkpoints()[-1]
    flow.run_to(100, widths=("copy=4",), checkpoints_retained=50)
    assert flow.table("SELECT COUNT(DISTINCT clonos_task) FROM rows") == [4]
    flow.gate.end(150)
    assert flow.job().run(resume=True, checkpoint=before, checkpoints_retained=50).has_finished
    assert flow.files() == flow.table() == list(range(150 * SPLITS))
    assert flow.table("SELECT COUNT(*) FROM rows WHERE clonos_task LIKE '%/3'") == [0]


def test_widths_that_cannot_be_are_refused_before_the_start_with_step_and_reason(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    flow.run_to(10)
    for widths, reason in {
        ("copies=3",): 'there is no step "copies" among copy, ',
        ("copy=0",): '"copy" cannot have 0 tasks: 1 to 128',
        ("copy=129",): '"copy" cannot have 129 tasks: 1 to 128',
    }.items():
        with pytest.raises(WidthsRefused, match=reason):
            flow.job().run(resume=True, widths=widths)
    with pytest.raises(WidthMalformed, match="copy is"):
        flow.job().run(resume=True, widths=("copy is 3",))
    flow.gate.end(20)
    assert flow.job().run(resume=True, widths=("copy=3,read=4",)).has_finished
    assert flow.table() == list(range(20 * SPLITS))


@pytest.mark.parametrize("widths", [(2, 2, 4), (4, 4, 2), (2, 4, 2), (4, 2, 3)])
def test_rows_of_keys_whose_task_has_changed_are_withdrawn_by_a_start_from_before_the_changes(
    tmp_path: Path, widths: tuple[int, int, int]
) -> None:
    flow = Upserts(tmp_path)
    flow.run(50, widths[0])
    before, rows = flow.store().checkpoints()[-1], flow.table()
    flow.run(100, widths[1])
    flow.run(150, widths[2], is_aborted=True)
    flow.restart(checkpoint=before)
    assert flow.table() == rows


def test_a_start_withdraws_the_rows_that_one_has_left_which_ended_while_it_went_back(tmp_path: Path) -> None:
    flow = Upserts(tmp_path)
    flow.run(50, 2)
    before, rows = flow.store().checkpoints()[-1], flow.table()
    flow.run(100, 4)
    flow.store().acquire_term(before)  # as that start did
    flow.restart()
    assert flow.table() == rows


@pytest.mark.parametrize("widths", [("copy=2",), ("copy=3", "read=1")])
def test_a_start_withdraws_the_rows_of_one_with_other_widths_that_ended_before_its_first_checkpoint(
    tmp_path: Path, widths: tuple[str, ...]
) -> None:
    flow = Flow(tmp_path)
    flow.run_to(50, is_aborted=True, widths=("copy=4",), checkpoint_every="1h")
    assert flow.table("SELECT COUNT(DISTINCT clonos_task) FROM rows") == [4]
    flow.run_to(50, is_aborted=True, checkpoint_every="1h")  # it keeps its widths
    assert flow.table("SELECT COUNT(DISTINCT clonos_task) FROM rows") == [4]
    flow.gate.end(80)
    assert flow.job().run(resume=True, widths=widths).has_finished
    assert flow.files() == flow.table() == list(range(80 * SPLITS))


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_rows_of_keys_whose_task_changes_are_withdrawn_before_a_task_runs(tmp_path: Path, has_checkpoint: bool) -> None:
    flow = Upserts(tmp_path)
    if has_checkpoint:
        flow.run(50, 2)
    flow.run(100, 2, is_aborted=True)
    (tmp_path / "written").unlink()
    (tmp_path / "awaited").touch()
    flow.run(100, 4)
    assert flow.table() == _last_of_each_word(100 * SPLITS)


@pytest.mark.parametrize("registrations", [0, 5, 11])  # of 12
def test_a_withdrawal_over_several_changes_that_is_interrupted_keeps_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registrations: int
) -> None:
    flow = Upserts(tmp_path)
    flow.run(50, 2)
    before, rows = flow.store().checkpoints()[-1], flow.table()
    flow.run(100, 4)
    flow.run(150, 2, is_aborted=True)
    with monkeypatch.context() as patched:
        patched.setattr(WatchedTable, "registrations_left", registrations)
        with pytest.raises(TableUnavailable):
            flow.job().start(resume=True, checkpoint=before, widths=("last=3",), checkpoints_retained=50)
    flow.restart()
    assert flow.table() == rows


@pytest.mark.parametrize(("tasks", "asked"), [(4, 4), (4, 2), (2, 4)])
def test_rows_that_a_generation_wrote_after_a_cut_are_withdrawn_by_a_start_from_the_cut(
    tmp_path: Path, tasks: int, asked: int
) -> None:
    flow = Upserts(tmp_path)
    flow.run(50, 6 - tasks)
    store = flow.store()
    before, rows = store.checkpoints()[-1], flow.table()
    cut = msgspec.structs.replace(
        decode_metadata(store.checkpoint_metadata(before), "the cut"), is_cut=True, widths=(("last", tasks),)
    )
    flow.run(100, tasks, is_aborted=True)
    # A live change of widths leaves the cut, and no checkpoint that has the tasks of its widths.
    store = flow.store()
    store.acquire_term(before)
    for entry in (tmp_path / "store" / FOLDER).iterdir():
        entry.unlink()
    store.chain.refresh()
    store.acquire_term(term_before=store.term)
    store.append_checkpoint(before, encode_metadata(cut))
    assert flow.table() != rows
    flow.restart(checkpoint=before, widths=(f"last={asked}",))
    assert flow.table() == rows


@pytest.mark.parametrize("has_calls", [True, False])
def test_another_number_of_tasks_is_refused_before_the_start_while_records_wait(
    tmp_path: Path, has_calls: bool
) -> None:
    flow = Waiting(tmp_path, has_calls)
    flow.gate.open_to(3)  # so that tasks have 4 and 5 of 9 records
    with flow.job().start(resume=True) as handle:
        wait_until(lambda: has_calls or len(flow.table()) == 6)
        begun = flow.waiting()[0]
        wait_until(lambda: flow.waiting()[0] > begun + 1 and flow.waiting()[1] >= {flow.state})
        handle.stop()
        handle.wait(LIMIT_S)
    with flow.job().start(resume=True, widths=("read=3",), checkpoint_every="1h") as handle:  # of another step
        wait_until(lambda: all(task.phase is TaskPhase.LIVE for task in handle.status().tasks))
        handle.stop(drain=False)
        handle.wait(LIMIT_S)
    before = flow.chain()
    reason = 'records wait in the step "{}" \\({}'.format(*flow.state.split("/"))
    with pytest.raises(WidthsRefused, match=reason):
        flow.job().run(resume=True, widths=("copy=3",))
    assert flow.chain() == before
    (tmp_path / "answers").touch()
    if has_calls:
        flow.run_to(4)
    flow.gate.end(20)
    assert flow.job().run(resume=True, widths=("copy=3",) if has_calls else ()).has_finished
    assert flow.table() == list(range(20 * SPLITS))
