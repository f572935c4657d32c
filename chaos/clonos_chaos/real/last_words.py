"""Last words of a run that has passed its limit: the end of its log, and where each thread of its processes is.

The processes run with Python's faulthandler: SIGABRT makes each write the stacks of its threads into the log, and end.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from clonos_chaos.real.log_tail import last_lines

ENVIRONMENT: Final[Mapping[str, str]] = {"PYTHONFAULTHANDLER": "1"}
LINES: Final = 30
FRAMES: Final = 8
"""Innermost frames of a thread that are named."""

WITHIN_S: Final = 5.0


def last_words(log: Path, processes: Mapping[str, psutil.Process | None]) -> str:
    """Ends these processes, which are named, and returns the end of their common log and their stacks."""
    found = [f"{log.name} ends with:", *last_lines(log, LINES)]
    for name, process in processes.items():
        found += [f"{name}:", *_stacks_of(process, log)]
    return "\n".join(found)


def _stacks_of(process: psutil.Process | None, log: Path) -> list[str]:
    """Ends a process; returns its stacks, innermost frame first, each with the number of threads that have it."""
    if process is None or not process.is_running():
        return ["  has ended before"]
    before = log.stat().st_size
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGABRT)
        process.send_signal(signal.SIGCONT)  # a stopped process handles nothing
    psutil.wait_procs([process], timeout=WITHIN_S)
    with open(log, "rb") as file:
        file.seek(before)
        written = file.read().decode("utf-8", "replace")
    counts = Counter(_stacks_in(written.splitlines()))
    return [f"  {count} x {stack}" for stack, count in counts.items()] or ["  has written no stack"]


def _stacks_in(lines: Collection[str]) -> list[str]:
    """Returns one line for each thread in what faulthandler has written."""
    stacks: list[list[str]] = []
    is_open = False
    for line in lines:
        if line.endswith("(most recent call first):"):
            stacks.append([])
            is_open = True
        elif is_open and line.startswith('  File "'):
            file, _, place = line.removeprefix('  File "').partition('", line ')
            if Path(file).name != "threading.py":  # below every thread
                stacks[-1].append(f"{Path(file).name}:{place.replace(' in ', ' ')}")
        else:
            is_open = False
    return [" < ".join(stack[:FRAMES]) for stack in stacks]
