"""Errors of the decoder, and the type of object names that come from peers (protocol 4)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions that a decoder of msgspec raises for wrong bytes. Each caller turns them into an error of its own."""

ObjectName = Annotated[
    str, msgspec.Meta(max_length=1024, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*\Z")
]
"""Name of an object in the checkpoint store: a path below the store's root without hidden parts or ``..``."""
