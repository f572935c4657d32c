"""Function of the user that redacts what is written into records of epochs (docs/replay.md)."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple


class RedactedKind(StrEnum):
    """Kind of a value that is about to be written into a record."""

    SOURCE = "source"  # a record as a source gives it
    STEP = "step"  # a record on its way from a step to the task; with its key it is a pair (key, record)
    SERVICE = "service"  # what a call has returned, or the exception that it has raised
    STATE = "state"  # an entry of state as a pair (key, value); the value of a deleted key is None


class RedactedOrigin(NamedTuple):
    """Origin of a value. ``name``: of the source, the sending step, the service or the state, ``STEP/NAME``.

    The name of a service is "" if the program of the job does not know it.
    """

    kind: RedactedKind
    name: str


Redact = Callable[[RedactedOrigin, Any], Any]
"""Returns what is written in place of a value; the value itself if that may be written."""
