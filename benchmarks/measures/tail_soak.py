"""Soak of ``files.tail``: a log is rotated in all ways while the reading task is killed, and each line is there once.

``python -m benchmarks.measures.tail_soak --rotations 1000 --kills 200``
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

from benchmarks.harness.kill_loop import KillLoop
from clonos import Job, files
from tests.harnesses.log_rotation import ROTATIONS, append, remove_oldest

ROTATED_MAX: Final = 100
"""Rotated files that are not removed, as ``rotate 100`` of logrotate does."""

SECONDS_MAX: Final = 3_600.0


class Log:
    """Log that a thread writes and rotates."""

    def __init__(self, path: Path, rotations: int, pause_s: float) -> None:
        self.path, self.rotations, self.pause_s = path, rotations, pause_s
        self.lines = self.rotated = 0
        self.ends = threading.Event()

    def write(self) -> None:
        """Writes and rotates until all rotations are made and ``ends`` is set."""
        rng = random.Random(1)
        while not (self.ends.is_set() and self.rotated >= self.rotations):
            for _ in range(rng.randint(1, 4)):
                count = rng.choice((0, 1, 20, 300))
                text = "".join(
                    f"{number} {'x' * rng.randrange(60)}\n" for number in range(self.lines, self.lines + count)
                )
                cut = rng.randrange(len(text) + 1)
                append(self.path, text[:cut])  # the end of a line may come later
                append(self.path, text[cut:])
                self.lines += count
                time.sleep(self.pause_s)
            if self.rotated < self.rotations:
                rng.choice([*ROTATIONS.values()])(self.path)
                self.rotated += 1
                remove_oldest(self.path, ROTATED_MAX)


def number_of(line: str) -> int:
    """Returns the number of a line."""
    return int(line.split(" ", 1)[0])


def main() -> None:
    """Runs the soak; exit code 1 if a line is missing or is there twice."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--rotations", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.05)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        raise SystemExit(_soak(Path(folder), given.rotations, given.kills, given.pause))


def _soak(folder: Path, rotations: int, kills: int, pause_s: float) -> int:
    log = Log(folder / "app.log", rotations, pause_s)
    append(log.path, "begin\n")
    job = Job("tails", slots="process", checkpoint_every="100ms", store=folder / "store", standbys=1)
    lines = job.source(files.tail(folder / "*.log", watch="50ms", linger="1s"), name="lines")
    lines.filter(lambda line: line != "begin").map(number_of, name="numbers").sink(files.jsonl(folder / "output"))
    began_s = time.monotonic()
    with job.start() as handle:
        writer = threading.Thread(target=log.write)
        writer.start()
        has_failed = False
        try:
            done, _ = KillLoop(handle, ("lines",), 1, SECONDS_MAX).kill_repeatedly(kills)
            has_failed = len(done) < kills
        except BaseException:
            has_failed = True
            raise
        finally:
            log.rotations = 0 if has_failed else rotations
            log.ends.set()
            writer.join()
        while not has_failed and _committed(folder) < log.lines and time.monotonic() - began_s < SECONDS_MAX:
            time.sleep(0.5)
        handle.stop(drain=True)
        handle.wait(120.0)
    found = Counter(files.read_committed(folder / "output"))
    missing = [number for number in range(log.lines) if number not in found]
    repeated = [number for number, count in found.items() if count > 1]
    print(
        f"{log.rotated} rotations, {len(done)} kills, {log.lines} lines in {time.monotonic() - began_s:.0f} s:"
        f" {len(missing)} missing, {len(repeated)} repeated {[*missing, *repeated][:5] or ''}"
    )
    return 1 if missing or repeated or sum(found.values()) != log.lines else 0


def _committed(folder: Path) -> int:
    return sum(part.rows for part in files.committed(folder / "output")) if (folder / "output").exists() else 0


if __name__ == "__main__":
    main()
