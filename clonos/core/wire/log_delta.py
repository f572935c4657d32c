"""Pieces of logs and lengths of copies, as many messages bear them."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from clonos.core.model.ids import LogId

COUNT_MAX: Final = (1 << 62) - 1
"""Of what grows: sums of two are within 64 bits."""

NUMBER: Final = msgspec.Meta(ge=0, le=COUNT_MAX)

Count = Annotated[int, NUMBER]


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of a causal log or of a journal at an absolute offset (bytes since the job's start).

    ``restart``: what lies before ``offset_bytes`` belongs to epochs before a completed checkpoint, so a replica
    that ends earlier begins anew here. Without it, a replica that ends earlier has a gap, which is an error.
    """

    log: LogId
    offset_bytes: Count
    restart: bool
    data: bytes


class Length(msgspec.Struct, frozen=True, array_like=True):
    """End (absolute offset, bytes) of a replica of a log."""

    log: LogId
    end_bytes: Count
