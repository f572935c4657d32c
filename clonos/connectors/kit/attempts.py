"""Repeated attempts at what an external system may refuse for a while: nine of them within about 15 seconds."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Final, NamedTuple

ATTEMPTS_MAX: Final = 9
BACKOFF_FIRST_S: Final = 0.05
BACKOFF_S_MAX: Final = 5.0


class Attempt(NamedTuple):
    """Attempt; the last one raises what it meets."""

    is_last: bool


class Attempts:
    """Attempts with a growing pause in between."""

    def __iter__(self) -> Iterator[Attempt]:
        backoff_s = BACKOFF_FIRST_S
        for number in range(ATTEMPTS_MAX):
            yield Attempt(number == ATTEMPTS_MAX - 1)
            Event().wait(backoff_s)
            backoff_s = min(BACKOFF_S_MAX, backoff_s * 2)
