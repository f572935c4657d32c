"""Failure domain of a Python worker: its executor, because all workers of an executor end with it."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ANCESTORS_MAX: Final = 4


def own_domain() -> str:
    """Returns the executor and its host, such as ``executor-0@host``.

    The executor's name is in the command line of its JVM, an ancestor of every worker. If that is unreadable, the
    folder of the block manager identifies the executor, because each executor has its own.
    """
    host = socket.gethostname()
    for _, name in _executors_above():
        return f"executor-{name}@{host}"
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return f"{Path(first).name or f'parent-{os.getppid()}'}@{host}"


def executor_pid() -> int | None:
    """Returns the process of the executor above this Python worker; None where it cannot be seen."""
    return next((pid for pid, _ in _executors_above()), None)


def _executors_above() -> Iterator[tuple[int, str]]:
    """Yields process and name of executors among the ancestors of this process."""
    pid = os.getppid()
    for _ in range(ANCESTORS_MAX):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
            status = Path(f"/proc/{pid}/stat").read_text("utf-8")
        except OSError:  # no Linux, or no permission
            return
        found = re.search(r"--executor-id\0([^\0]+)", command)
        if found:
            yield pid, found[1]
        pid = int(status.rpartition(")")[2].split()[1])
