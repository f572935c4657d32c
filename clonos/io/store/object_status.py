"""Status of an object or a file of a store, by which its versions are told apart."""

from __future__ import annotations

from typing import NamedTuple


class ObjectReplaced(OSError):
    """An object is not the version that the reader has opened."""


class ObjectStatus(NamedTuple):
    """Size and version of an object. ``modified_ns`` is its time; ``e_tag`` names its content, "" if unknown."""

    size_bytes: int
    modified_ns: int
    e_tag: str


class HadoopStatus(NamedTuple):
    """Status of a file or a folder. ``modified_ms``: in milliseconds since the Unix epoch."""

    is_folder: bool
    size_bytes: int
    modified_ms: int
