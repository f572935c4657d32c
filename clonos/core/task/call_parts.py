"""Calls inside an asynchronous call, each with an entry of its own: a repetition gets their outcomes (protocol 7.3).

The code of an asynchronous call runs beside the task, and again if its process dies. What it asks is then answered from
its *parts*: outcomes that the task has logged, found by what was asked and by how often it was asked before. So the
order in which the code asks does not matter: several coroutines of it may ask at once.

An outcome that is an exception counts for the attempt that got it. A later attempt (``retries=``) asks again, and gets
the values of the earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from itertools import count
from typing import Final, NoReturn

from clonos.core.log.asked import asked_of, request_digest
from clonos.core.log.call_outcomes import CallInDoubt, decode_outcome, encode_outcome, is_value
from clonos.core.log.determinants import SEED_BYTES
from clonos.core.model.errors import JobError
from clonos.core.model.metric_series import MetricTable
from clonos.core.ports.recorder import EffectUndeclared, Inside, MetricInCall, running
from clonos.core.ports.task_port import TaskPort

PART_BYTES: Final = 16
"""Length of the name of a part, with which its entry begins."""

CLOCK: Final = "clock"

_INTENT: Final = b"\xff"
"""First byte of the content of an announcement. That of an outcome is another one."""


class EffectSkipped(JobError):
    """Code of an asynchronous call did not ask again for an effect that it had announced before its process died."""

    service: str

    def __str__(self) -> str:
        return (
            f"a call of {self.service} was announced before the process died, and the code that ran again did not make"
            " it, so nobody knows whether it took place. The code must decide by its record and by recorded calls"
            " alone: use clock, random and services of clonos in it."
        )


class CallLeftBehind(JobError):
    """A coroutine or a thread asked for something after the asynchronous call that had begun it was over."""

    service: str

    def __str__(self) -> str:
        return (
            f"{self.service} was called after the function that began this coroutine or thread had returned, so its"
            " outcome cannot be recorded. Await all that the function begins."
        )


class CallParts:
    """Recorder of the code of one asynchronous call, in any of its threads and coroutines.

    ``known``: the parts that the log has, by their names. What this incarnation adds is added there.
    """

    live: Final = True
    epoch: Final = 0

    def __init__(self, number: int, key: str, known: Mapping[bytes, bytes], port: TaskPort, has_effects: bool) -> None:
        self._number, self._key, self._port, self._has_effects = number, key, port, has_effects
        self._known = dict(known)
        self._attempt = 0
        self._asked: dict[bytes, Iterator[int]] = {}  # by request: numbers for those of this attempt
        self._faced = set[bytes]()  # announcements of earlier incarnations that the code has asked for again
        self._instant_ns = self._began_ns = 0  # what the clock reads since the last call inside, and when it was read
        self._is_over = False
        self.metric_table = MetricTable()

    @contextmanager
    def attempt(self, number: int) -> Iterator[None]:
        """Runs attempt ``number``, from 0 on, of the code."""
        self._attempt = number
        self._asked.clear()
        self._instant_ns = 0
        with self.bound():
            yield

    def bound(self) -> AbstractContextManager[None]:
        """Binds this recorder in a thread of the code."""
        return running(self)

    def close(self) -> JobError | None:
        """Ends the call. Returns an error if an announced effect was not asked for again."""
        self._is_over = True
        for name, content in self._known.items():
            if content[:1] == _INTENT and name not in self._faced:
                part, failed = content[1 : 1 + PART_BYTES], content[1 + PART_BYTES : 1 + 2 * PART_BYTES]
                if part not in self._known and failed not in self._known:
                    return EffectSkipped(content[1 + 2 * PART_BYTES :].decode())
        return None

    # ------------------------------------------------------------------ Recorder

    def instant_ns(self, exact: bool) -> int:
        """Returns the wall clock. It stands still until the next call inside, unless ``exact``."""
        if exact or not self._instant_ns:
            found = self.call(CLOCK, b"", lambda _key: self._port.now_ns())
            assert isinstance(found, int), found
            self._instant_ns, self._began_ns = found, self._port.now_ns()
        return self._instant_ns

    def passing_ns(self) -> int:
        """Returns the wall clock, which goes on from ``instant_ns``: a repetition reads about the same."""
        instant_ns = self.instant_ns(False)
        return instant_ns + max(0, self._port.now_ns() - self._began_ns)

    def metrics(self, name: str) -> NoReturn:
        """Raises: MetricInCall: a repetition would count again."""
        raise MetricInCall(name)

    def seed(self) -> bytes:
        """Returns the seed of this call, the same in each repetition."""
        return blake2b(self._key.encode(), digest_size=SEED_BYTES, person=b"seed").digest()

    def call(
        self,
        service: str,
        request: bytes,
        perform: Callable[[str], object],
        *,
        effect: bool = False,
        in_doubt: Callable[[str], object] | None = None,
    ) -> object:
        """Returns or raises the outcome of a call inside: that of its part, or that of ``perform``, which is logged.

        With ``effect`` the announcement is a part of its own, which the keepers have before ``perform`` is called.

        Raises: EffectUndeclared: ``effect`` is set in a step that does not declare effects. CallLeftBehind.
        """
        inside = self.begin(service, request)
        known = self.known(inside)
        if known is None:
            act = perform
            if effect and not self.announce(inside):
                act = _doubtful(service) if in_doubt is None else in_doubt
            known = self.end(inside, _outcome_of(service, act, inside.key))
        return decode_outcome(known)

    # ------------------------------------------------------------------ the steps of a call

    def begin(self, service: str, request: bytes) -> Inside:
        """Returns the names of the next call inside with this request. Raises: CallLeftBehind."""
        if self._is_over:
            raise CallLeftBehind(service)
        digest = request_digest(service, request)
        occurrence = next(self._asked.setdefault(digest, count()))  # both are atomic: several threads may ask at once
        part = _named(digest, b"%d" % occurrence)
        key = blake2b(f"{self._key}/".encode() + part, digest_size=16).hexdigest()
        return Inside(service, asked_of(service, digest), part, key)

    def known(self, inside: Inside) -> bytes | None:
        """Returns the outcome that the log has, None if it has none."""
        known = self._known.get(_failed(inside, self._attempt)) or self._known.get(inside.part)
        if known is not None:
            self._instant_ns = 0
        return known

    def announce(self, inside: Inside) -> bool:
        """Announces a call with an effect, and waits until the keepers know of it.

        Returns False if an earlier incarnation has announced it and died: whether it took place is unknown.

        Raises: EffectUndeclared.
        """
        if not self._has_effects:
            raise EffectUndeclared("a step", inside.service)
        doubtful = [
            _intent(inside, attempt)
            for attempt in range(self._attempt + 1)
            if _intent(inside, attempt) in self._known and _failed(inside, attempt) not in self._known
        ]
        if doubtful:
            self._faced.update(doubtful)
            return False
        failed = _failed(inside, self._attempt)
        content = _INTENT + inside.part + failed + inside.service.encode()
        self._report(inside, _intent(inside, self._attempt), content, waits=True)
        return True

    def end(self, inside: Inside, outcome: bytes) -> bytes:
        """Logs the outcome of a call inside; returns it."""
        self._report(inside, inside.part if is_value(outcome) else _failed(inside, self._attempt), outcome)
        self._instant_ns = 0
        return outcome

    def _report(self, inside: Inside, name: bytes, content: bytes, *, waits: bool = False) -> None:
        self._port.report_part(self._number, inside.asked, name + content, waits=waits)
        self._known[name] = content


def _failed(inside: Inside, attempt: int) -> bytes:
    """Returns the name of the outcome in an attempt, if that is an exception."""
    return _named(inside.part, b"failed %d" % attempt)


def _intent(inside: Inside, attempt: int) -> bytes:
    """Returns the name of the announcement in an attempt."""
    return _named(inside.part, b"intent %d" % attempt)


def _named(name: bytes, more: bytes) -> bytes:
    return blake2b(name + more, digest_size=PART_BYTES).digest()


def _doubtful(service: str) -> Callable[[str], NoReturn]:
    def refuse(key: str) -> NoReturn:
        raise CallInDoubt(service, key)

    return refuse


def _outcome_of(service: str, perform: Callable[[str], object], key: str) -> bytes:
    try:
        return encode_outcome(service, perform(key))
    except Exception as error:  # noqa: BLE001  the outcome of the call, which the code gets now and in a repetition
        return encode_outcome(service, error)
