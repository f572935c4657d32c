"""Shared objects of the threads of a slot, with inboxes that keep their events for the test."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import msgspec

from clonos.api.graph import JobGraph
from clonos.connectors import blackhole, values
from clonos.core.model.options import Options
from clonos.core.slot.slot_events import Event
from clonos.io.system.wall_clock import SlewedClock
from clonos.operators.job_image import JobImage
from clonos_standby.inbox import Inbox
from clonos_standby.slot.surroundings import SlotSurroundings
from tests.speed import scaled

LIMIT_S = scaled(25.0)


def posted(call: Callable[..., None], arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The event in a call of the inbox, by its name and its fields; any other call by its own name."""
    (event,) = arguments
    if isinstance(event, msgspec.Struct):
        return type(event).__name__, msgspec.structs.astuple(event)
    return call.__name__, arguments


class RecordingInbox(Inbox):
    """An inbox that keeps events instead of handling them."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def put(self, call: Callable[..., None], *arguments: Any) -> None:
        """Keeps the event."""
        self.calls.append(posted(call, arguments))

    def names(self) -> list[str]:
        """Names of the events so far."""
        return [name for name, _ in self.calls]


class WaitingInbox(Inbox):
    """An inbox whose events a test takes one by one, and waits for."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self._queue: queue.Queue[tuple[str, tuple[Any, ...]]] = queue.Queue()

    def put(self, call: Callable[..., None], *arguments: Any) -> None:
        """Queues the event by name instead of handling it."""
        self._queue.put(posted(call, arguments))

    def next(self) -> tuple[str, tuple[Any, ...]]:
        """Name and fields of the next event."""
        return self._queue.get(timeout=LIMIT_S)

    def is_empty(self) -> bool:
        """Whether no event waits."""
        return self._queue.empty()


def small_image(options: Options | None = None) -> JobImage:
    """A job of one source and a sink that drops all records."""
    graph = JobGraph("small")
    graph.source(values(range(3))).sink(blackhole())
    return graph.compile(options or Options())


def lone_surroundings(image: JobImage, inbox: Inbox) -> SlotSurroundings:
    """The surroundings of threads whose slot has no machine: events stay in the inbox."""
    return SlotSurroundings(_handle_nothing, inbox, image, SlewedClock())


def _handle_nothing(event: Event) -> None:
    raise AssertionError(event)
