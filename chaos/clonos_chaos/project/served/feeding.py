"""Input of a job at a fixed rate, also while its driver or its server is dead."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from clonos_chaos.scenario.scenario_gate import Gate

FEED_EVERY_S: Final = 0.05


@contextmanager
def feeding(gate: Gate, per_second: float) -> Iterator[None]:
    """Opens a gate by ``per_second`` records a second, in a thread, until the block ends."""
    begun_s, is_over = time.monotonic(), threading.Event()

    def feed() -> None:
        while not is_over.wait(FEED_EVERY_S):
            gate.open_to(int((time.monotonic() - begun_s) * per_second))

    thread = threading.Thread(target=feed, name="input", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
