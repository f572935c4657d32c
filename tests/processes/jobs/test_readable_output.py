"""Other programs read an output while its job runs, is killed and resumes: they see committed rows and no others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pandas
import polars
import pytest

from clonos.connectors import files, values
from clonos.job import Job
from tests.processes.harness import gated_source
from tests.processes.harness.gated_source import Gate
from tests.speed import scaled
from tests.tidy.source import PACKAGE_FOLDERS

pytestmark = pytest.mark.processes

LIMIT_S = scaled(40.0)
JOB = """
from types import SimpleNamespace
from clonos import Job, files, random
from gated_source import GatedNumbers

job = Job("drawing", slots="process", parallelism=2, checkpoint_every="100ms")
numbers = job.source(GatedNumbers(SimpleNamespace(path={gate!r})))
drawn = numbers.map(lambda n: {{"n": n, "draw": random.getrandbits(50)}})
drawn.sink(files.parquet("out"))
drawn.sink(files.jsonl("lines"))
"""


class Drawn:
    """A job that draws a number per record, so that what a driver had not committed comes out differently later."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gate = folder, Gate(folder / "gate")
        (folder / "gated_source.py").write_text(Path(gated_source.__file__).read_text("utf-8"), "utf-8")
        (folder / "job.py").write_text(JOB.format(gate=str(folder / "gate")), "utf-8")
        self.seen: set[tuple[int, int]] = set()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A driver."""
        path = os.pathsep.join(str(package.parent) for package in PACKAGE_FOLDERS.values())
        return subprocess.Popen(
            [sys.executable, "-m", "clonos.cli", "run", "job.py", *arguments],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": path},
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def look(self) -> int:
        """Reads both outputs with each reader and returns how many records the one with most has."""
        counts = []
        for rows in (self.pandas_rows(), self.polars_rows(), self.lines()):
            assert len(set(rows)) == len(rows) == len({n for n, _ in rows})
            self.seen.update(rows)
            counts.append(len(rows))
        return max(counts)

    def pandas_rows(self) -> list[tuple[int, int]]:
        if not self.parts("out"):
            return []
        return list(pandas.read_parquet(self.folder / "out").itertuples(index=False, name=None))

    def polars_rows(self) -> list[tuple[int, int]]:
        return polars.scan_parquet(self.folder / "out").collect().rows() if self.parts("out") else []

    def lines(self) -> list[tuple[int, int]]:
        texts = [path.read_text("utf-8") for path in sorted((self.folder / "lines").glob("*"))]
        return [(row["n"], row["draw"]) for text in texts for row in map(json.loads, text.splitlines())]

    def parts(self, name: str) -> list[str]:
        folder = self.folder / name
        return os.listdir(folder) if folder.exists() else []

    def prepared(self) -> int:
        """Number of part files that are not committed."""
        folder = self.folder / ".out.clonos" / "parts"
        return len(os.listdir(folder)) if folder.exists() else 0


def test_readers_never_see_a_row_that_a_killed_driver_had_not_committed(tmp_path: Path) -> None:
    drawn, waiting, reach = Drawn(tmp_path), threading.Event(), 0
    for arguments in ((), ("--resume",), ("--resume",)):
        driver, target = drawn.start(*arguments), drawn.look() + 10
        try:
            for _ in range(int(LIMIT_S * 50)):
                reach += 1
                drawn.gate.open_to(reach)
                if drawn.look() >= target and drawn.prepared():
                    break
                waiting.wait(0.02)
            else:
                raise AssertionError(f"{drawn.look()} of {target} records")
        finally:
            driver.send_signal(signal.SIGKILL)
            driver.wait()
        drawn.look()
    last = drawn.start("--resume")
    drawn.gate.end(reach + 5)
    assert last.wait(LIMIT_S) == 0
    total = 2 * (reach + 5)
    assert drawn.look() == total
    final = {(row["n"], row["draw"]) for name in ("out", "lines") for row in files.read_committed(tmp_path / name)}
    assert drawn.seen == final
    assert sorted(n for n, _ in final) == list(range(total))


def test_a_bounded_job_writes_one_file_when_it_was_asked_to(tmp_path: Path) -> None:
    job = Job("squares", slots="process", parallelism=2, store=tmp_path / "store")
    squares = job.source(values(range(100))).map(lambda number: {"number": number, "square": number * number})
    squares.sink(files.jsonl(tmp_path / "squares.jsonl", single=True))
    squares.sink(files.parquet(tmp_path / "squares.parquet", single=True))
    job.run()
    expected = [(number, number * number) for number in range(100)]
    lines = (tmp_path / "squares.jsonl").read_text("utf-8").splitlines()
    assert sorted((row["number"], row["square"]) for row in map(json.loads, lines)) == expected
    assert sorted(pandas.read_parquet(tmp_path / "squares.parquet").itertuples(index=False, name=None)) == expected
