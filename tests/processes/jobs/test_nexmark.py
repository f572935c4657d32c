"""Nexmark's queries on process slots: what they give equals what DuckDB gives."""

from pathlib import Path

import pytest

from benchmarks.nexmark.generator import Events, prepared
from benchmarks.nexmark.one_run import SHAPES, Run, builder, run_here
from benchmarks.nexmark.oracle import Oracle
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.results import Results

pytestmark = [pytest.mark.processes, pytest.mark.slow]

EVENTS = Events(20_000, per_s=200)
"""Slower than in the benchmark: a hundred seconds of event time, which end one day and begin the next."""

STATEFUL = ("q3", "q4", "q5", "q7", "q8", "q9", "q11", "q12", "q16", "q17", "q18", "q19", "q20")
"""Queries that read more than one event; the others are run in simulated worlds only."""

CASES = [(query, shape) for query in STATEFUL for shape in SHAPES if builder(query, shape) is not None]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(EVENTS, tmp_path_factory.mktemp("events"))


@pytest.fixture(scope="module")
def oracle(events: Path) -> Oracle:
    return Oracle(events)


@pytest.mark.parametrize(("query", "shape"), CASES)
def test_a_query_gives_what_duckdb_gives(query: str, shape: str, events: Path, oracle: Oracle, tmp_path: Path) -> None:
    parts = run_here(Run(query, shape, str(events), str(tmp_path), {"checkpoint_every": "200ms"}))
    oracle.check(QUERIES[query], Results.read(parts))
    assert oracle.rows(QUERIES[query]), "a query without results shows nothing"
