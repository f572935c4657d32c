"""Asynchronous calls of one incarnation: begun while it lives, each handed to user code where ``COMPLETION`` says.

A call is the same one in every life: its number and request are a function of the input. One that has no outcome in
the log when that ends is made again, with the same idempotency key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from hashlib import blake2b

from clonos.core.log.call_outcomes import encode_outcome
from clonos.core.ports.task_port import Finished, TaskPort

UNLIMITED = 1 << 30


def request_digest(service: str, request: bytes) -> bytes:
    """What tells a request from others."""
    return blake2b(service.encode() + b"\0" + request, digest_size=16).digest()


def idempotency_key(key_space: str, place: str, digest: bytes) -> str:
    """Of a request that is made at this place of a task's life."""
    return blake2b(f"{key_space}/{place}/".encode() + digest, digest_size=16).hexdigest()


class OpenCalls:
    """Those that have been asked for and not been handed over."""

    def __init__(self, port: TaskPort, key_space: str) -> None:
        self._port, self._key_space = port, key_space
        self._capacity = UNLIMITED
        self._open: dict[int, tuple[str, str, Callable[[str], object]]] = {}
        self._unbegun: list[int] = []
        self._finished: deque[Finished] = deque()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def room(self) -> int:
        """How many records may be taken, if each asks for one call."""
        return max(0, self._capacity - len(self._open))

    def limit(self, capacity: int) -> None:
        """An operator wants at most so many open."""
        self._capacity = min(self._capacity, capacity)

    def submit(self, number: int, service: str, request: bytes, perform: Callable[[str], object]) -> None:
        """User code asks for a call; it begins when the task is live."""
        key = idempotency_key(self._key_space, f"async/{number}", request_digest(service, request))
        self._open[number] = service, key, perform
        self._unbegun.append(number)

    def begin(self) -> None:
        """The task is live: makes the calls that have not begun."""
        for number in self._unbegun:
            if number in self._open:
                service, key, perform = self._open[number]
                self._port.begin_call(number, partial(_outcome_of, service, perform), key)
        self._unbegun.clear()

    def finish(self, finished: Finished) -> None:
        """The outside has answered."""
        self._finished.append(finished)

    def take_finished(self) -> Finished | None:
        """The next one that can be handed over."""
        return self._finished.popleft() if self._finished else None

    def close(self, number: int) -> bool:
        """It is being handed over. False: nobody has asked for it."""
        return self._open.pop(number, None) is not None


def _outcome_of(service: str, perform: Callable[[str], object], key: str) -> bytes:
    try:
        return encode_outcome(service, perform(key))
    except Exception as error:  # noqa: BLE001  the outside's answer: user code gets it, live and in replay
        return encode_outcome(service, error)
