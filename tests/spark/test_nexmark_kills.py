"""Nexmark's queries in columns on Spark: what they give equals what DuckDB gives, although every task was killed."""

from pathlib import Path

import pytest
from pyspark import SparkContext

from benchmarks.nexmark import kills
from benchmarks.nexmark.generator import Events, prepared
from benchmarks.nexmark.queries import QUERIES

pytestmark = [pytest.mark.spark, pytest.mark.keeps_sockets]

EVENTS = Events(20_000, per_s=200)
"""Slower than in the benchmark: a hundred seconds of event time, which end one day and begin the next."""


@pytest.mark.timeout(150)
def test_queries_give_what_duckdb_gives_after_each_task_was_killed(context: SparkContext, tmp_path: Path) -> None:
    queries, *_ = kills.groups(QUERIES)  # python -m benchmarks nexmark_kills runs the other groups too
    assert len(queries) >= 6
    killed = kills.kill_each(queries, prepared(EVENTS, tmp_path), tmp_path, spark=context)
    assert len(killed.lost) >= 6
    assert min(killed.lost.values()) > 0, "each task has died with input that it had to take again"
    assert killed.rollbacks == 0, "no death here needs a rollback"
