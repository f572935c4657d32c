"""Spare driver of a server: a process that has everything imported before a driver is lost.

A start from nothing spends three quarters of its time on imports. The server keeps one spare driver while it has jobs,
hands it the folder of the next driver, and starts another one when that driver has begun. A spare driver has no job and
no lock, and ends when the server does, because then its standard input ends.

All slots of a job need the hash seed that is in the job's store, and the spare driver starts their fork server before
it knows the job. So a server has one hash seed for all its jobs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from clonos.core.model.errors import EnvironmentFault
from clonos.io.system.entropy import random_hash_seed
from clonos.server.supervision.driver_process import RunningDriver
from clonos.server.supervision.job_folder import JobFolder
from clonos.server.supervision.waiting_driver import Handover

COMMAND: Final = (sys.executable, "-P", "-m", "clonos.server.supervision.driver_main")
REPLACED_AFTER_S: Final = 2.0
"""Seconds after the start of a driver in which no spare one is started: its imports would take that driver's time."""

SEED_FILE: Final = "hash_seed"


class SpareDriver:
    """Spare driver, and the start of drivers. ``hash_seed``: of all slots."""

    def __init__(self, hash_seed: str, command: Sequence[str] = COMMAND) -> None:
        self._hash_seed, self._command = hash_seed, command
        self._due_s: float | None = None
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    def of(cls, folder: Path) -> SpareDriver:
        """Returns the spare driver of the server in a folder, where its hash seed stays."""
        file = folder / SEED_FILE
        if not file.exists():
            new = folder / f".{SEED_FILE}"
            new.touch(0o600)
            new.write_text(random_hash_seed(), "ascii")
            os.replace(new, file)
        return cls(file.read_text("ascii"))

    def spawn(self, folder: JobFolder, attempt: int) -> RunningDriver:
        """Returns the driver of a folder: the spare one, or a fresh process. It outlives this one.

        Raises: EnvironmentFault.
        """
        spare, self.process, self._due_s = self.process, None, None
        handover = msgspec.json.encode(Handover(str(folder.path.absolute()), attempt)) + b"\n"
        if spare is not None and _hand_over(spare, handover):
            return RunningDriver.of_child(spare, attempt)
        if spare is not None:
            _end(spare)
        fresh = self._started(folder)
        _hand_over(fresh, handover)  # its end is seen by the job, with its output in the folder
        return RunningDriver.of_child(fresh, attempt)

    def tick(self, now_s: float, *, is_wanted: bool) -> None:
        """Starts a spare driver when one is wanted and due; ends it when none is wanted. Raises: EnvironmentFault."""
        if not is_wanted:
            self.close()
        elif self.process is None:
            if self._due_s is None:
                self._due_s = now_s + REPLACED_AFTER_S
            elif now_s >= self._due_s:
                self._due_s = None
                self.process = self._started(None)

    def _started(self, folder: JobFolder | None) -> subprocess.Popen[bytes]:
        """Starts a process. ``folder``: of its job, if that is known, for the output. Raises: EnvironmentFault."""
        path = os.devnull if folder is None else folder.output
        try:
            with open(path, "wb") as output:
                process = subprocess.Popen(
                    self._command,
                    env=os.environ | {"PYTHONSAFEPATH": "1"},  # a job's numbers.py is not that of the interpreter
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as error:
            raise EnvironmentFault(f"a driver cannot be started with {sys.executable}: {error}") from None
        assert process.stdin is not None, "it was opened as a pipe"
        with suppress(BrokenPipeError):  # the next to write to it sees that too
            process.stdin.write(self._hash_seed.encode("ascii") + b"\n")
            process.stdin.flush()
        return process

    def close(self) -> None:
        """Ends the spare driver."""
        spare, self.process, self._due_s = self.process, None, None
        if spare is not None:
            _end(spare)


def _hand_over(process: subprocess.Popen[bytes], handover: bytes) -> bool:
    """Hands a job over to a process. Returns whether it lived."""
    assert process.stdin is not None, "it was opened as a pipe"
    if process.poll() is not None:
        return False
    try:
        process.stdin.write(handover)
        process.stdin.close()
    except BrokenPipeError:
        return False
    return True


def _end(spare: subprocess.Popen[bytes]) -> None:
    """Ends a spare driver. Its fork server sees the end of its input, and ends too."""
    assert spare.stdin is not None, "it was opened as a pipe"
    with suppress(BrokenPipeError):
        spare.stdin.close()
    spare.kill()
    spare.wait()
