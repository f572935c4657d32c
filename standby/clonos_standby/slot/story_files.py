"""Files of a slot about itself: its story when SIGUSR1 asks for it, and a trace of all events (``slot_trace``)."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from clonos.core.ports.slot_effects import Effect
from clonos.core.slot.event_trace import TracedSlot
from clonos.core.slot.slot import Slot
from clonos.core.slot.slot_events import Event

logger = logging.getLogger("clonos.slot")


class TraceFile:
    """Gets each record at once, so that it survives SIGKILL. A file that cannot be written is given up.

    Only the own user may read it, because causal logs have what calls have returned.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._file = FileIO(path, "wb", opener=_private)
        self._is_given_up = False

    def write(self, record: bytes) -> None:
        """Appends a record; warns once when that fails."""
        if self._is_given_up:
            return
        rest = memoryview(record)
        try:
            while rest:  # a disk that is nearly full takes a part
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._is_given_up = True
            logger.warning("the trace %s ends here: %s. The slot goes on without it", self._path, error.strerror)

    def close(self) -> None:
        """Closes the file."""
        self._is_given_up = True
        self._file.close()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def traced(slot: Slot, folder: str) -> tuple[Callable[[Event], list[Effect]], Callable[[], None]]:
    """Returns how to step a slot and what to call at its end. A ``folder`` gets a file with all steps."""
    if folder:
        path = Path(folder) / f"slot-{slot.id:016x}.trace"
        try:
            file = TraceFile(path)
        except OSError as error:
            logger.warning("the slot writes no trace: %s cannot be made: %s", path, error.strerror)
        else:
            return TracedSlot(slot, file.write).step, file.close
    return slot.step, lambda: None


@contextmanager
def called_by_signal(call: Callable[[], None]) -> Iterator[None]:
    """Within it, SIGUSR1 leads to ``call``, between any two instructions of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield  # a slot in a thread, as in tests: signals are not its own
        return
    before = signal.signal(signal.SIGUSR1, lambda *_: call())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def write_story(slot: Slot, folder: Path) -> None:
    """Writes a slot's story into a folder, and logs where."""
    path = folder / f"slot-{slot.id:016x}.story"
    try:
        path.write_text(f"{slot.story}\n", "utf-8", "backslashreplace")
    except OSError as error:
        logger.warning("the story of the slot cannot be written to %s: %s", path, error.strerror)
    else:
        logger.warning("the last events of the slot are in %s", path)
