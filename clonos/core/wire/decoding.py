"""What bytes may be that are not what a decoder expects, and names in them that lead to files."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder of msgspec raises for wrong bytes; each reader of bytes makes its own error of it."""

ObjectName = Annotated[
    str, msgspec.Meta(max_length=1024, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*\Z")
]
"""Of an object of the checkpoint store: a path below the store's root, no part of which is hidden or leads upwards."""
