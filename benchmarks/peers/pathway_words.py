"""Word count in Pathway, two threads, persistence each second: ``python -m ... FOLDER REPEATS LINES``.

It reads files of lines and tells changes of counts, not one count a word. Timed from the first change to the last, for
the words between them.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("PATHWAY_THREADS", "2")
import pathway as pw

from benchmarks.peers.telling import line_files, tell
from benchmarks.words import Workload


def main() -> None:
    folder = Path(sys.argv[1])
    workload = Workload(str(folder), int(sys.argv[2]), int(sys.argv[3]))
    files = folder / f"pathway-{time.monotonic_ns()}"
    line_files(workload, files)
    lines = pw.io.plaintext.read(str(files), mode="static", name="lines")
    split = lines.select(word=pw.apply_with_type(str.split, list[str], pw.this.data))
    counts = split.flatten(pw.this.word).groupby(pw.this.word).reduce(pw.this.word, count=pw.reducers.count())
    finals: dict[str, int] = {}
    instants: dict[int, list[int]] = {}  # per time of the engine: when its last change was told, words so far

    def changed(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            entry = instants.setdefault(time, [0, 0])
            entry[0] = now_ns()
            entry[1] += row["count"] - finals.get(row["word"], 0)
            finals[row["word"]] = row["count"]

    now_ns = time.monotonic_ns
    begun_ns = now_ns()
    pw.io.subscribe(counts, on_change=changed)
    backend = pw.persistence.Backend.filesystem(str(folder / f"{files.name}-kept"))
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=1_000),
    )
    told = [instants[at] for at in sorted(instants)]
    if len(told) > 1:
        tell(sum(words for _, words in told[1:]), (told[-1][0] - told[0][0]) / 1e9, finals)
    else:
        tell(workload.words, (told[0][0] - begun_ns) / 1e9, finals)


if __name__ == "__main__":
    main()
