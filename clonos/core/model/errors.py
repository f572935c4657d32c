"""Errors of the house: the class says whose fault it is, the message says what, where and what to do.

An error declares its fields as a dataclass does and writes ``__str__``:

    class PortTaken(EnvironmentFault):
        port: int

        def __str__(self) -> str:
            return f"port {self.port} is taken: choose another one."

All fields are handed to ``Exception``, so that an error survives pickling, on its way from an executor.
"""

from __future__ import annotations

from enum import StrEnum
from inspect import Parameter, Signature, get_annotations
from typing import Any, ClassVar, dataclass_transform


class Blame(StrEnum):
    """Whose fault an error is."""

    JOB = "job"  # the user's: code, options, plan or input
    PEER = "peer"  # another process has sent what it must not send
    ENVIRONMENT = "environment"  # a machine, a disk, a network, a store or an installation
    LIBRARY = "library"


_ANYHOW = Parameter.POSITIONAL_OR_KEYWORD


@dataclass_transform(eq_default=False)
class ClonosError(Exception):
    """Anything that this library raises on purpose."""

    blame: ClassVar[Blame] = Blame.LIBRARY
    _fields: ClassVar[Signature] = Signature()  # those of the bases first

    def __init__(self, text: str) -> None:
        super().__init__(text)

    def __init_subclass__(cls) -> None:
        names = [name for name, kind in get_annotations(cls).items() if not str(kind).startswith("ClassVar")]
        if names and "__init__" not in cls.__dict__:
            own = [Parameter(n, _ANYHOW, default=cls.__dict__.get(n, Parameter.empty)) for n in names]
            cls._fields = Signature([*cls._fields.parameters.values(), *own])
            setattr(cls, "__init__", _take_fields)  # noqa: B010  to mypy it is that of a dataclass


def _take_fields(self: ClonosError, *values: Any, **named: Any) -> None:
    given = self._fields.bind(*values, **named)
    given.apply_defaults()
    Exception.__init__(self, *given.arguments.values())
    self.__dict__.update(given.arguments)


class JobError(ClonosError):
    """The user's job is at fault: its code, its options, its plan, its input."""

    blame = Blame.JOB


class PeerError(ClonosError):
    """Another process sent what it must not send."""

    blame = Blame.PEER


class EnvironmentFault(ClonosError):
    """The machine, the disk, the network, the store or an installation is at fault."""

    blame = Blame.ENVIRONMENT


class ExtraMissing(EnvironmentFault):
    """A part of the library was asked for whose libraries are not installed. ``extra``: what pip installs them by."""

    what: str
    module: str
    extra: str

    def __str__(self) -> str:
        return f"{self.what} needs {self.module}, which is not installed: pip install 'clonos[{self.extra}]'."


class InternalError(ClonosError):
    """A bug of this library: please report it, with the whole message."""


class ReplayDiverged(JobError):
    """A replayed operator asked for another kind of determinant than the one it had logged."""

    task: str
    position: int
    logged: str
    asked: str

    def __str__(self) -> str:
        return (
            f"task {self.task} diverged at byte {self.position} of its causal log:"
            f" logged {self.logged}, replay asked for {self.asked}."
            " The operator is nondeterministic outside the causal services:"
            " take its time, randomness and I/O from them (docs/determinism.md lists what is not)."
        )


class LogDiverged(InternalError):
    """Two copies of one causal log differ where they overlap."""

    log: str
    offset_bytes: int

    def __str__(self) -> str:
        return (
            f"two copies of {self.log} differ at byte {self.offset_bytes}."
            " Two incarnations have written one log: this is a bug of the runtime, please report it."
        )


class MessageMalformed(PeerError):
    """Bytes from a peer are no message of this protocol."""

    peer: str
    reason: str

    def __str__(self) -> str:
        return f"a message from {self.peer} is malformed: {self.reason}. The connection is dropped and opened anew."


class LogMalformed(PeerError):
    """Bytes of a causal log are no determinants."""

    position: int
    reason: str

    def __str__(self) -> str:
        return f"a causal log is malformed at byte {self.position}: {self.reason}."


def blame_of(error: BaseException) -> Blame:
    """Whose fault an error is; one that is not the library's comes from the user's code."""
    return error.blame if isinstance(error, ClonosError) else Blame.JOB
