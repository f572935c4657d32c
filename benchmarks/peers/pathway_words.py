"""Word count in Pathway, two threads, persistence each second: ``python -m ... FOLDER REPEATS LINES``.

It reads files of lines and tells changes of counts, not one count a word: all of a static input at once. Timed from the
call that starts the engine, which is up after a tenth of a second, to the last change.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("PATHWAY_THREADS", "2")
import pathway as pw

from benchmarks.peers.peer_io import line_files, print_result
from benchmarks.workloads.words import Workload


def main() -> None:
    folder = Path(sys.argv[1])
    workload = Workload(str(folder), int(sys.argv[2]), int(sys.argv[3]))
    files = folder / f"pathway-{time.monotonic_ns()}"
    line_files(workload, files)
    lines = pw.io.plaintext.read(str(files), mode="static", name="lines")
    split = lines.select(word=pw.apply_with_type(str.split, list[str], pw.this.data))
    counts = split.flatten(pw.this.word).groupby(pw.this.word).reduce(pw.this.word, count=pw.reducers.count())
    finals: dict[str, int] = {}
    ended_ns = 0

    def changed(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        nonlocal ended_ns
        if is_addition:
            ended_ns = now_ns()
            finals[row["word"]] = max(row["count"], finals.get(row["word"], 0))

    now_ns = time.monotonic_ns
    pw.io.subscribe(counts, on_change=changed)
    backend = pw.persistence.Backend.filesystem(str(folder / f"{files.name}-kept"))
    begun_ns = now_ns()
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=1_000),
    )
    print_result(workload.words, (ended_ns - begun_ns) / 1e9, finals)


if __name__ == "__main__":
    main()
