"""A word count that ``clonos run --ui`` runs on a cluster, and its API."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

LIMIT_S: Final = 180.0


def wait_for(look: Callable[[], Any], what: str) -> Any:
    """Waits until ``look`` returns something, and returns it."""
    deadline_s, pause = time.monotonic() + LIMIT_S, threading.Event()
    while not (found := look()):
        assert time.monotonic() < deadline_s, f"{what} was waited for in vain"
        pause.wait(0.1)
    return found


class RunningJob:
    """``clonos run --ui`` on the cluster, and its API."""

    def __init__(self, folder: Path, job: str, environment: Mapping[str, str], *options: str) -> None:
        self.folder = folder
        (folder / "in").mkdir()
        (folder / "job.py").write_text(job, "utf-8")
        self.log = folder / "driver.log"
        arguments = ["run", "job.py", "--ui", "--ui-port", "0"]
        for option in (f"store={folder}/store", *options):
            arguments += ["--option", option]
        variables = {"JOB_FOLDER": str(folder), "SPARK_CONF_DIR": str(folder / "conf")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "clonos.cli", "-v", *arguments],
                cwd=folder,
                env={**environment, **variables},
                stderr=log,
                stdout=log,
            )
        self._url, self._token = wait_for(self._page, "the page of the job")

    def _page(self) -> tuple[str, str] | None:
        text = self.log.read_text("utf-8", "replace")
        assert self.process.poll() is None, text[-3000:]
        found = re.search(r"(http://\S+)/#token=(\S+)", text)
        return None if found is None else (found[1], found[2])

    def ask(self, path: str, body: object = None) -> Any:
        """Returns a document of the API; with a body, sends it."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        request = urllib.request.Request(f"{self._url}/api/v1{path}", data, headers)
        with urllib.request.urlopen(request, timeout=20) as reply:
            return json.loads(reply.read())

    @property
    def job_id(self) -> str:
        """Id of the job."""
        return str(self.ask("/jobs")["jobs"][0]["id"])

    def tasks(self) -> dict[str, Any]:
        """The tasks by name."""
        return {task["name"]: task for task in self.ask(f"/jobs/{self.job_id}/status")["tasks"]}

    def are_live(self) -> bool:
        """Whether all tasks are live."""
        tasks = self.tasks()
        return bool(tasks) and all(task["phase"] == "live" for task in tasks.values())

    def add(self, name: str, text: str) -> None:
        """Adds a file of input, at once."""
        hidden = self.folder / f"{name}.new"
        hidden.write_text(text, "utf-8")
        os.replace(hidden, self.folder / "in" / name)

    def rows(self) -> list[tuple[str, int]]:
        """The rows of the output."""
        files = sorted((self.folder / "out").glob("*.jsonl"))
        rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
        return sorted((row["word"], row["count"]) for row in rows)

    def kill(self, task: str) -> None:
        """Kills the process of a task and waits until it runs in another one."""
        pid = self.tasks()[task]["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self.tasks()[task]["pid"] not in (0, pid) and self.are_live(), f"a successor of {task}")

    def stop(self) -> None:
        """Stops the job with a final checkpoint."""
        self.ask(f"/jobs/{self.job_id}/stop", {})
        assert self.process.wait(LIMIT_S) == 0, self.log.read_text("utf-8", "replace")[-3000:]


@contextmanager
def running(folder: Path, job_text: str, environment: Mapping[str, str], *options: str) -> Iterator[RunningJob]:
    """Context with a job whose tasks run."""
    job = RunningJob(folder, job_text, environment, *options)
    try:
        wait_for(lambda: job.process.poll() is not None or job.are_live(), "the tasks")
        assert job.process.poll() is None, job.log.read_text("utf-8", "replace")[-3000:]
        yield job
    finally:
        job.process.kill()
        job.process.wait()


def expected(*texts: str) -> list[tuple[str, int]]:
    words = Counter(word for text in texts for word in text.split())
    return sorted((word, count) for word, total in words.items() for count in range(1, total + 1))
