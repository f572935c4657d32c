"""Loads made of the counters of tasks, and the arithmetic of demand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.scaling.demand import Growth, growths, needed_width
from clonos.core.scaling.load import Load, LoadSample, TaskSample, VertexLoad, load_between

SECOND_NS = 1_000_000_000
PLAN = Plan(
    "words",
    (Vertex("read", 1, is_source=True), Vertex("write", 2)),
    (Edge(0, 1, Partitioning.HASH, 0), Edge(1, None, Partitioning.EXTERNAL, 0)),
)
BEFORE = LoadSample(0, {name: TaskSample(1) for name in ("read/0", "write/0", "write/1")})
AFTER = LoadSample(
    10 * SECOND_NS,
    {
        "read/0": TaskSample(1, 1_000, 1_000, 2_000_000, 5_000_000, lag_records=500),
        "write/0": TaskSample(1, 900, 0, 3_000_000, 4_000_000, hot_key="'ann'", hot_key_share=0.8),
        "write/1": TaskSample(1, 100, 0, 1_000_000, 1_000_000),
    },
)


def of_tasks(sample: LoadSample, **changes: TaskSample) -> LoadSample:
    """Returns a sample with other tasks; an underscore stands for the slash."""
    return replace(sample, tasks={**sample.tasks, **{name.replace("_", "/"): task for name, task in changes.items()}})


def test_a_load_has_the_rates_of_each_vertex_and_the_shares_of_its_busiest_task() -> None:
    before = of_tasks(BEFORE, read_0=TaskSample(1, lag_records=300))
    load = load_between(PLAN, before, AFTER)
    assert load is not None
    assert load.vertices["read"] == VertexLoad(1, 100.0, 100.0, 0.2, 0.5, lag_records=500, lag_growth_per_s=20.0)


def test_a_task_that_waits_for_what_is_outside_of_the_job_works() -> None:
    load = load_between(PLAN, BEFORE, AFTER)
    assert load is not None
    assert load.vertices["write"] == VertexLoad(2, 100.0, 0.0, 0.7, 0.0, hot_key="'ann'", hot_key_share=0.8)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(replace(BEFORE, is_settled=False), AFTER, id="recovering before"),
        pytest.param(BEFORE, replace(AFTER, is_settled=False), id="recovering"),
        pytest.param(of_tasks(BEFORE, write_1=TaskSample(7)), AFTER, id="another incarnation"),
        pytest.param(of_tasks(BEFORE, write_2=TaskSample(1)), AFTER, id="another width"),
        pytest.param(BEFORE, replace(AFTER, ended=frozenset({"read/0"})), id="ended meanwhile"),
        pytest.param(AFTER, AFTER, id="no time"),
    ],
)
def test_samples_between_which_a_task_was_not_the_same_have_no_load(before: LoadSample, after: LoadSample) -> None:
    assert load_between(PLAN, before, after) is None


def test_hosts_are_full_when_the_one_with_the_most_to_spare_is() -> None:
    before = replace(BEFORE, processor_us={"a": 0, "b": 0})
    after = replace(AFTER, processor_us={"a": 20_000_000, "b": 10_000_000}, processors={"a": 2, "b": 4})
    load = load_between(PLAN, before, after)
    assert load is not None
    assert load.processors_share == 0.25


# ---------------------------------------------------------------------- demand


def load_of(**vertices: VertexLoad) -> Load:
    """Returns a load of these vertices."""
    return Load(SECOND_NS, vertices)


def growth_of(plan: Plan, load: Load, vertex: str, catch_up_s: float = 100.0, **widths_max: int) -> Growth | None:
    """Returns the demand of a vertex; each can have 1,000 tasks unless something else is said."""
    found = growths(plan, load, catch_up_s, {each.name: 1_000 for each in plan.vertices} | widths_max)
    return found[[each.name for each in plan.vertices].index(vertex)]


def test_the_demand_of_a_source_is_its_rate_and_the_growth_of_its_lag() -> None:
    read = VertexLoad(1, 100.0, 100.0, 0.5, 0.5, lag_records=1_000, lag_growth_per_s=50.0)
    load = load_of(read=read, write=VertexLoad(2, 100.0, 0.0, 0.9, 0.0))
    assert growth_of(PLAN, load, "write") == Growth(1.5, 1.6)


def test_lag_that_falls_fast_enough_asks_for_nothing() -> None:
    read = VertexLoad(1, 100.0, 100.0, 0.5, 0.5, lag_records=1_000, lag_growth_per_s=-50.0)
    load = load_of(read=read, write=VertexLoad(2, 100.0, 0.0, 0.9, 0.0))
    assert growth_of(PLAN, load, "write") == Growth(0.5, 0.5)
    slower = load_of(read=replace(read, lag_growth_per_s=-1.0), write=load.vertices["write"])
    assert growth_of(PLAN, slower, "write") == Growth(0.99, 1.09)


def test_without_lag_what_a_source_could_read_is_its_demand() -> None:
    load = load_of(read=VertexLoad(1, 100.0, 100.0, 0.2, 0.75), write=VertexLoad(2, 100.0, 0.0, 0.9, 0.0))
    assert growth_of(PLAN, load, "write") == Growth(4.0, 4.0)


def test_demand_stops_at_what_the_narrowest_vertex_can_take() -> None:
    read = VertexLoad(1, 100.0, 100.0, 0.2, 0.5, lag_records=0, lag_growth_per_s=900.0)
    load = load_of(read=read, write=VertexLoad(2, 100.0, 0.0, 0.8, 0.0))
    assert growth_of(PLAN, load, "read", write=4) == Growth(2.5, 2.5, is_limited=True)


def test_two_inputs_count_by_their_parts_of_the_records() -> None:
    vertices = (Vertex("a", 1, is_source=True), Vertex("b", 1, is_source=True), Vertex("join", 1))
    plan = Plan("join", vertices, (Edge(0, 2, Partitioning.HASH, 0), Edge(1, 2, Partitioning.HASH, 0)))
    load = load_of(
        a=VertexLoad(1, 300.0, 300.0, 0.1, 0.0, lag_records=0, lag_growth_per_s=300.0),
        b=VertexLoad(1, 100.0, 100.0, 0.1, 0.0, lag_records=0),
        join=VertexLoad(1, 400.0, 0.0, 0.1, 0.0),
    )
    assert growth_of(plan, load, "join") == Growth(1.75, 1.75)


@pytest.mark.parametrize(
    ("busy_share", "growth", "hot_key_share", "needed"),
    [
        (0.70, 1.0, 0.0, 4),
        (0.71, 1.0, 0.0, 5),
        (0.35, 4.0, 0.0, 8),
        (0.10, 1.0, 0.0, 1),
        (0.70, 2.0, 0.25, 12),  # 0.35 is of the key, and 1.05 is divided until 0.35 of it are left beside it
        (0.90, 1.0, 0.9, inf),
    ],
)
def test_the_busiest_task_decides_how_many_are_needed(
    busy_share: float, growth: float, hot_key_share: float, needed: float
) -> None:
    load = VertexLoad(4, 100.0, 0.0, busy_share, 0.0, hot_key="'ann'", hot_key_share=hot_key_share)
    assert needed_width(load, Growth(growth, growth), 0.7, is_source=False) == needed
