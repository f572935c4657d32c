"""What an epoch's seed gives: one source of luck for each kind and name, made when it is first asked for.

Luck starts anew with each epoch, so its state is in no snapshot: replay begins at an epoch and draws the same. A source
must therefore never be kept beyond its epoch; ``random.RandomStream`` and the numpy generator ask for it at each use.
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
    """A task uses more named streams within one epoch than its memory shall hold."""

    name: str
    limit: int

    def __str__(self) -> str:
        return (
            f"the stream {self.name!r} would be one more than the {self.limit} that a task may use between two"
            " checkpoints. Use fewer names: one for a purpose, not one for a record."
        )


class ReseedRefused(JobError):
    """User code would set the state of a stream that follows the epochs' seeds."""

    method: str

    def __str__(self) -> str:
        return (
            f"{self.method} is refused in a job: causal streams are seeded by each epoch, and what is set here would be"
            " lost at the next. Use random.stream(name) for a stream of its own, or random.Random(seed) of the"
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
    """The recorder's one source of this kind and name in its current epoch; ``make(seed)`` if it has none yet."""
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
    """256 bits, independent for each kind and name."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=32, key=epoch_seed, person=kind.encode())
    return int.from_bytes(digest.digest(), "big")
