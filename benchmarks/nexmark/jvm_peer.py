"""A peer that runs in a JVM: one process, which runs queries when asked; its compiler is warm after some runs."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.isolated_run import MARK, ROOT, end_all
from benchmarks.nexmark.one_run import Cost
from benchmarks.nexmark.queries import Query
from benchmarks.peers.running import ENVIRONMENTS, PeerFailed, PeerMissing


class JvmPeer:
    """A JVM with Flink or Spark. Close it after use."""

    def __init__(self, name: str, environments: Path = ENVIRONMENTS) -> None:
        python = environments / name / "bin/python"
        if not python.exists():
            raise PeerMissing(f"{os.path.relpath(python, ROOT)} is missing: benchmarks/peers/setup {name} makes it")
        if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
            raise PeerMissing("it needs Java, which is not installed")
        self._folder = tempfile.mkdtemp(prefix=f"clonos-{name}-")
        self._log = (Path(self._folder) / "log").open("wb")
        self._process = subprocess.Popen(
            [str(python), "-m", f"benchmarks.peers.{name}_nexmark", self._folder],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "TZ": "UTC", MARK: self._folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def run(self, query: Query, events: Path, settings: Mapping[str, str] | None = None) -> Cost:
        """Runs a query into nowhere. Raises PeerFailed."""
        found = self._asked({"query": query.name, "events": str(events), "settings": dict(settings or {})})
        return Cost(found["cpu_s"], found["seconds"], [])

    def rows(self, query: Query, events: Path) -> list[tuple[Any, ...]]:
        """Runs a query and returns its final rows. Raises PeerFailed."""
        file = Path(self._folder) / "rows"
        self._asked({"query": query.name, "events": str(events), "settings": {}, "rows": str(file)})
        with file.open("rb") as opened:
            return list(pickle.load(opened))  # noqa: S301  # written by our own process

    def _asked(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None, "it is a pipe"
        assert self._process.stdout is not None, "it is a pipe"
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise PeerFailed(self._end_of_log()) from None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                if "failed" in found:
                    raise PeerFailed(found["failed"])
                return found
        raise PeerFailed(self._end_of_log())

    def _end_of_log(self) -> str:
        return (Path(self._folder) / "log").read_text("utf-8", "replace")[-500:]

    def close(self) -> None:
        """Ends the JVM and removes its files."""
        self._process.kill()
        self._process.communicate()
        end_all(self._folder)
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)
