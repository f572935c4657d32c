"""Requests of the server to a driver, over the Unix socket of its API.

They are plain HTTP of the standard library: a supervisor asks each driver twice in a second, and a client that can do
more costs ten times as much.
"""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any, Final

from clonos.core.model.errors import EnvironmentFault
from clonos.server.supervision.job_folder import JobFolder

TIMEOUT_S: Final = 5.0
API_PREFIX: Final = "/api/v1"
REPLY_BYTES_MAX: Final = 32 << 20


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


class UnixConnection(http.client.HTTPConnection):
    """Connection of HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("driver", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Opens the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class DriverLink:
    """Requests to the driver of one job. The socket is opened for each call, since the next driver has another one."""

    def __init__(self, folder: JobFolder, timeout_s: float = TIMEOUT_S) -> None:
        self._folder, self._timeout_s = folder, timeout_s

    def summary(self) -> dict[str, Any]:
        """Returns the summary of the driver's job. Raises: DriverSilent. DriverRefused."""
        jobs: list[dict[str, Any]] = json.loads(self._call("GET", "/jobs"))["jobs"]
        return jobs[0]

    def document(self, job_id: str, name: str) -> bytes:
        """Returns a document of the job: "" for the job itself, else "status" and so on.

        ``job_id``: as the driver names it. Raises: DriverSilent. DriverRefused.
        """
        return self._call("GET", f"/jobs/{job_id}/{name}".rstrip("/"))

    def post(self, job_id: str, verb: str, body: object) -> bytes:
        """Sends a request that changes something. Raises: DriverSilent. DriverRefused."""
        return self._call("POST", f"/jobs/{job_id}/{verb}", json.dumps(body).encode())

    def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Raises: DriverSilent. DriverRefused."""
        headers = {"Connection": "close"} | ({} if body is None else {"Content-Type": "application/json"})
        try:
            with self._folder.socket_path() as socket_path:
                connection = UnixConnection(socket_path, self._timeout_s)
                try:
                    connection.request(method, f"{API_PREFIX}{path}", body, headers)
                    reply = connection.getresponse()
                    content = reply.read(REPLY_BYTES_MAX + 1)
                finally:
                    connection.close()
        except (http.client.HTTPException, OSError) as error:
            raise DriverSilent(str(error) or type(error).__name__) from None
        if len(content) > REPLY_BYTES_MAX:
            raise DriverSilent(f"its answer has more than {REPLY_BYTES_MAX:,} bytes")
        if reply.status >= 400:
            raise DriverRefused(reply.status, content.decode("utf-8", "replace"))
        return content
