"""Benchmark: a consumer that stalls for a minute under full input: memory and disk of the slots, and the recovery of a
task that is killed right after it."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness.ab_session import Session
from benchmarks.harness.timestamp_sink import TimestampFile, TimestampSink
from benchmarks.measures.footprint import pss_bytes
from benchmarks.workloads import paced, words
from benchmarks.workloads.paced import Pace
from clonos.job import Handle

STALL_S: Final = 60.0
STALL_S_QUICK: Final = 6.0
WARM_S: Final = 4.0
WORDS_BEHIND: Final = 24e6
LOOK_EVERY_S: Final = 0.25
BUDGET_MIB: Final = 4
MB: Final = 1e6
WORD: Final = "stall"


@dataclass(frozen=True, slots=True)
class StalledSink(TimestampSink):
    """Sink that accepts nothing while a marker file exists."""

    def immediate_writer(self) -> TimestampFile:
        """Makes a connection to it."""
        return StalledFile(Path(self.folder))


class StalledFile(TimestampFile):
    """Registered connection that can stall."""

    def write(self, first_number: int, rows: list[tuple[str, int]]) -> int:
        """Appends one entry once the marker file is gone."""
        while (self._folder / WORD).exists():
            time.sleep(0.02)
        return super().write(first_number, rows)


@dataclass
class Most:
    """Peaks of any slot, in bytes."""

    memory: int = 0
    inflight: int = 0
    on_disk: int = 0

    def look(self, handle: Handle) -> None:
        """Samples all slots."""
        status = handle.status()
        for slot in status.slots:
            try:
                self.memory = max(self.memory, pss_bytes(slot.pid))
            except (FileNotFoundError, ProcessLookupError):  # it has ended
                continue
        logs: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for task in status.tasks:
            logs[task.slot][0] += task.counters.get("inflight_memory_bytes", 0)
            logs[task.slot][1] += task.counters.get("inflight_disk_bytes", 0)
        self.inflight = max([self.inflight, *(memory for memory, _ in logs.values())])
        self.on_disk = max([self.on_disk, *(disk for _, disk in logs.values())])


def run(session: Session) -> None:
    """Measures a run, before and during the stall."""
    stall_s = STALL_S_QUICK if session.is_quick else STALL_S
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        folder = Path(name)
        words.prepare(folder)
        pace = Pace(name, 0, int(WORDS_BEHIND / 20), mark_every=100)
        paced.begin_anew(folder)
        options = {**paced.OPTIONS, "inflight_memory": f"{BUDGET_MIB}MiB", "spare_slots": 2}
        session.progress(f"a consumer stalls for {stall_s:g} s, {BUDGET_MIB} MiB for in-flight logs in a slot")
        with paced.paced_job(pace, sink_of=StalledSink).start(
            store=f"{name}/store", overwrite=True, **options
        ) as handle:
            before, during = Most(), Most()
            _watch(handle, before, WARM_S)
            (folder / WORD).touch()
            _watch(handle, during, stall_s)
            checkpoint = handle.status().checkpoint
            (folder / WORD).unlink()
            while handle.status().checkpoint <= checkpoint:
                time.sleep(0.01)
            os.kill(next(task.pid for task in handle.status().tasks if task.name == "count/0"), signal.SIGKILL)
            status = handle.wait(300).status
            paced.written(pace, status)
    for when, most in (("before", before), ("stalled", during)):
        session.figure(f"{when}: memory of a slot (PSS), most", most.memory / MB, "MB")
        goal = f"<= {BUDGET_MIB * 2**20 / MB:.1f}"
        session.figure(f"{when}: in-flight logs in memory, most", most.inflight / MB, "MB of a slot", goal)
        session.figure(f"{when}: in-flight logs on disk, most", most.on_disk / MB, "MB of a slot")
    (recovery,) = [one for one in status.recoveries if one.task == "count/0"]
    instants = recovery.reached
    for milestone, name in (("replayed", "live again"), ("caught_up", "caught up")):
        took_ms = (instants[milestone] - instants["detected"]) / 1e6
        session.figure(f"a kill after it: from detection to {name}", took_ms, "ms")


def _watch(handle: Handle, most: Most, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        most.look(handle)
        time.sleep(LOOK_EVERY_S)
