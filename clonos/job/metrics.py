"""Metrics file of a job: one JSON line per second with the counters of all tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from clonos.core.model.errors import EnvironmentFault
from clonos.io.system.wall_clock import wall_ns
from clonos.status import Status, late_by_step

INTERVAL_S = 1.0


class MetricsFile:
    """Writer of the metrics file; writes a last line when it is closed."""

    def __init__(self, path: Path, status: Callable[[], Status]) -> None:
        """Opens the file and starts the thread that writes it. Raises: EnvironmentFault when the file cannot be
        written."""
        self._status = status
        try:
            self._file = open(path, "ab")  # noqa: SIM115 closed with this object
        except OSError as error:
            raise EnvironmentFault(
                f"the metrics file {path} cannot be written: {error.strerror}. Set another file with metrics=."
            ) from None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="metrics", daemon=True)
        self._thread.start()

    def _write_on(self) -> None:
        while not self._over.wait(INTERVAL_S):
            self._write_line()

    def _write_line(self) -> None:
        status = self._status()
        line = {
            "at_ns": wall_ns(),
            "phase": status.phase.value,
            "checkpoint": status.checkpoint,
            "generation": status.generation,
            "slots": len(status.slots),
            "recoveries": len(status.recoveries),
            "totals": status.totals,
            "late_records": late_by_step(status.tasks),
            "tasks": [
                {"task": t.name, "incarnation": t.incarnation, "phase": t.phase, **t.counters} for t in status.tasks
            ],
        }
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Stops the thread, writes the last line and closes the file."""
        self._over.set()
        self._thread.join()
        self._write_line()
        self._file.close()
