"""``python -m benchmarks NAME...``: measures, prints ratios and figures, writes them as data.

No name: everything, in about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.comparing import PAIRS, PAIRS_QUICK, Session
from benchmarks.peers.running import PEERS

NAMES: Final = ("throughput", "stages", "logging_overhead", "latency", "failover", "footprint", "snapshot", "growth")
SIDES: Final = ("bare", *PEERS)


def main() -> int:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--against", default="bare", metavar="SIDE,...", help=f"of {', '.join(SIDES)}, or all")
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help=f"runs of each side (default {PAIRS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found to this file")
    parser.add_argument("--quick", action="store_true", help="short runs and two pairs: to see whether it works")
    given = parser.parse_args()
    against = SIDES if given.against == "all" else _sides(given.against.split(","))
    for kind, chosen, known in (("benchmark", given.names, NAMES), ("side", against, SIDES)):
        for name in chosen:
            if name not in known:
                parser.error(f"there is no {kind} {name!r}; there are: {', '.join(known)}")
    logging.getLogger("clonos").setLevel(logging.ERROR)  # deaths are made on purpose here
    session = Session(against, given.pairs or (PAIRS_QUICK if given.quick else PAIRS), given.quick)
    begun_s = time.monotonic()
    for name in given.names or NAMES:
        print(f"\n{name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").run(session)
        if given.json:
            session.write(given.json)  # after each: what was found is not lost with what comes
    session.say(f"done in {time.monotonic() - begun_s:.0f} s")
    return 0


def _sides(names: list[str]) -> tuple[str, ...]:
    """``spark`` stands for all its kinds."""
    return tuple(side for name in names for side in (SIDES if name == "spark" else (name,)) if side.startswith(name))


if __name__ == "__main__":
    sys.exit(main())
