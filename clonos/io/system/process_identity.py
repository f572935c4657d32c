"""Identity of a process beyond its number, which the system uses again: the machine's boot and the process's start."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from clonos.core.model.errors import EnvironmentFault


def machine() -> str:
    """Returns what the processes that can see each other have in common: the boot and the namespace of processes.

    Raises: EnvironmentFault: the system has it and does not say it, as without free descriptors.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except (FileNotFoundError, PermissionError):
        return socket.gethostname()
    except OSError as error:
        raise EnvironmentFault(f"the boot of this machine cannot be read: {error}") from None


def started_at(pid: int) -> str:
    """Returns the start time of a process in ticks since the boot; "" if there is no such process, or only a zombie.

    Raises: EnvironmentFault: the system does not say it, as without free descriptors. The process may live.
    """
    if not Path("/proc/self/stat").exists():
        return "unknown" if _exists(pid) else ""
    try:
        state, *numbers = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # the last one: of another user, so none of ours
        return ""
    except OSError as error:
        raise EnvironmentFault(f"the start time of process {pid} cannot be read: {error}") from None
    return "" if state in "ZX" else numbers[18]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
