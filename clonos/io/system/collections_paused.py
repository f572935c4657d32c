"""Python's garbage collector in the processes of a job: paused while it starts, and less often later."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

COLLECT_AFTER_OBJECTS: Final = 50_000
"""More containers than before, tuples among them, start a young collection; Python's own 700 are a fraction of one
batch, whose rows are soon gone anyway: looking at them took 40 to 50 ns a row. Cycles of user code are still found.
"""


def collect_rarely() -> None:
    """Lets the garbage collector wait for more new containers."""
    gc.set_threshold(COLLECT_AFTER_OBJECTS, *gc.get_threshold()[1:])


@contextmanager
def collections_paused() -> Iterator[None]:
    """Collects no cycles within the block, which creates objects that stay: modules, plans and code.

    Looking at them again and again takes a tenth of the processor time of a start.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
