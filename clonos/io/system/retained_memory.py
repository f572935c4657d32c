"""Memory that a process retains when it is freed, so that the next batch of columns finds it.

The kernel fills pages with zeros before it gives them to a process. Where each batch gave its memory back and asked for
it anew, wide columns took a sixth of their processor time for that. The fork server of slots imports this module in
front of all that import Arrow, for a job with columns.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

RETAINED_BYTES_MAX: Final = 64 << 20
"""Free bytes at the end of the heap that a process retains."""

MAPPED_BYTES_MIN: Final = 32 << 20
"""Allocations from which on each has a mapping, which ends when it is freed: the highest value that glibc takes."""

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3

POOL_VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"


def retain_memory() -> bool:
    """Lets the allocator of C retain freed memory, and Arrow use it; returns False where there is none of glibc.

    Arrow reads its variable when it first allocates. A value that the user has set stays.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mallopt(M_TRIM_THRESHOLD, RETAINED_BYTES_MAX)
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
    os.environ.setdefault(POOL_VARIABLE, "system")
    return True


retain_memory()
