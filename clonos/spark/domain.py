"""Which executor this Python worker belongs to: all workers of one executor die with it, so it is their domain."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Final

ANCESTORS_MAX: Final = 4


def own_domain() -> str:
    """The executor and its host: ``executor-0@host``.

    The name of the executor stands in the command line of its JVM, an ancestor of every worker. Where that cannot be
    read, the folder of its block manager stands for it: each executor has one with a name of its own.
    """
    host = socket.gethostname()
    name = _executor_of_ancestors()
    if name is not None:
        return f"executor-{name}@{host}"
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return f"{Path(first).name or f'parent-{os.getppid()}'}@{host}"


def _executor_of_ancestors() -> str | None:
    pid = os.getppid()
    for _ in range(ANCESTORS_MAX):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
            status = Path(f"/proc/{pid}/stat").read_text("utf-8")
        except OSError:  # another system, or not to be read by us
            return None
        found = re.search(r"--executor-id\0([^\0]+)", command)
        if found:
            return found[1]
        pid = int(status.rpartition(")")[2].split()[1])
    return None
