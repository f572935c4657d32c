"""Feeds inputs to targets and records what they raise. An input follows from its seed alone."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Final

from clonos.core.wire.decoding import FormatUnknown
from tests.fuzz.known import is_known
from tests.fuzz.target import Several, Target

ROOT: Final = Path(__file__).parents[2]
OURS: Final = tuple(f"{ROOT}/{folder}/" for folder in ("clonos", "standby", "services", "chaos"))
SECONDS_MAX: Final = 30.0
"""For one input: longer is a hang."""


class TooLong(BaseException):
    """An input took longer than ``SECONDS_MAX``. No Exception: a decoder must not take it for its own."""


@dataclass(frozen=True)
class Found:
    """An unexpected exception. ``place``: the innermost line of the project; equal findings have equal keys."""

    target: str
    seed: int
    error: str
    place: str
    text: str
    data: bytes

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of a finding: two with the same are counted as one."""
        return self.target, self.error, self.place

    def __str__(self) -> str:
        return f"{self.target}, seed {self.seed}: {self.error} at {self.place}: {self.text}"


@dataclass
class Tally:
    """Result of a run. ``accepted``: calls that raised nothing, by target."""

    inputs: int = 0
    unexpected: int = 0
    known: int = 0
    of_target: dict[str, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    found: dict[tuple[str, str, str], Found] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Takes in what another process has come to."""
        self.inputs += other.inputs
        self.unexpected += other.unexpected
        self.known += other.known
        for mine, theirs in (
            (self.of_target, other.of_target),
            (self.calls, other.calls),
            (self.accepted, other.accepted),
        ):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count
        for key, found in other.found.items():
            self.found.setdefault(key, found)

    def count(self, target: str, inputs: int, is_accepted: bool) -> None:
        """Counts one call of a target."""
        self.inputs += inputs
        self.of_target[target] = self.of_target.get(target, 0) + inputs
        self.calls[target] = self.calls.get(target, 0) + 1
        self.accepted[target] = self.accepted.get(target, 0) + is_accepted

    def note(self, found: Found) -> None:
        """Counts one unexpected exception, unless it is known."""
        if is_known(found.target, found.error, found.place):
            self.known += 1
            return
        self.unexpected += 1
        self.found.setdefault(found.key, found)

    @property
    def verdict(self) -> str:
        """The last line of a run."""
        return f"{self.inputs} inputs, {self.unexpected} unexpected exceptions"


def schedule_of(targets: Sequence[Target]) -> list[Target]:
    """Mixes the targets according to their shares: seed n is an input of the n-th target, modulo their number."""
    schedule = [target for target in targets for _ in range(target.share)]
    Random(1).shuffle(schedule)
    return schedule


def input_of(schedule: Sequence[Target], seed: int) -> tuple[Target, bytes]:
    """The target and the input of a seed."""
    target = schedule[seed % len(schedule)]
    return target, target.make(Random(seed))


def run(
    targets: Sequence[Target],
    inputs: int,
    seed: int,
    step: int = 1,
    on_input: Callable[[int, Tally], None] = lambda seed, tally: None,
) -> Tally:
    """Runs ``inputs`` inputs, from the one of ``seed`` on each ``step``-th. ``on_input`` is told of each before."""
    tally = Tally()
    schedule = schedule_of(targets)
    with time_limits():
        while tally.inputs < inputs:
            on_input(seed, tally)
            target, data = input_of(schedule, seed)
            found = feed(target, data, seed, tally)
            if found is not None:
                tally.note(found)
            seed += step
    return tally


def feed(target: Target, data: bytes, seed: int = -1, tally: Tally | None = None) -> Found | None:
    """Feeds one input to its target; returns the unexpected finding, if any."""
    result: object = None
    is_accepted, found = False, None
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)
    try:
        result = target.feed(data)
        is_accepted = True
    except FormatUnknown:  # of any reader
        pass
    except target.declared:
        pass
    except (Exception, TooLong) as error:  # noqa: BLE001  this is what is looked for
        found = _found(target, seed, error, data)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if tally is not None:
        tally.count(target.name, result if isinstance(result, Several) else 1, is_accepted)
    return found


def _found(target: Target, seed: int, error: BaseException, data: bytes) -> Found:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(OURS)]
    others = [frame for frame in frames if frame.filename != __file__]  # where a time limit is raised
    frame = (ours or others or list(frames))[-1]
    place = f"{frame.filename.removeprefix(f'{ROOT}/')}:{frame.lineno} {frame.name}"
    return Found(target.name, seed, type(error).__name__, place, f"{error}"[:300], data)


@contextmanager
def time_limits() -> Iterator[None]:
    """Within it, an input that takes too long raises ``TooLong`` in this, the main, thread."""
    before: Any = signal.signal(signal.SIGALRM, _end)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _end(_number: int, _frame: FrameType | None) -> None:
    raise TooLong(f"more than {SECONDS_MAX:.0f} s")


def shrunk(target: Target, found: Found) -> Found:
    """Shrinks the input of a finding, if its target can."""
    if target.shrink is None:
        return found

    def fails(data: bytes) -> bool:
        again = feed(target, data)
        return again is not None and again.key == found.key

    with time_limits():
        data = target.shrink(found.data, fails)
    return Found(found.target, found.seed, found.error, found.place, found.text, data)
