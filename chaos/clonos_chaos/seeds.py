"""Swarms of simulated worlds: runs seeds, counts what was reached, prints a failing one with its story."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import takewhile
from multiprocessing import get_context

from clonos_chaos.failing_seed import told_of_seed
from clonos_chaos.weather import Swarm
from clonos_chaos.world import WorldFailed

SEEDS_PER_PORTION = 20
PLAIN = Swarm()


@dataclass
class Tally:
    """What a number of worlds came to."""

    worlds: int = 0
    delivered: int = 0
    rollbacks: int = 0
    views: int = 0
    checkpoints: int = 0
    cpu_s: float = 0.0
    reached: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Counts another tally in."""
        self.worlds += other.worlds
        self.delivered += other.delivered
        self.rollbacks += other.rollbacks
        self.views += other.views
        self.checkpoints += other.checkpoints
        self.cpu_s += other.cpu_s
        self.reached.update(other.reached)
        self.failures += other.failures

    def line(self) -> str:
        """One line for people."""
        per_thousand_ms = 1e6 * self.cpu_s / max(1, self.delivered)
        return (
            f"{self.worlds} worlds, {len(self.failures)} failures, {self.rollbacks} rollbacks,"
            f" {self.checkpoints} checkpoints, {self.views} views,"
            f" {per_thousand_ms:.1f} ms of CPU per 1,000 messages"
        )


def run_seeds(seeds: Iterable[int], kind: Swarm = PLAIN) -> Tally:
    """Runs worlds one after another in this process."""
    tally = Tally()
    began = time.process_time()
    for seed in seeds:
        tally.worlds += 1
        try:
            outcome = kind.world(seed).run()
        except WorldFailed as failure:
            tally.failures.append((seed, str(failure)))
            continue
        except Exception as error:  # noqa: BLE001  a bug inside a machine is a failed world like any other
            tally.failures.append((seed, f"seed {seed}: {type(error).__name__}: {error}"))
            continue
        tally.delivered += outcome.delivered
        tally.rollbacks += outcome.rollbacks
        tally.views += outcome.views
        tally.checkpoints += outcome.checkpoints
        tally.reached.update(outcome.reached)
    tally.cpu_s = time.process_time() - began
    return tally


def swarm(
    seeds: range, kind: Swarm = PLAIN, processes: int = 2, is_over: Callable[[], bool] = lambda: False
) -> Iterator[Tally]:
    """Tallies of portions of the seeds, in order, from several processes. Once it is over, no portion is begun."""
    portions = (seeds[at : at + SEEDS_PER_PORTION] for at in range(0, len(seeds), SEEDS_PER_PORTION))
    begun = takewhile(lambda _: not is_over(), portions)
    if processes == 1:
        yield from (run_seeds(portion, kind) for portion in begun)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        waiting: deque[Future[Tally]] = deque()
        for portion in begun:
            waiting.append(pool.submit(run_seeds, portion, kind))
            if len(waiting) > processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def run(
    seeds: range,
    kind: Swarm = PLAIN,
    processes: int = 2,
    minutes: float | None = None,
    failures_max: int = 3,
) -> int:
    """``clonos chaos seeds``: runs worlds, at most for so many minutes; shows failing ones, shrunk. The exit code."""
    total = Tally()
    began = time.monotonic()
    shown = 0
    for tally in swarm(seeds, kind, processes, lambda: minutes is not None and time.monotonic() - began > minutes * 60):
        total.add(tally)
        rate = total.worlds / (time.monotonic() - began)
        print(f"\r{total.line()}, {rate:.0f} worlds/s ", end="", file=sys.stderr, flush=True)
        for seed, story in tally.failures:
            if shown < failures_max:
                shown += 1
                print(f"\n\nFAILED: {told_of_seed(seed, kind, story)}", flush=True)
        if shown >= failures_max:
            break
    print(file=sys.stderr)
    print(total.line())
    print("reached: " + ", ".join(f"{name} {count}" for name, count in sorted(total.reached.items())))
    return 1 if total.failures else 0
