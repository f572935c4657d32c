"""Asynchronous calls of one incarnation: started beside the task, handed over where ``COMPLETION`` says (protocol 2).

A call is the same in every incarnation, because its number and request are a function of the input. A call without an
outcome in the log is made again when the log ends, with the same idempotency key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from clonos.core.log.asked import asked_of, idempotency_key, request_digest
from clonos.core.log.call_outcomes import encode_outcome, is_value
from clonos.core.log.call_usage import CallAccount, outcome_of
from clonos.core.model.errors import ExitCalled
from clonos.core.ports.recorder import CANCELLED, OWN_KEY
from clonos.core.ports.task_port import Finished, PartReported, TaskPort
from clonos.core.task.call_parts import PART_BYTES, CallParts

CAPACITY_UNLIMITED = 1 << 30

HELD_MAX = 1_000
"""Records that may wait for the calls of others, about, unless a step has another limit."""


class OpenCall(NamedTuple):
    """Asynchronous call that was requested. ``service``: its step. ``asked``: what it asks for, as the log has it.
    ``parts``: those of it that the log has, None if its calls inside have no entries."""

    service: str
    key: str
    asked: int
    perform: Callable[..., object]
    parts: dict[bytes, bytes] | None


class OpenCalls:
    """Calls that were requested and whose outcome was not handed over yet."""

    def __init__(self, port: TaskPort, key_space: str, has_effects: bool, account: CallAccount) -> None:
        self._port, self._key_space, self._has_effects, self._account = port, key_space, has_effects, account
        self._capacity = CAPACITY_UNLIMITED
        self._held, self._held_max = 0, HELD_MAX
        self._open: dict[int, OpenCall] = {}
        self._lives: dict[int, CallParts] = {}  # of the open calls that have begun and whose calls inside are logged
        self._not_begun: list[int] = []
        self._finished: deque[Finished | PartReported] = deque()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def room(self) -> int:
        """Number of records that may be taken if each requests one call, or waits for one if others wait already."""
        room = self._capacity - len(self._open)
        return max(0, min(room, self._held_max - self._held) if self._held else room)

    @property
    def oldest(self) -> int | None:
        """Lowest number of an open call, None without one. A call may be requested after calls with higher numbers."""
        return min(self._open, default=None)

    @property
    def newest(self) -> int | None:
        """Number of the last call that was requested in the current step, None without one."""
        return self._not_begun[-1] if self._not_begun else None

    def limit(self, capacity: int, held_max: int = 0) -> None:
        """Limits the open calls to ``capacity``; ``held_max`` lets more records than ``HELD_MAX`` wait."""
        self._capacity, self._held_max = min(self._capacity, capacity), max(self._held_max, held_max)

    def hold(self, count: int) -> None:
        """Adds to the number of records that wait for the calls of others."""
        self._held += count

    def submit(
        self,
        number: int,
        service: str,
        request: bytes,
        perform: Callable[..., object],
        parts: Mapping[bytes, bytes] | None = None,
    ) -> str:
        """Adds a call that user code requests; ``begin`` starts it once the task is live. Returns its key, that of the
        generation in which it was requested first."""
        digest = request_digest(service, request)
        key = idempotency_key(self._key_space, f"async/{number}", digest)
        known = None if parts is None else dict(parts)
        if known is not None:
            key = known.pop(OWN_KEY, key.encode()).decode()
        self._open[number] = OpenCall(service, key, asked_of(service, digest), perform, known)
        self._not_begun.append(number)
        return key

    def cancel(self, number: int, outcome: bytes) -> None:
        """Lets the next new call inside an open call have this outcome."""
        parts = self._open[number].parts
        assert parts is not None, "only a call whose calls inside are logged is cancelled"
        parts.setdefault(CANCELLED, outcome)
        if number in self._lives:
            self._lives[number].cancel(outcome)

    def begin(self) -> None:
        """Starts the calls that have not started, because the task is live."""
        for number in self._not_begun:
            if number in self._open:
                call = self._open[number]
                account = self._account.of_step(call.service)
                function = partial(_outcome_in_thread, call.service, call.perform, account=account)
                if call.parts is not None:
                    inside = CallParts(number, call.key, call.parts, self._port, self._has_effects, account)
                    self._lives[number] = inside
                    function = partial(_outcome_with_parts, call.service, call.perform, inside)
                self._port.begin_call(number, function, call.key)
        self._not_begun.clear()

    def finish(self, finished: Finished | PartReported) -> None:
        """Adds an outcome, or a part of a call, that the port delivered."""
        self._finished.append(finished)

    def take_finished(self) -> Finished | PartReported | None:
        """Takes the next outcome to hand over, or the next part to keep, None without one."""
        return self._finished.popleft() if self._finished else None

    def take_part(self, number: int, data: bytes) -> tuple[bytes, bytes] | None:
        """Adds a part to its call; returns its name and content. Returns None if no such call is open."""
        call = self._open.get(number)
        if call is None or call.parts is None:
            return None
        name, content = data[:PART_BYTES], data[PART_BYTES:]
        return name, call.parts.setdefault(name, content)

    def close(self, number: int) -> OpenCall | None:
        """Removes and returns a call whose outcome is handed over. Returns None if no such call is open."""
        self._lives.pop(number, None)
        return self._open.pop(number, None)


def _outcome_with_parts(service: str, perform: Callable[..., object], inside: CallParts, key: str) -> bytes:
    outcome = _outcome_in_thread(service, partial(perform, inside=inside), key)
    skipped = inside.close()
    return outcome if skipped is None or not is_value(outcome) else encode_outcome(service, skipped)


def _outcome_in_thread(
    service: str, perform: Callable[[str], object], key: str, account: CallAccount | None = None
) -> bytes:
    try:
        return outcome_of(service, perform, key, account)
    except (SystemExit, KeyboardInterrupt) as end:  # would end the thread, and nothing would deliver an outcome
        name = "sys.exit" if isinstance(end, SystemExit) else type(end).__name__
        return encode_outcome(service, ExitCalled(f"{name}({', '.join(map(repr, end.args))})"))
