"""Error classes of the library: the class says whose fault an error is, the message says what, where and what to do.

An error declares its fields as a dataclass does and writes ``__str__``:

    class PortTaken(EnvironmentFault):
        port: int

        def __str__(self) -> str:
            return f"port {self.port} is taken: choose another one."

All fields are passed to ``Exception``, so that an error survives pickling on its way from an executor.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from inspect import Parameter, Signature, get_annotations
from typing import Any, ClassVar, Final, dataclass_transform

from clonos.core.model.code_location import user_frames


class Blame(StrEnum):
    """Party at fault for an error."""

    JOB = "job"  # the user's code, options, plan or input
    PEER = "peer"  # another process, which broke the protocol
    ENVIRONMENT = "environment"  # machine, disk, network, store or installation
    LIBRARY = "library"


LINES_MAX: Final = 12
"""Lines of a short report."""

_ANYHOW = Parameter.POSITIONAL_OR_KEYWORD


@dataclass_transform(eq_default=False)
class ClonosError(Exception):
    """Base of every error that this library raises on purpose."""

    blame: ClassVar[Blame] = Blame.LIBRARY
    _fields: ClassVar[Signature] = Signature()  # fields of the base classes first

    def __init__(self, text: str) -> None:
        super().__init__(text)

    def __init_subclass__(cls) -> None:
        names = [name for name, kind in get_annotations(cls).items() if not str(kind).startswith("ClassVar")]
        if names and "__init__" not in cls.__dict__:
            own = [Parameter(n, _ANYHOW, default=cls.__dict__.get(n, Parameter.empty)) for n in names]
            cls._fields = Signature([*cls._fields.parameters.values(), *own])
            setattr(cls, "__init__", _take_fields)  # noqa: B010  to mypy it is that of a dataclass

    def _render_traceback_(self) -> list[str]:
        """Returns what a notebook shows: IPython calls this method."""
        return short_report(self).splitlines()


def _take_fields(self: ClonosError, *values: Any, **named: Any) -> None:
    given = self._fields.bind(*values, **named)
    given.apply_defaults()
    Exception.__init__(self, *given.arguments.values())
    self.__dict__.update(given.arguments)


class JobError(ClonosError):
    """Error of the user's job: its code, options, plan or input."""

    blame = Blame.JOB


class PeerError(ClonosError):
    """Error of another process, which sent a message or bytes that break the protocol."""

    blame = Blame.PEER


class EnvironmentFault(ClonosError):
    """Error of the environment: machine, disk, network, store or installation."""

    blame = Blame.ENVIRONMENT


class LastingFault(EnvironmentFault):
    """Base of errors of the environment that another try would meet again. The job ends at once."""


class ProducerGivenUp(LastingFault):
    """Base of errors of a connection that was tried for as long as its own options permit. The job ends at once."""


class ExtraMissing(EnvironmentFault):
    """Error for a feature whose libraries are not installed.

    ``extra`` is the name of the pip extra that installs them.
    """

    what: str
    module: str
    extra: str

    def __str__(self) -> str:
        return f"{self.what} needs {self.module}, which is not installed: pip install 'clonos[{self.extra}]'."


@contextmanager
def needing_extra(what: str, extra: str) -> Iterator[None]:
    """Context that imports what needs the libraries of an extra. Raises: ExtraMissing: one is not installed."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("clonos"):
            raise
        raise ExtraMissing(what, missing.name.partition(".")[0], extra) from None


class InternalError(ClonosError):
    """Bug of this library. Users should report it with the whole message."""


class ExitCalled(JobError):
    """User code has tried to end the process of its task. ``call`` is how."""

    call: str

    def __str__(self) -> str:
        return (
            f"{self.call} was called in a step, and a step cannot end the process of its task."
            " Raise an exception to fail the job; return to go on with the next record."
        )


class Divergence(JobError):
    """Base of the errors for a replay that differs from the first execution. Another replay would differ too."""


class ReplayDiverged(Divergence):
    """Error for user code that, in replay, asked for something else than the log has at this place.

    ``position``: offset in bytes. ``logged``, ``asked``: what was asked first, and in the replay. ``cause``: the likely
    cause.
    """

    task: str
    position: int
    logged: str
    asked: str
    cause: str = "the step is not a function of its input and the causal services"

    def name_cause(self, cause: str) -> None:
        """Replaces the likely cause."""
        self.cause = cause
        self.args = (*self.args[:4], cause)

    def __str__(self) -> str:
        return (
            f"task {self.task} does not repeat itself at byte {self.position} of its causal log."
            f" Before its failure it asked for {self.logged}; its replay asks for {self.asked}."
            f"\nLikely cause: {self.cause}."
            "\nTake time, randomness and data from the services of clonos, keep variables as state, sort sets; clonos"
            " check finds most such lines (docs/determinism.md). Then go on from the last checkpoint with --resume."
        )


class LogDiverged(InternalError):
    """Error for two copies of one causal log that differ where they overlap."""

    log: str
    offset_bytes: int

    def __str__(self) -> str:
        return (
            f"two copies of {self.log} differ at byte {self.offset_bytes}."
            " Two lives of a task wrote to one log: this is a bug of the runtime, please report it."
        )


class MessageMalformed(PeerError):
    """Error for bytes from a peer that are no valid message of this protocol."""

    peer: str
    reason: str

    def __str__(self) -> str:
        return f"a message from {self.peer} is malformed: {self.reason}. The connection is dropped and opened anew."


class LogMalformed(PeerError):
    """Error for bytes of a causal log that are no valid determinants."""

    position: int
    reason: str

    def __str__(self) -> str:
        return f"a causal log is malformed at byte {self.position}: {self.reason}."


SHORTAGE_ADVICE: Final = (
    "The process lacks memory, open files or threads: raise the limit (ulimit, or that of the container), or give the"
    " job smaller state or fewer processes."
)
NO_THREAD: Final = "can't start new thread"
SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
CAUSES_MAX: Final = 16


def is_shortage(error: BaseException) -> bool:
    """Returns whether an error, or its cause, is that the process lacks memory, files or threads.

    Another process may have them.
    """
    found: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if found is None:
            return False
        if isinstance(found, MemoryError) or (isinstance(found, OSError) and found.errno in SHORTAGES):
            return True
        if isinstance(found, RuntimeError) and str(found) == NO_THREAD:
            return True
        found = found.__cause__ or found.__context__
    return False


def blame_of(error: BaseException) -> Blame:
    """Returns the party at fault for an error.

    Errors of other libraries count as the job's, because user code raised them.
    """
    return error.blame if isinstance(error, ClonosError) else Blame.JOB


def lasts(error: BaseException) -> bool:
    """Returns whether another try would meet an error again: its class says so, or puts the fault not on the
    environment but on the job, a peer or the library."""
    if isinstance(error, EnvironmentFault):
        return isinstance(error, LastingFault)
    return isinstance(error, ClonosError)


def short_report(error: ClonosError, verbose_by: str = "") -> str:
    """Returns the message of an error and the frames of user code that it passed, in at most 12 lines.

    ``verbose_by``: what shows the rest. The message of a bug of this library is returned whole, to be reported.
    """
    if isinstance(error, InternalError):
        return str(error)
    lines = str(error).splitlines()
    if not getattr(error, "details", ""):  # those of a failed task are in its message
        lines += user_frames(error).splitlines()
    hint = [f"({verbose_by} shows the whole traceback)"] if verbose_by and _has_more(error) else []
    room = LINES_MAX - len(hint)
    if len(lines) > room:
        last = lines[len(lines) - getattr(error, "last_lines", 0) :]  # those that say what to do next
        room -= len(last) + 1
        lines = [*lines[:room], f"({len(lines) - room - len(last)} more lines)", *last]
    return "\n".join([*lines, *hint])


def full_report(error: ClonosError) -> str:
    """Returns the message of an error with everything that is known about it."""
    details = getattr(error, "details", "")
    if details:
        return f"{error}\n{details}"
    return f"{error}\n{''.join(traceback.format_exception(error))}"


def _has_more(error: ClonosError) -> bool:
    return bool(getattr(error, "details", "")) or error.__cause__ is not None
