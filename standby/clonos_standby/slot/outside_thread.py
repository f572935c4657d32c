"""The connection of one immediate sink task to its outside, in a thread of its own: registered, in order, confirmed.

A failed call is made again for a while; then the incarnation fails aloud. One that is fenced writes no more and says by
whom: a later incarnation lives, and the view that says so is on its way, unless all that know it are dead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, TypeVar

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import ClonosError, EnvironmentFault
from clonos.core.model.ids import ChannelId, Incarnation, TaskId
from clonos.core.ports.recorder import Suspended
from clonos.core.ports.task_failure import FailurePlace, failure_of
from clonos.core.values.elements import decode_records
from clonos.core.wire.recovery_messages import InputRange, TaskFailed
from clonos.io.process.fault_points import FaultPoint
from clonos.operators.connector_contract import ImmediateSink, Outside, OutsideFenced, OutsideIdentity, forget
from clonos_standby.slot.surroundings import SlotSurroundings

logger = logging.getLogger("clonos.slot")

ATTEMPTS_MAX = 9
BACKOFF_FIRST_S = 0.05
BACKOFF_S_MAX = 5.0

JOINED_ROWS_MAX = 5_000
"""Rows of writes that wait are joined up to about so many in one call."""

Result = TypeVar("Result")


_Write = tuple[int, int, ElementKind, bytes]
"""First number, count, kind, payload."""


class _Ended(Exception):
    """The thread shall end."""


class OutsideThread:
    """``write`` queues; the slot's machine is called with what the outside has confirmed."""

    def __init__(
        self,
        around: SlotSurroundings,
        sink: ImmediateSink,
        identity: OutsideIdentity,
        restored_number: int,
        task: TaskId,
        channel: ChannelId,
        *,
        backoff_first_s: float = BACKOFF_FIRST_S,
        backoff_s_max: float = BACKOFF_S_MAX,
    ) -> None:
        self._backoff_first_s, self._backoff_s_max = backoff_first_s, backoff_s_max
        self._slot, self._inbox, self._faults = around.slot, around.inbox, around.faults
        self._sink, self._identity, self._restored_number = sink, identity, restored_number
        self._task, self._channel, self._incarnation = task, channel, Incarnation(identity.incarnation)
        self._writes: SimpleQueue[_Write | int | None] = SimpleQueue()  # an int: forget what lies below
        self._put_back: _Write | int | None = None
        self._end = Event()
        self._outside: Outside | None = None
        self._is_registered = False
        self._at: InputRange | None = None  # what is being written
        self.thread = Thread(target=self._run, name=f"outside {identity.task_name}", daemon=True)
        self.thread.start()

    def write(self, first_seq: int, count: int, kind: ElementKind, payload: bytes) -> None:
        """Soon, behind what was queued before."""
        self._writes.put((first_seq, count, kind, payload))

    def forget(self, before_number: int) -> None:
        """No restart goes back behind this number; soon, behind what was queued before."""
        self._writes.put(before_number)

    def close(self) -> None:
        """Ends after the call that is being made."""
        self._end.set()
        self._writes.put(None)

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        with Suspended():  # a connector's code uses services like any code beyond the job
            self._serve_and_tell()

    def _serve_and_tell(self) -> None:
        try:
            self._serve()
        except (_Ended, OutsideFenced) as end:
            logger.debug("the outside of %s is left: %r", self._identity, end)
            if isinstance(end, OutsideFenced) and end.by is not None:
                self._inbox.put(self._slot.on_outside_fenced, self._task, self._incarnation, *end.by)
        except Exception as error:  # noqa: BLE001 connectors may raise anything; the coordinator decides
            self._inbox.put(self._slot.on_failed, self._describe(error))
        finally:
            self._leave()

    def _serve(self) -> None:
        registration = self._persist(lambda outside: outside.register(self._identity, self._restored_number))
        self._is_registered = True
        if self._faults is not None:
            self._faults.reach(FaultPoint.OUTSIDE_OPENED, self._identity.task_name)
        self._inbox.put(
            self._slot.on_outside_opened,
            self._task,
            self._incarnation,
            registration.next_number,
            registration.superseded_next,
        )
        while (write := self._next()) is not None:
            if isinstance(write, int):
                self._forget(write)
                continue
            first_seq, count, rows = self._joined(write)
            self._at = InputRange(self._channel, first_seq, count)
            next_number = self._persist(lambda outside, f=first_seq, r=rows: outside.write(f, r))
            if self._faults is not None:
                self._faults.reach(FaultPoint.OUTSIDE_WRITTEN, self._identity.task_name, str(next_number))
            self._inbox.put(self._slot.on_outside_confirmed, self._task, self._incarnation, next_number)

    def _forget(self, before_number: int) -> None:
        """What cannot be forgotten now is so with the next checkpoint."""
        try:
            forget(self._outside, before_number)
        except Exception as error:  # noqa: BLE001 connectors may raise anything
            logger.info("the outside of %s keeps what it could forget: %r", self._identity.task_name, error)
            self._leave()

    def _next(self) -> _Write | int | None:
        write, self._put_back = self._put_back, None
        if write is None:
            write = self._writes.get()
        return None if self._end.is_set() else write

    def _joined(self, write: _Write) -> tuple[int, int, list[Any]]:
        """A write and those that wait behind it, as one: to an outside a transaction is dear, a row is not."""
        first_seq, count, kind, payload = write
        rows = decode_records(kind, payload)
        while len(rows) < JOINED_ROWS_MAX:
            try:
                following = self._writes.get_nowait()
            except Empty:
                break
            if following is None:  # the end flag is set already
                break
            if isinstance(following, int) or following[0] != first_seq + count:
                self._put_back = following
                break
            count += following[1]
            rows += decode_records(following[2], following[3])
        return first_seq, count, rows

    def _persist(self, call: Callable[..., Result]) -> Result:
        """A call to the outside; after a failure on a new connection, registered anew."""
        backoff_s = self._backoff_first_s
        for attempt in range(ATTEMPTS_MAX):
            try:
                return call(self._connected())
            except (OutsideFenced, _Ended):
                raise
            except Exception as error:
                is_ours = isinstance(error, ClonosError) and not isinstance(error, EnvironmentFault)
                if is_ours or attempt == ATTEMPTS_MAX - 1:
                    raise
                logger.warning("the outside of %s failed, trying again: %r", self._identity.task_name, error)
                self._leave()
            if self._end.wait(backoff_s):
                raise _Ended
            backoff_s = min(self._backoff_s_max, backoff_s * 2)
        raise AssertionError("the last attempt returns or raises")

    def _connected(self) -> Outside:
        """The connection; a new one is registered, unless the call that it is for does so and wants the answer."""
        if self._outside is None:
            self._outside = self._sink.outside()
            if self._is_registered:
                self._outside.register(self._identity, self._restored_number)
        return self._outside

    def _leave(self) -> None:
        outside, self._outside = self._outside, None
        if outside is not None:
            try:
                outside.close()
            except Exception:
                logger.debug("closing the outside of %s", self._identity.task_name, exc_info=True)

    def _describe(self, error: Any) -> TaskFailed:
        return failure_of(self._task, self._incarnation, error, place=FailurePlace(self._at, self._identity.task_name))
