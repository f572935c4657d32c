"""Waits of tests for what other threads and processes do."""

from __future__ import annotations

import threading
from collections.abc import Callable


def await_condition(limit_s: float, condition: Callable[[], bool]) -> None:
    """Asks again and again. Raises: AssertionError: the condition has not come true within the limit."""
    waiting = threading.Event()
    for _ in range(int(limit_s * 50)):
        if condition():
            return
        waiting.wait(0.02)
    raise AssertionError(f"never: {condition}")
