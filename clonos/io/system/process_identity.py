"""Identity of a process beyond its number, which the system uses again: the machine's boot and the process's start."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def machine() -> str:
    """Returns what the processes that can see each other have in common: the boot and the namespace of processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def started_at(pid: int) -> str:
    """Returns the start time of a process in ticks since the boot; "" if there is no such process, or only a zombie."""
    if not Path("/proc/self/stat").exists():
        return "unknown" if _exists(pid) else ""
    try:
        state, *numbers = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else numbers[18]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
