"""Soak: runs one job for a long time, with periodic kills and network faults between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from statistics import median, quantiles
from typing import Any, Final

from clonos_chaos.scenario.run_record import RunRecord
from clonos_chaos.scenario.scenario import FaultKind, FaultSpec, FaultTrigger, Scenario, ScenarioLimits
from clonos_chaos.scenario.scenario_job import SHIPPED

PER_SECOND: Final = 30.0
"""Record rate of the shipped job. Its oracle holds all records in memory at the end."""

START_S: Final = 5.0
END_S: Final = 180.0
"""Time that a run may take after its last fault."""

NETWORK_FAULTS: Final = (
    {"kind": FaultKind.RESET, "lasts_ms": 200},
    {"kind": FaultKind.DELAY, "lasts_ms": 3_000, "latency_ms": 80, "jitter_ms": 40},
    {"kind": FaultKind.CUT, "lasts_ms": 1_000},
    {"kind": FaultKind.SLICE, "lasts_ms": 2_000, "piece_bytes": 64},
    {"kind": FaultKind.HALF_OPEN, "lasts_ms": 1_000},
    {"kind": FaultKind.THROTTLE, "lasts_ms": 2_000, "bytes_per_second": 50_000},
)
"""Network faults in turn, each halfway between two kills."""

RECOVERY_MS: Final = 60_000
"""Recovery limit: a kill may come while a connection is cut."""


@dataclass(frozen=True, slots=True)
class Soak:
    """Options of the command line. ``oracle``: judges a user's job."""

    job: str = "described"
    minutes: float = 60.0
    kill_every_s: float = 20.0
    has_network_faults: bool = True
    oracle: str = ""
    per_second: float = PER_SECOND


def scenario_of(soak: Soak) -> Scenario:
    """Returns the soak as a scenario. A user's job is stopped after ``minutes``."""
    seconds = soak.minutes * 60
    is_shipped = soak.job in SHIPPED
    records = int(soak.per_second * (seconds + END_S))
    options: dict[str, Any] = {"records": records, "per_second": soak.per_second} if is_shipped else {}
    return Scenario(
        name=f"soak of {soak.minutes:g} minutes",
        job=soak.job,
        about=f"A process is killed every {soak.kill_every_s:g} s"
        + (", with a network fault halfway between two kills." if soak.has_network_faults else "."),
        oracle=soak.oracle,
        options={"checkpoint_every": "2s", "step_records_max": 64},
        job_options=options,
        faults=tuple(_faults(soak, seconds)),
        limits=ScenarioLimits(
            seconds=seconds + END_S, recovery_ms=RECOVERY_MS, stop_after=0.0 if is_shipped else seconds
        ),
    )


def _faults(soak: Soak, seconds: float) -> Iterator[FaultSpec]:
    network_faults = cycle(NETWORK_FAULTS)
    at_s = START_S
    while at_s < seconds:
        yield FaultSpec(FaultKind.KILL_WORKER, FaultTrigger(seconds=at_s))
        if soak.has_network_faults:
            yield FaultSpec(at=FaultTrigger(seconds=at_s + soak.kill_every_s / 2), **next(network_faults))  # type: ignore[arg-type]
        at_s += soak.kill_every_s


def figures(record: RunRecord) -> list[str]:
    """Formats the run in a few lines."""
    times_ms = sorted(time for time in record.recovery_ms().values() if time >= 0)
    kills = sum(injection.kind == FaultKind.KILL_WORKER for injection in record.injections)
    lines = [f"{kills} kills, {len(record.injections) - kills} network faults, {record.checkpoints} checkpoints"]
    if len(times_ms) > 1:
        slow_ms = quantiles(times_ms, n=20)[-1]
        lines.append(
            f"{len(times_ms)} recoveries: median {median(times_ms):.0f} ms, 95 % within {slow_ms:.0f} ms,"
            f" slowest {times_ms[-1]:.0f} ms"
        )
    if record.findings is not None:
        found = record.findings
        lines.append(
            f"{found.records:,} records: {found.lost} lost, {found.duplicated} duplicated, {found.contradicted}"
            f" contradicted; {found.calls:,} calls, {found.calls_repeated} repeated, {found.calls_needless} needlessly"
        )
    return lines
