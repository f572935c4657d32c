"""Progress of long work, on standard error: how much is done of how much, and about how long the rest takes.

Nothing appears in the first two seconds. On a terminal it is a line that is drawn again until the work ends; elsewhere,
as in CI and notebooks, a line of the log every few seconds and one at the end. Standard output has nothing of it.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from clonos.io.system.wall_clock import monotonic_ns

if TYPE_CHECKING:
    from rich.live import Live

SECOND_NS: Final = 1_000_000_000
SHOWN_AFTER_NS: Final = 2 * SECOND_NS
LINE_EVERY_NS: Final = 5 * SECOND_NS
LOOK_EVERY_S: Final = 0.25

ESTIMATED_FROM: Final = 0.02
"""Share of the work that has to be done before the time of the rest is estimated."""

logger: Final = logging.getLogger("clonos.progress")

BYTE_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


class WorkUnit(Enum):
    """WorkUnit of work."""

    BYTES = "bytes"
    OBJECTS = "objects"
    SHARE = "%"  # of a total of 1


class Progress:
    """Work that is under way. One thread does it, another one may show it.

    ``done`` is in units, at most ``total``, and never falls.
    """

    def __init__(self, what: str, total: float, unit: WorkUnit, clock: Callable[[], int] = monotonic_ns) -> None:
        self._what, self.total, self._unit, self._clock = what, total, unit, clock
        self._began_ns = clock()
        self.done = 0.0

    def add(self, count: float) -> None:
        """Adds what has been done."""
        self.reach(self.done + count)

    def reach(self, done: float) -> None:
        """Sets what has been done."""
        self.done = max(self.done, min(done, self.total))

    @property
    def elapsed_ns(self) -> int:
        """Time since the work began."""
        return self._clock() - self._began_ns

    @property
    def left_s(self) -> float | None:
        """About how long the rest takes; None before enough is done to tell."""
        share = self._share
        return None if share < ESTIMATED_FROM else self.elapsed_ns / SECOND_NS * (1 / share - 1)

    @property
    def _share(self) -> float:
        return self.done / self.total if self.total else 1.0

    def text(self) -> str:
        """Returns one line without an end."""
        amount = (
            "" if self._unit is WorkUnit.SHARE else self._bytes() if self._unit is WorkUnit.BYTES else self._objects()
        )
        left_s = self.left_s
        left = "" if left_s is None else f", about {_length(left_s)} left"
        return f"{self._what}: {amount}{self._share:.0%} in {_length(self.elapsed_ns / SECOND_NS)}{left}"

    def last_text(self) -> str:
        """Returns the line about work that has ended."""
        return f"{self._what}: done in {_length(self.elapsed_ns / SECOND_NS)}"

    def _objects(self) -> str:
        return f"{self.done:,.0f} of {self.total:,.0f} objects, "

    def _bytes(self) -> str:
        power = 0
        while power < len(BYTE_UNITS) - 1 and self.total >= 1000 ** (power + 1):
            power += 1
        digits = 1 if power else 0
        done, total = self.done / 1000**power, self.total / 1000**power
        return f"{done:,.{digits}f} of {total:,.{digits}f} {BYTE_UNITS[power]}, "


class Display:
    """Display of one piece of work, which decides at each look whether there is something to show."""

    def __init__(self, progress: Progress, stream: Any) -> None:
        self._progress, self._stream = progress, stream
        # A live table that has redirected the stream shows whole lines above itself.
        self._is_terminal = stream.isatty() and not type(stream).__module__.startswith("rich.")
        self._live: Live | None = None
        self._due_ns = SHOWN_AFTER_NS
        self._has_lines = False

    def look(self) -> None:
        """Shows the work as it is now, if that is due."""
        if self._progress.elapsed_ns < self._due_ns:
            return
        if self._is_terminal:
            self._draw()
        else:
            self._due_ns = self._progress.elapsed_ns + LINE_EVERY_NS
            self._has_lines = True
            logger.warning("%s", self._progress.text())

    def end(self, is_done: bool) -> None:
        """Removes the line from a terminal; elsewhere says that the work is done, if anything was said before."""
        if self._live is not None:
            self._live.stop()
        elif self._has_lines and is_done:
            logger.warning("%s", self._progress.last_text())

    def _draw(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            console = Console(file=self._stream, force_terminal=True)
            self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
            self._live.start()
        self._live.update(Text(self._progress.text(), no_wrap=True, overflow="ellipsis"), refresh=True)


@contextmanager
def shown_progress(progress: Progress) -> Iterator[Progress]:
    """Shows the work in a ``with`` block, which adds what it has done to the ``Progress``."""
    display, is_over = Display(progress, sys.stderr), threading.Event()

    def show() -> None:
        while not is_over.wait(LOOK_EVERY_S):
            display.look()

    thread = threading.Thread(target=show, name="progress display", daemon=True)
    thread.start()
    is_done = False
    try:
        yield progress
        is_done = True
    finally:
        is_over.set()
        thread.join()
        display.end(is_done)


def _length(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
