"""Register of the jobs that ``clonos run`` or ``Job.run`` runs, or has run lately, for this user on this machine.

Each run has a file with its record, and a Unix socket for requests beside it. Only this user may enter the folder.
``CLONOS_RUNS`` names another one: runs of tests are in a folder of their own, which the plugin for pytest makes.
A run that has ended leaves its last documents in its record, for a day.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.io.local.local_folder import default_root
from clonos.io.system.process_identity import machine, started_at
from clonos.io.system.wall_clock import wall_ns

FOLDER: Final = "runs"
VARIABLE: Final = "CLONOS_RUNS"
ENDED_RETAINED_S: Final = 24 * 3600
ENDED_RETAINED_MAX: Final = 100


class RegisteredRun(msgspec.Struct, frozen=True):
    """One run. ``born``: start time of its process, which tells it from a later process with its number. ``last``: its
    documents by path, once it has ended."""

    name: str
    job_id: str
    store: str
    folder: str
    pid: int
    machine: str
    born: str
    began_ns: int
    last: dict[str, Any] | None = None

    @property
    def lives(self) -> bool:
        """Whether its process runs, and has not said that the job has ended."""
        return self.last is None and self.machine == machine() and started_at(self.pid) == self.born

    def is_called(self, job: str) -> bool:
        """Returns whether ``job`` is its id, its name or its store."""
        return job in (self.job_id, self.name) or absolute(job) == self.store


def absolute(place: str) -> str:
    """Returns a path as an absolute one, and a URL as it is."""
    return place if "://" in place else os.path.abspath(place)


def folder_of_runs() -> Path:
    """Returns the folder of the records, and creates it if needed. Raises: OSError."""
    folder = Path(os.environ.get(VARIABLE) or default_root() / FOLDER)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def write_record(file: Path, record: RegisteredRun) -> None:
    """Writes a record in place of an earlier one. Raises: OSError."""
    fresh = file.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(record))
    fresh.rename(file)


def read_runs() -> list[tuple[Path, RegisteredRun]]:
    """Returns the records of this user, the latest run first, and removes old ones."""
    found = sorted(_records(folder_of_runs()), key=lambda each: -each[1].began_ns)
    ended = [each for each in found if not each[1].lives]
    for number, (file, _) in enumerate(ended):
        if number >= ENDED_RETAINED_MAX or _age_s(file) > ENDED_RETAINED_S:
            for path in (file, file.with_suffix(".sock")):
                path.unlink(missing_ok=True)
    return [each for each in found if each[0].exists()]


def _records(folder: Path) -> Iterator[tuple[Path, RegisteredRun]]:
    for file in folder.glob("*.json"):
        with suppress(OSError, *DECODE_ERRORS):  # it was removed meanwhile, or is of another version
            yield file, msgspec.json.decode(file.read_bytes(), type=RegisteredRun)


def _age_s(file: Path) -> float:
    with suppress(OSError):
        return wall_ns() / 1e9 - file.stat().st_mtime
    return 0.0


def runs_called(job: str) -> list[tuple[Path, RegisteredRun]]:
    """Returns the runs with this id, name or store: those that run now, else the last run that has ended."""
    found = [each for each in read_runs() if each[1].is_called(job)]
    return [each for each in found if each[1].lives] or found[:1]


def store_called(job: str) -> str | None:
    """Returns the store of the last run with this id or name; None without one."""
    return next((record.store for _, record in read_runs() if job in (record.job_id, record.name)), None)
