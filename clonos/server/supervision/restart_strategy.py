"""Restart strategies: whether and when a lost driver is started again, in the words of Flink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class RestartStrategy(Protocol):
    """Decision over a job whose driver was lost."""

    def delay_s(self, failures: int) -> float | None:
        """Returns the seconds until the next start; None to fail the job. ``failures``: drivers that were lost since
        the job last completed a checkpoint, at least 1."""
        ...


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Restart strategy ``fixed-delay``: at most ``attempts`` restarts, each after ``delay``. A completed checkpoint
    starts the count over, so a job that runs for months survives more than ``attempts`` losses."""

    attempts: int = 10
    seconds: float = 0.2

    def delay_s(self, failures: int) -> float | None:
        """Returns the seconds until the next start; None when the limit is reached."""
        return self.seconds if failures <= self.attempts else None


@dataclass(frozen=True, slots=True)
class NoRestart:
    """Restart strategy ``none``: the first loss fails the job."""

    def delay_s(self, failures: int) -> float | None:
        """Returns None."""
        assert failures >= 1, "no driver was lost"
        return None
