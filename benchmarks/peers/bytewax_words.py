"""Word count in Bytewax, one process, recovery on with an epoch of a second: ``python -m ... FOLDER REPEATS LINES``."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as operators
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main

from benchmarks.harness.result_counter import ResultCounter
from benchmarks.peers.peer_io import print_result
from benchmarks.workloads.words import Workload

BATCH_LINES = 1_000
counter = ResultCounter(None)
begun_ns = 0


class Lines(FixedPartitionedSource):
    """Source with one partition per reader."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def list_parts(self) -> list[str]:
        return [str(reader) for reader in range(self.workload.readers)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> LinesPart:
        return LinesPart(self.workload.share(int(for_part)), resume_state or 0)


class LinesPart(StatefulSourcePartition):
    """Partition that returns slices of a share."""

    def __init__(self, share: Any, position: int) -> None:
        self.share, self.position = share, position

    def next_batch(self) -> list[str]:
        global begun_ns
        begun_ns = begun_ns or time.monotonic_ns()
        lines: list[str] = self.share.after(self.position, BATCH_LINES)
        if not lines:
            raise StopIteration
        self.position += len(lines)
        return lines

    def snapshot(self) -> int:
        return self.position


class Counted(DynamicSink):
    """Sink that counts results."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> CountedPart:
        return CountedPart()


class CountedPart(StatelessSinkPartition):
    """Partition of the only worker."""

    def write_batch(self, items: list[tuple[str, int]]) -> None:
        counter.add(items)


class Count(StatefulBatchLogic):
    """Running count of a key; a batch has all its values."""

    def __init__(self, count: int | None) -> None:
        self.count = count or 0

    def on_batch(self, values: list[str]) -> tuple[list[int], bool]:
        before = self.count
        self.count += len(values)
        return list(range(before + 1, self.count + 1)), StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        return self.count


def main() -> None:
    folder = Path(sys.argv[1])
    workload = Workload(str(folder), int(sys.argv[2]), int(sys.argv[3]))
    flow = Dataflow("words")
    words = operators.flat_map("split", operators.input("lines", flow, Lines(workload)), str.split)
    counts = operators.stateful_batch("count", operators.key_on("key", words, lambda word: word), Count)
    operators.output("tally", counts, Counted())
    recovery = folder / f"bytewax-{time.monotonic_ns()}"
    recovery.mkdir()
    init_db_dir(recovery, 1)
    run_main(flow, epoch_interval=timedelta(seconds=1), recovery_config=RecoveryConfig(recovery))
    part = counter.part()
    assert part.rows == workload.words, (part.rows, workload.words)
    print_result(part.rows, (part.ended_ns - begun_ns) / 1e9, part.finals)


if __name__ == "__main__":
    main()
