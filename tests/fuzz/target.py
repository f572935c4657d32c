"""Target of the fuzzer: what makes its inputs, what reads them, and which exceptions are allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from tests.fuzz.mutation import mutated_bytes, mutated_json, mutated_msgpack

LEFT_AS_IT_IS: Final = 0.01
"""Of the inputs: a valid sample has to be read too, or the target would be fuzzing nothing."""


class Several(int):
    """Result of ``feed`` for bytes that stand for several inputs: a sequence of messages for each one."""


@dataclass(frozen=True)
class Target:
    """``make`` an input from random numbers; ``feed`` it; whatever it raises besides ``declared`` and
    ``FormatUnknown`` is unexpected.

    ``share``: calls of ``feed`` in proportion to those of other targets; slow ones have few.
    """

    name: str
    make: Callable[[Random], bytes]
    feed: Callable[[bytes], object]
    declared: tuple[type[Exception], ...]
    share: int = 10
    shrink: Callable[[bytes, Callable[[bytes], bool]], bytes] | None = None
    """Makes an input smaller that has raised, as long as it does."""


def folder_of(target: str) -> str:
    """The name of its folder in the corpus."""
    return target.replace(" ", "-")


def of_bytes(
    samples: Sequence[bytes], words: Sequence[bytes] = (), sealed: Callable[[bytes], bytes] = bytes
) -> Callable[[Random], bytes]:
    """Inputs from samples of any format. ``sealed``: puts checksums around what was changed, so that it is read."""
    return partial(_made, mutated=partial(mutated_bytes, others=samples, words=words), samples=samples, sealed=sealed)


def of_msgpack(samples: Sequence[bytes], sealed: Callable[[bytes], bytes] = bytes) -> Callable[[Random], bytes]:
    """Inputs from samples that are msgpack."""
    return partial(_made, mutated=partial(mutated_msgpack, others=samples), samples=samples, sealed=sealed)


def of_json(samples: Sequence[bytes], words: Sequence[bytes] = ()) -> Callable[[Random], bytes]:
    """Inputs from samples that are JSON."""
    return partial(_made, mutated=partial(mutated_json, others=samples, words=words), samples=samples, sealed=bytes)


def _made(
    random: Random,
    mutated: Callable[[Random, bytes], bytes],
    samples: Sequence[bytes],
    sealed: Callable[[bytes], bytes],
) -> bytes:
    sample = random.choice(samples)
    kind = random.random()
    if kind < LEFT_AS_IT_IS:
        return sealed(sample)
    if kind < 0.05 and sealed is not bytes:  # damage that a checksum finds
        return mutated_bytes(random, sealed(sample))
    return sealed(mutated(random, sample))
