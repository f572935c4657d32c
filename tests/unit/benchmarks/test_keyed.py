"""The keyed workloads: each record is read once, and wrong results invalidate a measurement."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.keyed_result_counter import KeyedResultCounter
from benchmarks.harness.result_counter import SinkResult, WrongResult, measured
from benchmarks.workloads.keyed import KINDS, KeyedWorkload, enriched

READ = [SinkResult(0, 1, 2, 1, {})]


def _tallied(workload: KeyedWorkload, slice_records: int) -> list[SinkResult]:
    """Results of sinks that get the readers' slices in turn."""
    rows, _ = workload.expected(lambda key: key % 2)
    tallies = [KeyedResultCounter(expected) for expected in rows]
    kind = KINDS[workload.kind]
    states: dict[int, Any] = {}
    shares = [workload.share(reader) for reader in range(workload.readers)]
    for position in range(0, workload.records // workload.readers, slice_records):
        for share in shares:
            records: list[Any] = []
            size = min(slice_records, share.size - position)
            while len(records) < size:
                records += share.after(position + len(records), size - len(records))
            for record in enriched(records) if kind.asks else records:
                states[record[0]], result = kind.fold(record[0], states.get(record[0]), record)
                tallies[record[0] % 2].add([result])
    return [counter.part() for counter in tallies]


@pytest.mark.parametrize("kind", KINDS)
def test_results_do_not_depend_on_how_readers_interleave(kind: str, tmp_path: Path) -> None:
    workload = KeyedWorkload(str(tmp_path), kind, 1_500, keys=500)
    _, expected = workload.expected(lambda key: key % 2)
    for slice_records in (7, 400):
        assert measured(workload, READ, _tallied(workload, slice_records), expected).words == 1_500


def test_a_wrong_last_result_of_one_key_invalidates_the_measurement(tmp_path: Path) -> None:
    workload = KeyedWorkload(str(tmp_path), "bids", 1_000)
    rows, expected = workload.expected(lambda key: 0)
    counter = KeyedResultCounter(rows[0])
    counter.add([(1, (1, 1, 1))] * 1_000)
    with pytest.raises(WrongResult, match="checksum"):
        measured(workload, READ, [counter.part(), KeyedResultCounter(0).part()], expected)


def test_every_key_of_a_large_state_is_written_before_a_key_is_repeated(tmp_path: Path) -> None:
    workload = KeyedWorkload(str(tmp_path), "large_state", 2_000, keys=1_000)
    shares = [workload.share(reader) for reader in range(2)]
    firsts = [key for share in shares for key, _ in share.after(0, 500)]
    assert sorted(firsts) == list(range(1_000))
    assert sorted(key for share in shares for key, _ in share.after(500, 500)) == list(range(1_000))
