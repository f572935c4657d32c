"""Poll backoff of sources with small and large reads, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clonos.core.task.poll_backoff import NS_MAX, READS_BETWEEN_TRIALS, STEPS, PollBackoff

SECOND_NS = 1_000_000_000
LIMIT = 4_000
STEP_NS, RECORD_NS = 50_000, 2_000

Reader = Callable[[int, int], int]
"""(instant, limit) to the number of records there."""


def paced(records_per_s: int, behind: int = 0) -> Reader:
    """Reads the records that are due, and at first some more."""
    given = -behind

    def read(now_ns: int, limit: int) -> int:
        nonlocal given
        found = min(limit, now_ns * records_per_s // SECOND_NS - given)
        given += found
        return found

    return read


def pieces(*sizes: int) -> Reader:
    """Always something, never more than the rest of a piece."""
    left: list[int] = []

    def read(_now_ns: int, limit: int) -> int:
        if not left:
            left.extend(reversed(sizes))
        found = min(limit, left.pop())
        return found

    return read


def steps_and_records(read: Reader, seconds: float = 1.0, first_finds_nothing: bool = False) -> tuple[int, int]:
    """Steps and records of a source in the second half of a time span, after it has settled."""
    linger, now_ns, until_ns = PollBackoff(), 1, int(seconds * SECOND_NS)
    steps = records = 0
    if first_finds_nothing:
        linger.found_nothing()
    while now_ns < until_ns:
        now_ns = max(now_ns, linger.until_ns)
        count = read(now_ns, LIMIT)
        if not count:
            linger.found_nothing()
            now_ns += 5_000_000
            continue
        began_ns, now_ns = now_ns, now_ns + STEP_NS + count * RECORD_NS
        linger.measure(count, LIMIT, began_ns, now_ns - began_ns)
        if now_ns > until_ns / 2:
            steps += 1
            records += count
    return steps, records


@pytest.mark.parametrize("behind", [0, 50_000])
@pytest.mark.parametrize("records_per_s", [2_000, 50_000, 200_000])
def test_a_source_with_a_steady_rate_is_read_in_few_steps(records_per_s: int, behind: int) -> None:
    steps, records = steps_and_records(paced(records_per_s, behind))
    assert records == pytest.approx(records_per_s / 2, rel=0.1)
    assert steps <= SECOND_NS / 2 / min(NS_MAX, STEPS * STEP_NS) * 1.1


@pytest.mark.parametrize("first_finds_nothing", [False, True])
@pytest.mark.parametrize(
    "sizes", [(100,), (4_000, 4_000, 100), (1_000,) * 500 + (100,) * 5_000], ids=["small", "ends", "smaller"]
)
def test_a_source_of_small_pieces_loses_little_throughput_to_backoff(
    sizes: tuple[int, ...], first_finds_nothing: bool
) -> None:
    steps, records = steps_and_records(pieces(*sizes), first_finds_nothing=first_finds_nothing)
    busy_ns = steps * STEP_NS + records * RECORD_NS
    assert busy_ns > 0.97 * SECOND_NS / 2


def test_backoff_ends_when_a_source_returns_large_reads_again() -> None:
    due, enough = paced(50_000), pieces(300)
    steps, records = steps_and_records(
        lambda now_ns, limit: (due if now_ns < SECOND_NS // 4 else enough)(now_ns, limit)
    )
    assert steps * STEP_NS + records * RECORD_NS > 0.97 * SECOND_NS / 2
    assert READS_BETWEEN_TRIALS * NS_MAX < SECOND_NS
