"""Watermark strategies of users: what they may read, and what they cannot keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.event_time.watermark_strategies import StrategyChanged, WatermarkStrategy
from tests.unit.operators.driver import Given, Outbox, Run


class Behind(WatermarkStrategy):
    """Stays some nanoseconds behind the latest timestamp."""

    def __init__(self, bound_ns: int) -> None:
        self.bound_ns = bound_ns

    def watermark(self, before_ns: int | None, records: Sequence[Any], timestamps_ns: Sequence[int]) -> int | None:
        return max(timestamps_ns) - self.bound_ns


class Latest(WatermarkStrategy):
    """Remembers the latest timestamp of all splits."""

    latest_ns = 0

    def watermark(self, before_ns: int | None, records: Sequence[Any], timestamps_ns: Sequence[int]) -> int | None:
        self.latest_ns = max(self.latest_ns, *timestamps_ns)  # clonos: ok it is refused
        return self.latest_ns


def job_of(strategy: WatermarkStrategy, at_source: bool) -> Run:
    graph = JobGraph("job")
    times = Timestamps(float, watermarks=strategy, future_max=None)
    if at_source:
        stream = graph.source(Given([1, 2, 3]), name="read", parallelism=1, timestamps=times)
    else:
        stream = graph.source(Given([1, 2, 3]), parallelism=1).with_timestamps(times, name="read")
    stream.sink(Outbox(), name="out")
    return Run(graph.compile(Options(), parallelism=1))


@pytest.mark.parametrize("at_source", [True, False])
def test_an_attribute_that_a_strategy_sets_is_refused(at_source: bool) -> None:
    job = job_of(Latest(), at_source)
    with pytest.raises(StepFailed) as caught:
        job.finish(1)
    assert isinstance(caught.value.__cause__, StrategyChanged)
    assert str(caught.value.__cause__) == (
        "the watermark strategy of read sets self.latest_ns: the value would be lost when its process dies, and one"
        " object serves all splits. Compute the watermark from before_ns, the records and their timestamps."
    )
    job.close()


@pytest.mark.parametrize("at_source", [True, False])
def test_a_strategy_reads_the_attributes_of_its_init(at_source: bool) -> None:
    strategy = Behind(5)
    job = job_of(strategy, at_source)
    job.finish(1)
    assert [row for rows in job.written.values() for row in rows] == [1, 2, 3]
    strategy.bound_ns = 7  # the job has a copy
    job.close()
