"""What can be wrong with a value: its type, its size, the bytes that should be one, the class that should carry it."""

from __future__ import annotations

from clonos.core.model.errors import JobError, PeerError


class ValueUnsupported(JobError):
    """The job uses a value of a type that cannot travel between tasks or be kept in state.

    ``path`` leads from the whole value to the part in question: ``value[3].name``.
    """

    type_name: str
    path: str
    advice: str = ""

    def __str__(self) -> str:
        return (
            f"{self.path} is a {self.type_name}, which cannot travel between tasks or be kept in state. {self.advice}"
        )


class ValueBeyondLimit(JobError):
    """A value of the job is larger, longer or deeper than a limit allows."""

    limit: str
    actual: int
    maximum: int
    advice: str = ""

    def __str__(self) -> str:
        advice = self.advice or "Cut it into smaller ones, or keep it elsewhere and send a reference to it."
        return f"{self.limit}: {self.actual}, and at most {self.maximum} is possible. {advice}"


class ValueMalformed(PeerError):
    """Bytes from a peer or a store are no encoded value, batch or key, or need a class that is not registered here."""

    what: str
    reason: str

    def __str__(self) -> str:
        return (
            f"an encoded {self.what} cannot be read: {self.reason}."
            " Either the bytes were damaged, or whoever wrote them runs other code than this process:"
            " let all processes of a job run one version of it and of clonos."
        )


class RegistrationRefused(JobError):
    """A class cannot be registered: its objects cannot be taken apart and put together again exactly."""

    class_name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.class_name} cannot be registered: {self.reason}."
            " What can be: dataclasses, enums, NamedTuples and msgspec.Structs."
        )
