"""Output to programs that end before their writer, such as ``head``."""

from __future__ import annotations

import os
import select
from typing import TextIO


def discard(stream: TextIO) -> None:
    """Lets everything that is still written to a stream disappear, as Python does so when it ends."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, stream.fileno())
    finally:
        os.close(nothing)


def write_or_discard(stream: TextIO, text: str) -> None:
    """Writes text; when nobody reads it any more, it and all later text is discarded."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        discard(stream)


def is_closed(stream: TextIO) -> bool:
    """Returns whether nobody reads a stream any more."""
    poller = select.poll()
    poller.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poller.poll(0))
