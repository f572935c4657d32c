"""What the threads of a slot need, with an inbox that keeps their events for the test to look at."""

from __future__ import annotations

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

LIMIT_S = 25.0


def posted(call: Callable[..., None], arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The event in a call of the inbox, by its name and its fields; any other call by its own name."""
    (event,) = arguments
    if isinstance(event, msgspec.Struct):
        return type(event).__name__, msgspec.structs.astuple(event)
    return call.__name__, arguments


class Mailbox(Inbox):
    """An inbox whose events are kept instead of handled."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def put(self, call: Callable[..., None], *arguments: Any) -> None:
        """Keeps the event."""
        self.calls.append(posted(call, arguments))

    def names(self) -> list[str]:
        """Of the events so far."""
        return [name for name, _ in self.calls]


def small_image() -> JobImage:
    """One source, into nothing."""
    graph = JobGraph("small")
    graph.source(values(range(3))).sink(blackhole())
    return graph.compile(Options())


def lone_surroundings(image: JobImage, inbox: Inbox) -> SlotSurroundings:
    """Of the threads of a slot whose machine is not there: its events stay in the inbox."""
    return SlotSurroundings(_handle_nothing, inbox, image, SlewedClock())


def _handle_nothing(event: Event) -> None:
    raise AssertionError(event)
