"""Replay in another process with other hashes, another time zone and folder: it finds code that depends on them.

Run as a program it replays the record of its arguments and writes the outcome; user code prints to stderr.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from typing import Final

from clonos.replay.changed_code import ReplayOutcome, outcome_of
from clonos.replay.loading import load_epoch
from clonos.replay.replaying import replay_epoch

HASH_SEEDS: Final = ("1", "2")
TIME_ZONE: Final = "Pacific/Kiritimati"
"""The first one to have a new day."""


def outcome_elsewhere(folder: str, hash_seed: str, allowed: frozenset[str]) -> ReplayOutcome:
    """Returns the outcome in another process. ``hash_seed``: of the record, which the other process does not have.

    Raises: CalledProcessError: it could not begin, and has said why.
    """
    other_seed = HASH_SEEDS[hash_seed == HASH_SEEDS[0]]
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [sys.executable, "-m", __name__, os.path.abspath(folder), *sorted(allowed)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": other_seed, "TZ": TIME_ZONE, "PYTHONPATH": paths},
            cwd=elsewhere,
            check=True,
        )
    outcome: ReplayOutcome = pickle.loads(done.stdout)  # noqa: S301  from a process that was started here
    return outcome


def main() -> None:
    """Runs the program."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    folder, *allowed = sys.argv[1:]
    epoch = load_epoch(folder, trust=True, anyway=True)  # the process that started this one has asked
    outcome = outcome_of(replay_epoch(epoch, allowed=frozenset(allowed), records_results=True))
    with answers:
        answers.write(pickle.dumps(outcome))


if __name__ == "__main__":
    main()
