"""Swarms of simulated worlds: runs seeds, counts the situations reached, prints reports of failing seeds."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import takewhile
from multiprocessing import get_context
from statistics import median

from clonos.io.system.collections_paused import collect_rarely
from clonos_chaos.sim.environment import WorldFailed
from clonos_chaos.sim.rare_situations import SITUATIONS
from clonos_chaos.swarm.environments import Swarm
from clonos_chaos.swarm.failing_seed import seed_report

SEEDS_PER_PORTION = 10
PORTIONS_AHEAD = 4
"""Portions queued per process, so that no process waits for the oldest portion: some worlds are long."""

PLAIN = Swarm()


@dataclass
class SwarmResult:
    """Combined result of several worlds."""

    worlds: int = 0
    rollbacks: int = 0
    views: int = 0
    checkpoints: int = 0
    costs_ms: list[float] = field(default_factory=list)  # of each world that ended well: CPU per 1,000 messages
    reached: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: SwarmResult) -> None:
        """Adds another result."""
        self.worlds += other.worlds
        self.rollbacks += other.rollbacks
        self.views += other.views
        self.checkpoints += other.checkpoints
        self.costs_ms += other.costs_ms
        self.reached.update(other.reached)
        self.failures += other.failures

    def never_reached(self) -> list[str]:
        """Returns the rare situations that none of these worlds reached."""
        return [situation for situation in SITUATIONS if not self.reached[situation]]

    def situations(self) -> str:
        """Formats how often each rare situation was reached."""
        return ", ".join(f"{situation} {self.reached[situation] or 'never'}" for situation in SITUATIONS)

    def line(self) -> str:
        """Formats the counts as one line."""
        cost = f", {median(self.costs_ms):.1f} ms of CPU per 1,000 messages" if self.costs_ms else ""
        return (
            f"{self.worlds} worlds, {len(self.failures)} failures, {self.rollbacks} rollbacks,"
            f" {self.checkpoints} checkpoints, {self.views} views{cost}"
        )


def run_seeds(seeds: Iterable[int], kind: Swarm = PLAIN) -> SwarmResult:
    """Runs worlds sequentially in this process."""
    result = SwarmResult()
    for seed in seeds:
        result.worlds += 1
        began_s = time.process_time()
        try:
            outcome = kind.world(seed).run()
        except WorldFailed as failure:
            result.failures.append((seed, str(failure)))
            continue
        except Exception as error:  # noqa: BLE001  a bug inside a machine fails the world as well
            result.failures.append((seed, f"seed {seed}: {type(error).__name__}: {error}"))
            continue
        result.rollbacks += outcome.rollbacks
        result.views += outcome.views
        result.checkpoints += outcome.checkpoints
        result.costs_ms.append(1e6 * (time.process_time() - began_s) / outcome.delivered)
        result.reached.update(outcome.reached)
    return result


def swarm(
    seeds: range, kind: Swarm = PLAIN, processes: int = 2, is_over: Callable[[], bool] = lambda: False
) -> Iterator[SwarmResult]:
    """Yields results of portions of the seeds, in order, from several processes, until ``is_over``.

    With one process, ``is_over`` is asked after each seed.
    """
    size = 1 if processes == 1 else SEEDS_PER_PORTION
    portions = (seeds[at : at + size] for at in range(0, len(seeds), size))
    begun = takewhile(lambda _: not is_over(), portions)
    if processes == 1:
        yield from (run_seeds(portion, kind) for portion in begun)
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=collect_rarely) as pool:
        waiting: deque[Future[SwarmResult]] = deque()
        for portion in begun:
            waiting.append(pool.submit(run_seeds, portion, kind))
            if len(waiting) > processes * PORTIONS_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            future = waiting.popleft()
            if not (is_over() and future.cancel()):
                yield future.result()


def run(
    seeds: range,
    kind: Swarm = PLAIN,
    processes: int = 2,
    minutes: float | None = None,
    failures_max: int = 3,
) -> int:
    """Runs ``clonos chaos seeds``, for at most ``minutes``; prints failing worlds, shrunk. Returns the exit code."""
    total = SwarmResult()
    began = time.monotonic()
    shown, rate = 0, "0 worlds/s"
    for result in swarm(
        seeds, kind, processes, lambda: minutes is not None and time.monotonic() - began > minutes * 60
    ):
        total.add(result)
        rate = f"{total.worlds / (time.monotonic() - began):.1f} worlds/s"
        print(f"\r{total.line()}, {rate} ", end="", file=sys.stderr, flush=True)
        for seed, report in result.failures:
            if shown < failures_max:
                shown += 1
                print(f"\n\nFAILED: {seed_report(seed, kind, report)}", flush=True)
        if shown >= failures_max:
            break
    print(file=sys.stderr)
    print(f"{total.line()}, {rate}")
    print(f"situations: {total.situations()}")
    others = sorted(set(total.reached) - set(SITUATIONS))
    print("reached: " + ", ".join(f"{name} {total.reached[name]}" for name in others))
    return 1 if total.failures else 0
