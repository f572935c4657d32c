"""Numpy generator of the task and its epoch. Imported on first use, because numpy takes long to import."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from numpy.random import PCG64, BitGenerator, Generator, default_rng

from clonos.core.ports.recorder import check_confined, current
from clonos_services.epoch_rng import ReseedRefused, source_of

_plain: Generator | None = None


class EpochGenerator(Generator):
    """Named ``Generator``, which may be kept and pickled: every method delegates to the generator of the current epoch.

    Its ``bit_generator`` belongs to the epoch and must not be kept.
    """

    def __init__(self, name: str) -> None:
        super().__init__(PCG64(0))  # its numbers are never used
        self.name = name

    @property
    def bit_generator(self) -> BitGenerator:
        """Bit generator of the current epoch, for one call."""
        return self._source().bit_generator

    def spawn(self, n_children: int) -> NoReturn:
        """Refuses to spawn, because a child would be kept beyond the epoch; use names instead. Raises: ReseedRefused in
        any case."""
        raise ReseedRefused("numpy(...).spawn()")

    def __reduce__(self) -> Any:
        return EpochGenerator, (self.name,)

    def __repr__(self) -> str:
        return f"<numpy generator {self.name!r}>"

    __str__ = __repr__

    def _source(self) -> Generator:
        recorder = current()
        if recorder is None:
            check_confined("random.numpy()")
            return _plain_generator()
        return source_of(recorder, "numpy", self.name, _generator_from)


def _generator_from(seed: int) -> Generator:
    return Generator(PCG64(seed))


def _plain_generator() -> Generator:
    global _plain
    if _plain is None:
        _plain = default_rng()
    return _plain


def _delegating(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(Generator, name))
    def method(self: EpochGenerator, /, *arguments: Any, **named: Any) -> Any:
        return getattr(self._source(), name)(*arguments, **named)

    return method


for _name in dir(Generator):
    if not _name.startswith("_") and _name not in vars(EpochGenerator) and callable(getattr(Generator, _name)):
        setattr(EpochGenerator, _name, _delegating(_name))
