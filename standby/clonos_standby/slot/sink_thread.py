"""Connection of one immediate sink task to its external system, in its own thread: registered, in order, confirmed.

A failed call is retried up to 8 times with backoff; then the incarnation fails. A fenced connection stops writing and
reports the incarnation that fenced it, in case no surviving process has the view of that incarnation. If its system
does not tell which one it was, the incarnation fails: the report is ignored where a view has ended it already.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event, Thread
from time import monotonic
from typing import Any, TypeVar

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import lasts
from clonos.core.model.ids import ChannelId, Incarnation, TaskId
from clonos.core.ports.recorder import RecordingSuspended
from clonos.core.ports.task_failure import FailurePlace, failure_of
from clonos.core.slot.slot_events import PartFailed, SinkConfirmed, SinkOpened, SinkWriterFenced
from clonos.core.values.elements import decode_elements, decode_records
from clonos.core.wire.recovery_messages import InputRange, TaskFailed
from clonos.io.process.fault_points import FaultPoint
from clonos.operators.column_contract import writes_columns
from clonos.operators.connector_contract import ImmediateSink, ImmediateWriter, WriterFenced, WriterIdentity, forget
from clonos_standby.slot.surroundings import SlotSurroundings

logger = logging.getLogger("clonos.slot")

ATTEMPTS_MAX = 9
BACKOFF_FIRST_S = 0.05
BACKOFF_S_MAX = 5.0

WARN_EVERY_S = 60.0

JOINED_ROWS_MAX = 5_000
"""Rows up to which waiting writes are joined into one call."""

Result = TypeVar("Result")


_Write = tuple[int, int, ElementKind, bytes]
"""Queued write: first number, count, kind, payload."""


warned_s: dict[str, float] = {}
"""When a failure of the external system of a task was last logged here, whichever incarnation had it."""


def warn_of_failure(task: str, error: Exception) -> None:
    """Warns of a failure that is retried; while the system is away, once in a minute."""
    now_s = monotonic()
    is_due = now_s - warned_s.get(task, -WARN_EVERY_S) >= WARN_EVERY_S
    if is_due:
        warned_s[task] = now_s
    level = logging.WARNING if is_due else logging.DEBUG
    logger.log(level, "the external system of %s failed, retrying: %s: %s", task, type(error).__name__, error)


class _Ended(Exception):
    """The thread was asked to end."""


class SinkThread:
    """Writer of one sink incarnation. ``write`` enqueues; the slot's machine is called with what the external system
    confirms."""

    def __init__(
        self,
        context: SlotSurroundings,
        sink: ImmediateSink,
        identity: WriterIdentity,
        restored_number: int,
        task: TaskId,
        channel: ChannelId,
        *,
        step: str = "",
        backoff_first_s: float = BACKOFF_FIRST_S,
        backoff_s_max: float = BACKOFF_S_MAX,
    ) -> None:
        """Starts the thread. ``step``: the step of the sink, which the failure of the task names."""
        self._step = step or identity.task_name
        self._backoff_first_s, self._backoff_s_max = backoff_first_s, backoff_s_max
        self._post, self._faults = context.post, context.faults
        self._sink, self._identity, self._restored_number = sink, identity, restored_number
        self._task, self._channel, self._incarnation = task, channel, Incarnation(identity.incarnation)
        self._writes: SimpleQueue[_Write | int | None] = SimpleQueue()  # an int: forget rows below this number
        self._put_back: _Write | int | None = None
        self._linger_s: float = getattr(sink, "linger_ms", 0) / 1_000
        self._written_s = -self._linger_s  # begin of the last write
        self._end = Event()
        self._connection: ImmediateWriter | None = None
        self._is_registered = False
        self._current_range: InputRange | None = None  # the rows that are being written
        self.thread = Thread(target=self._run, name=f"sink {identity.task_name}", daemon=True)
        self.thread.start()

    def write(self, first_seq: int, count: int, kind: ElementKind, payload: bytes) -> None:
        """Enqueues a write."""
        self._writes.put((first_seq, count, kind, payload))

    def forget(self, before_number: int) -> None:
        """Enqueues that the external system may forget rows below ``before_number``, because no restart returns to
        them."""
        self._writes.put(before_number)

    def close(self) -> None:
        """Ends the thread after its current call."""
        self._end.set()
        self._writes.put(None)

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        with RecordingSuspended():  # a connector's code uses the services as outside a job
            self._serve_and_report()

    def _serve_and_report(self) -> None:
        try:
            self._serve()
        except _Ended:
            logger.debug("the sink connection of %s was asked to end", self._identity)
        except WriterFenced as fenced:
            logger.debug("the sink connection of %s is fenced: %s", self._identity, fenced)
            if fenced.by is None:
                self._post(PartFailed(self._describe(fenced)))
            else:
                generation, by = fenced.by
                self._post(SinkWriterFenced(self._task, self._incarnation, generation, Incarnation(by)))
        except Exception as error:  # noqa: BLE001 connectors may raise anything; the coordinator decides
            self._post(PartFailed(self._describe(error)))
        finally:
            self._disconnect()

    def _serve(self) -> None:
        registration = self._persist(lambda connection: connection.register(self._identity, self._restored_number))
        self._is_registered = True
        if self._faults is not None:
            self._faults.reach(FaultPoint.SINK_OPENED, self._identity.task_name)
        self._post(SinkOpened(self._task, self._incarnation, *registration))
        while (write := self._next()) is not None:
            if isinstance(write, int):
                self._forget(write)
                continue
            next_number = self._write_columns(write) if self._is_of_columns(write) else self._write_rows(write)
            if self._faults is not None:
                self._faults.reach(FaultPoint.SINK_WRITTEN, self._identity.task_name, str(next_number))
            self._post(SinkConfirmed(self._task, self._incarnation, next_number))

    def _write_rows(self, write: _Write) -> int:
        first_seq, count, rows = self._joined(write)
        self._current_range = InputRange(self._channel, first_seq, count)
        next_number: int = self._persist(lambda connection: connection.write(first_seq, rows))
        return next_number

    def _write_columns(self, write: _Write) -> int:
        first_seq, count, kind, payload = write
        batch = decode_elements(kind, payload)
        self._current_range = InputRange(self._channel, first_seq, count)
        next_number: int = self._persist(lambda connection: connection.write_columns(first_seq, batch))
        return next_number

    def _is_of_columns(self, write: _Write) -> bool:
        return write[2] is ElementKind.COLUMNS and writes_columns(self._sink)

    def _forget(self, before_number: int) -> None:
        """Forgets rows; a failure is ignored, because the next checkpoint requests it again."""
        try:
            forget(self._connection, before_number)
        except Exception as error:  # noqa: BLE001 connectors may raise anything
            logger.info("the external system of %s failed to forget old rows: %r", self._identity.task_name, error)
            self._disconnect()

    def _next(self) -> _Write | int | None:
        write, self._put_back = self._put_back, None
        if write is None:
            write = self._writes.get()
        return None if self._end.is_set() else write

    def _joined(self, write: _Write) -> tuple[int, int, list[Any]]:
        """Joins a write and the adjacent ones that wait, because a transaction is expensive and a row is not.

        A sink with ``linger_ms`` has its next write that long after the last one at the earliest.
        """
        first_seq, count, kind, payload = write
        rows = decode_records(kind, payload)
        while len(rows) < JOINED_ROWS_MAX:
            wait_s = self._written_s + self._linger_s - time.monotonic() if self._linger_s else 0.0
            try:
                following = self._writes.get(timeout=wait_s) if wait_s > 0 else self._writes.get_nowait()
            except Empty:
                if wait_s > 0:
                    continue
                break
            if following is None:  # the end flag is set already
                break
            is_adjacent = not isinstance(following, int) and following[0] == first_seq + count
            if isinstance(following, int) or not is_adjacent or self._is_of_columns(following):
                self._put_back = following
                break
            count += following[1]
            rows += decode_records(following[2], following[3])
        self._written_s = time.monotonic()
        return first_seq, count, rows

    def _persist(self, call: Callable[..., Result]) -> Result:
        """Calls the external system; after a failure, retries on a new registered connection."""
        backoff_s = self._backoff_first_s
        for attempt in range(ATTEMPTS_MAX):
            try:
                return call(self._connected())
            except (WriterFenced, _Ended):
                raise
            except Exception as error:
                if lasts(error) or attempt == ATTEMPTS_MAX - 1:
                    raise
                warn_of_failure(self._identity.task_name, error)
                self._disconnect()
            if self._end.wait(backoff_s):
                raise _Ended
            backoff_s = min(self._backoff_s_max, backoff_s * 2)
        raise AssertionError("the last attempt returns or raises")

    def _connected(self) -> ImmediateWriter:
        """Returns the connection. A new one is registered, unless the call itself registers and needs the answer."""
        if self._connection is None:
            self._connection = self._sink.immediate_writer()
            if self._is_registered:
                self._connection.register(self._identity, self._restored_number)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception:
                logger.debug("closing the sink connection of %s failed", self._identity.task_name, exc_info=True)

    def _describe(self, error: Any) -> TaskFailed:
        return failure_of(self._task, self._incarnation, error, place=FailurePlace(self._current_range, self._step))
