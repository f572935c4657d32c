"""The connections of a slot's sources that cannot be re-read, each in a thread of its own.

A thread connects, takes whole records in, tells the pusher what is kept, and decides nothing: when the connection
breaks it says so and ends; the slot's machine opens another one.
"""

from __future__ import annotations

import logging
from contextlib import closing
from threading import Event, Thread
from typing import Any

from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.ids import Incarnation, TaskId, view_name
from clonos.core.ports.recorder import Suspended
from clonos.core.ports.task_failure import failure_of
from clonos.core.slot.slot_events import PartFailed, ProducerDataRead, ProducerFailed
from clonos.core.wire.recovery_messages import Recourse, TaskFailed
from clonos.operators.connector_contract import Feed, PushedSource
from clonos.operators.journal_source import END_OF_JOURNAL
from clonos_standby.slot.surroundings import SlotSurroundings

logger = logging.getLogger("clonos.slot")

RECEIVE_WAIT_MS = 20
"""How long an acknowledgement may wait for input that does not come."""


class JournalThreads:
    """The connections of the journalled sources of a slot."""

    def __init__(self, around: SlotSurroundings) -> None:
        self._around = around
        self._running: dict[tuple[TaskId, Incarnation], JournalThread] = {}
        self._ending: list[JournalThread] = []

    def open(self, task: TaskId, incarnation: Incarnation, offset_bytes: int) -> None:
        """A thread and a connection of its own."""
        image = self._around.image
        name = f"{image.plan.task_name(task)} {view_name(incarnation)}"
        source = image.pushed[image.plan.vertex_of[task]]
        opened = JournalThread(self._around, source, name, offset_bytes, task, incarnation)
        self._running[task, incarnation] = opened
        opened.thread.start()

    def hold(self, task: TaskId, incarnation: Incarnation, held: bool) -> None:
        """Takes nothing in for a while, or goes on."""
        if (found := self._running.get((task, incarnation))) is not None:
            found.hold(held)

    def acknowledge(self, task: TaskId, incarnation: Incarnation, offset_bytes: int) -> None:
        """What lies before is kept."""
        if (found := self._running.get((task, incarnation))) is not None:
            found.acknowledge(offset_bytes)

    def close(self, task: TaskId, incarnation: Incarnation) -> None:
        """The thread ends at its next turn."""
        found = self._running.pop((task, incarnation), None)
        if found is not None:
            found.end()
            self._ending = [each for each in self._ending if each.thread.is_alive()]
            self._ending.append(found)

    def close_all(self) -> list[Thread]:
        """The process ends: the threads that may still run for a moment."""
        for life in list(self._running):
            self.close(*life)
        return [each.thread for each in self._ending]


class JournalThread:
    """One connection of one incarnation. The slot's thread calls all but ``_live``."""

    def __init__(
        self,
        around: SlotSurroundings,
        source: PushedSource[Any],
        name: str,
        offset_bytes: int,
        task: TaskId,
        incarnation: Incarnation,
    ) -> None:
        self._source, self._name = source, name
        self._task, self._incarnation = task, incarnation
        self._post, self._inbox = around.post, around.inbox
        self._taken_bytes = offset_bytes
        self._kept_bytes = self._reported_bytes = offset_bytes
        self._is_held = self._is_ended = False
        self._moved = Event()
        self.thread = Thread(target=self._run, name=f"journal {name}", daemon=True)

    def hold(self, held: bool) -> None:
        """Leaves what comes where it is."""
        self._is_held = held
        self._moved.set()

    def acknowledge(self, offset_bytes: int) -> None:
        """The pusher shall be told."""
        self._kept_bytes = offset_bytes
        self._moved.set()

    def end(self) -> None:
        """The incarnation is over."""
        self._is_ended = True
        self._moved.set()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        with Suspended():  # a connector's code uses services like any code beyond the job
            self._live_and_tell()

    def _live_and_tell(self) -> None:
        try:
            with closing(self._source.feed(self._taken_bytes)) as feed:
                self._take_in(feed)
                self._take_leave(feed)
        except Exception as error:
            if self._is_ended:
                logger.debug("the intake of %s failed after its end", self._name, exc_info=True)
            elif isinstance(error, (EnvironmentFault, OSError)):
                failed = f"{type(error).__name__}: {error}"
                self._post(ProducerFailed(self._task, self._incarnation, failed))
            else:
                self._post(PartFailed(self._describe(error)))

    def _take_in(self, feed: Feed) -> None:
        """Until the pusher has no more, or the incarnation is over."""
        while not self._is_ended:
            self._tell(feed)
            if self._is_held:
                self._wait()
                continue
            data = feed.receive(RECEIVE_WAIT_MS)
            if data is None:
                self._hand_over(END_OF_JOURNAL)
                return
            if data:
                self._taken_bytes += len(data)
                self._hand_over(data)

    def _take_leave(self, feed: Feed) -> None:
        """The pusher may wait to hear that all is kept."""
        while not self._is_ended and self._reported_bytes < self._taken_bytes:
            self._wait()
            self._tell(feed)

    def _tell(self, feed: Feed) -> None:
        kept_bytes = min(self._kept_bytes, self._taken_bytes)  # the end of the journal is none of the pusher's bytes
        if kept_bytes > self._reported_bytes:
            feed.acknowledge(kept_bytes)
            self._reported_bytes = kept_bytes

    def _wait(self) -> None:
        self._moved.wait()
        self._moved.clear()

    def _hand_over(self, data: bytes) -> None:
        self._post(ProducerDataRead(self._task, self._incarnation, data))
        self._inbox.wait_for_budget()

    def _describe(self, error: Exception) -> TaskFailed:
        return failure_of(self._task, self._incarnation, error, Recourse.NONE)
