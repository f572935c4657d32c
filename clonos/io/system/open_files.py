"""Limit of open files: each connection is one, and the soft limit of many systems is 1,024."""

from __future__ import annotations

import resource
from typing import Final

FILES_MAX: Final = 65_536


def raise_files_limit(*, files_max: int = FILES_MAX) -> int:
    """Raises the soft limit to the hard limit, at most to ``FILES_MAX``. Returns the resulting soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files_max if hard == resource.RLIM_INFINITY else min(hard, files_max)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):  # the kernel of macOS has a lower limit than the hard one
        return soft
    return wanted
