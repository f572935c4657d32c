"""Runs of a query as a Clonos job, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.isolated_run import MARK, ROOT, end_all
from benchmarks.nexmark.one_run import Cost, Run
from benchmarks.nexmark.oracle import Oracle
from benchmarks.nexmark.queries import Query
from benchmarks.nexmark.results import Results

LIMIT_S: Final = 900


class RunFailed(Exception):
    """A run has not ended as it should; the text is its last output."""


def run(query: Query, shape: str, events: Path, oracle: Oracle, **options: Any) -> Cost:
    """Runs a query once and compares the result. Raises RunFailed, WrongResult."""
    with tempfile.TemporaryDirectory(prefix="clonos-nexmark-", ignore_cleanup_errors=True) as folder:
        cost = _run_in(query, shape, events, folder, options)
        oracle.check(query, Results.read([Path(part) for part in cost.parts]))
    return cost


def _run_in(query: Query, shape: str, events: Path, folder: str, options: Mapping[str, Any]) -> Cost:
    request = Run(query.name, shape, str(events), folder, dict(options))
    return run_apart("benchmarks.nexmark.one_run", f"{query.name} in {shape}", json.dumps(asdict(request)), folder)


def run_apart(module: str, name: str, request: str, folder: str) -> Cost:
    """Runs a module that prints a cost, in a process of its own. Raises RunFailed."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, request],
            cwd=ROOT,
            env=os.environ | {MARK: folder},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{name} has not ended within {LIMIT_S} s") from None
    finally:
        end_all(folder)
    if done.returncode:
        raise RunFailed(f"{name}: {(done.stderr or done.stdout)[-2000:]}")
    return Cost(**json.loads(done.stdout.strip().rpartition("\n")[2]))
