"""Nexmark measured: figures only of right results, and a reason for what is not measured."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import WrongResult
from benchmarks.nexmark import measure
from benchmarks.nexmark.generator import Events, prepared
from benchmarks.nexmark.measure import Measuring
from benchmarks.nexmark.one_run import Cost
from benchmarks.nexmark.oracle import Oracle
from benchmarks.nexmark.queries import QUERIES, Query
from benchmarks.peers.running import PeerMissing

COUNT = 1_000


class Runs:
    """Runs of the job that cost a given time, or have a wrong result."""

    def __init__(self, costs: Mapping[str, float]) -> None:
        self.costs = costs

    def __call__(self, query: Query, shape: str, events: Path, oracle: Oracle, **options: Any) -> Cost:
        if query.name not in self.costs:
            raise WrongResult(f"{query.name}: rows are missing")
        is_empty = events.name == Events(measure.EVENTS_EMPTY).name
        return Cost(1.0 if is_empty else self.costs[query.name], 1.0, [])


@pytest.fixture
def measuring(tmp_path: Path) -> Measuring:
    events = prepared(Events(COUNT), tmp_path)
    empty = prepared(Events(measure.EVENTS_EMPTY), tmp_path)
    return Measuring(
        Session((), 2), "columns", events, COUNT, Oracle(events), ExitStack(), empty, events, Runs({"q0": 5.0})
    )


def test_a_wrong_result_gives_no_figure_and_the_next_query_is_measured(measuring: Measuring) -> None:
    for name in ("q1", "q0"):
        measure.measure_query(measuring, QUERIES[name])
    figures = {figure.name: figure.value for figure in measuring.session.figures if "load" not in figure.name}
    assert measuring.session.failed == {"q1": "WrongResult: q1: rows are missing"}
    assert figures == {
        "q0, fixed cost of a job": 1.0,
        "q0": COUNT / 5,
        "q0 net": COUNT / 4,
        "q0 by the clock": COUNT,
    }


def test_a_short_run_has_no_net_figure(measuring: Measuring) -> None:
    measuring.run = Runs({"q0": 1.2})
    measure.measure_query(measuring, QUERIES["q0"])
    assert "q0 net" not in {figure.name for figure in measuring.session.figures}


def test_a_missing_peer_and_a_query_that_a_peer_cannot_express_are_not_run_for_a_reason(
    measuring: Measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise PeerMissing(f"benchmarks/peers/setup {name} makes it")

    monkeypatch.setattr(measure, "JvmPeer", missing)
    measuring.session.against = ("flink", "spark-native")
    measuring.run = Runs({"q0": 5.0, "q12": 5.0})
    for name in ("q0", "q12"):
        measure.measure_query(measuring, QUERIES[name])
    assert measuring.session.not_run == {
        "q0/flink": "benchmarks/peers/setup flink makes it",
        "q0/spark": "benchmarks/peers/setup spark makes it",
        "q12/flink": "benchmarks/peers/setup flink makes it",
        "q12/spark": measure.SPARK_CANNOT["q12"],
    }


def test_logging_is_compared_with_no_logging(measuring: Measuring) -> None:
    measuring.session.experiments = True
    measure.measure_query(measuring, QUERIES["q0"])
    assert [(one.name, one.pairs) for one in measuring.session.comparisons] == [("q0, logged/not", 2)]


def test_a_note_names_where_the_work_of_a_query_differs(measuring: Measuring) -> None:
    measuring.run = Runs({"q12": 5.0})
    measure.measure_query(measuring, QUERIES["q12"])
    assert measuring.session.notes == {"q12": QUERIES["q12"].differs}
