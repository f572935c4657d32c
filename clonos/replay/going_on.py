"""Replay that goes on live where the log ends: stand-ins answer its calls, and the rest of the recorded input follows.

Rules: a call without a stand-in ends the replay and is named. The clock goes on from the last recorded reading by a
millisecond with each look, and random numbers have a fixed seed, so that the same stand-ins give the same results. A
source reads nothing more: it ends after the step that the log left open. Timers that are not due then stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from random import Random
from runpy import run_path
from typing import Any, Final, NoReturn

from clonos.core.log.asked import names_of_services
from clonos.core.model.errors import JobError
from clonos.core.model.ids import ChannelId
from clonos.core.ports.task_port import Command, Finished, PartReported
from clonos.io.http.http_client import HttpRequest
from clonos.replay.epoch import Epoch, figures_of
from clonos.replay.port import RecordedPort
from clonos_services.calls import CallRequest, Perform, watched_by
from clonos_services.stand_ins import StandIns

STEP_NS: Final = 1_000_000
HTTP: Final = "http."
"""Begin of the names of requests."""


@dataclass
class GoneOn:
    """Course of a replay behind the end of the log.

    ``records``, ``results``: how many the task had been given, and had made, at the end of the log. ``answered``: calls
    that stand-ins have answered, by service.
    """

    records: int
    results: int
    answered: Counter[str] = field(default_factory=Counter)


class GoingOnPort(RecordedPort):
    """Port of a replay that goes on. ``gone_on``: None before the end of the log. ``unanswered``: service without a
    stand-in, whose call has ended the replay, "" if none has."""

    def __init__(self, epoch: Epoch, positions: dict[ChannelId, int], stand_ins: StandIns) -> None:
        super().__init__(epoch, positions)
        self.begin: Callable[[], GoneOn] = lambda: GoneOn(0, 0)
        self.gone_on: GoneOn | None = None
        self.unanswered = ""
        self._stand_ins = stand_ins
        self._rng = Random(0)
        self._present_ns = figures_of(epoch).last_ns or super().now_ns() or epoch.head.written_ns

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Routes calls to the stand-ins inside the ``with`` block. The job has been loaded: its services are known."""
        named = self._stand_ins.named
        refused = {name: self._refusing(name) for name in names_of_services() if name not in named}
        services = {**refused, **{name: self._counting(name, act) for name, act in named.items()}}
        with ExitStack() as stack:
            stack.enter_context(StandIns(self._answer, services).answering())
            stack.enter_context(watched_by(self._watch))
            yield

    def _watch(
        self, request: CallRequest, perform: Perform, in_doubt: Perform | None
    ) -> tuple[Perform, Perform | None]:
        service = request.service
        if service in self._stand_ins.named:
            return perform, in_doubt
        if not service.startswith(HTTP) or self._stand_ins.http is None:
            return self._refusing(service), None
        return perform, in_doubt

    def _answer(self, request: HttpRequest) -> Any:
        """Answers a request, also of a call inside an asynchronous call that does not log it, which nothing watches."""
        service, act = f"{HTTP}{request.method.lower()}", self._stand_ins.http
        return (self._refusing(service) if act is None else self._counting(service, act))(request)

    def _counting(self, service: str, act: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(act)
        def counted(*args: Any, **named: Any) -> Any:
            if self.gone_on is not None:
                self.gone_on.answered[service] += 1
            return act(*args, **named)

        return counted

    def _refusing(self, service: str) -> Callable[..., NoReturn]:
        def refuse(*_args: Any, **_named: Any) -> NoReturn:
            self.unanswered = self.unanswered or service
            self.end()

        return refuse

    # ------------------------------------------------------------------ TaskPort

    def go_live(self, positions: dict[ChannelId, int], accepted: str = "") -> None:
        """Lets the task go on, with the input that the log has not taken."""
        if self.ended is not None:
            self.end()
        self.gone_on = self.begin()
        self.deliver_rest()

    def receive(self, until_ns: int | None) -> Command | None:
        """Returns the next command. Raises: RecordEnded: nothing is left of the input."""
        if self.gone_on is not None and self.ended is None and until_ns is not None and until_ns <= self._present_ns:
            return self._commands.popleft() if self._commands else None
        return super().receive(until_ns)

    def now_ns(self) -> int:
        """Returns the time of the snapshot, and behind the end of the log the present of the replay."""
        if self.gone_on is None:
            return super().now_ns()
        self._present_ns += STEP_NS
        return self._present_ns

    def await_replicated(self, log_end_bytes: int) -> None:
        """Does nothing: the record is not replicated."""

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> None:
        """Does nothing."""

    def entropy(self, count: int) -> bytes:
        """Returns bytes of a fixed seed."""
        return self._rng.randbytes(count)

    def perform(self, function: Any, key: str) -> object:
        """Makes a call, which a stand-in answers."""
        return function(key)

    def begin_call(self, number: int, function: Callable[[str], bytes], key: str) -> None:
        """Makes an asynchronous call at once."""
        self._commands.append(Finished(number, function(key)))

    def report_part(self, number: int, asked: int, data: bytes, *, waits: bool) -> bool:
        """Takes a part of an asynchronous call."""
        self._commands.append(PartReported(number, asked, data))
        return True

    def when_replicated(self, log_end_bytes: int, act: Callable[[], None]) -> None:
        """Acts at once."""
        act()


def stand_ins_of(file: str) -> StandIns:
    """Returns the stand-ins of a file of Python: ``services``, a dict of functions by service or its name, and
    ``http``, a function of a request.

    Raises: JobError: the file has neither, or cannot be read.
    """
    try:
        found = run_path(file)
    except OSError as error:
        raise JobError(f"--stand-ins {file}: {error.strerror}.") from error
    services, http = found.get("services", {}), found.get("http")
    is_named = isinstance(services, dict) and all(map(callable, services.values()))
    if not is_named or not (services or callable(http)):
        raise JobError(
            f"--stand-ins {file}: it has no stand-ins. Define services, a dict such as {{'rate': lambda name: 1.5}}, or"
            " http, a function of a request."
        )
    return StandIns(http, services)
