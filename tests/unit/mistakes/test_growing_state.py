"""State that grows without bound, and steps that never emit: refused, or warned of when the job starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clonos import Global, Job, Tumbling, at_end, blackhole, each, files, sockets
from clonos.agg import collect, count, count_distinct
from clonos.api.checks.growing_state import growth_warnings
from clonos.job.description import graph_of
from tests.harnesses.mistakes import check, describe
from tests.unit.mistakes.test_unnamed_steps import started

REMEMBERS = (
    "the step seen remembers every key for ever, and the source lines never ends: its state grows without bound."
    ' Use deduplicate(by, within="1h") where duplicates come within a length of time.'
)
EMITS = "the step seen emits only when its input has ended, and the source lines never ends. "

CASES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "distinct": (lambda lines: lines.distinct(name="seen"), REMEMBERS),
    "deduplicate": (lambda lines: lines.deduplicate(len, name="seen"), REMEMBERS),
    "keyed": (lambda lines: lines.map(str).key_by(len).deduplicate(name="seen"), REMEMBERS),
    "within": (lambda lines: lines.deduplicate(len, within="1h", name="seen"), ""),
    "global": (
        lambda lines: lines.key_by(len).window(Global()).count(name="seen"),
        EMITS + 'Give the window a trigger, such as trigger=each(100), or use Tumbling("1h").',
    ),
    "global with a trigger": (lambda lines: lines.window(Global(), trigger=each(9)).count(name="seen"), ""),
    "tumbling": (lambda lines: lines.window(Tumbling("1h")).count(name="seen"), ""),
    "at the end": (
        lambda lines: lines.fold(0, lambda total, line: total + 1, emit=at_end(), name="seen"),
        EMITS + 'Give emit=each(100) or emit=every("5s").',
    ),
    "final aggregate": (
        lambda lines: lines.key_by(len).aggregate(n=count(), emit=at_end(), name="seen"),
        EMITS + 'Give emit=each(100) or emit=every("5s").',
    ),
    "collected": (
        lambda lines: lines.aggregate(n=count(), all=collect(str), some=count_distinct(len), name="seen"),
        "the step seen keeps the values of all, some for ever, and the source lines never ends: its state grows without"
        " bound. Aggregate in windows, or use aggregates that keep no values, such as approx_distinct.",
    ),
    "collected in windows": (
        lambda lines: lines.window(Tumbling("1h")).aggregate(all=collect(str), name="seen"),
        "",
    ),
    "limit": (lambda lines: lines.limit(9, name="few").distinct(name="seen"), ""),
}


@pytest.mark.parametrize("name", CASES)
def test_a_step_after_a_source_that_never_ends_is_warned_of(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    build, expected = CASES[name]
    job = Job("endless")
    build(job.source(files.lines(tmp_path, watch="1s"), name="lines")).sink(blackhole())
    assert started(job, monkeypatch, caplog) == ([expected] if expected else [])
    check(expected)


@pytest.mark.parametrize("name", CASES)
def test_the_same_step_after_input_that_ends_is_not(name: str, tmp_path: Path) -> None:
    job = Job("bounded")
    CASES[name][0](job.source(files.lines(tmp_path), name="lines")).sink(blackhole())
    assert growth_warnings(graph_of(job)) == []


def test_a_socket_never_ends_and_the_plan_has_the_warning() -> None:
    job = Job("pushed")
    job.source(sockets.lines("localhost", 9999), name="lines").distinct(name="seen").sink(blackhole())
    assert growth_warnings(graph_of(job)) == [REMEMBERS]
    assert "remembers every key for ever, and the source lines never ends" in " ".join(job.explain().split())


def test_a_join_without_a_bound_in_time_is_refused() -> None:
    code = """
        orders = Job("j").source(values([{"id": 1}]), name="orders")
        orders.join(orders, on="id").sink(stdout())
    """
    check(
        describe(code),
        "the step join has no bound in time, so it would keep every record for ever. Give one of"
        ' between=("-1h", "1h"), window=Tumbling("1h") and ttl="1d".',
    )
