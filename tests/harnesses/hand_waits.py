"""Events and queues for threads under test: a wait performs the next action that the test has planned.

So a call that waits is made in the test's own thread. It is seen that it waits (what was planned is done), that it
waits again where that was not enough, and that it goes on when it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import Empty
from typing import Any


class WaitPlan:
    """Actions that happen one by one while the code under test waits."""

    def __init__(self) -> None:
        self._planned: deque[Callable[[], object]] = deque()

    def then(self, *calls: Callable[[], object]) -> None:
        """Plans further actions, each for one wait."""
        self._planned.extend(calls)

    @property
    def is_done(self) -> bool:
        """Whether every planned action has happened."""
        return not self._planned

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Performs planned actions until the condition holds."""
        while not condition():
            assert self._planned, "it waits for what never comes"
            self._planned.popleft()()


class PlannedEvent:
    """A ``threading.Event`` whose waits are planned."""

    def __init__(self, plan: WaitPlan) -> None:
        self._plan = plan
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            self._plan.wait_until(self.is_set)
        return self._is_set


class PlannedQueue:
    """A ``queue.SimpleQueue`` whose waits are planned."""

    def __init__(self, plan: WaitPlan) -> None:
        self._plan = plan
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if block and timeout is None:
            self._plan.wait_until(lambda: bool(self._items))
        if not self._items:
            raise Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)
