"""Restart strategies: whether and when a job whose driver was lost starts again, in the words of Flink.

``clonos run`` and the server share them. In contrast to Flink a completed checkpoint starts the count of failures over,
so a job that runs for months survives more of them than the limit; only ``failure-rate`` looks at time alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from clonos.config import duration_ns
from clonos.core.model.errors import JobError

NANOSECONDS_PER_S: Final = 1e9

FAILURES_REMEMBERED: Final = 1_000
"""Failures whose times are remembered; limit of ``failures`` of ``failure-rate``."""


class RestartStrategy(Protocol):
    """Decision over a job whose driver was lost."""

    def delay_s(self, failures: int, failed_s: Sequence[float]) -> float | None:
        """Returns the seconds until the next start; None to fail the job.

        ``failures``: drivers that were lost since the job last completed a checkpoint, at least 1. ``failed_s``: when
        the last ones were lost, ascending, in seconds of a clock; the last one is the present loss.
        """
        ...


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Restart strategy ``fixed-delay``: at most ``attempts`` restarts, each after ``delay``."""

    attempts: int = 10
    seconds: float = 0.2

    def delay_s(self, failures: int, failed_s: Sequence[float]) -> float | None:
        """Returns the seconds until the next start; None when the limit is reached."""
        return self.seconds if failures <= self.attempts else None


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """Restart strategy ``exponential-delay``: each delay is ``multiplier`` times the one before, up to ``maximum_s``.
    ``attempts``: None for any number."""

    initial_s: float = 1.0
    maximum_s: float = 60.0
    multiplier: float = 2.0
    attempts: int | None = None

    def delay_s(self, failures: int, failed_s: Sequence[float]) -> float | None:
        """Returns the seconds until the next start; None when the limit is reached."""
        if self.attempts is not None and failures > self.attempts:
            return None
        delay_s = self.initial_s
        for _ in range(failures - 1):
            if delay_s >= self.maximum_s:
                break
            delay_s *= self.multiplier
        return min(delay_s, self.maximum_s)


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Restart strategy ``failure-rate``: restarts after ``delay``, unless there were more than ``failures`` in the last
    ``interval_s``."""

    failures: int = 1
    interval_s: float = 60.0
    seconds: float = 1.0

    def delay_s(self, failures: int, failed_s: Sequence[float]) -> float | None:
        """Returns the seconds until the next start; None when there were too many failures."""
        recent = sum(at_s > failed_s[-1] - self.interval_s for at_s in failed_s)
        return self.seconds if recent <= self.failures else None


@dataclass(frozen=True, slots=True)
class NoRestart:
    """Restart strategy ``none``: the first loss fails the job."""

    def delay_s(self, failures: int, failed_s: Sequence[float]) -> float | None:
        """Returns None."""
        assert failures >= 1, "no driver was lost"
        return None


class RestartStrategyInvalid(JobError):
    """A text is no restart strategy."""

    text: str
    problem: str

    def __str__(self) -> str:
        return (
            f"the restart strategy {self.text!r:.200} {self.problem}. Strategies with their settings are"
            " none, fixed-delay:attempts=10,delay=1s, exponential-delay:initial=1s,max=1min,multiplier=2,attempts=20"
            " and failure-rate:failures=3,interval=5min,delay=1s; each setting may be left out."
        )


def _seconds(text: str) -> float:
    return duration_ns(text) / NANOSECONDS_PER_S


def _count(text: str) -> int:
    if not text.isdigit() or int(text) > FAILURES_REMEMBERED:
        raise ValueError(text)
    return int(text)


def _factor(text: str) -> float:
    if not 1.0 <= (found := float(text)) <= 1e6:
        raise ValueError(text)
    return found


Settings = dict[str, tuple[str, Callable[[str], float]]]

_STRATEGIES: Final[dict[str, tuple[Callable[..., RestartStrategy], Settings]]] = {
    "none": (NoRestart, {}),
    "fixed-delay": (FixedDelay, {"attempts": ("attempts", _count), "delay": ("seconds", _seconds)}),
    "exponential-delay": (
        ExponentialDelay,
        {
            "initial": ("initial_s", _seconds),
            "max": ("maximum_s", _seconds),
            "multiplier": ("multiplier", _factor),
            "attempts": ("attempts", _count),
        },
    ),
    "failure-rate": (
        FailureRate,
        {"failures": ("failures", _count), "interval": ("interval_s", _seconds), "delay": ("seconds", _seconds)},
    ),
}

_SHORT: Final = {"fixed": "fixed-delay", "exponential": "exponential-delay", "rate": "failure-rate"}


def restart_strategy(text: str) -> RestartStrategy:
    """Returns the strategy that a text names: ``none``, ``fixed-delay``, ``exponential-delay`` or ``failure-rate``, or
    ``fixed``, ``exponential`` or ``rate`` for short; after a colon its settings, such as ``attempts=10,delay=1s``.

    Raises: RestartStrategyInvalid.
    """
    name, _, rest = text.partition(":")
    name = _SHORT.get(name, name)
    if name not in _STRATEGIES:
        raise RestartStrategyInvalid(text, "is unknown")
    make, known = _STRATEGIES[name]
    given: dict[str, float] = {}
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        if key not in known:
            raise RestartStrategyInvalid(text, f"has no setting {key!r:.100}")
        parameter, parse = known[key]
        try:
            given[parameter] = parse(value)
        except ValueError:
            raise RestartStrategyInvalid(text, f"has the wrong value {value!r:.100} for {key}") from None
    return make(**given)
