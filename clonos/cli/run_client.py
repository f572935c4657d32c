"""Client of a job that ``clonos run`` runs in another terminal, with the methods of a server's client."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from clonos.cli.server_client import JobsClient, RequestFailed, ServerUnreachable
from clonos.core.model.errors import ClonosError
from clonos.io.system.wall_clock import time_text
from clonos.job.run_register import RegisteredRun, absolute, read_runs

TIMEOUT_S: Final = 30.0
LOOK_EVERY_S: Final = 0.02
DIED: Final = "DIED"
"""Status of a job whose process has gone without a word."""
PLACES: Final = ("path", "savepoint", "folder")
"""Fields of requests that are paths, which are relative to the folder of the client."""


def load_notes(job: str) -> Iterator[str]:
    """Yields what the runs of a job in this folder say about its load: hot tasks with their hot keys, and advice about
    widths. A running one counts before the last that has ended."""
    try:
        found = [each for each in read_runs() if each[1].name == job and each[1].folder == os.getcwd()]
    except (OSError, ClonosError):  # without a folder of runs there is no run to be found
        return
    for file, record in [each for each in found if each[1].lives] or found[:1]:
        with suppress(RequestFailed, ServerUnreachable):
            document = RunClient(file, record).get(f"/jobs/{record.job_id}/status")
            when = "now" if record.lives else "in its last run"
            advice = (f"{each['step']}: {each['text']}" for each in document["scaling"])
            yield from (f"{when}: {text}" for text in (*document["skew"], *advice))


def document_of_dead(record: RegisteredRun, error: str) -> dict[str, Any]:
    """Returns the document of a job whose process is gone. ``error``: what is said of it."""
    return {
        "id": record.job_id,
        "name": record.name,
        "status": DIED,
        "stopped": False,
        "error": error,
        "started_at": time_text(record.began_ns),
        "ended_at": None,
        "recoveries": None,
        "restarts": None,
        "checkpoint": None,
        "generation": None,
    }


class RunClient(JobsClient):
    """Client of one run. When the run has ended, its record answers."""

    def __init__(self, file: Path, record: RegisteredRun) -> None:
        self._file, self._record = file, record
        self.url = f"process {record.pid}"

    def find(self, job: str) -> str:
        """Returns the id of the job."""
        return self._record.job_id

    def get(self, path: str, **query: object) -> Any:
        """Returns a document. Raises: RequestFailed. ServerUnreachable."""
        return self._call({"method": "GET", "path": path, "query": query})

    def post(self, path: str, body: Any) -> Any:
        """Sends a request that changes something. Raises: RequestFailed. ServerUnreachable."""
        body = {name: absolute(value) if value and name in PLACES else value for name, value in body.items()}
        return self._call({"method": "POST", "path": path, "body": body})

    def _call(self, request: dict[str, Any]) -> Any:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(TIMEOUT_S)
                connection.connect(str(self._file.with_suffix(".sock")))
                connection.sendall(json.dumps(request).encode() + b"\n")
                with connection.makefile("rb") as replies:
                    line = replies.readline()
            reply = json.loads(line)
        except TimeoutError:
            raise ServerUnreachable(self.url, "it does not answer") from None
        except (OSError, ValueError):
            return self._last(request)
        if reply["status"] >= 400:
            raise RequestFailed(reply["status"], reply["message"])
        return reply["document"]

    def _ended(self) -> RegisteredRun | None:
        """Waits until a run that takes no requests any more has left its documents or is gone; returns its record.

        Raises: ServerUnreachable: it goes on.
        """
        deadline_s = time.monotonic() + TIMEOUT_S
        while (found := dict(read_runs()).get(self._file)) is not None and found.lives:
            if time.monotonic() >= deadline_s:
                raise ServerUnreachable(self.url, "it does not answer")
            time.sleep(LOOK_EVERY_S)
        return found

    def _last(self, request: dict[str, Any]) -> Any:
        """Returns what the run has left. Raises: RequestFailed: it has left nothing, or takes no requests any more.
        ServerUnreachable."""
        found, name = self._ended(), self._record.name
        if found is None or found.last is None:
            text = f"the process {self._record.pid} of {name} has gone without a word. Start the job with --resume."
            raise RequestFailed(410, text)
        document = found.last.get(request["path"].partition(f"/jobs/{self._record.job_id}")[2].removeprefix("/"))
        if request["method"] != "GET" or document is None:
            raise RequestFailed(409, f"the job {name} has ended: it is {found.last['']['status']}.")
        after = int(request.get("query", {}).get("after", 0))
        if "lines" in document:
            lines = [line for line in document["lines"] if line["number"] > after]
            return {"lines": lines, "next": lines[-1]["number"] if lines else after}
        return document
