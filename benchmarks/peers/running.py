"""Runs the word count of a peer in its own environment, and checks what it has counted."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.tally import Measured, WrongResult
from benchmarks.words import Workload

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENTS: Final = Path(__file__).parent / ".venvs"
LIMIT_S: Final = 300


@dataclass(frozen=True, slots=True)
class Peer:
    """``environment``: empty for the project's own. ``words``: of one run, from what it does in a second or so."""

    module: str
    environment: str
    arguments: tuple[str, ...]
    words: float

    def workload(self, folder: str) -> Workload:
        """Of one run."""
        return Workload(folder).of_words(self.words)


PEERS: Final = {
    "bytewax": Peer("bytewax_words", "bytewax", (), 2e6),
    "pathway": Peer("pathway_words", "pathway", (), 4e6),
    "pyflink": Peer("pyflink_words", "pyflink", (), 2e5),
    "spark-native": Peer("spark_words", "", ("native",), 10e6),
    "spark-arrow": Peer("spark_words", "", ("arrow",), 10e6),
    "spark-udf": Peer("spark_words", "", ("udf",), 8e6),
    "spark-state": Peer("spark_words", "", ("state",), 4e6),
}


class PeerMissing(Exception):
    """A peer is not installed, or does not run here."""


def _reason(text: str) -> str:
    """The line of a peer's last words that names an error; else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"(Caused by: )?[\w.]+(Error|Exception|Missing)\b", line)]
    return (named or lines or [""])[-1]


def run(name: str, workload: Workload) -> Measured:
    """One run. PeerMissing; WrongResult."""
    peer = PEERS[name]
    python = ENVIRONMENTS / peer.environment / "bin/python" if peer.environment else Path(sys.executable)
    if not python.exists():
        raise PeerMissing(f"there is no {python.relative_to(ROOT)}: benchmarks/peers/setup {peer.environment} makes it")
    arguments = [workload.folder, str(workload.repeats), str(workload.lines), *peer.arguments]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            [python, "-m", f"benchmarks.peers.{peer.module}", *arguments],
            cwd=ROOT,
            env=os.environ
            | {
                "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",  # PyFlink's workers take what is there
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": str(python),
            },
            capture_output=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"it has not ended within {LIMIT_S} s") from None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise PeerMissing(_reason(done.stderr.decode("utf-8", "replace")) or f"exit {done.returncode}")
    told = json.loads(done.stdout.strip().rpartition(b"\n")[2])
    if told["finals"] != dict(workload.finals()):
        raise WrongResult(f"{name} has counted {sum(told['finals'].values())} words of {workload.words}, or others")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(told["words"], told["seconds"], 0.0, cpu_s)
