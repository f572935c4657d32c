"""A server of jobs as a process, its drivers, and a word count that it runs; nothing of it outlives the test."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from clonos.cli.server_client import ServerClient
from clonos.server.register.job_record import DriverProcess
from clonos.server.supervision.job_folder import JobFolder
from clonos_chaos.project.served import server_process
from clonos_chaos.project.served.server_process import ServerProcess
from tests.processes.harness.running_program import ENVIRONMENT
from tests.speed import scaled

LIMIT_S: Final = scaled(150.0)
LOOK_EVERY_S: Final = 0.02
TOKEN: Final = server_process.TOKEN
READ_TOKEN: Final = "read-token-of-the-tests"

WORD_COUNT: Final = """
from clonos import Job, files

job = Job("words", parallelism=2, checkpoint_every="200ms", slots="process", allow_injection={injection})
lines = job.source(files.lines({input!r}, watch="50ms"), name="read")
counts = lines.flat_map(str.split).key_by(lambda word: word).count(name="count")
counts.map(lambda counted: {{"word": counted[0], "count": counted[1]}}, name="row").sink(files.jsonl("out"))
"""


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Waits until a condition holds."""
    deadline_s, pause = time.monotonic() + LIMIT_S, threading.Event()
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} was waited for in vain"
        pause.wait(LOOK_EVERY_S)


class RunningServer:
    """``clonos serve`` on a folder, and a client with the token for writing."""

    def __init__(self, folder: Path, *options: str, **variables: str) -> None:
        self.folder = folder
        environment = os.environ | ENVIRONMENT | variables
        self._server = ServerProcess(folder, environment, "--read-token", READ_TOKEN, *options, limit_s=LIMIT_S)
        self.log, self.options = self._server.log, self._server.options
        self._client: ServerClient | None = None

    @property
    def client(self) -> ServerClient:
        """Client of the server, which has been started."""
        assert self._client is not None, "it has not been started"
        return self._client

    @property
    def url(self) -> str:
        """Where it listens."""
        return self._server.url

    @property
    def pid(self) -> int:
        """Number of its process."""
        return self._server.pid

    def start(self) -> None:
        """Starts the server, and waits until it listens."""
        self._server.start()
        self._client = ServerClient(self.url, TOKEN)

    def kill(self) -> None:
        """Ends the server by SIGKILL."""
        self.client.close()
        self._server.kill()

    def stop(self) -> int:
        """Ends the server by SIGTERM and returns its exit code."""
        self.client.close()
        return self._server.stop()

    def submit(self, file: Path, **options: str) -> str:
        """Submits a job and returns its id."""
        return str(self.client.submit(file, None, options)["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        """The job as the API shows it."""
        found: dict[str, Any] = self.client.get(f"/jobs/{job_id}")
        return found

    def wait_for_status(self, job_id: str, *statuses: str) -> dict[str, Any]:
        """Waits until a job has one of these statuses, and returns it. Asserts that it has not ended in another."""
        found = self.job(job_id)

        def is_there() -> bool:
            nonlocal found
            found = self.job(job_id)
            return found["status"] in (*statuses, "FINISHED", "FAILED", "CANCELED")

        wait_for(is_there, f"{job_id} to be {statuses}")
        assert found["status"] in statuses, found
        return found

    def folder_of(self, job_id: str) -> JobFolder:
        """The folder of a job."""
        return JobFolder(self.folder / "jobs" / job_id)

    def driver(self, job_id: str) -> DriverProcess:
        """The driver of a job, which has written of itself."""
        wait_for(lambda: self.folder_of(job_id).read_driver(), f"the driver of {job_id}")
        found = self.folder_of(job_id).read_driver()
        assert found is not None, "it was there"
        return found

    def spare(self) -> psutil.Process:
        """The spare driver, for which this waits."""
        server = psutil.Process(self._server.pid)

        def found() -> list[psutil.Process]:
            drivers = {each.read_driver() for each in map(JobFolder, self.folder.glob("jobs/*"))}
            known = {driver.pid for driver in drivers if driver is not None}
            return [child for child in server.children() if child.pid not in known]

        wait_for(found, "a spare driver")
        return found()[0]

    def counts(self, job_id: str) -> Counter[tuple[str, int]]:
        """How often each row is in the output of the word count."""
        files = sorted((self.folder_of(job_id).files / "out").glob("*.jsonl"))
        rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
        return Counter((row["word"], row["count"]) for row in rows)

    def close(self) -> None:
        """Ends the server and every driver that lives, with its slots."""
        if self._client is not None:
            self._client.close()
        self._server.close()


def word_count_file(folder: Path, *, injection: bool = False) -> Path:
    """The file of a word count over the files of ``folder / "in"``."""
    (folder / "in").mkdir(exist_ok=True)
    file = folder / "words.py"
    file.write_text(WORD_COUNT.format(input=str(folder / "in"), injection=injection), "utf-8")
    return file


def add_words(folder: Path, name: str, text: str) -> None:
    """Adds a file of words for the word count, at once."""
    hidden = folder / f"{name}.new"
    hidden.write_text(text, "utf-8")
    os.replace(hidden, folder / "in" / name)


def expected_counts(*texts: str) -> Counter[tuple[str, int]]:
    """What the word count writes of these texts: each count of each word, once."""
    words = Counter(word for text in texts for word in text.split())
    return Counter((word, count) for word, total in words.items() for count in range(1, total + 1))


@contextmanager
def running_server(folder: Path, *options: str, **variables: str) -> Iterator[RunningServer]:
    """Context with a server that takes submissions."""
    server = RunningServer(folder / "server", *options, **variables)
    (folder / "server").mkdir(exist_ok=True)
    try:
        server.start()
        yield server
    finally:
        server.close()
