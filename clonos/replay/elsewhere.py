"""Replays in other processes with other hashes, time zones and folders: they find code that depends on them.

Run as a program it replays the record of its arguments and writes the outcome; user code prints to stderr.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from typing import Final, NamedTuple

from clonos.replay.changed_code import ReplayOutcome, outcome_by_record
from clonos.replay.loading import load_epoch
from clonos.replay.replaying import replay_epoch

TRIES_MAX: Final = 8
"""Processes with other hashes that are tried, until one has another outcome. Two texts of a set have the same order in
all of them once in 256 times."""

TIME_ZONE: Final = "Pacific/Kiritimati"
"""The first one to have a new day."""

TIME_ZONES: Final = (TIME_ZONE, "Pacific/Pago_Pago")
"""The first and the last one to have a new day: one of them has another date than any process has."""


class OtherProcess(NamedTuple):
    """Process with another hash seed, time zone and working folder."""

    hash_seed: str
    time_zone: str

    def __str__(self) -> str:
        return f"PYTHONHASHSEED={self.hash_seed}, TZ={self.time_zone}"


def other_processes(hash_seed: str, tries_max: int = TRIES_MAX) -> list[OtherProcess]:
    """Returns the processes to try. ``hash_seed``: of the record, which none of them has."""
    seeds = [seed for seed in map(str, range(1, tries_max + 2)) if seed != hash_seed][:tries_max]
    return [OtherProcess(seed, TIME_ZONES[number % len(TIME_ZONES)]) for number, seed in enumerate(seeds)]


def outcome_elsewhere(folder: str, other: OtherProcess, allowed: frozenset[str]) -> ReplayOutcome:
    """Returns the outcome in another process.

    Raises: CalledProcessError: it could not begin, and has said why.
    """
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [sys.executable, "-m", __name__, os.path.abspath(folder), *sorted(allowed)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": other.hash_seed, "TZ": other.time_zone, "PYTHONPATH": paths},
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
    kinds = frozenset(allowed)
    outcome = outcome_by_record(epoch, None, kinds, replay_epoch(epoch, allowed=kinds, records_results=True))
    with answers:
        answers.write(pickle.dumps(outcome))


if __name__ == "__main__":
    main()
