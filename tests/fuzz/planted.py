"""Targets with planted faults that the fuzzer has to find: ``python -m tests.fuzz.planted``."""

from __future__ import annotations

import os
from random import Random

from tests.fuzz import engine
from tests.fuzz.target import Several, Target
from tests.fuzz.workers import MEMORY_BYTES_MAX, fuzz

INPUTS = 300


class Declared(Exception):
    """May be raised."""


def targets() -> list[Target]:
    """One target for each kind of fault, and one without a fault."""
    engine.SECONDS_MAX = 0.5  # type: ignore[misc]
    return [
        Target("good", _byte, _refuse, (Declared,), share=4),
        Target("several", _byte, lambda data: Several(2), (), share=4),
        Target("raises", _byte, _raise, (Declared,)),
        Target("claims", _byte, _received_up_to, ()),
        Target("hangs", _byte, _hang, ()),
        Target("dies", _byte, _die, ()),
    ]


def _byte(random: Random) -> bytes:
    return random.randbytes(1)


def _refuse(data: bytes) -> None:
    if data[0] % 2:
        raise Declared


def _raise(data: bytes) -> None:
    if data[0] > 200:
        raise KeyError(data)


def _received_up_to(data: bytes) -> None:
    if data[0] > 200:
        bytes(2 * MEMORY_BYTES_MAX)


def _hang(data: bytes) -> None:
    while data[0] > 240:
        pass


def _die(data: bytes) -> None:
    if data[0] > 220:
        os.abort()


def main() -> None:
    """Prints each kind of finding, and the verdict."""
    tally = fuzz(targets, INPUTS, 1, 2, lambda tally: None)
    for found in sorted(tally.found.values(), key=lambda found: found.target):
        print(found.target, found.error, found.place.partition(":")[0])
    print(tally.verdict)


if __name__ == "__main__":
    main()
