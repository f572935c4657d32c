"""Record of one job in the register."""

from __future__ import annotations

import msgspec

from clonos.job.job_status import JobStatus


class Intention(msgspec.Struct, frozen=True, omit_defaults=True):
    """End that a user has asked for and that was accepted. It is in the register before a driver is asked, so that it
    outlasts a crash of the server and of the driver. ``verb``: "stop" or "cancel"."""

    verb: str
    savepoint: str | None = None
    drain: bool = True


class DriverProcess(msgspec.Struct, frozen=True):
    """Process that runs a job. ``started_at``: its start in ticks since the boot, which tells it from a later process
    with its number; ``machine``: the boot and the namespace of processes."""

    pid: int
    started_at: str
    machine: str
    attempt: int


class JobRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job. Times are milliseconds since the Unix epoch.

    ``attempt``: number of the latest driver, counted before it is started. ``failures``: drivers that have been lost
    since the job last completed a checkpoint. ``restarts``: drivers that were started after the first.
    ``recoveries``: of tasks, under the drivers that have ended.
    ``ended_at_ms``, ``driver``: None while there is none. ``stopped``: the job was stopped with a final checkpoint.
    """

    id: str
    name: str
    status: JobStatus
    created_at_ms: int
    target: str  # FILE or FILE:NAME within the folder of the job's files
    options: dict[str, str] = {}
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    attempt: int = 0
    failures: int = 0
    recoveries: int = 0
    checkpoint: int = 0
    generation: int = 0
    error: str | None = None
    stopped: bool = False
    intention: Intention | None = None
    driver: DriverProcess | None = None

    @property
    def restarts(self) -> int:
        """Number of drivers that were started after the first."""
        return max(0, self.attempt - 1)
