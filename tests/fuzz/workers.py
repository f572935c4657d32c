"""Processes that fuzz, so that a crash or a hang costs one of them and is a finding with its seed."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from tests.fuzz.engine import SECONDS_MAX, Found, Tally, input_of, run, schedule_of
from tests.fuzz.target import Target

MEMORY_BYTES_MAX: Final = 3 << 30
"""What inputs may make a process allocate, besides what it has at its start: a claim beyond it is a MemoryError."""

POOL_VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"
"""Arrow's own pools keep address space that is free, which would count."""

REPORT_EVERY_S: Final = 1.0
GRACE_S: Final = 30.0
"""What a process has to end an input that takes too long by itself; then a library hangs."""

Targets = Callable[[], list[Target]]
Report = Callable[[Tally], None]


@dataclass
class Worker:
    """A process. ``left``: inputs that it still has to run, from the one of ``seed`` on each ``step``-th."""

    targets: Targets
    left: int
    seed: int
    step: int
    process: Any = None
    pipe: Any = None
    at: Any = None  # the seed of the input that it runs, and how many it has run
    last: Tally = field(default_factory=Tally)
    collected_s: float = 0.0

    def start(self) -> None:
        """Begins, or goes on after an input that the last process died of."""
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe(duplex=False)
        self.at = context.Array("Q", (self.seed, 0), lock=False)
        arguments = (theirs, self.at, self.targets, self.left, self.seed, self.step)
        self.process = context.Process(target=_work, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.last, self.collected_s = Tally(), time.monotonic()

    def collect(self, total: Tally) -> None:
        """Takes in what the process tells; when it has ended, why."""
        try:
            self.last, is_over = self.pipe.recv()
            self.collected_s = time.monotonic()
            if not is_over:
                return
            self.left = 0
        except EOFError:
            self.process.join()
            self._bury()
        self._end(total)

    def _bury(self) -> None:
        (died_at, inputs), code = self.at, self.process.exitcode
        what = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        target, data = input_of(_schedule(self.targets), died_at)
        self.last.inputs = inputs
        self.last.count(target.name, 1, is_accepted=False)
        self.last.note(Found(target.name, died_at, "Crash", what, f"the process ended with {what}", data))
        self.left -= self.last.inputs
        self.seed = died_at + self.step

    def _end(self, total: Tally) -> None:
        self.process.join()
        self.pipe.close()
        total.add(self.last)
        self.last, self.process = Tally(), None

    def stop(self, total: Tally) -> None:
        """Ends the process, if it runs, and counts what it has reported."""
        if self.process is not None:
            self.process.kill()
            self.left = 0
            self._end(total)

    def kill(self) -> None:
        """Ends the process, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.join()


def fuzz(
    targets: Targets, inputs: int, first_seed: int, processes: int, report: Report, seconds: float | None = None
) -> Tally:
    """Runs ``inputs`` inputs in ``processes`` processes, or as many as ``seconds`` allow. ``report`` hears of the
    progress, about each second."""
    os.environ.setdefault(POOL_VARIABLE, "system")
    total = Tally()
    share = -(-inputs // processes)
    workers = [
        Worker(targets, min(share, inputs - k * share), first_seed + k, processes)
        for k in range(processes)
        if k * share < inputs
    ]
    end_s = time.monotonic() + (seconds if seconds is not None else float("inf"))
    try:
        for worker in workers:
            worker.start()
        while running := [worker for worker in workers if worker.process is not None]:
            ready = wait([worker.pipe for worker in running], timeout=REPORT_EVERY_S)
            for worker in running:
                if worker.pipe in ready:
                    worker.collect(total)
                elif time.monotonic() - worker.collected_s > SECONDS_MAX + GRACE_S:
                    worker.process.kill()  # its pipe ends with it
                if worker.process is None and worker.left > 0:
                    worker.start()
            so_far = Tally()
            for part in (total, *(worker.last for worker in workers)):
                so_far.add(part)
            report(so_far)
            if time.monotonic() > end_s:
                for worker in workers:
                    worker.stop(total)
    finally:
        for worker in workers:
            worker.kill()
    return total


@cache
def _schedule(targets: Targets) -> list[Target]:
    """The mixed targets, made once per process."""
    return schedule_of(targets())


def _work(pipe: Connection, at: Any, targets: Targets, inputs: int, seed: int, step: int) -> None:
    """Runs in a separate process."""
    made = targets()
    limit_memory()
    reported_s, reported = time.monotonic(), 0

    def on_input(seed: int, tally: Tally) -> None:
        nonlocal reported_s, reported
        at[0], at[1] = seed, tally.inputs
        if (now_s := time.monotonic()) - reported_s > REPORT_EVERY_S or len(tally.found) > reported:
            reported_s, reported = now_s, len(tally.found)
            pipe.send((tally, False))

    pipe.send((run(made, inputs, seed, step, on_input), True))


def limit_memory() -> None:
    """Raises MemoryError from now on if this process allocates more than ``MEMORY_BYTES_MAX`` beyond its size."""
    with open("/proc/self/statm", encoding="ascii") as file:
        size_bytes = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size_bytes + MEMORY_BYTES_MAX, resource.RLIM_INFINITY))
