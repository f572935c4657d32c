"""A slot's machine without a view, and inboxes that keep the calls of its threads for the test."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from clonos.api.graph import JobGraph
from clonos.connectors import blackhole, values
from clonos.core.model.ids import SlotId
from clonos.core.model.options import Options
from clonos.core.slot.slot import Slot
from clonos.io.system.wall_clock import SlewedClock
from clonos.operators.job_image import JobImage
from clonos_standby.inbox import Inbox
from clonos_standby.slot.surroundings import SlotSurroundings
from tests.harnesses.recording_shell import RecordingShell

LIMIT_S = 25.0


class Mailbox(Inbox):
    """An inbox that keeps calls by name instead of making them."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def put(self, call: Callable[..., None], *arguments: Any) -> None:
        """Keeps the call."""
        self.calls.append((call.__name__, arguments))

    def names(self) -> list[str]:
        """Names of the calls so far."""
        return [name for name, _ in self.calls]


class WaitingInbox(Inbox):
    """An inbox whose calls a test takes one by one, and waits for."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self._queue: queue.Queue[tuple[str, tuple[Any, ...]]] = queue.Queue()

    def put(self, call: Callable[..., None], *arguments: Any) -> None:
        """Queues the call by name instead of making it."""
        self._queue.put((call.__name__, arguments))

    def next(self) -> tuple[str, tuple[Any, ...]]:
        """Name and arguments of the next call."""
        return self._queue.get(timeout=LIMIT_S)

    def is_empty(self) -> bool:
        """Whether no call waits."""
        return self._queue.empty()


def small_image() -> JobImage:
    """A job of one source and a sink that drops all records."""
    graph = JobGraph("small")
    graph.source(values(range(3))).sink(blackhole())
    return graph.compile(Options())


def lone_slot(image: JobImage) -> Slot:
    """A slot without a view."""
    return Slot(SlotId(1), image.plan, image.options, RecordingShell(image.plan))


def lone_surroundings(image: JobImage, inbox: Inbox) -> SlotSurroundings:
    """The surroundings of a lone slot's threads."""
    return SlotSurroundings(lone_slot(image), inbox, image, SlewedClock())
