"""``python -m benchmarks NAME...``: runs benchmarks, prints ratios and figures, and writes them as data.

Without a name it runs all but those of Nexmark, Kafka and agents, in about a quarter of an hour. Each benchmark runs in
a separate process with a time limit; its leftovers are ended and removed, also on an interrupt. A failed benchmark is
reported at the end, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import isolated_run
from benchmarks.harness.ab_session import PAIRS, PAIRS_QUICK, Session
from benchmarks.nexmark.queries import LEFT_OUT, QUERIES
from benchmarks.peers.running import PEERS
from benchmarks.workloads.failover_cases import TITLES
from benchmarks.workloads.staged_job import Stages

FAILOVER: Final = "failover"
NAMES: Final = (
    *("throughput", "bids", "enrichment", "large_state", "stages", "logging_overhead", "metrics_overhead", "recording"),
    *(
        "watermarks",
        "window_latency",
        "latency",
        FAILOVER,
        "recovery_phases",
        "stalled_consumer",
        "startup",
        "driver_death",
        "footprint",
        "snapshot",
        "choosing",
        "joining",
        "totals",
        "skew",
        "growth",
        "many_tasks",
        "slot_machine",
        "rescaling",
        "self_scaling",
        "columns",
        "frames",
    ),
)
NEXMARK: Final = "nexmark"
NEXMARK_KILLS: Final = "nexmark_kills"
KAFKA: Final = "kafka"
AGENTS: Final = "agents"
WAITING: Final = "waiting_agents"
BY_NAME: Final = (NEXMARK, NEXMARK_KILLS, KAFKA, AGENTS, WAITING)
"""Run by their names only: they take hours against all sides, measure nothing, or need a broker or other engines."""

MODULES: Final = {
    "logging_overhead": "overheads.logging_overhead",
    "metrics_overhead": "overheads.metrics_overhead",
    "recording": "overheads.recording",
    "watermarks": "event_time.watermarks",
    "window_latency": "event_time.window_latency",
    NEXMARK: "nexmark.measure",
    NEXMARK_KILLS: "nexmark.kills",
    KAFKA: "kafka.measure",
    AGENTS: "agents.measure",
    WAITING: "agents.waiting",
    "columns": "columns.measure",
    "frames": "columns.frames",
}
"""Modules of benchmarks that are not in the folder of measures."""

LIMIT_MINUTES: Final = 20.0
KILL_MINUTES: Final = 2.0
"""Time limit per kill of ``--kills``, for all cases of failover."""

SIDES: Final = ("bare", "flink", *PEERS)


class Interrupted(BaseException):
    """A signal ends this process."""


def main() -> int:
    """Runs the selected benchmarks; returns the exit code."""
    parser = _parser()
    given = parser.parse_args()
    against = SIDES if given.against == "all" else sides(given.against.split(","))
    names = given.names or NAMES
    has_queries = bool({NEXMARK, NEXMARK_KILLS} & {*names})
    queries = given.queries.split(",") if given.queries else list(QUERIES) if has_queries else []
    cases = given.cases.split(",") if given.cases else []
    if cases and FAILOVER not in names:
        parser.error(f"--cases selects cases of {FAILOVER}, which does not run: name it, too")
    checked = (
        ("benchmark", names, (*NAMES, *BY_NAME)),
        ("side", against, SIDES),
        ("query", queries, (*QUERIES, *LEFT_OUT)),
        ("case", cases, TITLES),
    )
    for kind, chosen, known in checked:
        for name in chosen:
            if name not in known:
                parser.error(f"there is no {kind} {name!r}; there are: {', '.join(known)}")
    pairs = given.pairs or (PAIRS_QUICK if given.quick else PAIRS)
    session = Session(
        against,
        pairs,
        given.quick,
        kills=given.kills,
        cases=cases,
        queries=queries,
        events=given.events,
        rows=given.rows,
        experiments=given.experiments,
        stages=given.stages,
    )
    if given.json:
        try:
            session.write(given.json)  # fails before anything is measured
        except OSError as error:
            parser.error(f"--json {given.json} cannot be written: {error.strerror}")
    if given.here:
        session.file = given.json
        logging.getLogger("clonos").setLevel(logging.ERROR)  # kills are intended here
        module = MODULES.get(names[0], f"measures.{names[0]}")
        importlib.import_module(f"benchmarks.{module}").run(session)
    else:
        try:
            _measure(session, names, (given.limit_minutes or _limit_minutes(session)) * 60, given.json)
        except Interrupted as interrupted:
            (number,) = interrupted.args
            session.progress(f"interrupted by {signal.Signals(number).name}: the running benchmark was ended")
            return 128 + int(number)
    return 1 if session.failed else 0


def _measure(session: Session, names: Sequence[str], limit_s: float, file: Path | None) -> None:
    """Runs each benchmark in a separate process. Raises Interrupted."""
    for number in isolated_run.ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _interrupt)
    begun_s = time.monotonic()
    for name in names:
        print(f"\n{name}", flush=True)
        try:
            isolated_run.run(session, name, limit_s)
        except Interrupted:
            session.failed[name] = "interrupted"
            raise
        finally:
            if file:
                session.write(file)  # after each benchmark: later failures lose no results
    session.progress(f"done in {time.monotonic() - begun_s:.0f} s")
    for name, reason in session.failed.items():
        print(f"FAILED {name}: {reason}", flush=True)


def _interrupt(number: int, _frame: Any) -> None:
    raise Interrupted(number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: all), {', '.join(BY_NAME)}"
    )
    parser.add_argument(
        "--against",
        default="bare",
        metavar="SIDE,...",
        help=f"of {', '.join(SIDES)}, spark for all of its kinds, or all; throughput has them all, bids, enrichment and"
        " large_state have bare, nexmark bare, flink and spark, others are measured beside their goals",
    )
    count = at_least(1, int)
    parser.add_argument("--pairs", type=count, default=0, metavar="N", help=f"runs of each side (default: {PAIRS})")
    parser.add_argument(
        "--kills", type=count, default=0, metavar="N", help="kills in each case of failover (default: 3)"
    )
    parser.add_argument(
        "--cases", default="", metavar="NAME,...", help=f"cases of failover, of {', '.join(TITLES)} (default: all)"
    )
    parser.add_argument("--queries", default="", metavar="q0,...", help="queries of nexmark (default: all)")
    parser.add_argument("--rows", action="store_true", help="nexmark in rows, with Python functions")
    parser.add_argument("--events", type=count, default=0, metavar="N", help="events of nexmark")
    parser.add_argument(
        "--experiments",
        action="store_true",
        help="nexmark with and without causal logging, and latency over time while tasks are killed, instead",
    )
    parser.add_argument(
        "--stages",
        default=Session.stages,
        type=stages,
        metavar="DEPTH,MB,KIND",
        help="synthetic job of the experiments: its stages, its state, and shuffled or plain (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    parser.add_argument("--quick", action="store_true", help="short runs and two pairs: a smoke test")
    parser.add_argument(
        "--limit-minutes",
        type=at_least(0.01, float),
        default=0.0,
        metavar="M",
        help="time limit of one benchmark",
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # one benchmark, in this process
    return parser


def at_least(lowest: float, number: Callable[[str], float]) -> Callable[[str], float]:
    """Makes the type of an option: a number of at least ``lowest``."""

    def checked(text: str) -> float:
        try:
            value = number(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not value >= lowest:
            raise argparse.ArgumentTypeError(f"{text} is too small: at least {lowest:g} is expected")
        return value

    return checked


def stages(text: str) -> str:
    """Checks the stages of the synthetic job."""
    try:
        Stages.of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _limit_minutes(session: Session) -> float:
    """Returns a time limit of several times what a benchmark needs; queries are counted like benchmarks."""
    jobs = len(session.against) * max(1, len(session.queries))
    return LIMIT_MINUTES * jobs * max(1.0, session.pairs / PAIRS) + KILL_MINUTES * session.kills


def sides(names: list[str]) -> tuple[str, ...]:
    """Expands names of sides: ``spark`` stands for all its kinds."""
    known = {name: [side for side in SIDES if side == name or side.startswith(f"{name}-")] for name in names}
    return tuple(side for name in names for side in known[name] or [name])


if __name__ == "__main__":
    sys.exit(main())
