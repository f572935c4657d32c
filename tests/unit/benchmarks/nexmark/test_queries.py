"""Nexmark's queries as jobs: what they give equals what DuckDB gives, also in worlds in which processes die."""

import dataclasses
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.harness.result_counter import WrongResult
from benchmarks.nexmark import bare
from benchmarks.nexmark.generator import Events, prepared
from benchmarks.nexmark.jobs.house import House
from benchmarks.nexmark.measure import SPARK_CANNOT
from benchmarks.nexmark.one_run import SHAPES, builder
from benchmarks.nexmark.oracle import Oracle
from benchmarks.nexmark.queries import LEFT_OUT, QUERIES, Check
from benchmarks.nexmark.results import Results, ResultSink
from clonos import Job
from clonos.testing import Outputs, crash_test

EVENTS = Events(20_000, per_s=200)
"""Slower than in the benchmark: a hundred seconds of event time, which end one day and begin the next."""

FEW = Events(600, per_s=15)
FEWEST = Events(250, per_s=10)
CASES = [(query, shape) for query in QUERIES for shape in SHAPES if builder(query, shape) is not None]
WORLDS_WITH_KILLS = 1


class Input:
    """Events, and what DuckDB gives for them."""

    def __init__(self, events: Events, root: Path) -> None:
        self.folder = prepared(events, root)
        self.oracle = Oracle(self.folder)


@pytest.fixture(scope="module")
def all_events(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return Input(EVENTS, tmp_path_factory.mktemp("events"))


@pytest.fixture(scope="module")
def few_events(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return Input(FEW, tmp_path_factory.mktemp("few"))


@pytest.fixture(scope="module")
def fewest_events(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return Input(FEWEST, tmp_path_factory.mktemp("fewest"))


@pytest.fixture
def sinks() -> list[ResultSink]:
    return []


def job_of(query: str, shape: str, given: Input, folder: Path, sinks: list[ResultSink]) -> Callable[[], Job]:
    def make() -> Job:
        sinks.append(ResultSink(QUERIES[query], folder))
        job = Job(f"{query}-{shape}", parallelism=2)
        found = builder(query, shape)
        assert found is not None
        found(House(job, given.folder)).sink(sinks[-1], name="results")
        return job

    return make


@pytest.mark.slow
@pytest.mark.parametrize(("query", "shape"), CASES)
def test_a_query_gives_the_same_when_processes_die(
    query: str, shape: str, fewest_events: Input, tmp_path: Path, sinks: list[ResultSink]
) -> None:
    def check(outputs: Outputs) -> None:
        fewest_events.oracle.check(QUERIES[query], Results.read(sinks[-1].parts))

    job = job_of(query, shape, fewest_events, tmp_path, sinks)
    report = crash_test(job, None, range(WORLDS_WITH_KILLS), check, compare=False)
    assert report.injected, "no world had a fault"


@pytest.mark.slow
@pytest.mark.parametrize("query", bare.LOOPS)
def test_a_loop_by_hand_gives_what_duckdb_gives(query: str, all_events: Input) -> None:
    results, _ = bare.run(query, all_events.folder)
    all_events.oracle.check(QUERIES[query], results)


def test_each_query_is_a_job_in_rows_and_in_columns() -> None:
    assert all(callable(builder(query, shape)) for query in QUERIES for shape in ("rows", "columns"))
    assert sorted([*QUERIES, *LEFT_OUT], key=lambda name: int(name[1:])) == [f"q{number}" for number in range(24)]
    for query in QUERIES.values():
        assert query.flink_sql.strip().split()[0] in {"SELECT", "--"}
        if query.name not in SPARK_CANNOT:
            assert query.spark_sql.strip().split()[0] in {"SELECT", "--"}


def wrong_results(query: str, given: Input) -> Iterator[Results]:
    """Results that differ in one row."""
    rows = given.oracle.rows(QUERIES[query])
    at = max(range(len(rows)), key=lambda place: str(rows[place]))
    changed = tuple(value + 1 if type(value) in {int, Decimal} else value for value in rows[at])
    for other in ([], [rows[at], rows[at]], [changed]):
        if other != [rows[at], rows[at]] or not QUERIES[query].key:
            yield Results(rows=rows[:at] + other + rows[at + 1 :])


@pytest.mark.parametrize("query", ["q3", "q5", "q11", "q12", "q17"])
def test_a_missing_a_repeated_and_a_changed_row_are_found(query: str, few_events: Input) -> None:
    oracle = few_events.oracle
    oracle.check(QUERIES[query], Results(rows=oracle.rows(QUERIES[query])))
    for wrong in wrong_results(query, few_events):
        with pytest.raises(WrongResult, match=f"{query}: rows"):
            oracle.check(QUERIES[query], wrong)


def test_of_rows_under_one_key_the_last_one_counts(few_events: Input) -> None:
    query = dataclasses.replace(QUERIES["q17"], check=Check.LAST)
    rows = few_events.oracle.rows(query)
    old = (*rows[0][:2], *(0 for _ in rows[0][2:]))
    few_events.oracle.check(query, Results(rows=[old, *rows]))
    with pytest.raises(WrongResult, match="should not be there"):
        few_events.oracle.check(query, Results(rows=[*rows, old]))


def test_of_bids_at_one_time_any_may_be_the_last_but_no_other(few_events: Input) -> None:
    query = QUERIES["q18"]
    rows = few_events.oracle.rows(query)
    by_key = {(row[1], row[0]): row for row in rows}
    few_events.oracle.check(query, Results(rows=list(by_key.values())))
    one, *others = by_key.values()
    with pytest.raises(WrongResult, match="should not be there"):
        few_events.oracle.check(query, Results(rows=[(*one[:5], datetime(2015, 1, 1, tzinfo=UTC), one[6]), *others]))
    with pytest.raises(WrongResult, match="are missing"):
        few_events.oracle.check(query, Results(rows=others))


def test_sums_of_rows_and_of_columns_are_alike(few_events: Input, tmp_path: Path) -> None:
    query = QUERIES["q1"]
    rows = [
        (1, 2, Decimal("0.908"), datetime(2015, 1, 1, tzinfo=UTC), "äbc"),
        (1, 2, Decimal(1), datetime.now(UTC), ""),
    ]
    names = ["auction", "bidder", "price", "date_time", "extra"]
    batch = pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    found: list[Any] = []
    for write, given in (("write", rows), ("write_columns", batch)):
        writer = ResultSink(query, tmp_path).writer()
        getattr(writer, write)(given)
        part = writer.prepare(1)
        assert part is not None
        found.append(Results.read([Path(part.decode())]).sums)
    assert found == [[2, 2, 4, Decimal("1.908"), None, 3]] * 2
    with pytest.raises(WrongResult, match="q1: the sums of the columns are"):
        few_events.oracle.check(query, Results(sums=found[0]))


def test_rows_of_spark_may_lack_windows_and_no_others(few_events: Input) -> None:
    oracle = few_events.oracle
    for name in ("q11", "q1", "q17"):
        query = QUERIES[name]
        rows = oracle.rows(query)
        oracle.check_spark(query, rows)
        with pytest.raises(WrongResult, match=f"{name}: rows that should not be there"):
            oracle.check_spark(query, [*rows, (rows[0][0], *rows[1][1:-1], rows[2][-1])])
        if name == "q11":
            oracle.check_spark(query, rows[1:])
            with pytest.raises(WrongResult, match="of 0 rows"):
                oracle.check_spark(query, [])
        else:
            with pytest.raises(WrongResult, match="rows are missing"):
                oracle.check_spark(query, rows[1:])


def test_rows_of_flink_follow_its_rules(few_events: Input) -> None:
    oracle, sessions, totals = few_events.oracle, QUERIES["q11"], QUERIES["q12"]
    assert "> INTERVAL 10 SECOND" in sessions.oracle_sql_of_flink
    assert ">= INTERVAL 10 SECOND" in sessions.oracle_sql
    rows = oracle.rows(totals)
    oracle.check_flink(totals, rows)
    oracle.check_flink(totals, rows[1:])
    with pytest.raises(WrongResult, match="q12: totals that are too high"):
        oracle.check_flink(totals, [*rows, rows[0]])
