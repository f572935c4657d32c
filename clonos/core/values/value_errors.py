"""Errors of values: unsupported type, exceeded limit, malformed bytes, class that cannot be registered."""

from __future__ import annotations

import re
from typing import Final

from clonos.core.model.errors import JobError, PeerError

ROW: Final = re.compile(r"^rows\[\d+\]")
"""Beginning of the path to a part of a batch. Messages leave the row's number out, because they show the record."""


class ValueUnsupported(JobError):
    """Error for a value of a type that can neither travel between tasks nor be kept in state.

    ``path`` leads from the whole value to the unsupported part: ``value[3].name``, or ``rows[7].name`` in a batch.
    """

    type_name: str
    path: str
    advice: str = ""

    def __str__(self) -> str:
        path = ROW.sub("record", self.path, count=1)
        return f"{path} is a {self.type_name}, which cannot travel between tasks or be kept in state. {self.advice}"


class ValueBeyondLimit(JobError):
    """Error for a value that is larger, longer or deeper than a limit allows."""

    limit: str
    actual: int
    maximum: int
    advice: str = ""

    def __str__(self) -> str:
        advice = self.advice or "Cut it into smaller ones, or keep it elsewhere and send a reference to it."
        return f"{self.limit}: {self.actual}, and the limit is {self.maximum}. {advice}"


class ValueMalformed(PeerError):
    """Error for bytes that are no valid value, batch or key, or that need a class that is not registered here."""

    what: str
    reason: str

    def __str__(self) -> str:
        return (
            f"an encoded {self.what} cannot be read: {self.reason}."
            " Either the bytes are damaged, or the process that wrote them runs other code than this one:"
            " run the same version of the job and of clonos in all its processes."
        )


class RegistrationRefused(JobError):
    """Error for a class that cannot be registered because its objects cannot be rebuilt exactly from their fields."""

    class_name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.class_name} cannot be registered: {self.reason}."
            " Register a dataclass, an enum, a NamedTuple or a msgspec.Struct."
        )
