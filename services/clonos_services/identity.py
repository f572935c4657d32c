"""Random identities: ``uuid4`` from a causal stream, so that a replay produces the same ones. Not for secrets."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from clonos.core.ports.recorder import check_confined, current
from clonos.io.system.entropy import random_uuid
from clonos_services.random import RandomStream

UUID_BITS: Final = 128

_bits: Final = RandomStream("clonos.uuid4")  # a separate stream, so that uuid4 does not shift other draws


def uuid4() -> UUID:
    """Returns a random UUID, version 4, variant RFC 9562; equal in every replay."""
    if current() is None:
        check_confined("uuid4()")
        return random_uuid()
    return UUID(int=_bits.getrandbits(UUID_BITS), version=4)
