"""Errors of decoders, and the type of object names that come from peers (protocol 4)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from clonos.core.model.errors import EnvironmentFault

DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions that a decoder of msgspec raises for wrong bytes. Each caller turns them into an error of its own."""

ObjectName = Annotated[
    str, msgspec.Meta(max_length=1024, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*\Z")
]
"""Name of an object in the checkpoint store: a path below the store's root without hidden parts or ``..``."""


class FormatUnknown(EnvironmentFault):
    """Another version of this library wrote something: each version reads the formats that it writes, and no others."""

    what: str
    found: int
    known: int

    def __str__(self) -> str:
        return (
            f"{self.what} has format {self.found}, and this version of clonos reads format {self.known}:"
            " use the version that wrote it."
        )


def check_format(what: str, found: int, known: int) -> None:
    """Checks that this version writes the format that was found. Raises: FormatUnknown."""
    if found != known:
        raise FormatUnknown(what, found, known)
