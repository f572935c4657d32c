"""Entropy of the operating system: seeds of epochs, identities, and the services outside a job."""

from __future__ import annotations

import os
import random
import uuid
from typing import Any


def random_bytes(count: int) -> bytes:
    """Returns random bytes of the operating system, fit for secrets."""
    return os.urandom(count)


def random_hash_seed() -> str:
    """Returns a random value of PYTHONHASHSEED, 1 to 2**32 - 1: 0 would disable hash randomization."""
    return str(1 + int.from_bytes(os.urandom(8), "little") % 0xFFFF_FFFF)


def random_uuid() -> uuid.UUID:
    """Returns a version 4 UUID of the operating system."""
    return uuid.uuid4()


def stdlib_random() -> random.Random:
    """Returns the generator behind the functions of the module ``random``.

    So a unit test that calls ``random.seed(7)`` also seeds what its functions take from the services.
    """
    shared: Any = vars(random)["_inst"]  # the functions themselves may be intercepted
    assert isinstance(shared, random.Random)
    return shared
