"""The protocol of the transactional Kafka sink against brokers in memory, with a death at each of its commands."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import combinations_with_replacement, product
from random import Random

import pytest

from clonos.connectors.kafka.committing import TaskOutput, is_started, mark_started
from clonos.connectors.kit.external_system import NumberLost
from tests.unit.connectors.kafka.fake_kafka import FATES, Died, FakeClient, FakeKafka, Fate

CHECKPOINTS = [(3, 2), (4, 1), (7, 3)]
"""Completed checkpoints, and how many rows their parts have."""
ROWS = [row for _, count in CHECKPOINTS for row in range(count)]


def drive(kafka: FakeKafka, fate: Callable[[], Fate], first: int) -> Generator[None, None, None]:
    """A driver, which commits from checkpoint number `first` of the list on, the first of them perhaps again."""
    client, output = FakeClient(kafka, fate), TaskOutput("group", "broker", sessions_max=1_000)
    for checkpoint, count in CHECKPOINTS[first:]:
        yield from client.steps(output.commit(checkpoint, count, may_be_first=first == 0))
        kafka.completed = max(kafka.completed, checkpoint)


def last_completed(kafka: FakeKafka) -> int:
    """Where a resumed driver continues: at the last checkpoint that a driver has begun to commit."""
    return sum(checkpoint <= kafka.completed for checkpoint, _ in CHECKPOINTS[:-1])


def run(kafka: FakeKafka, fate: Callable[[], Fate], first: int) -> bool:
    """Runs a driver to its end; whether it has lived so long."""
    try:
        for _ in drive(kafka, fate, first):
            pass
    except Died:
        return False
    return True


def at(places: dict[int, Fate]) -> Callable[[], Fate]:
    numbers = iter(range(1_000))
    return lambda: places.get(next(numbers), Fate.WORKS)


def values(kafka: FakeKafka) -> list[int]:
    return [row for _, row in kafka.rows]


@pytest.mark.parametrize(("first", "second"), list(product(FATES[1:], FATES[1:])))
def test_two_failures_at_any_two_commands_leave_each_checkpoint_in_the_topic_once(first: Fate, second: Fate) -> None:
    for early, late in combinations_with_replacement(range(8), 2):
        kafka, begun = FakeKafka(), 0
        fates = at({early: first, late: second})
        while not run(kafka, fates, begun):
            begun = last_completed(kafka)
        assert values(kafka) == ROWS, (early, late)


def test_two_drivers_that_commit_the_same_checkpoints_leave_each_in_the_topic_once() -> None:
    for seed in range(200):
        _let_two_drivers_commit(seed)


def _let_two_drivers_commit(seed: int) -> None:
    random, kafka = Random(seed), FakeKafka()

    def fate() -> Fate:
        return Fate.WORKS if random.random() < 0.85 else random.choice(FATES[1:4])

    drivers = [drive(kafka, fate, 0), drive(kafka, fate, 0)]
    while drivers:
        driver = random.choice(drivers)
        if next(driver, driver) is driver:
            drivers.remove(driver)
    assert values(kafka) == ROWS, seed


def test_a_missing_number_of_a_task_that_has_written_is_an_error() -> None:
    output = TaskOutput("clonos-job-out/0/committed", "broker")
    with pytest.raises(NumberLost, match=r"offsets\.retention\.minutes"):
        FakeClient(FakeKafka()).run(output.commit(3, 2, may_be_first=False))


def test_the_start_of_a_job_is_marked_once_its_commit_is_certain() -> None:
    kafka = FakeKafka()
    assert not FakeClient(kafka).run(is_started())
    FakeClient(kafka, at({0: Fate.LOST, 2: Fate.LOST})).run(mark_started("group", "broker"))
    assert FakeClient(kafka).run(is_started())
    assert kafka.rows == []
