"""``python -m benchmarks NAME...``: measures, prints ratios and figures, writes them as data.

No name: everything, in about a quarter of an hour. Each benchmark is a process of its own with a time limit; what it
leaves behind is ended and removed. One that fails is reported at the end, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks import apart
from benchmarks.comparing import PAIRS, PAIRS_QUICK, Session
from benchmarks.peers.running import PEERS

NAMES: Final = (
    *("throughput", "bids", "enrichment", "large_state", "stages", "logging_overhead"),
    *("latency", "failover", "standstill", "footprint", "snapshot", "growth"),
)
LIMIT_MINUTES: Final = 20.0
KILL_MINUTES: Final = 2.0
"""For each of ``--kills``: all cases of failover have so many."""

SIDES: Final = ("bare", *PEERS)


def main() -> int:
    """Runs what was asked for."""
    parser = _parser()
    given = parser.parse_args()
    against = SIDES if given.against == "all" else sides(given.against.split(","))
    names = given.names or NAMES
    for kind, chosen, known in (("benchmark", names, NAMES), ("side", against, SIDES)):
        for name in chosen:
            if name not in known:
                parser.error(f"there is no {kind} {name!r}; there are: {', '.join(known)}")
    pairs = given.pairs or (PAIRS_QUICK if given.quick else PAIRS)
    session = Session(against, pairs, given.quick, kills=given.kills)
    if given.here:
        name = names[0]
        logging.getLogger("clonos").setLevel(logging.ERROR)  # deaths are made on purpose here
        try:
            importlib.import_module(f"benchmarks.{name}").run(session)
        finally:
            if given.json:
                session.write(given.json)  # what was found until it failed too
        return 1 if session.failed else 0
    begun_s = time.monotonic()
    for name in names:
        print(f"\n{name}", flush=True)
        apart.run(session, name, (given.limit_minutes or _limit_minutes(session)) * 60)
        if given.json:
            session.write(given.json)  # after each: what was found is not lost with what comes
    session.say(f"done in {time.monotonic() - begun_s:.0f} s")
    for name, reason in session.failed.items():
        print(f"FAILED {name}: {reason}", flush=True)
    return 1 if session.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--against", default="bare", metavar="SIDE,...", help=f"of {', '.join(SIDES)}, or all")
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help=f"runs of each side (default {PAIRS})")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="of each case of failover (default: a few)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found to this file")
    parser.add_argument("--quick", action="store_true", help="short runs and two pairs: to see whether it works")
    parser.add_argument(
        "--limit-minutes", type=float, default=0.0, metavar="M", help="of one benchmark, after which it is ended"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # one benchmark, in this process
    return parser


def _limit_minutes(session: Session) -> float:
    """Several times what a benchmark needs, however much was asked for."""
    return LIMIT_MINUTES * len(session.against) * max(1.0, session.pairs / PAIRS) + KILL_MINUTES * session.kills


def sides(names: list[str]) -> tuple[str, ...]:
    """``spark`` stands for all its kinds."""
    known = {name: [side for side in SIDES if side == name or side.startswith(f"{name}-")] for name in names}
    return tuple(side for name in names for side in known[name] or [name])


if __name__ == "__main__":
    sys.exit(main())
