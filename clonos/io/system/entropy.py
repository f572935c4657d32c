"""Real luck and identity: what seeds an epoch, and what the services give outside a job."""

from __future__ import annotations

import os
import random
import uuid
from typing import Any


def random_bytes(count: int) -> bytes:
    """From the operating system, good enough for secrets."""
    return os.urandom(count)


def random_hash_seed() -> str:
    """A value of PYTHONHASHSEED that nobody can guess. 0 is left out: it would switch the seed off."""
    return str(1 + int.from_bytes(os.urandom(8), "little") % 0xFFFF_FFFF)


def random_uuid() -> uuid.UUID:
    """A version 4 UUID from the operating system."""
    return uuid.uuid4()


def stdlib_random() -> random.Random:
    """The generator behind the functions of the module ``random``.

    So a unit test that says ``random.seed(7)`` seeds what its user functions take from the services, too.
    """
    function: Any = random.random
    shared = function.__self__
    assert isinstance(shared, random.Random)
    return shared
