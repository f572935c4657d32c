"""Decoders of JSON for classes, each made once: threads that let msgspec see a class for the first time at once crash.

msgspec builds what it knows of a class at its first use, and other threads see it before it is complete. It ends the
process then, by SIGSEGV.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_lock: Final = Lock()


def decoder_of(shape: type[T]) -> msgspec.json.Decoder[T]:
    """Returns the decoder of a class, of which any thread may ask, as long as all do it here.

    Raises: TypeError: the class has a field that JSON cannot have.
    """
    found = _decoders.get(shape)
    if found is None:
        with _lock:
            found = _decoders.setdefault(shape, msgspec.json.Decoder(shape))
    return found
