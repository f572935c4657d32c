"""The protocol of the immediate Kafka sink against brokers in memory, with a death at each of its commands."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import combinations_with_replacement, product
from random import Random

import pytest

from clonos.connectors.kafka.kafka_errors import GroupForeign
from clonos.connectors.kafka.numbering import Numbering, Stamp, committed_of
from clonos.connectors.kit.external_system import NumberLost, SystemUnreachable
from clonos.operators.connector_contract import Registration, WriterFenced, WriterIdentity
from tests.unit.connectors.kafka.fake_kafka import FATES, Died, FakeClient, FakeKafka, Fate

BATCHES = [(0, 3), (3, 1), (4, 2)]
"""First number and count of the writes of a task."""
END = 6


def identity(generation: int = 1, incarnation: int = 1) -> WriterIdentity:
    return WriterIdentity("job", "out/0", generation, incarnation)


def writing(
    client: FakeClient, numbering: Numbering, generation: int, incarnation: int, restored: int
) -> Generator[None, None, int]:
    """The life of an incarnation: it registers, and repeats all rows after the checkpoint."""
    yield from client.steps(numbering.register(identity(generation, incarnation), restored))
    number = restored
    for first, count in BATCHES:
        if first + count > restored:
            number = yield from client.steps(
                numbering.write(max(first, restored), first + count - max(first, restored))
            )
    return number


def live(kafka: FakeKafka, incarnation: int, fates: Callable[[], Fate], generation: int = 1, restored: int = 0) -> int:
    """Runs an incarnation to its end; returns how many commands it gave, -1 if it died."""
    client = FakeClient(kafka, fates)
    steps = writing(client, Numbering("group", "broker"), generation, incarnation, restored)
    try:
        for _ in steps:
            pass
    except Died:
        return -1
    return client.commands


def at(places: dict[int, Fate]) -> Callable[[], Fate]:
    """The fate of each command by its number."""
    numbers = iter(range(1_000))
    return lambda: places.get(next(numbers), Fate.WORKS)


COMMANDS = live(FakeKafka(), 1, lambda: Fate.WORKS)


def test_an_undisturbed_task_writes_its_rows_in_order() -> None:
    kafka = FakeKafka()
    assert live(kafka, 1, lambda: Fate.WORKS) == COMMANDS == 3 + len(BATCHES)
    assert kafka.rows == [(1, number) for number in range(END)]
    assert kafka.committed is not None
    assert kafka.committed.number == END


@pytest.mark.parametrize(("first", "second"), list(product(FATES[1:], FATES[1:])))
def test_two_failures_at_any_two_commands_leave_each_row_once_and_in_order(first: Fate, second: Fate) -> None:
    for early, late in combinations_with_replacement(range(COMMANDS + 3), 2):
        kafka = FakeKafka()
        fates = at({early: first, late: second})
        incarnation = 1
        while live(kafka, incarnation, fates) < 0:
            incarnation += 1
        assert kafka.rows == [(1, number) for number in range(END)], (early, late)
        assert incarnation <= 3


@pytest.mark.parametrize("fate", FATES[1:])
def test_a_rollback_writes_rows_again_under_its_generation_and_announces_them(fate: Fate) -> None:
    for place in range(COMMANDS + 1):
        kafka = FakeKafka()
        live(kafka, 1, lambda: Fate.WORKS)
        incarnation, fates = 2, at({place: fate})
        while live(kafka, incarnation, fates, generation=2, restored=3) < 0:
            incarnation += 1
        again = [(2, number) for number in range(3, END)]
        assert kafka.rows == [(1, number) for number in range(END)] + again, place


def test_rows_that_come_again_are_announced_until_the_first_of_them_is_written() -> None:
    kafka = FakeKafka()
    live(kafka, 1, lambda: Fate.WORKS)
    client = FakeClient(kafka)
    silent, numbering = Numbering("group", "broker"), Numbering("group", "broker")
    assert client.run(silent.register(identity(2, 2), 2)) == Registration(2, END)  # and dies at once
    assert client.run(numbering.register(identity(2, 3), 2)) == Registration(2, END)
    assert client.run(numbering.write(2, 1)) == 3
    successor = Numbering("group", "broker")
    assert client.run(successor.register(identity(2, 4), 2)) == Registration(3, None)


def test_rows_of_an_earlier_generation_stay_announced_over_a_second_rollback() -> None:
    kafka = FakeKafka()
    live(kafka, 1, lambda: Fate.WORKS)
    client = FakeClient(kafka)
    second = Numbering("group", "broker")
    client.run(second.register(identity(2, 2), 1))
    client.run(second.write(1, 2))
    assert client.run(Numbering("group", "broker").register(identity(3, 3), 2)) == Registration(2, END)


def test_an_earlier_incarnation_stands_down_and_names_the_later_one() -> None:
    kafka = FakeKafka()
    client = FakeClient(kafka)
    client.run(Numbering("group", "broker").register(identity(1, 2), 0))
    with pytest.raises(WriterFenced) as fenced:
        client.run(Numbering("group", "broker").register(identity(1, 1), 0))
    assert fenced.value.by == (1, 2)


def test_a_later_incarnation_that_an_earlier_one_fences_registers_again_and_writes() -> None:
    kafka = FakeKafka()
    later, numbering = FakeClient(kafka), Numbering("group", "broker")
    later.run(numbering.register(identity(1, 2), 0))
    with pytest.raises(WriterFenced):
        FakeClient(kafka).run(Numbering("group", "broker").register(identity(1, 1), 0))
    assert later.run(numbering.write(0, 2)) == 2
    assert kafka.rows == [(1, 0), (1, 1)]


def test_a_missing_number_is_an_error_if_the_snapshot_has_rows() -> None:
    with pytest.raises(NumberLost, match=r"at least 3 rows have been written.*offsets\.retention\.minutes"):
        FakeClient(FakeKafka()).run(Numbering("clonos-job", "broker").register(identity(), 3))


def test_a_number_below_the_rows_of_the_snapshot_is_an_error() -> None:
    kafka = FakeKafka()
    kafka.offset = 2, Stamp(1, 1, 2, False).text()
    with pytest.raises(NumberLost):
        FakeClient(kafka).run(Numbering("group", "broker").register(identity(2, 2), 3))


@pytest.mark.parametrize("metadata", ["", None, "clonos/1 1 2", "clonos/1 1 2 3 x", "other 1 2 3 0"])
def test_an_offset_of_another_consumer_is_refused(metadata: str | None) -> None:
    with pytest.raises(GroupForeign, match="clonos-job-out-0"):
        committed_of(7, metadata, "clonos-job-out-0")


def test_a_writer_that_is_fenced_without_end_gives_up() -> None:
    client = FakeClient(FakeKafka(), lambda: Fate.LOST)
    with pytest.raises(SystemUnreachable, match="8 sessions were ended"):
        client.run(Numbering("group", "broker").register(identity(), 0))


def test_the_number_is_repeated_without_rows_so_that_it_does_not_expire() -> None:
    kafka = FakeKafka()
    client, numbering = FakeClient(kafka), Numbering("group", "broker")
    client.run(numbering.register(identity(), 0))
    client.run(numbering.write(0, 2))
    kafka.offset = None
    assert client.run(numbering.repeat()) == 2
    assert kafka.committed is not None
    assert kafka.committed.number == 2
    assert kafka.rows == [(1, 0), (1, 1)]


def play(random: Random) -> FakeKafka:
    """Incarnations of three generations that overlap at random, each of which may be cut off and go on later."""
    kafka = FakeKafka()

    def fate() -> Fate:
        return Fate.WORKS if random.random() < 0.85 else random.choice(FATES[1:4])

    restored = {1: 0, 2: random.randint(0, 4), 3: random.randint(0, 4)}
    lives: list[tuple[int, Generator[None, None, int]]] = []
    generation, highest = 1, 0
    for incarnation in range(1, random.randint(3, 7)):
        before, generation = generation, min(3, generation + (random.random() < 0.4))
        highest = max([highest, *[number + 1 for _, number in kafka.rows]])
        if generation > before:
            restored[generation] = min(restored[generation], highest)
        numbering = Numbering("group", "broker", sessions_max=1_000)
        lives.append(
            (incarnation, writing(FakeClient(kafka, fate), numbering, generation, incarnation, restored[generation]))
        )
        for _ in range(random.randint(0, 30)):
            if lives:
                step(lives, random.randrange(len(lives)))
    while lives:
        step(lives, random.randrange(len(lives)))
    return kafka


def step(lives: list[tuple[int, Generator[None, None, int]]], index: int) -> None:
    incarnation, steps = lives[index]
    try:
        next(steps)
    except StopIteration:
        lives.pop(index)
    except WriterFenced as fenced:
        lives.pop(index)
        if fenced.by is None or fenced.by[1] <= incarnation:
            raise


def test_incarnations_that_overlap_write_each_row_of_a_generation_once_and_in_order() -> None:
    for seed in range(300):
        _check_rows_of(seed)


def _check_rows_of(seed: int) -> None:
    kafka = play(Random(seed))
    generations = [generation for generation, _ in kafka.rows]
    assert generations == sorted(generations), "an ended generation writes nothing"
    assert kafka.registered == sorted(kafka.registered, key=lambda entry: entry[:2]), "names only rise"
    for generation in set(generations):
        numbers = [number for of, number in kafka.rows if of == generation]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert kafka.rows[-1][1] == END - 1
