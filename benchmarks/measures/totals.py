"""Benchmark: aggregates over the whole input alone, measured as `choosing` measures steps: rows and columns."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from benchmarks.harness.ab_session import Session
from benchmarks.measures.choosing import Case, measure
from clonos.agg import count, max_, mean, sum_
from clonos.api.emission import at_end, changes, each, every
from clonos.operators.emission_times import Emission


def _aggregate(keyed: Any, emit: Emission) -> Any:
    return keyed.aggregate(n=count(), total=sum_("x"), mean=mean("x"), most=max_("x"), emit=emit, name="step")


CASES: Final = (
    Case("after each", partial(_aggregate, emit=each(1)), 1_000),
    Case("after each, new keys", partial(_aggregate, emit=each(1)), 1 << 40),
    Case("every 10 records", partial(_aggregate, emit=each(10)), 1_000),
    Case("every second", partial(_aggregate, emit=every("1s")), 1_000),
    Case("changes of batches", partial(_aggregate, emit=changes()), 1_000),
    Case("changes of batches, few keys", partial(_aggregate, emit=changes()), 10),
    Case("changes with the results before", partial(_aggregate, emit=changes(before=True)), 1_000),
    Case("at the end", partial(_aggregate, emit=at_end()), 1_000),
    Case("count", lambda keyed: keyed.count(name="step"), 1_000),
)


def run(session: Session) -> None:
    """Measures each step with rows and with columns."""
    measure(session, CASES)
