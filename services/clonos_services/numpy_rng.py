"""A numpy generator that follows the task and its epoch. Imported only when it is asked for: numpy takes long."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from numpy.random import PCG64, BitGenerator, Generator, default_rng

from clonos.core.ports.recorder import check_outside, current
from clonos_services.epoch_rng import ReseedRefused, source_of

_outside: Generator | None = None


class EpochGenerator(Generator):
    """A ``Generator`` by name: it may be kept, and may travel; every method asks the epoch's own generator.

    Its ``bit_generator`` is the epoch's: never keep that one.
    """

    def __init__(self, name: str) -> None:
        super().__init__(PCG64(0))  # never drawn from
        self.name = name

    @property
    def bit_generator(self) -> BitGenerator:
        """The epoch's; fit for one call."""
        return self._source().bit_generator

    def spawn(self, n_children: int) -> NoReturn:
        """Refused: a child would be kept beyond the epoch. Use names."""
        raise ReseedRefused("numpy(...).spawn()")

    def __reduce__(self) -> Any:
        return EpochGenerator, (self.name,)

    def __repr__(self) -> str:
        return f"<numpy generator {self.name!r}>"

    __str__ = __repr__

    def _source(self) -> Generator:
        recorder = current()
        if recorder is None:
            check_outside("random.numpy()")
            return _outside_generator()
        return source_of(recorder, "numpy", self.name, _generator_from)


def _generator_from(seed: int) -> Generator:
    return Generator(PCG64(seed))


def _outside_generator() -> Generator:
    global _outside
    if _outside is None:
        _outside = default_rng()
    return _outside


def _asking_source(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(Generator, name))
    def method(self: EpochGenerator, /, *arguments: Any, **named: Any) -> Any:
        return getattr(self._source(), name)(*arguments, **named)

    return method


for _name in dir(Generator):
    if not _name.startswith("_") and _name not in vars(EpochGenerator) and callable(getattr(Generator, _name)):
        setattr(EpochGenerator, _name, _asking_source(_name))
