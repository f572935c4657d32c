"""Output of a peer's process at its end, and input files for peers that read files."""

from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path

from benchmarks.workloads.words import Workload

TICKS_PER_S = 100


def used_s(jvm: int) -> float:
    """Returns the processor time that a JVM and this process have used."""
    fields = Path(f"/proc/{jvm}/stat").read_text("ascii").rpartition(")")[2].split()
    own = resource.getrusage(resource.RUSAGE_SELF)
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S + own.ru_utime + own.ru_stime


def print_result(words: int, seconds: float, finals: dict[str, int]) -> None:
    """Prints that ``words`` were counted in ``seconds`` after the warm-up. ``finals``: last count of each word."""
    print(json.dumps({"words": words, "seconds": seconds, "finals": finals}), flush=True)


def line_files(workload: Workload, folder: Path) -> int:
    """Writes the workload as text files: the pool ``repeats`` times, then the epilogue; returns their number."""
    folder.mkdir()
    pool = folder / "00000.txt"
    lines = (Path(workload.folder) / "pool.txt").read_text("utf-8").split("\n")[: workload.lines]
    pool.write_text("\n".join(lines) + "\n", "utf-8")
    for number in range(1, workload.repeats):
        shutil.copy(pool, folder / f"{number:05}.txt")
    for number in range(workload.repeats, workload.repeats + workload.readers):
        shutil.copy(Path(workload.folder) / "epilogue.txt", folder / f"{number:05}.txt")
    return workload.repeats + workload.readers
