"""Random generators of an epoch, derived from its seed: one per kind and name, created on first use.

Generators are reseeded at each epoch, so no snapshot has their state, and a replay, which begins at an epoch, draws the
same numbers. A generator must not be kept beyond its epoch: ``random.RandomStream`` and the numpy generator look it up
at each use.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from clonos.core.model.errors import JobError
from clonos.core.ports.recorder import Recorder

NAMES_PER_EPOCH_MAX: Final = 100_000

Source = TypeVar("Source")


class TooManyStreams(JobError):
    """A task uses more than 100,000 named streams within one epoch."""

    name: str
    limit: int

    def __str__(self) -> str:
        return (
            f"the stream {self.name!r} exceeds the limit of {self.limit} named streams that a task may use between two"
            " checkpoints. Use one name per purpose, not one per record."
        )


class ReseedRefused(JobError):
    """User code in a job tries to set the state of a stream, which each epoch reseeds."""

    method: str

    def __str__(self) -> str:
        return (
            f"{self.method} is refused in a job, because each epoch seeds the causal streams, and this state would be"
            " lost at the next epoch. Use random.stream(name) for a separate stream, or random.Random(seed) of the"
            " standard library, within one call of a function, for fixed numbers."
        )


class _EpochRng:
    __slots__ = ("epoch", "seed", "sources")

    def __init__(self, epoch: int, seed: bytes) -> None:
        self.epoch = epoch
        self.seed = seed
        self.sources: dict[tuple[str, str], object] = {}


_rng_of: WeakKeyDictionary[Recorder, _EpochRng] = WeakKeyDictionary()


def source_of(
    recorder: Recorder,
    kind: str,
    name: str,
    make: Callable[[int], Source],
    *,
    names_max: int = NAMES_PER_EPOCH_MAX,
) -> Source:
    """Returns the recorder's generator of this kind and name in the current epoch; creates it by ``make(seed)`` on
    first use.

    Raises: TooManyStreams when the epoch has 100,000 generators already.
    """
    rng = _rng_of.get(recorder)
    if rng is None or rng.epoch != recorder.epoch:
        rng = _rng_of[recorder] = _EpochRng(recorder.epoch, recorder.seed())
    source = rng.sources.get((kind, name))
    if source is None:
        if len(rng.sources) >= names_max:
            raise TooManyStreams(name, names_max)
        source = rng.sources[kind, name] = make(derived_seed(rng.seed, kind, name))
    return source  # type: ignore[return-value]  # a kind has one ``make``


def derived_seed(epoch_seed: bytes, kind: str, name: str) -> int:
    """Returns a seed of 256 bits, independent for each kind and name."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=32, key=epoch_seed, person=kind.encode())
    return int.from_bytes(digest.digest(), "big")
