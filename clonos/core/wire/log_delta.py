"""Deltas and lengths of logs, which several messages carry (protocol 3)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from clonos.core.model.ids import LogId

COUNT_MAX: Final = (1 << 62) - 1
"""Maximum of a count or an offset. The sum of two fits into 64 bits."""

NUMBER: Final = msgspec.Meta(ge=0, le=COUNT_MAX)

Count = Annotated[int, NUMBER]


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of a causal log or of a journal at an absolute offset, in bytes since the job's start.

    ``restart``: the bytes before ``offset_bytes`` belong to completed checkpoints, so a replica that ends earlier
    begins anew here. Without it, a replica that ends earlier has a gap, which is an error.
    """

    log: LogId
    offset_bytes: Count
    restart: bool
    data: bytes


class Length(msgspec.Struct, frozen=True, array_like=True):
    """End of a replica of a log, as an absolute offset in bytes."""

    log: LogId
    end_bytes: Count
