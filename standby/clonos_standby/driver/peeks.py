"""Looks at the rows that a step emits: requests to the slots of its tasks, and what they send back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Final

from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import SlotId, TaskId
from clonos.core.values import ValueMalformed, decode_rows
from clonos.core.wire.authorization import sender_name
from clonos.core.wire.control_messages import Peek, Peeked

REPEAT_EVERY_S: Final = 0.25
"""Seconds after which a request is repeated: its task may have begun, or moved to another slot, since."""


class Peeks:
    """Open looks of one driver. ``on_peeked`` runs in the coordinator's thread, ``look`` in any other."""

    def __init__(
        self,
        ask: Callable[[Callable[[Coordinator], None]], None],
        send: Callable[[SlotId, Peek], object],
        has_ended: Callable[[], bool],
    ) -> None:
        """Takes how to run a function in the coordinator's thread, how to send from there, and if the job has ended."""
        self._ask, self._send, self._has_ended = ask, send, has_ended
        self._numbers = count(1)
        self._answers: dict[int, SimpleQueue[tuple[TaskId, list[Any]]]] = {}

    def look(self, step: str, tasks: Iterable[TaskId], rows_max: int, timeout_s: float) -> list[Any]:
        """Returns the next rows that tasks of a step emit: those that have come when there are enough, when all tasks
        have answered, or when the time is up."""
        number, rows, missing = next(self._numbers), list[Any](), set(tasks)
        answers = self._answers[number] = SimpleQueue[tuple[TaskId, list[Any]]]()
        deadline_s = time.monotonic() + timeout_s
        try:
            while missing and len(rows) < rows_max and (left_s := deadline_s - time.monotonic()) > 0:
                requests = [Peek(task, step, rows_max, number) for task in sorted(missing)]
                self._ask(lambda coordinator, requests=requests: self._request(coordinator, requests))  # type: ignore[misc]
                if self._has_ended() and answers.empty():
                    break
                self._take(answers, missing, rows, min(left_s, REPEAT_EVERY_S))
        finally:
            del self._answers[number]
        return rows[-rows_max:]

    def _take(
        self, answers: SimpleQueue[tuple[TaskId, list[Any]]], missing: set[TaskId], rows: list[Any], wait_s: float
    ) -> None:
        """Takes the answers that have come; waits for the first one. A repeated answer of a task does not count."""
        with suppress(Empty):
            task, found = answers.get(timeout=wait_s)
            while True:
                if task in missing:
                    missing.remove(task)
                    rows += found
                task, found = answers.get_nowait()

    def _request(self, coordinator: Coordinator, requests: Iterable[Peek]) -> None:
        view = coordinator.view
        for request in requests if view is not None else ():
            assert view is not None
            if (slot := view.placements[request.task].slot) is not None:
                self._send(slot, request)

    def on_peeked(self, sender: SlotId, message: Peeked) -> None:
        """Takes rows; those of a look that has ended are dropped.

        Raises: MessageMalformed: they cannot be decoded.
        """
        if (answers := self._answers.get(message.number)) is not None:
            try:
                answers.put((message.task, list(decode_rows(message.rows))))
            except ValueMalformed as error:
                raise MessageMalformed(sender_name(sender), f"Peeked with rows that cannot be read: {error}") from None
