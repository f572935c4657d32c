"""Runs one benchmark in a separate process, so that an error or a hanging run does not affect the others.

Its temporary folders are in one folder that is removed. The name of this folder is in the environment of all processes
that it starts: by it they are found and ended, including slots and JVMs in sessions of their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from benchmarks.harness.ab_session import Session

ROOT: Final = Path(__file__).parents[2]
MARK: Final = "TMPDIR"
ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
END_S_MAX: Final = 10.0
"""Time within which killed processes must be gone."""


def run(session: Session, name: str, limit_s: float) -> None:
    """Runs a benchmark; adds its results, or the reason of its failure, to the session, also on an interrupt."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "found.json"
        arguments = [name, "--here", "--json", str(file), "--against", ",".join(session.against)]
        arguments += ["--pairs", str(session.pairs)]
        arguments += ["--kills", str(session.kills)] if session.kills else []
        arguments += ["--cases", ",".join(session.cases)] if session.cases and name == "failover" else []
        arguments += ["--queries", ",".join(session.queries)] if session.queries else []
        arguments += ["--events", str(session.events)] if session.events else []
        arguments += ["--stages", session.stages]
        for option in ("rows", "experiments"):
            arguments += [f"--{option}"] if getattr(session, option) else []
        arguments += ["--quick"] if session.is_quick else []
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks", *arguments],
            cwd=ROOT,
            env=os.environ | {MARK: folder},
            start_new_session=True,  # signals of the terminal do not reach it
        ) as process:
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                session.failed[name] = f"it has not ended within {limit_s:.0f} s"
            finally:
                with _signals_blocked():
                    end_all(folder)
                    if file.exists():
                        session.add(file)
        if process.returncode and not any(one.startswith(name) for one in session.failed):
            session.failed[name] = f"it ended with {process.returncode}; its output is above"


def end_all(folder: str) -> None:
    """Kills all processes that were started for a benchmark."""
    until_s = time.monotonic() + END_S_MAX
    while (pids := started_for(folder)) and time.monotonic() < until_s:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def started_for(folder: str) -> list[int]:
    """Returns living processes with this folder, or one below it, in their environment."""
    mark = f"{MARK}={folder}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if any(entry.startswith(mark) for entry in path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
    return [pid for pid in found if pid != os.getpid()]


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Blocks the signals that end this process, inside the ``with`` block."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
