"""Runs the word count of a peer in its own environment, and checks the result.

Processes started by a peer end with it in any case, because they would disturb the next run.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness.isolated_run import MARK, end_all
from benchmarks.harness.result_counter import Measured, WrongResult
from benchmarks.workloads.words import Workload

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENTS: Final = Path(__file__).parent / ".venvs"
LIMIT_S: Final = 300


@dataclass(frozen=True, slots=True)
class Peer:
    """Peer. ``words``: of one run, about as many as it counts in a second."""

    module: str
    environment: str
    arguments: tuple[str, ...]
    words: float
    needs_java: bool = False

    def workload(self, folder: str) -> Workload:
        """Returns the workload of one run."""
        return Workload(folder).of_words(self.words)


PEERS: Final = {
    "bytewax": Peer("bytewax_words", "bytewax", (), 2e6),
    "pathway": Peer("pathway_words", "pathway", (), 4e6),
    "pyflink": Peer("pyflink_words", "pyflink", (), 2e5, True),
    "spark-native": Peer("spark_words", "spark", ("native",), 10e6, True),
    "spark-arrow": Peer("spark_words", "spark", ("arrow",), 10e6, True),
    "spark-udf": Peer("spark_words", "spark", ("udf",), 8e6, True),
    "spark-state": Peer("spark_words", "spark", ("state",), 4e6, True),
}


class PeerMissing(Exception):
    """A peer is not installed."""


class PeerFailed(Exception):
    """A peer is installed, but its run failed."""


def _reason(text: str) -> str:
    """Returns the line of a peer's output that names an error; else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"(Caused by: )?[\w.]+(Error|Exception|Missing)\b", line)]
    return (named or lines or [""])[-1]


def run(name: str, workload: Workload, *, environments: Path = ENVIRONMENTS) -> Measured:
    """Runs a peer once. Raises PeerMissing, PeerFailed or WrongResult."""
    peer = PEERS[name]
    python = environments / peer.environment / "bin/python"
    if not python.exists():
        raise PeerMissing(
            f"{os.path.relpath(python, ROOT)} is missing: benchmarks/peers/setup {peer.environment} makes it"
        )
    if peer.needs_java and not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise PeerMissing("it needs Java, which is not installed")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix="peer-", dir=workload.folder, ignore_cleanup_errors=True) as folder:
        try:
            done = _done(peer, python, workload, folder)
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"it has not ended within {LIMIT_S} s") from None
        finally:
            end_all(folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise PeerFailed(_reason(done.stderr.decode("utf-8", "replace")) or f"exit {done.returncode}")
    results = json.loads(done.stdout.strip().rpartition(b"\n")[2])
    if results["finals"] != dict(workload.finals()):
        raise WrongResult(f"{name} has counted {sum(results['finals'].values())} words of {workload.words}, or others")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(results["words"], results["seconds"], 0.0, cpu_s)


def _done(peer: Peer, python: Path, workload: Workload, folder: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [
            *(python, "-m", f"benchmarks.peers.{peer.module}"),
            *(workload.folder, str(workload.repeats), str(workload.lines), *peer.arguments),
        ],
        cwd=ROOT,
        env=os.environ
        | {
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",  # PyFlink's workers search it
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": str(python),
            MARK: folder,
        },
        capture_output=True,
        timeout=LIMIT_S,
    )
