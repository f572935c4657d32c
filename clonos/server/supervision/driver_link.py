"""Requests of the server to a driver, over the Unix socket of its API."""

from __future__ import annotations

from typing import Any, Final

import httpx

from clonos.core.model.errors import EnvironmentFault
from clonos.server.supervision.job_folder import JobFolder

TIMEOUT_S: Final = 5.0
DRIVER_URL: Final = "http://driver"
BASE_URL: Final = f"{DRIVER_URL}/api/v1"


class DriverSilent(EnvironmentFault):
    """A driver did not answer. ``is_gone``: no process listens, as when it has just ended."""

    reason: str
    is_gone: bool = False

    def __str__(self) -> str:
        return f"the driver of the job does not answer: {self.reason}."


class DriverRefused(EnvironmentFault):
    """A driver refused a request."""

    status: int
    reply: str

    def __str__(self) -> str:
        return f"the driver of the job refused the request with status {self.status}: {self.reply:.300}"


class DriverLink:
    """Requests to the driver of one job. The socket is opened for each call, since there are few."""

    def __init__(self, folder: JobFolder, timeout_s: float = TIMEOUT_S) -> None:
        self._folder, self._timeout_s = folder, timeout_s

    def summary(self) -> dict[str, Any]:
        """Returns the summary of the driver's job. Raises: DriverSilent. DriverRefused."""
        jobs: list[dict[str, Any]] = self._call("GET", "/jobs").json()["jobs"]
        return jobs[0]

    def document(self, job_id: str, name: str) -> bytes:
        """Returns a document of the job: "" for the job itself, else "status" and so on.

        ``job_id``: as the driver names it. Raises: DriverSilent. DriverRefused.
        """
        return self._call("GET", f"/jobs/{job_id}/{name}".rstrip("/")).content

    def post(self, job_id: str, verb: str, body: object) -> bytes:
        """Sends a request that changes something. Raises: DriverSilent. DriverRefused."""
        return self._call("POST", f"/jobs/{job_id}/{verb}", body).content

    def _call(self, method: str, path: str, body: object | None = None) -> httpx.Response:
        """Raises: DriverSilent. DriverRefused."""
        try:
            with (
                self._folder.socket_path() as socket_path,
                httpx.HTTPTransport(uds=socket_path) as transport,
                httpx.Client(transport=transport, timeout=self._timeout_s) as client,
            ):
                reply = client.request(method, f"{BASE_URL}{path}", json=body)
        except (httpx.HTTPError, OSError) as error:
            raise DriverSilent(str(error) or type(error).__name__) from None
        if reply.is_error:
            raise DriverRefused(reply.status_code, reply.text)
        return reply
