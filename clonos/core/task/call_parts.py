"""Calls inside an asynchronous call, each with an entry of its own: a repetition gets their outcomes (protocol 7.3).

The code of an asynchronous call runs beside the task, and again if its process dies. What it asks is then answered from
its *parts*: outcomes that the task has logged, found by what was asked and by how often it was asked before. So the
order in which the code asks does not matter: several coroutines of it may ask at once.

An outcome that is an exception counts for the attempt that got it. A later attempt (``retries=``) asks again, and gets
the values of the earlier ones. Code of an earlier attempt that still runs may begin nothing more. Of two outcomes under
one name the first counts, so what code has seen is what a repetition sees.

A cancelled call gets an error as the outcome of its next new call inside, once in each attempt.

An announced effect without an outcome is in doubt, whatever the attempt, until a value settles it. That holds within a
life too: an attempt does not know how an effect ends that an earlier one has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from itertools import count
from typing import Final, NoReturn, Protocol

from clonos.core.log.asked import asked_of, idempotency_key, request_digest
from clonos.core.log.call_outcomes import CallInDoubt, decode_outcome, encode_outcome, is_value
from clonos.core.log.call_usage import CallAccount, outcome_of
from clonos.core.log.determinants import SEED_BYTES
from clonos.core.model.errors import JobError
from clonos.core.model.metric_series import MetricTable
from clonos.core.ports.recorder import CANCELLED, EffectUndeclared, Inside, MetricInCall, running

PART_BYTES: Final = 16
"""Length of the name of a part, with which its entry begins."""

CLOCK: Final = "clock"

_INTENT: Final = b"\xff"
"""First byte of the content of an announcement. That of an outcome is another one."""


class DrawnBeside(JobError):
    """Random numbers or the clock were used by a second coroutine or thread of an asynchronous call."""

    what: str

    def __str__(self) -> str:
        return (
            f"{self.what} was used in a coroutine or thread that a function with log_calls=True began: which of them"
            " comes first differs when the function runs again. Use it in the function itself, before gather() or"
            " to_thread(), and pass the value on."
        )


class EffectSkipped(JobError):
    """Code of an asynchronous call did not ask again for an effect that an earlier life or attempt had made, or
    announced."""

    service: str

    def __str__(self) -> str:
        return (
            f"a call of {self.service} was made, or announced, by an earlier attempt or before the process died, and"
            " the code that ran again did not ask for it. The code must decide by its record and by recorded calls"
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


class PartsPort(Protocol):
    """Port of a task, as far as parts need it."""

    def now_ns(self) -> int:
        """Returns the wall clock in nanoseconds since the Unix epoch."""

    def report_part(self, number: int, asked: int, data: bytes, *, waits: bool) -> bool:
        """See ``TaskPort.report_part``."""


class CallParts:
    """Parts of one asynchronous call in one life of its code, and the attempts that share them.

    ``known``: the parts that the log has, by their names. What this life adds is added there.
    """

    def __init__(
        self,
        number: int,
        key: str,
        known: Mapping[bytes, bytes],
        port: PartsPort,
        has_effects: bool,
        account: CallAccount,
    ) -> None:
        self.number, self.key, self.port, self.has_effects, self.account = number, key, port, has_effects, account
        self.parts = dict(known)
        self.announced: dict[bytes, bytes] = {}  # by part: the announcement that no outcome has settled
        self.asked_for = set[bytes]()  # the parts of effects that this life has asked for
        self._before = tuple(self._announcements())  # of earlier lives
        for part, failed, name, _ in self._before:
            if part not in self.parts and failed not in self.parts:
                self.announced[part] = name
        self._attempt: CallAttempt | None = None

    @contextmanager
    def attempt(self, number: int, strand: Callable[[], object]) -> Iterator[Callable[[], None]]:
        """Runs attempt ``number``, from 0 on, of the code. Yields a function to call where the code begins, in its own
        thread or coroutine.

        ``strand``: says which thread or coroutine asks.
        """
        if self._attempt is not None:
            self._attempt.end_attempt()
        attempt = self._attempt = CallAttempt(self, number, strand)
        with running(attempt):
            yield attempt.begin_strand

    def cancel(self, outcome: bytes) -> None:
        """Lets the next new call inside have this outcome."""
        self.parts.setdefault(CANCELLED, outcome)

    def close(self) -> JobError | None:
        """Ends the call. Returns an error if an effect of an earlier life was not asked for again, or if the last
        attempt did not ask for an effect that an earlier attempt has made, or that is in doubt."""
        if self._attempt is not None:
            self._attempt.end_attempt()
        skipped = [service for part, _, _, service in self._before if part not in self.asked_for]
        asked_last = self.asked_for if self._attempt is None else self._attempt.asked_for
        for part, _, _, service in self._announcements():
            if part not in asked_last and (part in self.parts or part in self.announced):
                skipped.append(service)
        return EffectSkipped(skipped[0]) if skipped else None

    def ask_new(self, inside: Inside) -> None:
        """Takes notice that the code asks for something that no part answers, before it does. A replay refuses it."""

    def add(self, inside: Inside, name: bytes, content: bytes, *, waits: bool = False) -> bytes:
        """Logs a part, unless its name has one. Returns what the name has. Raises: CallLeftBehind."""
        if (found := self.parts.setdefault(name, content)) is content:
            self._report(inside, name, waits)
        return found

    def add_again(self, inside: Inside, name: bytes) -> None:
        """Logs a part of an earlier life once more, and waits until the keepers of this life have it.

        Raises: CallLeftBehind.
        """
        if name in self.parts:
            self._report(inside, name, True)

    def _report(self, inside: Inside, name: bytes, waits: bool) -> None:
        if not self.port.report_part(self.number, inside.asked, name + self.parts[name], waits=waits):
            raise CallLeftBehind(inside.service)

    def _announcements(self) -> Iterator[tuple[bytes, bytes, bytes, str]]:
        """Yields the announcements: the part, the name of its failure, their own name, and the service."""
        for name, content in tuple(self.parts.items()):  # at once: a thread of an earlier attempt may add one
            if content[:1] == _INTENT:
                part, failed = content[1 : 1 + PART_BYTES], content[1 + PART_BYTES : 1 + 2 * PART_BYTES]
                yield part, failed, name, content[1 + 2 * PART_BYTES :].decode()


class CallAttempt:
    """Recorder of one attempt of the code of an asynchronous call, in any of its threads and coroutines."""

    live: Final = True

    def __init__(self, call: CallParts, number: int, strand: Callable[[], object]) -> None:
        self._call, self._number, self._strand_now = call, number, strand
        self.asked_for = set[bytes]()  # the parts of effects
        self._asked: dict[bytes, Iterator[int]] = {}  # by request: numbers for those of this attempt
        self._strand: object = None
        self._instant_ns = self._began_ns = 0  # what the clock reads since the last call inside, and when it was read
        self.is_over = self._is_cancelled = False
        self.metric_table = MetricTable()

    def end_attempt(self) -> None:
        """Lets the code begin no further call."""
        self.is_over = True

    def begin_strand(self) -> None:
        """Notes the thread or coroutine in which the code begins: it may use the clock and draw random numbers."""
        self._strand = self._strand_now()

    def is_in_strand(self) -> bool:
        """Returns whether the code that asks runs where the code of the call began."""
        return self._strand == self._strand_now()

    # ------------------------------------------------------------------ Recorder

    @property
    def epoch(self) -> int:
        """Label of the only epoch. Raises: DrawnBeside: another coroutine or thread draws."""
        if not self.is_in_strand():
            raise DrawnBeside("a random number")
        return 0

    def instant_ns(self, exact: bool) -> int:
        """Returns the wall clock. It stands still until the next call inside, unless ``exact``.

        Raises: DrawnBeside: another coroutine or thread asks.
        """
        if not self.is_in_strand():
            raise DrawnBeside(CLOCK)
        if exact or not self._instant_ns:
            found = self.call(CLOCK, b"", lambda _key: self._call.port.now_ns())
            assert isinstance(found, int), found
            self._instant_ns, self._began_ns = found, self._call.port.now_ns()
        return self._instant_ns

    def passing_ns(self) -> int:
        """Returns the wall clock, which goes on from ``instant_ns``: a repetition reads about the same. In another
        coroutine or thread it is not recorded."""
        if not self.is_in_strand():
            return self._call.port.now_ns()
        instant_ns = self.instant_ns(False)
        return instant_ns + max(0, self._call.port.now_ns() - self._began_ns)

    def metrics(self, name: str) -> NoReturn:
        """Raises: MetricInCall: a repetition would count again."""
        raise MetricInCall(name)

    def seed(self) -> bytes:
        """Returns the seed of this call, the same in each repetition."""
        return blake2b(self._call.key.encode(), digest_size=SEED_BYTES, person=b"seed").digest()

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
        inside = self.begin(service, request, effect)
        known = self.known(inside)
        if known is None:
            is_new = not effect or self.announce(inside)
            act = perform if is_new else in_doubt
            if act is None:
                outcome = encode_outcome(service, CallInDoubt(service, inside.key))
            else:
                outcome = outcome_of(service, act, inside.key, self._call.account)
            known = self.end(inside, outcome, is_new)
        return decode_outcome(known)

    # ------------------------------------------------------------------ the steps of a call

    def begin(self, service: str, request: bytes, effect: bool) -> Inside:
        """Returns the names of the next call inside with this request. Raises: CallLeftBehind, EffectUndeclared."""
        if self.is_over:
            raise CallLeftBehind(service)
        if effect and not self._call.has_effects:
            raise EffectUndeclared("a step", service)
        digest = request_digest(service, request)
        occurrence = next(self._asked.setdefault(digest, count()))  # both are atomic: several threads may ask at once
        part = _named(digest, b"%d" % occurrence)
        if effect:
            self._call.asked_for.add(part)
            self.asked_for.add(part)
        return Inside(service, asked_of(service, digest), part, idempotency_key(self._call.key, "part", part))

    def known(self, inside: Inside) -> bytes | None:
        """Returns the outcome that the log has, None if it has none. Raises: CallLeftBehind."""
        parts = self._call.parts
        names = (self._failed(inside), self._still_in_doubt(inside), inside.part)
        known = next((found for name in names if (found := parts.get(name)) is not None), None)
        cancelled = parts.get(CANCELLED)
        if cancelled is not None and inside.service != CLOCK and not self._is_cancelled:
            if known is None and inside.part not in self._call.announced:
                known = self._call.add(inside, self._failed(inside), cancelled)
            self._is_cancelled = known == cancelled
        if known is None:
            self._call.ask_new(inside)
        elif inside.service != CLOCK:
            self._instant_ns = 0
        return known

    def announce(self, inside: Inside) -> bool:
        """Announces a call with an effect, and waits until the keepers know of it.

        Returns False if it is in doubt: it was announced before, and nobody knows whether it took place.

        Raises: CallLeftBehind.
        """
        if self.is_over:
            raise CallLeftBehind(inside.service)
        name = _named(inside.part, b"intent %d" % self._number)
        first = self._call.announced.setdefault(inside.part, name)  # atomic: of two attempts one announces
        if first is not name:
            self._call.add_again(inside, first)
            return False
        content = _INTENT + inside.part + self._failed(inside) + inside.service.encode()
        self._call.add(inside, name, content, waits=True)
        return True

    def end(self, inside: Inside, outcome: bytes, is_new: bool) -> bytes:
        """Logs the outcome of a call inside, and returns the outcome that counts: the first.

        ``is_new``: the call was made, and not resolved because it was in doubt. Otherwise an exception settles nothing.
        """
        if is_value(outcome):
            name = inside.part
        else:
            name = self._failed(inside) if is_new else self._still_in_doubt(inside)
        found = self._call.add(inside, name, outcome)
        if is_new or name == inside.part:
            self._call.announced.pop(inside.part, None)
        self._instant_ns = 0
        return found

    def _failed(self, inside: Inside) -> bytes:
        """Returns the name of the outcome in this attempt, if that is an exception."""
        return _named(inside.part, b"failed %d" % self._number)

    def _still_in_doubt(self, inside: Inside) -> bytes:
        """Returns the name of the exception that this attempt has got for a call in doubt."""
        return _named(inside.part, b"unsettled %d" % self._number)


def _named(name: bytes, more: bytes) -> bytes:
    return blake2b(name + more, digest_size=PART_BYTES).digest()
