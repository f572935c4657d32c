"""Server of jobs as a process: started, asked, killed and started again; nothing of it outlives ``close``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from clonos.cli.server_client import ServerClient
from clonos.core.model.errors import EnvironmentFault
from clonos.io.process.retained_slots import RetainedSlots
from clonos.io.system.process_identity import started_at
from clonos.server.supervision.job_folder import JobFolder

TOKEN: Final = "token-of-the-soak"
LISTENS: Final = re.compile(r"listens on (\S+),")
LIMIT_S: Final = 60.0
LOOK_EVERY_S: Final = 0.05


class ServerProcess:
    """``clonos serve`` on ``folder / "server"``. ``client``: for its API, of the present process."""

    client: ServerClient

    def __init__(self, folder: Path, environment: dict[str, str], *options: str) -> None:
        """Starts it. Raises: EnvironmentFault: it does not start."""
        self._folder, self._options = folder, options
        self._environment = environment | {"CLONOS_TOKEN": TOKEN}
        self._log = folder / "server.log"
        self.start()

    def start(self) -> None:
        """Starts a server on the folder, and waits until it listens. Raises: EnvironmentFault: it does not start."""
        command = [sys.executable, "-m", "clonos.cli", "-v", "serve", "--port", "0", "--allow-submit"]
        before = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--folder", str(self._folder / "server"), *self._options],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        deadline_s = time.monotonic() + LIMIT_S
        while True:
            text = self._log.read_bytes()[before:].decode("utf-8", "replace")
            if found := LISTENS.search(text):
                self.client = ServerClient(found[1], TOKEN)
                return
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                last = text.strip().rpartition("\n")[2]
                raise EnvironmentFault(f"the server of jobs did not start; its last line: {last or 'none'}.")
            time.sleep(LOOK_EVERY_S)

    @property
    def pid(self) -> int:
        """Returns the id of the process."""
        return self._process.pid

    def folder_of(self, job_id: str) -> JobFolder:
        """Returns the folder of a job."""
        return JobFolder(self._folder / "server" / "jobs" / job_id)

    def kill(self) -> None:
        """Ends the server by SIGKILL. Drivers live on."""
        self.client.close()
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Ends the server and every driver that lives, with its slots."""
        family: list[Any] = []
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(self.pid).children(recursive=True)
        self.kill()
        for path in (self._folder / "server").glob("jobs/*"):
            driver = JobFolder(path).read_driver()
            if driver is not None and started_at(driver.pid) == driver.started_at:
                with suppress(psutil.NoSuchProcess):
                    family += psutil.Process(driver.pid).children(recursive=True)
                    os.kill(driver.pid, signal.SIGKILL)
            RetainedSlots(JobFolder(path).slots).end_if_any()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, LIMIT_S)
