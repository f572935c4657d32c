"""Client of a server's API for the command line: requests, and errors as one sentence with an exit code."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import urllib3

from clonos.core.model.errors import EnvironmentFault, JobError

SERVER_VARIABLE: Final = "CLONOS_SERVER"
TOKEN_VARIABLE: Final = "CLONOS_TOKEN"
DEFAULT_SERVER: Final = "http://127.0.0.1:8480"
TIMEOUT_S: Final = 30.0
SUBMIT_TIMEOUT_S: Final = 120.0
REPLY_BYTES_MAX: Final = 64 << 20


class ServerUnreachable(EnvironmentFault):
    """The server does not answer, or fails."""

    url: str
    reason: str

    def __str__(self) -> str:
        return f"the server {self.url} cannot be used: {self.reason}. Is it running, and is --server right?"


class RequestFailed(JobError):
    """The server refused a request. ``status``: of HTTP."""

    status: int
    reason: str

    def __str__(self) -> str:
        return self.reason


class JobsClient(ABC):
    """Base of the clients of jobs: documents by path, and requests."""

    @abstractmethod
    def get(self, path: str, **query: object) -> Any:
        """Returns a document. ``path``: after /api/v1. Raises: ServerUnreachable. RequestFailed."""

    @abstractmethod
    def post(self, path: str, body: Any) -> Any:
        """Sends a request that changes something. Raises: ServerUnreachable. RequestFailed."""

    @abstractmethod
    def find(self, job: str) -> str:
        """Returns the id of a job. Raises: RequestFailed."""

    def log_lines(self, job_id: str) -> Iterator[dict[str, Any] | None]:
        """Yields the lines of a job's log without end; None whenever there are no more for now. With a new driver the
        numbers begin again."""
        after = 0
        while True:
            found = self.get(f"/jobs/{job_id}/logs", after=after)
            if found["next"] < after or (not found["lines"] and after and self._begins_again(job_id, after)):
                after = 0
                continue
            after = found["next"]
            yield from found["lines"]
            if not found["lines"]:
                yield None

    def _begins_again(self, job_id: str, after: int) -> bool:
        """Returns whether the log has fewer lines than were seen."""
        last = self.get(f"/jobs/{job_id}/logs", after=max(0, after - 1), limit=1)
        return not last["lines"]


class ServerClient(JobsClient):
    """Client of one server. ``url``, ``token``: None takes them from the environment; "@FILE" is a token in a file."""

    def __init__(self, url: str | None, token: str | None, environment: Mapping[str, str] = os.environ) -> None:
        """Raises: RequestFailed: there is no token."""
        self.url = (url or environment.get(SERVER_VARIABLE) or DEFAULT_SERVER).rstrip("/")
        found = token or environment.get(TOKEN_VARIABLE)
        if not found:
            raise RequestFailed(401, f"the server asks for a token: give --token, or set {TOKEN_VARIABLE}.")
        if found.startswith("@"):
            try:
                found = Path(found[1:]).read_text("utf-8").strip()
            except OSError as error:
                raise RequestFailed(401, f"the token file cannot be read: {error}.") from None
        self._headers = {"authorization": f"Bearer {found}"}
        self._pool = urllib3.PoolManager(retries=False)

    def get(self, path: str, **query: object) -> Any:
        """Returns a document. ``path``: after /api/v1. Raises: ServerUnreachable. RequestFailed."""
        return self._call("GET", path, fields={key: str(value) for key, value in query.items()})

    def post(self, path: str, body: object) -> Any:
        """Sends a request that changes something. Raises: ServerUnreachable. RequestFailed."""
        return self._call("POST", path, json=body)

    def delete(self, path: str, **query: object) -> Any:
        """Deletes what a URL names. Raises: ServerUnreachable. RequestFailed."""
        return self._call("DELETE", path, fields={key: str(value) for key, value in query.items()})

    def submit(self, file: Path, target: str | None, options: Mapping[str, object]) -> Any:
        """Sends a job: a Python file or an archive. Raises: ServerUnreachable. RequestFailed."""
        if file.is_dir():
            advice = f"pack it: tar czf job.tar.gz -C {file} . && clonos submit job.tar.gz"
            raise RequestFailed(0, f"{file} is a folder: {advice}")
        try:
            data = file.read_bytes()
        except OSError as error:
            raise RequestFailed(0, f"{file} cannot be read: {error.strerror}.") from None
        texts = {key: str(value) for key, value in options.items()}
        fields: dict[str, Any] = {"job": (file.name, data), "options": json.dumps(texts)}
        if target is not None:
            fields["file"] = target
        return self._call("POST", "/jobs", fields=fields, timeout=SUBMIT_TIMEOUT_S)

    def _call(self, method: str, path: str, timeout: float = TIMEOUT_S, **arguments: Any) -> Any:
        """Raises: ServerUnreachable. RequestFailed."""
        url = f"{self.url}/api/v1{path}"
        try:
            reply = self._pool.request(method, url, headers=self._headers, timeout=timeout, redirect=False, **arguments)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise ServerUnreachable(self.url, _reason(error)) from None
        try:
            document = json.loads(reply.data)
        except ValueError:
            document = None
        if reply.status >= 400:
            message = document.get("error", {}).get("message") if isinstance(document, dict) else None
            if reply.status >= 500 or message is None:
                raise ServerUnreachable(self.url, message or f"it answered with status {reply.status}")
            raise RequestFailed(reply.status, message)
        if document is None:
            raise ServerUnreachable(self.url, "its answer is no JSON, so it is no server of Clonos")
        return document

    def close(self) -> None:
        """Closes the connections."""
        self._pool.clear()

    def find(self, job: str) -> str:
        """Returns the id of a job by its id, or by its name if one job has it that has not ended.

        Raises: RequestFailed: there is none, or several.
        """
        jobs = self.get("/jobs")["jobs"]
        if any(each["id"] == job for each in jobs):
            return job
        named = [each for each in jobs if each["name"] == job]
        running = [each for each in named if each["ended_at"] is None] or named
        if len(running) == 1:
            return str(running[0]["id"])
        if not running:
            raise RequestFailed(404, f"the server {self.url} has no job {job!r}: clonos jobs lists them.")
        ids = ", ".join(each["id"] for each in running)
        raise RequestFailed(409, f"the server has {len(running)} jobs called {job!r}: name one by its id: {ids}.")


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(reason).rpartition(": ")[2].strip() or type(error).__name__
