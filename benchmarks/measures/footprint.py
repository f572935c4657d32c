"""Benchmark: cost of the import, of an idle slot and an idle standby, and of the first output of a job."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import WrongResult
from benchmarks.harness.timestamp_sink import TimestampSink, entries, file_of
from clonos import Job, values

IMPORTS: Final = 7
STARTS: Final = 3
IDLE_S: Final = 5.0
BYTES_A_MB: Final = 1_000_000
TIME_OF_IMPORT: Final = "import time; begun = time.perf_counter(); import clonos; print(time.perf_counter() - begun)"


class Silent:
    """Source with one record, and no more for a long time."""

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns one split per task."""
        return [b"%d" % number for number in range(parallelism)]

    def reader(self) -> SilentReader:
        """Makes the reader of a split."""
        return SilentReader()


class SilentReader:
    """Reader that returns a word, then nothing."""

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Starts before or after the word, by the mark."""
        self._is_given = mark == b"1"

    def read(self, records_max: int) -> list[str]:
        """Returns the word, once."""
        given, self._is_given = self._is_given, True
        return [] if given else ["word"]

    def mark(self) -> bytes:
        """Returns whether the word was read."""
        return b"1" if self._is_given else b"0"

    def close(self) -> None:
        """Does nothing, because no file is open."""


def run(session: Session) -> None:
    """Measures import, first output and idle slots."""
    imports = [_import_ms() for _ in range(IMPORTS)]
    session.figure("import clonos", min(imports), "ms, best", "<= 50")
    session.figure("import clonos, median", statistics.median(imports), "ms")
    starts = [_first_output_s() for _ in range(1 if session.is_quick else STARTS)]
    session.figure("first output of a job on process slots", min(starts), "s, best", "<= 1.5")
    session.figure("first output, median", statistics.median(starts), "s")
    _idle(session)


def _import_ms() -> float:
    done = subprocess.run([sys.executable, "-c", TIME_OF_IMPORT], capture_output=True, check=True)
    return float(done.stdout) * 1e3


def _first_output_s() -> float:
    """Returns the time from ``run`` to the first output row."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        job = Job("first")
        job.source(values(["word"])).key_by(lambda word: word).count(name="count").sink(TimestampSink(name))
        begun_ns = time.monotonic_ns()
        job.run(slots="process", store=f"{name}/store", standbys=1, checkpoint_every="1s")
        written = list(entries(file_of(Path(name), "count/0")))
        if [(entry.rows, entry.weight) for entry in written] != [(1, 1)]:
            raise WrongResult(f"one word came out as {written}")
        return (written[0].at_ns - begun_ns) / 1e9


def _idle(session: Session) -> None:
    """Measures memory and processor time of idle slots."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        job = Job("idle")
        job.source(Silent()).key_by(lambda word: word).count(name="count").sink(TimestampSink(name))
        options: dict[str, Any] = {"standbys": 1, "spare_slots": 1, "checkpoint_every": "1s"}
        with job.start(slots="process", store=f"{name}/store", **options) as handle:
            while handle.status().checkpoint < 2 or not all(task.standbys for task in handle.status().tasks):
                time.sleep(0.05)
            pids = sorted({slot.pid for slot in handle.status().slots})
            active = {task.pid for task in handle.status().tasks}
            before = {pid: _used_s(pid) for pid in pids}
            begun_s = time.monotonic()
            time.sleep(IDLE_S)
            taken_s = time.monotonic() - begun_s
            shares = {pid: (_used_s(pid) - before[pid]) / taken_s * 100 for pid in pids}
            memory = [pss_bytes(pid) / BYTES_A_MB for pid in pids]
            handle.stop(drain=False)
            handle.wait()
    session.figure("idle slot, memory (PSS)", max(memory), "MB, largest", "<= 90")
    for name, wanted, goal in (("standbys only", set(pids) - active, "<= 0.5"), ("a task", active, "")):
        assert wanted, f"there is a slot with {name}: one is spare"
        most = max(shares[pid] for pid in wanted)
        session.figure(f"idle slot with {name}, processor", most, "% of a core", goal)


def pss_bytes(pid: int) -> int:
    """Returns the proportional set size of a process."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024


def _used_s(pid: int) -> float:
    """Returns the processor time of all threads."""
    return sum(int(path.read_text("ascii").split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
