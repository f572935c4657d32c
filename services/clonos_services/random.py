"""Random numbers, with the names of the standard library's module ``random``; equal in every replay.

In a job each task has its own stream, seeded at each epoch; ``stream(name)`` returns independent streams, so that one
use of random numbers does not shift another, and ``numpy(name=...)`` a numpy ``Generator``::

    sampled = words.filter(lambda word: random.random() < 0.5)

Not for secrets. Outside a job these are the standard library's functions, and follow its ``random.seed``. The numbers
of a seed are fixed for one version of Python and of numpy, which is the same in all slots of a job.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from clonos.core.ports.recorder import Recorder, check_confined, current
from clonos.io.system.entropy import stdlib_random
from clonos_services.epoch_rng import ReseedRefused, source_of

if TYPE_CHECKING:
    from numpy.random import Generator

NAME_OF_ALL: Final = ""
"""Name of the stream behind the functions of this module."""

_stdlib: Final = stdlib_random()


class RandomStream(Random):
    """Named stream of pseudo-random numbers for the task and its epoch, usable as a ``random.Random``.

    It may be kept and pickled, because it is only a name: its state belongs to the recorder.
    """

    def __init__(self, name: str) -> None:
        # The state of the base class is unused and not seeded: every method delegates to ``_source``.
        self.name = name
        self._latest: tuple[Callable[[], Recorder | None], int, Random] = (lambda: None, 0, self)

    def random(self) -> float:
        """Returns a float x with 0.0 <= x < 1.0."""
        return self._source().random()

    def seed(self, *seed: object, **named: object) -> None:
        """Seeds the standard library's generator outside a job. Raises: ReseedRefused in a job."""
        self._stdlib_source("seed").seed(*seed, **named)  # type: ignore[arg-type]

    def setstate(self, state: tuple[Any, ...]) -> None:
        """Sets the state of the standard library's generator outside a job. Raises: ReseedRefused in a job."""
        self._stdlib_source("setstate").setstate(state)

    def __reduce__(self) -> tuple[Callable[[str], RandomStream], tuple[str]]:
        return stream, (self.name,)

    def __repr__(self) -> str:
        return f"<random stream {self.name!r}>"

    def _source(self) -> Random:
        recorder = current()
        if recorder is None:
            check_confined("random")
            return _stdlib
        owner, epoch, source = self._latest
        if owner() is recorder and epoch == recorder.epoch:
            return source
        source = source_of(recorder, "random", self.name, Random)
        self._latest = (ref(recorder), recorder.epoch, source)
        return source

    def _stdlib_source(self, method: str) -> Random:
        if current() is not None:
            raise ReseedRefused(f"random.{method}()")
        return _stdlib


def _delegating(name: str) -> Callable[..., object]:
    @functools.wraps(getattr(Random, name))
    def method(self: RandomStream, /, *arguments: object, **named: object) -> object:
        return getattr(self._source(), name)(*arguments, **named)

    return method


# All other public methods, including those of later versions of Python.
for _name in dir(Random):
    if not _name.startswith("_") and _name not in vars(RandomStream) and callable(getattr(Random, _name)):
        setattr(RandomStream, _name, _delegating(_name))


def stream(name: str) -> RandomStream:
    """Returns the stream with this name: independent of other streams, and the same wherever in a task it is
    requested."""
    return RandomStream(name)


def numpy(*, name: str = NAME_OF_ALL) -> Generator:
    """Returns a ``numpy.random.Generator`` for the task and its epoch, independent of the stream with the same name."""
    from clonos_services.numpy_rng import EpochGenerator

    return EpochGenerator(name)


_all: Final = stream(NAME_OF_ALL)

betavariate = _all.betavariate
choice = _all.choice
choices = _all.choices
expovariate = _all.expovariate
gammavariate = _all.gammavariate
gauss = _all.gauss
getrandbits = _all.getrandbits
getstate = _all.getstate
lognormvariate = _all.lognormvariate
normalvariate = _all.normalvariate
paretovariate = _all.paretovariate
randbytes = _all.randbytes
randint = _all.randint
random = _all.random
randrange = _all.randrange
sample = _all.sample
seed = _all.seed
setstate = _all.setstate
shuffle = _all.shuffle
triangular = _all.triangular
uniform = _all.uniform
vonmisesvariate = _all.vonmisesvariate
weibullvariate = _all.weibullvariate


def __getattr__(name: str) -> Any:
    """Returns functions that later versions of Python have added, such as ``binomialvariate``.

    Raises: AttributeError when ``random.Random`` has no such method.
    """
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_all, name)
