"""Limits of what a slot may use, and what it means to use more (protocol 4).

Above a soft limit sources pause, a checkpoint is taken, and elements between tasks drain. At a hard limit the job fails
and says so; nothing is lost, because it resumes from its last completed checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.options import Options

SOFT_PERCENT = 80
"""Soft limit in percent of ``inflight_disk_bytes`` and ``log_memory_bytes``, which are the hard limits."""

HEADROOM_BYTES = 64 << 20
"""Bytes of memory that in-flight logs may take beyond ``inflight_memory_bytes`` while the disk fails or falls behind,
because what is on its way when sources pause does not shrink with the budget."""


class BudgetLevel(Enum):
    """How full a budget is."""

    FREE = 0
    SOFT = 1
    HARD = 2


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """Use of one budget, with its limits in bytes."""

    option: str
    what: str
    used_bytes: int
    soft_bytes: int
    hard_bytes: int

    @property
    def level(self) -> BudgetLevel:
        """Level of the budget: free up to the soft limit, soft up to the hard one."""
        if self.used_bytes <= self.soft_bytes:
            return BudgetLevel.FREE
        return BudgetLevel.SOFT if self.used_bytes <= self.hard_bytes else BudgetLevel.HARD

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.used_bytes:,} bytes in use; {self.option} sets the soft limit to {self.soft_bytes:,}"
            f" and the hard limit to {self.hard_bytes:,} bytes"
        )


class LimitExceeded(EnvironmentFault):
    """A slot needs more memory or disk than it may use."""

    use: str
    option: str
    disk_failure: str

    def __str__(self) -> str:
        disk = f" The disk cannot be written: {self.disk_failure}." if self.disk_failure else ""
        return (
            f"{self.use}.{disk} Checkpoints did not free it in time, though sources paused."
            f" Nothing is lost: raise {self.option}, or get a faster store or disk, and start the job with --resume."
        )


class SegmentUnreadable(EnvironmentFault):
    """A piece of an in-flight log cannot be read back from disk."""

    channel: str
    reason: str

    def __str__(self) -> str:
        return (
            f"a segment of the in-flight log of channel {self.channel} cannot be read back: {self.reason}."
            " Its task recovers and makes the elements again; check the disk of the slot's local folder."
        )


def fullest(options: Options, memory_bytes: int, disk_bytes: int, log_bytes: int) -> BudgetUse | None:
    """Returns the fullest of the budgets above a soft limit; None where all are free.

    A slot uses memory and disk for its in-flight logs, and memory for its causal logs and replicas.
    """
    memory_max = options.inflight_memory_bytes
    disk_max, log_max = options.inflight_disk_bytes, options.log_memory_bytes
    disk_soft, log_soft = disk_max * SOFT_PERCENT // 100, log_max * SOFT_PERCENT // 100
    if memory_bytes <= memory_max and disk_bytes <= disk_soft and log_bytes <= log_soft:
        return None
    found = (
        BudgetUse(
            "inflight_memory_bytes",
            "in-flight logs in memory",
            memory_bytes,
            memory_max,
            memory_max + HEADROOM_BYTES,
        ),
        BudgetUse("inflight_disk_bytes", "in-flight logs on disk", disk_bytes, disk_soft, disk_max),
        BudgetUse("log_memory_bytes", "causal logs and replicas", log_bytes, log_soft, log_max),
    )
    above = [use for use in found if use.level is not BudgetLevel.FREE]
    return next((use for use in above if use.level is BudgetLevel.HARD), above[0])
