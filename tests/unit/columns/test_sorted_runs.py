"""Index of a side of a join: what it finds does not depend on which of its records are sorted."""

from __future__ import annotations

from random import Random

import numpy
import pytest

from clonos.operators.columnar.joins.sorted_runs import SortedRuns

Record = tuple[int, int, int]
"""Slot, timestamp and number."""


def added(runs: SortedRuns, rng: Random, first: int, count: int) -> list[Record]:
    """Adds records whose numbers begin with ``first``, and returns them."""
    records = [(rng.randrange(30), rng.randrange(20), first + place) for place in range(count)]
    runs.add(*numpy.array(records, numpy.int64).reshape(-1, 3).T)
    return records


@pytest.mark.slow
@pytest.mark.parametrize("new_per_key_min", [0, 8, 1 << 20])
@pytest.mark.parametrize("seed", range(5))
def test_records_are_found_in_order_whether_they_are_sorted_or_not(
    monkeypatch: pytest.MonkeyPatch, new_per_key_min: int, seed: int
) -> None:
    monkeypatch.setattr(SortedRuns, "new_per_key_min", new_per_key_min)
    rng, runs, held, number = Random(seed), SortedRuns(), list[Record](), 0
    for _ in range(40):
        held += added(runs, rng, number, count := rng.randrange(60))
        number += count
        slots = [rng.randrange(-1, 33) for _ in range(rng.choice((1, 4, 90)))]
        low, high = sorted(rng.randrange(20) for _ in "ab")
        given = [numpy.array(each, numpy.int64) for each in (slots, [low] * len(slots), [high] * len(slots))]
        theirs = [[each for each in sorted(held) if each[0] == slot and low <= each[1] <= high] for slot in slots]
        found = [
            each
            for match in runs.between(*given)
            for each in zip(match.probes.tolist(), match.times.tolist(), match.numbers.tolist(), strict=True)
        ]
        assert found == [(place, *each[1:]) for place, records in enumerate(theirs) for each in records]
        assert runs.counts(*given).tolist() == list(map(len, theirs))
        least = rng.randrange(number + 1)
        gone = [each for each in held if each[2] < least and each[1] < 10]
        removed = runs.remove_where(lambda run, least=least: (run.numbers < least) & (run.times < 10))  # type: ignore[misc]
        assert sorted(removed.tolist()) == sorted(each[2] for each in gone)
        held = [each for each in held if each not in gone]
        assert (len(runs), runs.least_number) == (len(held), min((each[2] for each in held), default=None))
