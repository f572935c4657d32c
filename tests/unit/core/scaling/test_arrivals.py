"""Arrivals at sources whose readers have not looked at the external system for some windows."""

from __future__ import annotations

from collections.abc import Iterable

from clonos.core.scaling.arrivals import Arrivals, with_arrivals
from clonos.core.scaling.autoscaler import Autoscaler, ScalingGroup, ScalingMemory, ScalingSettings
from clonos.core.scaling.load import Load, VertexLoad
from tests.unit.core.scaling.plant import Plant, PlantVertex

WINDOW_NS = 30_000_000_000
READ_PER_S = 100.0


def source(lag: int | None, growth_per_s: float, blocked_share: float = 0.95) -> VertexLoad:
    """Returns the load of a source that is made to wait."""
    return VertexLoad(1, READ_PER_S, READ_PER_S, 0.05, blocked_share, lag, growth_per_s)


def growths_of(sources: Iterable[VertexLoad]) -> list[float]:
    """Returns by how much more waits in each window, as it is taken."""
    arrivals: dict[str, Arrivals] = {}
    found = []
    for window, each in enumerate(sources):
        load, arrivals = with_arrivals(Load(window * WINDOW_NS, {"read": each}), arrivals)
        found.append(load.vertices["read"].lag_growth_per_s)
    return found


NOT_LOOKED = source(9_000, -READ_PER_S)
ESTIMATED = source(9_000, 0.1 - READ_PER_S * 0.9)


def test_arrivals_that_a_look_finds_count_for_the_windows_before_and_hold_for_twice_as_many() -> None:
    look = source(60_000, 4 * 400.0 - READ_PER_S)
    found = growths_of([source(500, 0.0), *[NOT_LOOKED] * 3, look, *[NOT_LOOKED] * 9])
    assert found == [0.0, -100.0, -100.0, -100.0, 300.0, *[300.0] * 7, -100.0, -100.0]


def test_an_estimate_that_varies_is_no_look() -> None:
    look = source(60_000, 2 * 400.0 - READ_PER_S)
    assert growths_of([source(500, 0.0), ESTIMATED, look, ESTIMATED])[2:] == [300.0, 300.0]


def test_arrivals_that_are_seen_in_each_window_are_taken_as_they_are() -> None:
    assert growths_of([source(500, growth) for growth in (0.0, 50.0, -20.0, 700.0)]) == [0.0, 50.0, -20.0, 700.0]


def test_a_source_that_reads_as_it_can_or_has_no_lag_or_does_not_report_any_has_looked() -> None:
    free = source(9_000, -READ_PER_S, blocked_share=0.1)
    assert growths_of([free, free, source(60_000, 1_500.0)]) == [-100.0, -100.0, 1_500.0]
    assert growths_of([source(0, -READ_PER_S)] * 2 + [source(500, 1_500.0)]) == [-100.0, -100.0, 1_500.0]
    assert growths_of([source(None, 0.0)] * 2) == [0.0, 0.0]


def slow_job(read_per_s: float, count_per_s: float) -> Load:
    """Returns the load of a job whose source waits for a step that works all the time."""
    read = VertexLoad(1, read_per_s, read_per_s, 0.0, 1.0, 5_000, -read_per_s)
    return Load(0, {"read": read, "count": VertexLoad(1, count_per_s, count_per_s, 1.0, 0.0)})


def sentences(load: Load) -> list[str]:
    """Returns what is said about the slow step over three windows."""
    plant = Plant((PlantVertex("read", 20), PlantVertex("count", 500)), lambda _: 0.0)
    autoscaler, memory = (
        Autoscaler(plant.plan, (ScalingGroup("count", (1,), 1, 8),), ScalingSettings()),
        ScalingMemory(),
    )
    found = []
    for window in range(3):
        now = Load(window * WINDOW_NS, load.vertices)
        memory, decision = autoscaler.step(memory, now)
        found.append(decision.advice[0].sentence)
    return found


def test_a_step_that_works_off_what_it_has_while_the_source_waits_gets_more_tasks() -> None:
    assert sentences(slow_job(0.0, 90.0)) == [
        "1 task: more are needed, but not for long enough yet",
        "1 task to 4: 720 records/s are to be processed, and 1 task can take 90/s",
        "1 task to 4: 720 records/s are to be processed, and 1 task can take 90/s",
    ]


def test_a_step_that_takes_nothing_while_the_source_waits_is_left_alone() -> None:
    nothing = "1 task: nothing is processed while more waits, so nothing can be told"
    assert sentences(slow_job(0.0, 0.0)) == [nothing] * 3
