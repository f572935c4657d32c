"""One benchmark in a process of its own: an error there, or a run that hangs, costs the others nothing.

Its temporary folders lie in one that is removed, whose name is in the environment of all that it starts: by that they
are found, slots and machines of Java in sessions of their own too, and none of them is left when it is over.
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
"""In which whatever was killed is gone."""


def run(session: Session, name: str, limit_s: float) -> None:
    """Adds what the benchmark has found to the session, or why it has failed; the first also when it is interrupted."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "found.json"
        arguments = [name, "--here", "--json", str(file), "--against", ",".join(session.against)]
        arguments += ["--pairs", str(session.pairs)]
        arguments += ["--kills", str(session.kills)] if session.kills else []
        arguments += ["--quick"] if session.is_quick else []
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks", *arguments],
            cwd=ROOT,
            env=os.environ | {MARK: folder},
            start_new_session=True,  # what the terminal says to this one is no word to that one
        ) as process:
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                session.failed[name] = f"it has not ended within {limit_s:.0f} s"
            finally:
                with _undisturbed():
                    end_all(folder)
                    if file.exists():
                        session.add(file)
        if process.returncode and not any(one.startswith(name) for one in session.failed):
            session.failed[name] = f"it ended with {process.returncode}; what it said is above"


def end_all(folder: str) -> None:
    """Kills what was started for a benchmark: it is nobody's any more."""
    until_s = time.monotonic() + END_S_MAX
    while (pids := started_for(folder)) and time.monotonic() < until_s:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def started_for(folder: str) -> list[int]:
    """Living processes with this mark in their environment, and those of whoever runs under one of its folders."""
    mark = f"{MARK}={folder}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is not ours
            if any(entry.startswith(mark) for entry in path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
    return [pid for pid in found if pid != os.getpid()]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals that end this process come when it is over."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
