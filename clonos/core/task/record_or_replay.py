"""Record or replay of determinants: the only access of a running task to its causal log (protocol 2).

While the log lasts, every determinant is read from it. Where it ends the task may go live, even in the middle of a
step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from clonos.core.log import determinants as d
from clonos.core.log.asked import (
    SERVICE_BYTES,
    asked_of,
    code_of_service,
    idempotency_key,
    is_same_service,
    may_be,
    request_digest,
)
from clonos.core.log.call_outcomes import CallInDoubt, decode_outcome, encode_outcome
from clonos.core.log.call_usage import CallAccount, outcome_of
from clonos.core.model.errors import ReplayDiverged
from clonos.core.model.ids import ChannelId
from clonos.core.model.metric_series import MetricFamily, MetricTable
from clonos.core.ports.recorder import ClockReadTooOften, EffectUndeclared, ServiceWhileOpening, tick_due_ns
from clonos.core.ports.task_port import TaskEmission, TaskPort
from clonos.core.task.async_calls import OpenCalls
from clonos.core.task.divergence import asked_text, cause_of, logged_text

CALLS_AHEAD_NS_MAX = 1_000_000
"""Duration of a call from which its outcome is shipped at once, because the extra message is negligible beside it."""

CLOCK_READINGS_MAX = 1_000_000
"""Entries of readings of the clock in one step, of some 3 bytes each: 60 per record of the largest step."""


@dataclass(frozen=True, slots=True)
class LogRules:
    """Rules of recording, the same in every incarnation of a generation.

    ``key_space`` is the prefix of idempotency keys. ``readings_max``: readings of the clock in one step.
    ``accepts_divergence``: a replay takes the logged outcome of a call with other arguments, too. ``tasks``: those of
    the step.
    """

    task_name: str
    key_space: str
    has_effects: bool
    clock_tick_ms: int = 0
    is_logging: bool = True
    calls_ahead_max: int = 1
    readings_max: int = CLOCK_READINGS_MAX
    accepts_divergence: bool = False
    tasks: int = 1


class Recovered(NamedTuple):
    """Log that an incarnation replays from ``offset_bytes`` on. ``instant_ns`` is the last timestamp before it."""

    log: bytes = b""
    offset_bytes: int = 0
    instant_ns: int = 0
    metrics: tuple[MetricFamily, ...] = ()


FRESH = Recovered()


class TaskLog:
    """Causal log of one incarnation, and its ``clonos.core.ports.recorder.Recorder``."""

    def __init__(
        self,
        rules: LogRules,
        port: TaskPort,
        recovered: Recovered = FRESH,
        await_more: Callable[[], None] | None = None,
    ) -> None:
        """Takes the recovered log.

        A shadow's log grows while it is followed: ``await_more`` blocks until it has grown.
        """
        self.task_name = rules.task_name
        self.instant_ns_last = recovered.instant_ns
        self.is_opening = False  # whether user code is in ``open``, where no determinant may be recorded
        self.positions: Callable[[], dict[ChannelId, int]] = (
            dict  # output positions at the beginning of the current step
        )
        self._await_more = await_more
        self._port = port
        self._reader: d.LogReader | None = d.LogReader(recovered.log, recovered.offset_bytes)
        self._end_bytes = recovered.offset_bytes + len(recovered.log)  # end of the log, including the buffer
        self._buffer = bytearray()
        self._key_space = rules.key_space
        self._has_effects = rules.has_effects
        self._tick_ns = rules.clock_tick_ms * 1_000_000
        self._is_logging = rules.is_logging
        self._calls_ahead_max = rules.calls_ahead_max
        self._calls_ahead = 0  # outcomes of plain calls in the buffer
        self._calls_ahead_ns = 0  # when the first of them was requested
        self._step_instant = False
        self._readings_max, self._readings = rules.readings_max, 0  # of the clock in this step
        self._seed = b""
        self._epoch = 0
        self._occurrences: dict[bytes, int] = {}
        self.divergence: ReplayDiverged | None = None  # raised again, because user code may have caught it
        self.accepted = ""  # the first divergence that was accepted
        self._accepts = rules.accepts_divergence
        self.replayed_calls = 0  # outcomes taken from the log; of a shadow, those since it was promoted
        self.metric_table = MetricTable(recovered.metrics)
        self.account = CallAccount(self.metric_table, rules.tasks)
        self.open_calls = OpenCalls(port, rules.key_space, rules.has_effects, self.account)
        self.calls: dict[str, int] | None = None  # for a source: calls per service since the job's start

    # ------------------------------------------------------------------ for the task

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
        """Absolute offset up to which the log was replayed or written, the same in every incarnation."""
        return self._end_bytes if self._reader is None else self._reader.offset_bytes

    def peek(self) -> d.Entry | None:
        """Returns the next entry to replay, or None where the log has ended and the task is live or may go live.

        Raises: ReplayDiverged, if the replay has diverged before.
        """
        if self.divergence is not None:
            raise self.divergence
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
        """Whether the next entry is a complete step without further entries, because another step follows it."""
        return self._reader is not None and self._reader.begins_with_whole_step

    def extend(self, data: bytes, is_all: bool) -> None:
        """Appends to a shadow's log.

        ``is_all``: these are its last bytes, and the log is now that of this incarnation.
        """
        assert self._reader is not None, self.task_name
        self._reader.extend(data)
        self._end_bytes += len(data)
        if is_all:
            self._await_more, self.replayed_calls = None, 0

    def take(self) -> None:
        """Takes the peeked entry, which is being replayed."""
        assert self._reader is not None
        self.replayed_calls += self._reader.next()[0] in (d.CALL, d.COMPLETION)

    def go_live(self) -> None:
        """Waits for permission to record new determinants, because the log has ended.

        Does not return if the log is lost.
        """
        if self._reader is not None:
            self._port.go_live(self.positions(), self.accepted)
            self._reader = None

    def append(self, entry: bytes) -> None:
        """Records a determinant."""
        assert self._reader is None, self.task_name
        if self._is_logging:
            self._buffer += entry
            self._end_bytes += len(entry)

    def drain(self) -> bytes:
        """Returns the entries recorded since the last call.

        Raises: ReplayDiverged, if the replay has diverged: nothing of such a step may leave.
        """
        if self.divergence is not None:
            raise self.divergence
        data = bytes(self._buffer)
        self._buffer.clear()
        self._calls_ahead = 0
        return data

    @property
    def unfinished(self) -> bytes:
        """Entries recorded since the last ``drain``."""
        return bytes(self._buffer)

    def begin_epoch(self, checkpoint: int) -> None:
        """Begins an epoch after a barrier, with new random streams."""
        self._epoch = checkpoint
        self._seed = b""
        self._occurrences.clear()

    def begin_step(self) -> None:
        """Begins a step, in which the clock has a new timestamp. A due tick of the coarse clock is recorded first."""
        self._step_instant, self._readings = False, 0
        if self._tick_ns and self._reader is None:
            due_ns = tick_due_ns(self.instant_ns_last, self._port.now_ns(), self._tick_ns)
            if due_ns is not None:
                self._record_instant(due_ns)

    def follow_tick(self, delta_ns: int) -> None:
        """Replays a tick of the coarse clock."""
        self.instant_ns_last += delta_ns

    def advance_to(self, instant_ns: int) -> None:
        """Sets the clock to the timestamp at which timers fire."""
        self._readings = 0
        self.instant_ns_last = instant_ns
        self._step_instant = True

    def diverged(self, logged: d.Entry, asked: str) -> ReplayDiverged:
        """Returns the error for a task that asks for a determinant other than the logged one, and ends the replay."""
        offset = self._reader.offset_bytes if self._reader is not None else self._end_bytes
        error = ReplayDiverged(self.task_name, offset, logged_text(logged), asked, cause_of(logged, asked))
        self.divergence = error
        return error

    def follow(self, tag: int, wanted: int | bytes | None = None, service: str = "") -> d.Entry | None:
        """Takes the next entry, which must have ``tag``, or returns None if the log has ended and the task has gone
        live.

        ``wanted``: what the entry must have besides, the request of a ``CALL`` or the bytes of another entry.
        ``service``: name of the called service.

        Raises: ReplayDiverged, if the entry answers something else.
        """
        entry = self.peek()
        if entry is None:
            self.go_live()
            return None
        if entry[0] != tag or (wanted is not None and not _answers(entry, tag, wanted)):
            self._accept(entry, tag, service, wanted)
        self.take()
        return entry

    def _accept(self, logged: d.Entry, tag: int, service: str, wanted: int | bytes | None) -> None:
        """Goes on with what was logged, if the job accepts that and it answers the same kind of question.

        Raises: ReplayDiverged, if not. No outcome of another service is handed over, and no call with an effect is made
        for other arguments.
        """
        is_alike = logged[0] == tag == d.ROUTED or (
            logged[0] == tag and isinstance(wanted, int) and is_same_service(logged[2], wanted)
        )
        error = self.diverged(logged, asked_text(tag, service, wanted, logged))
        if not (self._accepts and is_alike):
            raise error
        self.divergence = None
        self.accepted = self.accepted or str(error).partition("\n")[0]

    def follow_call(self, entry: d.Entry) -> bool:
        """Takes a ``COMPLETION``, whose call is open. Returns False if there is no such call.

        Raises: ReplayDiverged, if the call asks for something else than the logged one.
        """
        call = self.open_calls.close(entry[1])
        if call is None:
            return False
        if call.asked != entry[2] and not may_be(entry[2], call.asked):
            self._accept(entry, d.COMPLETION, call.service, call.asked)
        self.take()
        return True

    def follow_routed(self, description: bytes) -> None:
        """Records, or replays, that an exception was routed to the error output.

        Raises: ReplayDiverged, if another one was routed here.
        """
        if self.follow(d.ROUTED, description) is None:
            self.append(d.blob(d.ROUTED, description))

    # ------------------------------------------------------------------ Recorder

    @property
    def live(self) -> bool:
        """Whether new determinants are recorded; False while the log is replayed."""
        return self._reader is None

    @property
    def epoch(self) -> int:
        """Label of the current epoch."""
        return self._epoch

    def instant_ns(self, exact: bool) -> int:
        """Returns the wall clock in ns since the Unix epoch: one timestamp per step, or per call if ``exact``.

        Raises: ClockReadTooOften, at the same reading in every incarnation.
        """
        self._check_opened("the clock")
        if not exact and (self._step_instant or (self._tick_ns and self.instant_ns_last)):
            return self.instant_ns_last
        if self._readings >= self._readings_max:
            raise ClockReadTooOften(self.task_name, self._readings_max)
        self._readings += 1
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

    def metrics(self, name: str) -> MetricTable:
        """Returns the series of user code. Raises: ServiceWhileOpening, in ``open``."""
        if self.is_opening:
            raise ServiceWhileOpening(self.task_name, f"the metric {name}")
        return self.metric_table

    def seed(self) -> bytes:
        """Returns the seed of the current epoch, recorded when it is first needed."""
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
        """Makes one recorded external call (see ``Recorder.call``).

        Raises: EffectUndeclared, if ``effect`` is set in a step that does not declare effects.
        """
        self._check_opened(service)
        if effect and not self._has_effects:
            raise EffectUndeclared(self.task_name, service)
        digest = request_digest(service, request)
        key = (
            self._intend(code_of_service(service) + digest, service)
            if effect
            else (self._request_key(service, digest), False)
        )
        asked = asked_of(service, digest)
        entry = self.follow(d.CALL, asked, service)
        if entry is None:
            if key[1]:
                # Only a holder downstream may have had the causes, so wait until the keepers of this life have them.
                self._port.await_replicated(self._end_bytes)
            if not self._calls_ahead:
                self._calls_ahead_ns = self._port.now_ns()
            outcome = self._perform(service, key[0], perform, in_doubt if key[1] else None, is_in_doubt=key[1])
            self.append(d.call(asked, outcome))
            self._ship_outcome(effect)
        else:
            outcome = entry[3]
        self.account.count_outcome(outcome)
        return decode_outcome(outcome)

    def limit_calls(self, capacity: int, held_max: int = 0) -> None:
        """Limits the open asynchronous calls (see ``CallingRecorder.limit_calls``)."""
        self.open_calls.limit(capacity, held_max)

    def hold(self, count: int) -> None:
        """Counts records that wait for the calls of others (see ``Recorder.hold``)."""
        self.open_calls.hold(count)

    def submit(
        self,
        number: int,
        service: str,
        request: bytes,
        perform: Callable[..., object],
        parts: Mapping[bytes, bytes] | None = None,
    ) -> str:
        """Requests an asynchronous call (see ``Recorder.submit``)."""
        return self.open_calls.submit(number, service, request, perform, parts)

    def cancel(self, number: int, outcome: bytes) -> None:
        """Cancels an asynchronous call (see ``Recorder.cancel``)."""
        self.open_calls.cancel(number, outcome)

    def _check_opened(self, service: str) -> None:
        if self.is_opening:
            raise ServiceWhileOpening(self.task_name, service)

    def _request_key(self, service: str, digest: bytes) -> str:
        """Returns the key of a plain call, the same in every incarnation, however its steps are cut.

        A channel fixes the epoch of each of its elements, so such a call is the k-th equal request of the epoch. The
        epoch of a record that a source reads may change when a lost barrier is repeated, so such a call is the k-th one
        of its service.
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

    def _intend(self, intent: bytes, service: str) -> tuple[str, bool]:
        """Records the intent of a call with an effect. Returns its key and whether an earlier incarnation died in it.

        ``intent``: what the entry has, the code of the service and the digest of the request.

        The key contains the request besides the log position, because another call may take this position where the log
        is lost with all its keepers.
        """
        place = f"intent/{self.end_bytes_followed}"
        key = idempotency_key(self._key_space, place, intent[SERVICE_BYTES:])
        if self.follow(d.INTENT, intent, service) is not None:
            return key, self.peek() is None
        self.append(d.blob(d.INTENT, intent))
        self.flush()
        self._port.await_replicated(self._end_bytes)
        return key, False

    def _perform(
        self,
        service: str,
        key: str,
        perform: Callable[[str], object],
        in_doubt: Callable[[str], object] | None,
        *,
        is_in_doubt: bool,
    ) -> bytes:
        if is_in_doubt and in_doubt is None:
            return encode_outcome(service, CallInDoubt(service, key))
        return outcome_of(service, partial(self._port.perform, in_doubt or perform), key, self.account)

    def _ship_outcome(self, is_effect: bool) -> None:
        """Ships the outcome of a call with an effect at once, because losing it would leave the call in doubt.

        Outcomes of plain calls are batched until the end of the step while the calls are fast, because lost ones are
        simply made again.
        """
        self._calls_ahead += 1
        ahead = self._calls_ahead
        # Reading the clock costs as much as all the rest, so read it at outcomes 1, 2, 4, 8 ... only.
        is_slow = not ahead & (ahead - 1) and self._port.now_ns() - self._calls_ahead_ns >= CALLS_AHEAD_NS_MAX
        if is_effect or is_slow or ahead >= self._calls_ahead_max:
            self.flush()

    def flush(self) -> None:
        """Ships the recorded entries in the middle of a step."""
        if self._buffer:
            self._port.emit(TaskEmission(self.drain()))


def _answers(entry: d.Entry, tag: int, wanted: int | bytes) -> bool:
    """Returns whether an entry has what is wanted of it."""
    logged = entry[2 if tag == d.CALL else 3]
    return logged == wanted or (tag != d.ROUTED and may_be(logged, wanted))
