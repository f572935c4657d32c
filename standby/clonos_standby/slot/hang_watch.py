"""Watch for steps that hang: names the step and the line in which a task's thread has been for too long.

The I/O thread looks at each heartbeat. It reads a task's stack only when the task has neither received nor emitted
anything for ``HANG_AFTER_S``, so that a healthy task pays two additions per step.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Thread
from types import FrameType
from typing import Final, Protocol

from clonos.core.ports.slot_effects import Warn
from clonos.core.ports.step_code import package_of, step_of
from clonos.core.wire.control_messages import AT_WORK

HANG_AFTER_S: Final = 5.0
NANOSECONDS: Final = 1_000_000_000
LINE_CHARACTERS_MAX: Final = 120

PACKAGES: Final = ("clonos", "clonos_standby", "clonos_services")
NO_USER_CODE: Final = tuple(
    f"{os.path.abspath(path)}{os.sep}" for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
)
WAITING: Final = frozenset(
    {"receive", "emit", "go_live", "await_replicated", "announce_step", "lose_journal", "_wait_for_command"}
)
"""Functions of ``TaskThread`` in which a task waits for the runtime."""

TASK_THREAD: Final = "clonos_standby.slot.task_thread"


class WatchedThread(Protocol):
    """Thread of a task. ``turns`` changes whenever the task receives or emits something."""

    thread: Thread
    task_name: str
    turns: int


@dataclass(slots=True)
class _Watched:
    """Last turn of a thread, when it began, and after how many seconds the next warning is due."""

    turn: int
    since_ns: int
    due_s: float = HANG_AFTER_S


class HangWatch:
    """Watch over the tasks of one slot. ``warn`` gets each warning."""

    def __init__(self, warn: Callable[[Warn], None]) -> None:
        self._warn = warn
        self._watched: dict[WatchedThread, _Watched] = {}

    def look(self, threads: Iterable[WatchedThread], now_ns: int) -> None:
        """Warns of the tasks that are in one step for too long: after 5 s, then each time twice as late."""
        watched, self._watched = self._watched, {}
        for thread in threads:
            known = watched.get(thread)
            if known is None or known.turn != thread.turns:
                known = _Watched(thread.turns, now_ns)
            self._watched[thread] = known
            if now_ns - known.since_ns >= known.due_s * NANOSECONDS:
                self._judge(thread, known, now_ns)

    def _judge(self, thread: WatchedThread, known: _Watched, now_ns: int) -> None:
        frame = sys._current_frames().get(thread.thread.ident or 0)
        if frame is None or is_waiting(frame):
            known.since_ns, known.due_s = now_ns, HANG_AFTER_S
            return
        known.due_s *= 2
        seconds = (now_ns - known.since_ns) // NANOSECONDS
        step = step_of(frame)
        where = f"step {step!r} of task {thread.task_name}" if step else f"task {thread.task_name}"
        text = f"{where} {AT_WORK} {seconds} s: {line_of(frame)}"
        self._warn(Warn(text, {"task": thread.task_name}))


def is_waiting(frame: FrameType) -> bool:
    """Returns whether the stack is that of a task that waits for its slot. A call of an external system is no such
    wait."""
    inner: FrameType | None = frame
    while inner is not None:
        if inner.f_globals.get("__name__") == TASK_THREAD:
            return inner.f_code.co_name in WAITING
        if not inner.f_code.co_filename.startswith(NO_USER_CODE) and package_of(inner) not in PACKAGES:
            return False
        inner = inner.f_back
    return False


def line_of(frame: FrameType) -> str:
    """Returns the innermost line of user code, with its text: ``job.py:7 in spin: while True:``."""
    outer: FrameType | None = frame
    while outer is not None:
        if package_of(outer) not in PACKAGES and is_user_code(outer.f_code.co_filename):
            return line_text(outer)
        outer = outer.f_back
    return line_text(frame)


def is_user_code(file: str) -> bool:
    """Returns whether a file has code of the user: neither of Python, nor installed."""
    return not file.startswith((*NO_USER_CODE, "<frozen")) and f"{os.sep}site-packages{os.sep}" not in file


def line_text(frame: FrameType) -> str:
    """Returns the line that a frame is at: ``job.py:7 in spin: while True:``."""
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, line, frame.f_globals).strip()[:LINE_CHARACTERS_MAX]
    return f"{os.path.basename(file)}:{line} in {frame.f_code.co_name}" + (f": {text}" if text else "")
