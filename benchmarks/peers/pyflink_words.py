"""Word count in PyFlink's DataStream API, two tasks, thread mode, checkpoints: ``python -m ... FOLDER REPEATS LINES``.

The bundle is tuned: as shipped (100,000 elements or 1 s) latency and throughput are several times worse. Timed from the
first count to the last in the process that takes them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, MapFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.state import ValueStateDescriptor

from benchmarks.peers.peer_io import line_files, print_result
from benchmarks.workloads.words import Workload

SETTINGS = {
    "python.execution-mode": "thread",
    "python.fn-execution.bundle.size": "10000",
    "python.fn-execution.bundle.time": "50",
    "python.state.cache-size": "20000",
    "execution.checkpointing.interval": "1s",
    "parallelism.default": "2",
    "python.executable": sys.executable,
    "restart-strategy.type": "none",
}


class Count(KeyedProcessFunction):
    """Running count of a word."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, word: str, context: Any) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield word, count


class Tally(MapFunction):
    """Sink that writes the last counts at the end."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, context: RuntimeContext) -> None:
        self.finals: dict[str, int] = {}
        self.rows = self.begun_ns = 0

    def map(self, value: tuple[str, int]) -> int:
        self.begun_ns = self.begun_ns or time.monotonic_ns()
        self.rows += 1
        self.finals[value[0]] = value[1]
        return 0

    def close(self) -> None:
        results = [self.rows, self.begun_ns, time.monotonic_ns(), self.finals]
        (Path(self.folder) / f"flink-{time.monotonic_ns()}.json").write_text(json.dumps(results), "utf-8")


def main() -> None:
    folder = Path(sys.argv[1])
    workload = Workload(str(folder), int(sys.argv[2]), int(sys.argv[3]))
    files = folder / f"flink-{time.monotonic_ns()}"
    line_files(workload, files)
    configuration = Configuration()
    for key, value in SETTINGS.items():
        configuration.set_string(key, value)
    configuration.set_string("execution.checkpointing.dir", (folder / f"{files.name}-kept").as_uri())
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), files.as_uri()).build()
    lines = environment.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    words = lines.flat_map(str.split, Types.STRING())
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    counts = words.key_by(lambda word: word, Types.STRING()).process(Count(), pair)
    results_folder = folder / f"{files.name}-results"  # of this run: the folder belongs to the whole session
    results_folder.mkdir()
    counts.map(Tally(str(results_folder)), Types.INT()).filter(lambda _: False).print()
    environment.execute("words")
    results = [json.loads(path.read_text("utf-8")) for path in results_folder.glob("*.json")]
    finals = {word: count for *_, of_task in results for word, count in of_task.items()}
    rows = sum(one[0] for one in results)
    assert rows == workload.words, (rows, workload.words)
    print_result(rows, (max(one[2] for one in results) - min(one[1] for one in results)) / 1e9, finals)


if __name__ == "__main__":
    main()
