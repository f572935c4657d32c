"""Server of jobs as a process: started, asked over HTTP, killed and started again; nothing of it outlives ``close``.

It is used as from another machine, but for the numbers of drivers' processes, which are in the folders of jobs.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
import urllib3

from clonos.core.model.errors import EnvironmentFault
from clonos.io.process.retained_slots import RetainedSlots
from clonos.io.system.process_identity import started_at

TOKEN: Final = "token-of-the-soak"
LISTENS: Final = re.compile(r"listens on (\S+),")
LIMIT_S: Final = 60.0
REPLY_LIMIT_S: Final = 30.0
LOOK_EVERY_S: Final = 0.05


class ServerFailed(EnvironmentFault):
    """The server did not start, does not answer, or refuses a request."""

    reason: str

    def __str__(self) -> str:
        return f"the server of jobs {self.reason}."


class ServerProcess:
    """``clonos serve`` on a folder. ``log``: a file beside it. ``url``: of the last start. ``options``: of the next."""

    url = ""

    def __init__(self, folder: Path, environment: Mapping[str, str], *options: str, limit_s: float = LIMIT_S) -> None:
        """``limit_s``: time in which it has to listen, and its processes to end."""
        self.log = folder.parent / "server.log"
        self.options = ["--allow-submit", *options]
        self._folder, self._limit_s = folder, limit_s
        self._environment = {**environment, "CLONOS_TOKEN": TOKEN}
        self._pool = urllib3.PoolManager(retries=False, headers={"authorization": f"Bearer {TOKEN}"})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts a server on the folder, and waits until it listens. Raises: ServerFailed."""
        assert self._process is None, "it runs already"
        command = [sys.executable, "-m", "clonos.cli", "-v", "serve", "--port", "0"]
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = process = subprocess.Popen(
                [*command, "--folder", str(self._folder), *self.options],
                cwd=self._folder.parent,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        deadline_s = time.monotonic() + self._limit_s
        while True:
            text = self.log.read_bytes()[before:].decode("utf-8", "replace")
            if found := LISTENS.search(text):
                self.url = found[1]
                return
            if process.poll() is not None or time.monotonic() > deadline_s:
                last = text.strip().rpartition("\n")[2].rstrip(".")
                raise ServerFailed(f"did not start; its last line: {last or 'none'}")
            time.sleep(LOOK_EVERY_S)

    # ------------------------------------------------------------------ the API

    def submit(self, file: Path, options: Mapping[str, object]) -> str:
        """Submits the file of a job and returns the job's id. Raises: ServerFailed."""
        texts = {name: str(value) for name, value in options.items()}
        fields: dict[str, Any] = {"job": (file.name, file.read_bytes()), "options": json.dumps(texts)}
        return str(self._ask("POST", "/jobs", fields=fields)["id"])

    def get(self, path: str) -> Any:
        """Returns a document. ``path``: after /api/v1. Raises: ServerFailed."""
        return self._ask("GET", path)

    def rescale(self, job_id: str, widths: Mapping[str, int]) -> int:
        """Asks for numbers of tasks and returns the number of the request; 0 if the job has them. Raises:
        ServerFailed."""
        body = json.dumps({"widths": widths})
        headers = {**self._pool.headers, "content-type": "application/json"}
        return int(self._ask("POST", f"/jobs/{job_id}/rescale", body=body, headers=headers)["number"])

    def _ask(self, method: str, path: str, **arguments: Any) -> Any:
        try:
            reply = self._pool.request(method, f"{self.url}/api/v1{path}", timeout=REPLY_LIMIT_S, **arguments)
            document = json.loads(reply.data)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise ServerFailed(f"does not answer {method} {path}: {error}") from None
        if reply.status >= 400:
            raise ServerFailed(f"answers {method} {path} with {reply.status}: {document}")
        return document

    # ------------------------------------------------------------------ processes

    def files_of(self, job_id: str) -> Path:
        """Returns the working folder of a job."""
        return self._folder / "jobs" / job_id / "files"

    def log_of(self, job_id: str) -> str:
        """Returns the log of the drivers of a job."""
        return (self._folder / "jobs" / job_id / "driver.log").read_text("utf-8", "replace")

    def kill_driver(self, job_id: str) -> bool:
        """Kills the driver of a job by SIGKILL; returns whether it lived."""
        pid = self.driver_of(job_id)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pid is not None

    def driver_of(self, job_id: str) -> int | None:
        """Returns the id of the process that is the driver of a job; None if none lives."""
        return _driver_of(self._folder / "jobs" / job_id)

    @property
    def pid(self) -> int:
        """Returns the id of the process, which runs."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    def kill(self) -> None:
        """Ends the server by SIGKILL. Drivers live on."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ends the server by SIGTERM and returns its exit code. Drivers live on."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None, "it does not run"
        self._pool.clear()
        process.send_signal(number)
        return process.wait(self._limit_s)

    def close(self) -> None:
        """Ends the server, if it runs, and every driver that lives, with its slots."""
        family: list[Any] = []
        if self._process is not None:
            with suppress(psutil.NoSuchProcess):
                family = psutil.Process(self.pid).children(recursive=True)
            self.kill()
        for job in self._folder.glob("jobs/*"):
            with suppress(psutil.NoSuchProcess):
                if (pid := _driver_of(job)) is not None:
                    family += psutil.Process(pid).children(recursive=True)
                    os.kill(pid, signal.SIGKILL)
                    psutil.wait_procs([psutil.Process(pid)], self._limit_s)
            RetainedSlots(job / "slots.json").end_if_any()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, self._limit_s)


def _driver_of(job: Path) -> int | None:
    """Returns the living driver of the job in a folder; None if there is none."""
    try:
        driver = json.loads((job / "driver.json").read_bytes())
    except (OSError, ValueError):
        return None
    return int(driver["pid"]) if started_at(driver["pid"]) == driver["started_at"] else None
