"""Connections of a slot's sources that cannot be re-read, one thread each.

A thread connects, receives whole records, and acknowledges to the producer what is replicated. When the connection
breaks, the thread reports it and ends; the slot's machine opens another one.
"""

from __future__ import annotations

import logging
from contextlib import closing
from threading import Event, Thread
from typing import Any

from clonos.core.model.errors import EnvironmentFault, ProducerGivenUp, is_shortage
from clonos.core.model.ids import Incarnation, TaskId, view_name
from clonos.core.ports.recorder import RecordingSuspended
from clonos.core.ports.task_failure import encodable, failure_of
from clonos.core.slot.slot_events import PartFailed, ProducerDataRead, ProducerFailed
from clonos.core.wire.recovery_messages import Recourse, TaskFailed
from clonos.operators.connector_contract import ProducerConnection, PushSource
from clonos.operators.journal_source import END_OF_JOURNAL, connected, cursor_after
from clonos_standby.slot.surroundings import SlotSurroundings

logger = logging.getLogger("clonos.slot")

RECEIVE_WAIT_MS = 20
"""Milliseconds that a wait for input may delay an acknowledgement."""


class JournalThreads:
    """Connections of the journalled sources of a slot."""

    def __init__(self, context: SlotSurroundings) -> None:
        self._context = context
        self._running: dict[tuple[TaskId, Incarnation], JournalThread] = {}
        self._ending: list[JournalThread] = []

    def open(self, task: TaskId, incarnation: Incarnation, offset_bytes: int, cursor: bytes | None = None) -> None:
        """Opens a connection in a new thread. ``cursor``: after what the incarnation has found of its journal."""
        image = self._context.image
        name = f"{image.plan.task_name(task)} {view_name(incarnation)}"
        source = image.pushed[image.plan.vertex_of[task]]
        before = self._running.get((task, incarnation))
        behind = cursor if before is None else before.cursor
        opened = JournalThread(self._context, source, name, offset_bytes, task, incarnation, behind)
        self._running[task, incarnation] = opened
        opened.thread.start()

    def hold(self, task: TaskId, incarnation: Incarnation, held: bool) -> None:
        """Pauses receiving if ``held`` is True, else resumes it."""
        if (found := self._running.get((task, incarnation))) is not None:
            found.hold(held)

    def acknowledge(self, task: TaskId, incarnation: Incarnation, offset_bytes: int) -> None:
        """Acknowledges to the producer the bytes before ``offset_bytes``, which are replicated."""
        if (found := self._running.get((task, incarnation))) is not None:
            found.acknowledge(offset_bytes)

    def close(self, task: TaskId, incarnation: Incarnation) -> None:
        """Ends the connection at the next turn of its thread."""
        found = self._running.pop((task, incarnation), None)
        if found is not None:
            found.end()
            self._ending = [each for each in self._ending if each.thread.is_alive()]
            self._ending.append(found)

    def close_all(self) -> list[Thread]:
        """Ends all connections. Returns the threads that may still run for a moment."""
        for key in list(self._running):
            self.close(*key)
        return [each.thread for each in self._ending]


class JournalThread:
    """Connection of one incarnation. All methods except ``_run`` are called by the slot's thread."""

    def __init__(
        self,
        context: SlotSurroundings,
        source: PushSource[Any],
        name: str,
        offset_bytes: int,
        task: TaskId,
        incarnation: Incarnation,
        cursor: bytes | None = None,
    ) -> None:
        self._source, self._name = source, name
        self.cursor = cursor  # after what was received, for a later connection
        self._task, self._incarnation = task, incarnation
        self._post, self._inbox = context.post, context.inbox
        self._received_bytes = offset_bytes
        self._replicated_bytes = self._acknowledged_bytes = offset_bytes
        self._is_paused = self._is_ended = False
        self._changed = Event()
        self.thread = Thread(target=self._run, name=f"journal {name}", daemon=True)

    def hold(self, held: bool) -> None:
        """Pauses receiving if ``held`` is True, else resumes it."""
        self._is_paused = held
        self._changed.set()

    def acknowledge(self, offset_bytes: int) -> None:
        """Requests an acknowledgement of the bytes before ``offset_bytes``."""
        self._replicated_bytes = offset_bytes
        self._changed.set()

    def end(self) -> None:
        """Ends the thread at its next turn."""
        self._is_ended = True
        self._changed.set()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        with RecordingSuspended():  # a connector's code uses the services as outside a job
            self._run_and_report()

    def _run_and_report(self) -> None:
        try:
            with closing(connected(self._source, self._received_bytes, self.cursor)) as feed:
                self._receive_all(feed)
                self._await_replication(feed)
        except Exception as error:
            if self._is_ended:
                logger.debug("the producer connection of %s failed after its end", self._name, exc_info=True)
            elif isinstance(error, (EnvironmentFault, OSError)) and not isinstance(error, ProducerGivenUp):
                failed = encodable(f"{type(error).__name__}: {error}")
                self._post(ProducerFailed(self._task, self._incarnation, failed))
            else:
                self._post(PartFailed(self._describe(error)))

    def _receive_all(self, feed: ProducerConnection) -> None:
        """Receives until the producer has no more data, or the incarnation has ended."""
        while not self._is_ended:
            self._acknowledge(feed)
            if self._is_paused:
                self._wait()
                continue
            data = feed.receive(RECEIVE_WAIT_MS)
            if data is None:
                self._hand_over(END_OF_JOURNAL)
                return
            if data:
                self._received_bytes += len(data)
                self.cursor = cursor_after(self._source, data, self.cursor)
                self._hand_over(data)

    def _await_replication(self, feed: ProducerConnection) -> None:
        """Acknowledges the remaining data, because the producer may wait for it before it disconnects."""
        while not self._is_ended and self._acknowledged_bytes < self._received_bytes:
            self._wait()
            self._acknowledge(feed)

    def _acknowledge(self, feed: ProducerConnection) -> None:
        # The end marker is replicated too, but is not a byte of the producer.
        replicated_bytes = min(self._replicated_bytes, self._received_bytes)
        if replicated_bytes > self._acknowledged_bytes:
            feed.acknowledge(replicated_bytes)
            self._acknowledged_bytes = replicated_bytes

    def _wait(self) -> None:
        self._changed.wait()
        self._changed.clear()

    def _hand_over(self, data: bytes) -> None:
        self._post(ProducerDataRead(self._task, self._incarnation, data))
        self._inbox.wait_for_space()

    def _describe(self, error: Exception) -> TaskFailed:
        recourse = Recourse.ELSEWHERE if is_shortage(error) else Recourse.NONE
        return failure_of(self._task, self._incarnation, error, recourse)
