"""Shrinks a failing world: fewer faults, then fewer records, as long as it fails with the same signature.

Leaving out a fault does not change the random choices of the others, because each keeps the state that its random
stream had in the whole world. A smaller world is reproduced from its seed, the numbers of its faults and its records.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from clonos.core.model.errors import JobError
from clonos_chaos.sim.environment import WorldFailed
from clonos_chaos.sim.random_faults import DrawnFault, FaultRng
from clonos_chaos.swarm.world import World

TRIES_MAX: Final = 80
SECONDS_MAX: Final = 30.0
SIGNATURE_WORDS_MAX: Final = 8

MakeWorld = Callable[[Mapping[int, FaultRng] | None, int | None], World]
"""(faults to inject, or None for all; most records, or None for all) -> a world that has not run."""

MakeSmaller = Callable[[Mapping[int, FaultRng] | None, int | None], World | None]
"""The same; returns None where such a world would show nothing."""

_BRACKETED = re.compile(r"\([^()]*\)|\[[^][]*\]|\{[^{}]*\}")
_VARIABLE = re.compile(r"b?'[^']*'|b?\"[^\"]*\"|[\w-]+/\d+|0x[0-9a-f]+|\S*\d\S*")


@dataclass(frozen=True)
class Failure:
    """Failure of a world. ``error`` holds the report, and perhaps a cause."""

    world: World
    complaint: str
    error: Exception

    @property
    def signature(self) -> str:
        """Returns the complaint without names and numbers: equal for two worlds that fail for the same reason."""
        text = self.complaint.partition("; ")[0]
        while (shorter := _BRACKETED.sub("", text)) != text:
            text = shorter
        words = _VARIABLE.sub("", text).split()
        return " ".join([type(self.error).__name__, *words[:SIGNATURE_WORDS_MAX]])


@dataclass(frozen=True)
class Shrunk:
    """Smallest failing world that was found. ``faults``: numbers of the injected faults; ``records``: None for all."""

    failure: Failure
    faults: tuple[int, ...]
    records: int | None
    tries: int

    @property
    def injected(self) -> list[tuple[int, DrawnFault]]:
        """Returns the injected faults by number, in order of time."""
        return sorted(self.failure.world.faults.injected.items(), key=lambda item: item[1].at_ns)


def failure_of(world: World) -> Failure | None:
    """Runs a world; returns its failure, or None."""
    try:
        world.run()
    except WorldFailed as error:
        return Failure(world, error.complaint, error)
    except Exception as error:  # noqa: BLE001  a bug inside a machine fails the world as well
        return Failure(world, str(error), error)
    return None


def rng_of_faults(world: World) -> dict[int, FaultRng]:
    """Returns the random state of each fault that was injected into a world."""
    return {number: injected.rng for number, injected in sorted(world.faults.injected.items())}


def chosen(make: MakeWorld, faults: tuple[int, ...] | None, records: int | None) -> World:
    """Returns the smaller world with these faults. Runs the whole world first, because it has their random states.

    Raises JobError: no fault of such a number was injected there.
    """
    if faults is None:
        return make(None, records)
    whole = make(None, None)
    failure_of(whole)
    rngs = rng_of_faults(whole)
    unknown = [number for number in faults if number not in rngs]
    if unknown:
        there_are = ", ".join(map(str, sorted(rngs))) or "none"
        raise JobError(f"no fault {unknown[0]} is injected in the world of seed {whole.seed}; there are: {there_are}.")
    return make({number: rngs[number] for number in faults}, records)


def shrink(make: MakeSmaller, whole: Failure, records: int | None, seconds_max: float = SECONDS_MAX) -> Shrunk:
    """Finds the smallest world that fails as the whole one did. ``records``: its records; None if they are fixed."""
    return _Shrinking(make, whole, seconds_max).run(records)


class _Shrinking:
    def __init__(self, make: MakeSmaller, whole: Failure, seconds_max: float) -> None:
        self._make = make
        self._signature = whole.signature
        self._smallest = whole
        self._rngs = rng_of_faults(whole.world)
        self._tries = 0
        self._until_s = time.monotonic() + seconds_max

    @property
    def _may_try(self) -> bool:
        return self._tries < TRIES_MAX and time.monotonic() < self._until_s

    def run(self, records: int | None) -> Shrunk:
        faults = self._fewer_faults(tuple(self._rngs))
        fewer = None if records is None else self._fewer_records(faults, records)
        return Shrunk(self._smallest, faults, None if fewer == records else fewer, self._tries)

    def _fails(self, faults: tuple[int, ...], records: int | None) -> bool:
        self._tries += 1
        world = self._make({number: self._rngs[number] for number in faults}, records)
        found = None if world is None else failure_of(world)
        if found is None or found.signature != self._signature:
            return False
        self._smallest = found
        return True

    def _fewer_faults(self, faults: tuple[int, ...]) -> tuple[int, ...]:
        if faults and self._may_try and self._fails((), None):
            return ()
        is_smaller = True
        while is_smaller and len(faults) > 1:
            is_smaller = False
            for number in reversed(faults):
                rest = tuple(other for other in faults if other != number)
                if rest and self._may_try and self._fails(rest, None):
                    faults, is_smaller = rest, True
        return faults

    def _fewer_records(self, faults: tuple[int, ...], records: int) -> int:
        step = records // 2
        while step and self._may_try:
            if records > step and self._fails(faults, records - step):
                records -= step
                step = min(step, records // 2)
            else:
                step //= 2
        return records
