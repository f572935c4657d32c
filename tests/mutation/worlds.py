"""Simulated worlds for one mutant, in this process, until the first one fails: ``python -m tests.mutation.worlds 300``.

Every second one draws its own cluster and mix of faults.
"""

from __future__ import annotations

import sys

from clonos_chaos.swarm.environments import Swarm
from clonos_chaos.swarm.seeds import run_seeds

KINDS = (Swarm(), Swarm(is_mixed=True))


def main(count: int) -> int:
    """1 if a world fails."""
    for number in range(count):
        seed, kind = number // len(KINDS) + 1, KINDS[number % len(KINDS)]
        tally = run_seeds([seed], kind)
        if tally.failures:
            print(f"FAILED world {kind.arguments(seed)}: {tally.failures[0][1][:500]}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
