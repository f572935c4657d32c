"""Metrics of user code in simulated worlds: they say what the output says, whatever dies."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.core.checkpoint.snapshot import decode_snapshot
from clonos.core.model.metric_series import MetricKind
from clonos_chaos.jobs.api_jobs import ApiJob, Offsets, Parts, Row
from clonos_chaos.project.directed.building_blocks import at, kills_it
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.targeted_faults import PointReached
from clonos_chaos.swarm.quick_worlds import OPTIONS, SETTINGS
from clonos_chaos.swarm.world import World
from clonos_services import metrics, random
from tests.worlds.playing import is_done

pytestmark = pytest.mark.worlds

READ = metrics.Counter("rows_read", "Rows that the first step has taken.")
DRAWN = metrics.Counter("drawn", "Rows by what was drawn for them.", labelnames=["digit"])
DIGITS = metrics.Histogram("digits", "What was drawn.", buckets=(2, 5))
LAST = metrics.Gauge("last_offset", "Highest offset so far.")


def _read(row: Row) -> Row:
    READ.inc()
    return row


def _draw(row: Row) -> Row:
    digit = random.randrange(10)
    DRAWN.labels(digit).inc()
    DIGITS.observe(digit)
    LAST.set(max(LAST.value, row[0]))
    return row[0], (*row[1], (1, 0, row[0], 0, digit, 0))


def _same(row: Row) -> Row:
    return row


class CountingJob(ApiJob):
    """Job that counts by metrics what it draws; its output has the same draws."""

    def _build(self, graph: JobGraph, rng: Random) -> None:
        rows: Stream[Row] = graph.source(Offsets(self.records), parallelism=rng.choice((1, 2))).map(_read)
        drawn = rows.rebalance().map(_draw, parallelism=rng.choice((1, 2)))
        drawn.rebalance().map(_same, parallelism=1).sink(Parts())


def _kill_all_before_the_sink(world: SimCluster, reached: PointReached) -> None:
    """Kills all tasks whose draws the last ones have received, and with them all logs that tell these draws."""
    last = len(world.plan.vertices) - 1
    world.kill_tasks_with_keepers([task for task in world.plan.tasks if world.plan.vertex_of[task] < last])


def counted(world: World) -> dict[str, Counter[Any]]:
    """The metrics in the last snapshots of all tasks, summed."""
    found: dict[str, Counter[Any]] = {}
    for entry in world.chain[max(world.chain)].tasks:
        for family in decode_snapshot(world.store[entry.objects[-1]][0], "the last").metrics:
            for series in family.series:
                total = found.setdefault(family.metric.name, Counter())
                if family.metric.kind is MetricKind.HISTOGRAM:
                    total.update(dict(enumerate(series.numbers)))
                elif family.metric.kind is MetricKind.GAUGE:
                    total[series.labels] = max(total[series.labels], int(series.numbers[0]))
                else:
                    total[series.labels] += int(series.numbers[0])
    return found


class HotJob(CountingJob):
    """The same, with a shadow of each task that may have one."""

    def __init__(self, name: str, rng: Random, records: int, sharing_depth: int | None) -> None:
        super().__init__(name, rng, records, sharing_depth)
        vertices = tuple(replace(vertex, is_hot=vertex.may_be_hot) for vertex in self.plan.vertices)
        self.plan = replace(self.plan, vertices=vertices)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "standbys"), [(CountingJob, 0), (CountingJob, 1), (HotJob, 1)])
def test_metrics_equal_the_output_whatever_dies(kind: type[CountingJob], standbys: int) -> None:
    options = replace(OPTIONS, checkpoint_every_ms=10, credit_window_bytes=300, standbys=standbys)
    incarnations = 0
    for seed in range(4):
        faults = [at("emission", kills_it, nth=nth) for nth in (30 + 7 * seed, 90, 130, 170)]
        world = World(
            seed,
            options=options,
            settings=SETTINGS,
            job=lambda rng: kind("counting", rng, 150, None),
            targeted_faults=faults,
        )
        world.run()
        assert is_done(world)
        incarnations += sum(len(lives) for lives in world.oracle.incarnations.values()) - len(world.plan.tasks)
        digits = [row[1][0][4] for rows in world.committed.values() for row in rows]
        found = counted(world)
        assert found["rows_read"] == {(): 150}
        assert found["drawn"] == Counter((str(digit),) for digit in digits)
        buckets = [
            sum(digits),
            *(sum(low < digit <= high for digit in digits) for low, high in ((-1, 2), (2, 5), (5, 9))),
        ]
        assert found["digits"] == Counter(dict(enumerate(buckets)))
        assert found["last_offset"] == {(): 149}
    assert incarnations > 4, "few tasks have died"


def test_metrics_equal_the_output_after_rollbacks() -> None:
    rollbacks = 0
    for seed in range(4):
        world = World(
            seed,
            options=replace(OPTIONS, checkpoint_every_ms=10, standbys=0, credit_window_bytes=300, sharing_depth=1),
            settings=SETTINGS,
            job=lambda rng: CountingJob("counting", rng, 150, 1),
            targeted_faults=[at("emission", _kill_all_before_the_sink, nth=30 + 11 * seed)],
        )
        world.run()
        assert is_done(world)
        rollbacks += world.outcome.rollbacks
        digits = [row[1][0][4] for rows in world.committed.values() for row in rows]
        assert counted(world)["rows_read"] == {(): 150}
        assert counted(world)["drawn"] == Counter((str(digit),) for digit in digits)
    assert rollbacks > 0
