"""Record or replay, written once: the running task's door to its causal log.

While the log lasts, everything asked for is read from it; where it ends, the task may go live, even in mid-step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from clonos.core.log import determinants as d
from clonos.core.log.call_outcomes import CallInDoubt, decode_outcome, encode_outcome
from clonos.core.model.errors import JobError, ReplayDiverged
from clonos.core.model.ids import ChannelId
from clonos.core.ports.recorder import tick_due_ns
from clonos.core.ports.task_port import Emission, TaskPort
from clonos.core.task.async_calls import OpenCalls, idempotency_key, request_digest

CALLS_AHEAD_NS_MAX = 1_000_000
"""Beside a call that takes this long, a shipment of its own is nothing."""


class EffectUndeclared(JobError):
    """User code changed the outside in a step that does not declare it."""

    task: str
    service: str

    def __str__(self) -> str:
        return (
            f"task {self.task} made the call {self.service}, which changes the outside, in a step that does not declare"
            " it. Declare the step with effects=True, or the call as idempotent (intent=False)."
        )


class ServiceWhileOpening(JobError):
    """User code used a causal service in ``open``, which every life runs anew."""

    task: str
    service: str

    def __str__(self) -> str:
        return (
            f"task {self.task} used {self.service} while it was being opened. Every life of a task opens anew, behind"
            " another checkpoint, so what is drawn there could not be the same again. Draw it when the first element"
            " comes, and keep it as state."
        )


@dataclass(frozen=True, slots=True)
class LogRules:
    """How a task records: the same in every incarnation of a generation. ``key_space``: of its idempotency keys."""

    task_name: str
    key_space: str
    has_effects: bool
    clock_tick_ms: int = 0
    is_logging: bool = True
    calls_ahead_max: int = 1


class Recovered(NamedTuple):
    """The log that an incarnation follows, from ``offset_bytes`` on. ``instant_ns``: the last instant before it."""

    log: bytes = b""
    offset_bytes: int = 0
    instant_ns: int = 0


FRESH = Recovered()


class TaskLog:
    """The causal log of one incarnation, and what its services are given (``clonos.core.ports.recorder.Recorder``)."""

    def __init__(
        self,
        rules: LogRules,
        port: TaskPort,
        recovered: Recovered = FRESH,
        await_more: Callable[[], None] | None = None,
    ) -> None:
        """``await_more``: of a shadow, whose log goes on where it ends; called until it has."""
        self.task_name = rules.task_name
        self.instant_ns_last = recovered.instant_ns
        self.is_opening = False  # user code is being opened: nothing may be drawn
        self.positions: Callable[[], dict[ChannelId, int]] = dict  # output positions where the current step began
        self._await_more = await_more
        self._port = port
        self._reader: d.LogReader | None = d.LogReader(recovered.log, recovered.offset_bytes)
        self._end_bytes = recovered.offset_bytes + len(recovered.log)  # of the log, what is buffered included
        self._buffer = bytearray()
        self._key_space = rules.key_space
        self._has_effects = rules.has_effects
        self._tick_ns = rules.clock_tick_ms * 1_000_000
        self._is_logging = rules.is_logging
        self._calls_ahead_max = rules.calls_ahead_max
        self._calls_ahead = 0  # outcomes of plain calls in the buffer
        self._calls_ahead_ns = 0  # when the first of them was asked for
        self._step_instant = False
        self._seed = b""
        self._epoch = 0
        self._occurrences: dict[bytes, int] = {}
        self.open_calls = OpenCalls(port, rules.key_space)
        self.calls: dict[str, int] | None = None  # of a source: how many each service has had since the job's start

    # ------------------------------------------------------------------ what the task does with it

    def count_calls_from(self, calls: dict[str, int]) -> None:
        """Counts the calls of a source from what its snapshot has of each service."""
        self.calls = calls

    def observe_positions(self, positions: Callable[[], dict[ChannelId, int]]) -> None:
        """Takes where to ask for the output positions at which the current step began."""
        self.positions = positions

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Refuses whatever user code would draw while it is opened."""
        self.is_opening = True
        yield
        self.is_opening = False

    @property
    def end_bytes(self) -> int:
        """Absolute offset of the end of the log."""
        return self._end_bytes

    @property
    def end_bytes_followed(self) -> int:
        """Absolute offset up to which the log has been followed or written: the same in every incarnation."""
        return self._end_bytes if self._reader is None else self._reader.offset_bytes

    def peek(self) -> d.Entry | None:
        """The next entry to follow; None where the log has ended (the task is live or may go live)."""
        reader = self._reader
        if reader is None:
            return None
        while reader.at_end:
            if self._await_more is None:
                return None
            self._await_more()
        return reader.peek()

    @property
    def begins_with_whole_step(self) -> bool:
        """While it is followed: whether a step comes that asks for nothing more of it, and a further one behind."""
        return self._reader is not None and self._reader.begins_with_whole_step

    def extend(self, data: bytes, is_all: bool) -> None:
        """A shadow's log goes on. ``is_all``: and ends; it is the log of this life now."""
        assert self._reader is not None, self.task_name
        self._reader.extend(data)
        self._end_bytes += len(data)
        if is_all:
            self._await_more = None

    def take(self) -> None:
        """The entry that was peeked at is being followed."""
        assert self._reader is not None
        self._reader.next()

    def go_live(self) -> None:
        """The log has ended: asks leave to record new determinants. Blocks; does not return if the log is lost."""
        if self._reader is not None:
            self._port.go_live(self.positions())
            self._reader = None

    def append(self, entry: bytes) -> None:
        """Records a determinant."""
        assert self._reader is None, self.task_name
        if self._is_logging:
            self._buffer += entry
            self._end_bytes += len(entry)

    def drain(self) -> bytes:
        """What has been recorded since the last call."""
        data = bytes(self._buffer)
        self._buffer.clear()
        self._calls_ahead = 0
        return data

    def begin_epoch(self, checkpoint: int) -> None:
        """Behind a barrier: luck starts anew."""
        self._epoch = checkpoint
        self._seed = b""
        self._occurrences.clear()

    def begin_step(self) -> None:
        """The next read of the clock is a new instant; with a coarse clock, a tick that is due is recorded first."""
        self._step_instant = False
        if self._tick_ns and self._reader is None:
            due_ns = tick_due_ns(self.instant_ns_last, self._port.now_ns(), self._tick_ns)
            if due_ns is not None:
                self._record_instant(due_ns)

    def follow_tick(self, delta_ns: int) -> None:
        """Replays a tick of the coarse clock."""
        self.instant_ns_last += delta_ns

    def advance_to(self, instant_ns: int) -> None:
        """Timers fire at this instant; the clock stands at it."""
        self.instant_ns_last = instant_ns
        self._step_instant = True

    def diverged(self, logged: d.Entry, asked: str) -> ReplayDiverged:
        """The error of a task that asks for something other than what is logged."""
        offset = self._reader.offset_bytes if self._reader is not None else self._end_bytes
        return ReplayDiverged(self.task_name, offset, d.NAMES.get(logged[0], str(logged[0])), asked)

    def follow(self, tag: int) -> d.Entry | None:
        """The next entry, which must be of ``tag``; None if the log has ended, and the task is live now."""
        entry = self.peek()
        if entry is None:
            self.go_live()
            return None
        if entry[0] != tag:
            raise self.diverged(entry, d.NAMES[tag])
        self.take()
        return entry

    # ------------------------------------------------------------------ Recorder

    @property
    def live(self) -> bool:
        """False while the log is being replayed."""
        return self._reader is None

    @property
    def epoch(self) -> int:
        """Label of the current epoch."""
        return self._epoch

    def instant_ns(self, exact: bool) -> int:
        """One instant a step, or one a call where ``exact``; wall clock as ns since the Unix epoch."""
        self._check_opened("the clock")
        if not exact and (self._step_instant or (self._tick_ns and self.instant_ns_last)):
            return self.instant_ns_last
        entry = self.follow(d.CLOCK)
        if entry is None:
            self._record_instant(self._port.now_ns())
        else:
            self.instant_ns_last += entry[1]
        self._step_instant = True
        return self.instant_ns_last

    def _record_instant(self, now_ns: int) -> None:
        delta = max(0, now_ns - self.instant_ns_last)
        self.append(d.numbers(d.CLOCK, delta))
        self.instant_ns_last += delta

    def seed(self) -> bytes:
        """The seed of the current epoch, recorded where it is first asked for."""
        self._check_opened("random numbers")
        if not self._seed:
            entry = self.follow(d.SEED)
            if entry is None:
                self._seed = self._port.entropy(d.SEED_BYTES)
                self.append(d.seed(self._seed))
            else:
                self._seed = entry[3]
        return self._seed

    def call(
        self,
        service: str,
        request: bytes,
        perform: Callable[[str], object],
        *,
        effect: bool = False,
        in_doubt: Callable[[str], object] | None = None,
    ) -> object:
        """One recorded call of the outside (see ``Recorder.call``)."""
        self._check_opened(service)
        if effect and not self._has_effects:
            raise EffectUndeclared(self.task_name, service)
        digest = request_digest(service, request)
        key = self._intend(digest) if effect else (self._request_key(service, digest), False)
        entry = self.follow(d.CALL)
        if entry is None:
            if key[1]:
                # Its causes may have been found with a holder downstream only: the keepers need not have had them.
                self._port.await_replicated(self._end_bytes)
            if not self._calls_ahead:
                self._calls_ahead_ns = self._port.now_ns()
            outcome = self._perform(service, key[0], perform, in_doubt if key[1] else None, is_in_doubt=key[1])
            self.append(d.blob(d.CALL, outcome))
            self._ship_outcome(effect)
        else:
            outcome = entry[3]
        return decode_outcome(outcome)

    def limit_calls(self, capacity: int) -> None:
        """See ``Recorder.limit_calls``."""
        self.open_calls.limit(capacity)

    def submit(self, number: int, service: str, request: bytes, perform: Callable[[str], object]) -> None:
        """See ``Recorder.submit``."""
        self.open_calls.submit(number, service, request, perform)

    def _check_opened(self, service: str) -> None:
        if self.is_opening:
            raise ServiceWhileOpening(self.task_name, service)

    def _request_key(self, service: str, digest: bytes) -> str:
        """The same in every incarnation, however its steps are cut.

        The epoch of an element that has come from another task is fixed by its channel: the k-th equal request of it.
        That of a record that a source reads is not, since a lost barrier may come back elsewhere: the k-th call there.
        """
        if self.calls is None:
            occurrence = self._occurrences.get(digest, 0)
            self._occurrences[digest] = occurrence + 1
            place = f"{self._epoch}/{occurrence}"
        else:
            occurrence = self.calls.get(service, 0)
            self.calls[service] = occurrence + 1
            place = f"call/{occurrence}"
        return idempotency_key(self._key_space, place, digest)

    def _intend(self, digest: bytes) -> tuple[str, bool]:
        """Announces a call with an effect: its key is its position in the log. True: an earlier life died during it.

        With the request: where a log is lost with all its keepers, another call may come to stand at this position.
        """
        place = f"intent/{self.end_bytes_followed}"
        entry = self.follow(d.INTENT)
        if entry is not None:
            # The key that the outside knows, also where user code has made the request of what is in no log.
            return idempotency_key(self._key_space, place, entry[3]), self.peek() is None
        self.append(d.blob(d.INTENT, digest))
        self.flush()
        self._port.await_replicated(self._end_bytes)
        return idempotency_key(self._key_space, place, digest), False

    def _perform(
        self,
        service: str,
        key: str,
        perform: Callable[[str], object],
        in_doubt: Callable[[str], object] | None,
        *,
        is_in_doubt: bool,
    ) -> bytes:
        try:
            if is_in_doubt and in_doubt is None:
                raise CallInDoubt(service, key)
            return encode_outcome(service, self._port.perform(in_doubt or perform, key))
        except Exception as error:  # noqa: BLE001  the outside's answer: user code gets it, live and in replay
            return encode_outcome(service, error)

    def _ship_outcome(self, is_effect: bool) -> None:
        """What an effect came to leaves at once: lost, it would be in doubt. That of a plain call may wait for others
        and for the step, which nobody sees without it, as long as they were quick: a death has them made again."""
        self._calls_ahead += 1
        ahead = self._calls_ahead
        # The clock costs as much as all else here, so it is asked at 1, 2, 4, 8 ...: at once where every call is slow.
        is_slow = not ahead & (ahead - 1) and self._port.now_ns() - self._calls_ahead_ns >= CALLS_AHEAD_NS_MAX
        if is_effect or is_slow or ahead >= self._calls_ahead_max:
            self.flush()

    def flush(self) -> None:
        """Ships what has been recorded in mid-step."""
        if self._buffer:
            self._port.emit(Emission(self.drain()))
