"""One benchmark in a process of its own: an error there, or a run that hangs, costs the others nothing.

The process leads a group, of which nothing is left when it is over; its temporary folders lie in one that is removed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.comparing import Session

ROOT: Final = Path(__file__).parent.parent
GRACE_S: Final = 10.0
"""From the end of the process, in which those that it started may end by themselves."""


def run(session: Session, name: str, limit_s: float) -> None:
    """Adds what the benchmark has found to the session, or why it has failed."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "found.json"
        arguments = [name, "--here", "--json", str(file), "--against", ",".join(session.against)]
        arguments += ["--pairs", str(session.pairs), "--kills", str(session.kills)]
        arguments += ["--quick"] if session.is_quick else []
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks", *arguments],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": folder},
            start_new_session=True,
        )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            session.failed[name] = f"it has not ended within {limit_s:.0f} s"
        finally:
            _end(process)
        if file.exists():
            session.add(file)
        if process.returncode and not any(one.startswith(name) for one in session.failed):
            session.failed[name] = f"it ended with {process.returncode}; what it said is above"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the group: those that are in it still are nobody's any more."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
