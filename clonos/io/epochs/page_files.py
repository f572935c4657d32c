"""Files of one capture: slots of this machine write pages of elements to them, for the record (protocol 6.13).

The driver creates them empty and copies them into the record. A slot opens what is there and creates nothing, so a slot
of another machine finds no file and sends the page.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Final

from msgspec.structs import replace

from clonos.core.model.ids import ChannelId
from clonos.core.wire.capture_messages import CapturedElements
from clonos.io.system.entropy import random_bytes

CLOSE_TIMEOUT_S: Final = 1.0

Page = tuple[CapturedElements, bytes | memoryview]


class PageFiles:
    """Folder for the files of one capture. As a context it removes them."""

    def __init__(self, root: Path) -> None:
        """``root``: folder of the records."""
        self._folder = root / f".pages-{random_bytes(8).hex()}"
        self._numbers = count(1)

    def create(self, channels: Iterable[ChannelId]) -> dict[ChannelId, str]:
        """Creates an empty file for each channel, for the user alone. Raises: OSError."""
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        found, number = {}, next(self._numbers)
        for channel in channels:
            path = self._folder / f"{number}-{channel}"
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            found[channel] = str(path)
        return found

    def __enter__(self) -> PageFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def save_page(reply: CapturedElements, page: bytes | memoryview) -> tuple[CapturedElements, bytes | memoryview]:
    """Writes a page to the file of a reply; returns what to send: digests, or the page if it cannot be written here."""
    try:
        with open(os.open(reply.file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "wb", buffering=0) as file:
            file.seek(reply.offset_bytes)
            left = memoryview(page)
            while left:
                left = left[file.write(left) :]
    except OSError:  # it is on another machine, or its disk is full; the capture may also have ended
        return replace(reply, digests=b""), page
    return replace(reply, saved_bytes=len(page), digests=b""), reply.digests


class PageSaver:
    """Thread that saves the pages of one slot: a disk may be slow. It begins with the first page."""

    def __init__(self, send: Callable[[CapturedElements, bytes | memoryview], object]) -> None:
        """``send``: sends a reply to the driver; called in this thread, so it only enqueues."""
        self._send = send
        self._queue = SimpleQueue[Page | None]()
        self._thread: Thread | None = None

    def save(self, reply: CapturedElements, page: bytes | memoryview) -> None:
        """Saves a page, then sends the reply."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="captured pages", daemon=True)
            self._thread.start()
        self._queue.put((reply, page))

    def _run(self) -> None:
        while (asked := self._queue.get()) is not None:
            self._send(*save_page(*asked))

    def close(self) -> None:
        """Ends the thread."""
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
