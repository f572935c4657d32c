"""Driver process of a run: started, read, killed, and started again to resume."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from clonos.status import Status
from clonos_chaos.real.log_tail import last_line
from clonos_chaos.real.runner_driver import DriverSpec

END_TIMEOUT_S: Final = 20.0
READ_BYTES: Final = 1 << 20


def child_environment() -> dict[str, str]:
    """Returns the runner's environment with its import path."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return os.environ | {"PYTHONPATH": path}


class RunDriver:
    """One driver process. ``lines`` returns its new reports without waiting."""

    def __init__(self, spec: DriverSpec, folder: Path, environment: dict[str, str]) -> None:
        file = folder / f"spec-{'resume' if spec.resume else 'start'}.json"
        file.write_bytes(msgspec.json.encode(spec))
        self.log = folder / "driver.log"
        self._read_fd, write_fd = os.pipe()
        try:
            with open(self.log, "ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "clonos_chaos.real.runner_driver", str(file), str(write_fd)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=(write_fd,),
                    start_new_session=True,
                    env=child_environment() | environment,
                )
        finally:
            os.close(write_fd)
        os.set_blocking(self._read_fd, False)
        self._rest = b""
        self.is_at_end = False

    @property
    def pid(self) -> int:
        """Returns the id of the process."""
        return self._process.pid

    def fileno(self) -> int:
        """Returns the file descriptor that is readable when there are lines."""
        return self._read_fd

    def lines(self) -> list[dict[str, Any]]:
        """Returns the complete lines that have come."""
        while not self.is_at_end:
            try:
                data = os.read(self._read_fd, READ_BYTES)
            except BlockingIOError:
                break
            self.is_at_end = not data
            self._rest += data
        *whole, self._rest = self._rest.split(b"\n")
        return [msgspec.json.decode(line) for line in whole if line]

    def last(self) -> str:
        """Returns the last line of its log, once it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)
        return last_line(self.log)

    def stop(self) -> None:
        """Ends the job with a final checkpoint."""
        assert self._process.stdin is not None, "it was opened as a pipe"
        self._process.stdin.write(b"stop\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Kills the driver with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Ends the driver and its slots, and waits."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        os.close(self._read_fd)


def status_of(line: dict[str, Any]) -> Status:
    """Returns the status in a line."""
    return msgspec.convert(line["status"], Status)
