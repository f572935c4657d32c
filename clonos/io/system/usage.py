"""Processor time and memory of this process, for the metrics of a slot."""

from __future__ import annotations

import os
import time
from pathlib import Path

_STATM = Path("/proc/self/statm")
_RESIDENT_FIELD = 1


def cpu_ms() -> int:
    """Returns the processor time of all threads since the process began."""
    return time.process_time_ns() // 1_000_000


def resident_bytes() -> int:
    """Returns the memory of the process that is in RAM; 0 where the system does not say it."""
    try:
        return int(_STATM.read_bytes().split()[_RESIDENT_FIELD]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
