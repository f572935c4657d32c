"""Errors of the house: the class says whose fault it is, the message says what, where and what to do.

Every error hands all its arguments to ``super().__init__``, so that it survives the way from an executor.
"""

from __future__ import annotations


class ClonosError(Exception):
    """Anything that this library raises on purpose."""


class JobError(ClonosError):
    """The user's job is at fault: its code, its options, its plan, its input."""


class PeerError(ClonosError):
    """Another process sent what it must not send."""


class EnvironmentFault(ClonosError):
    """The machine, the disk, the network, the store or an installation is at fault."""


class ExtraMissing(EnvironmentFault):
    """A part of the library was asked for whose libraries are not installed. ``extra``: what pip installs them by."""

    def __init__(self, what: str, module: str, extra: str) -> None:
        super().__init__(what, module, extra)
        self.what = what
        self.module = module
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.what} needs {self.module}, which is not installed: pip install 'clonos[{self.extra}]'."


class InternalError(ClonosError):
    """A bug of this library: please report it, with the whole message."""


class ReplayDiverged(JobError):
    """A replayed operator asked for another kind of determinant than the one it had logged."""

    def __init__(self, task: str, position: int, logged: str, asked: str) -> None:
        super().__init__(task, position, logged, asked)
        self.task = task
        self.position = position
        self.logged = logged
        self.asked = asked

    def __str__(self) -> str:
        return (
            f"task {self.task} diverged at byte {self.position} of its causal log:"
            f" logged {self.logged}, replay asked for {self.asked}."
            " The operator is nondeterministic outside the causal services:"
            " take its time, randomness and I/O from them (docs/determinism.md lists what is not)."
        )


class LogDiverged(InternalError):
    """Two copies of one causal log differ where they overlap."""

    def __init__(self, task: int, offset_bytes: int) -> None:
        super().__init__(task, offset_bytes)
        self.task = task
        self.offset_bytes = offset_bytes

    def __str__(self) -> str:
        return (
            f"two copies of the causal log of task {self.task} differ at byte {self.offset_bytes}."
            " Two incarnations have written one log: this is a bug of the runtime, please report it."
        )


class MessageMalformed(PeerError):
    """Bytes from a peer are no message of this protocol."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason)
        self.peer = peer
        self.reason = reason

    def __str__(self) -> str:
        return f"a message from {self.peer} is malformed: {self.reason}. The connection is dropped and opened anew."


class LogMalformed(PeerError):
    """Bytes of a causal log are no determinants."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"a causal log is malformed at byte {self.position}: {self.reason}."
