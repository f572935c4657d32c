"""How slow this machine is, so that no time limit of a test depends on it.

A fixed piece of work is timed once, at the start of a run, and every limit is multiplied by the result. Processes that
a run starts take its result over.
"""

import hashlib
import os
import time
from typing import Final

VARIABLE: Final = "CLONOS_TEST_SLOWNESS"
REFERENCE_S: Final = 0.07
"""What the work takes on the machine for which limits are written: a quiet core of 2024."""
SLOWNESS_MAX: Final = 20.0
ROUNDS: Final = 3


def _work_s() -> float:
    began_s = time.perf_counter()
    counts: dict[bytes, int] = {}
    data = b"clonos"
    for number in range(60_000):
        data = hashlib.blake2b(data, digest_size=8).digest()
        counts[data[:2]] = counts.get(data[:2], 0) + number
    return time.perf_counter() - began_s


def _measured() -> float:
    """The slowest of a few rounds counts: a machine that others use is slow for the tests too."""
    ratio = max(_work_s() for _ in range(ROUNDS)) / REFERENCE_S
    return min(max(1.0, ratio), SLOWNESS_MAX)


SLOWNESS: Final = float(os.environ.get(VARIABLE) or f"{_measured():.1f}")
"""At least 1: limits are never shorter than written."""
os.environ[VARIABLE] = str(SLOWNESS)


def scaled(limit: float) -> float:
    """Returns a time limit, in any unit, that this machine needs for what the reference machine does in ``limit``."""
    return limit * SLOWNESS
