"""Writer of events of OpenLineage: a thread of the driver that sends them to a server, or appends them to a file.

The job never waits for it. What the server does not take now is sent later, in order; the end of the job waits
``CLOSE_S`` at most.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import deque
from typing import Final

import msgspec

from clonos.api.graph import JobGraph
from clonos.core.model.errors import JobError
from clonos.io.http.http_client import HttpClient, HttpLimits, HttpRequest
from clonos.io.http.http_errors import HttpError, redacted_url
from clonos.job.lineage.lineage_events import LineageEvents
from clonos.job.run_history.history_events import Event
from clonos_standby.launch_spec import version_of

logger = logging.getLogger("clonos.run")

FROM_ENVIRONMENT: Final = "environment"
"""Value of the option for the server that ``OPENLINEAGE_URL`` names."""

LOOK_EVERY_S: Final = 0.5
RETRY_EVERY_S: Final = 5.0
CLOSE_S: Final = 3.0
"""Longest time that the end of a job waits for its last events."""

WAITING_MAX: Final = 1_000
"""Events that wait for the server at most; further ones push out the oldest."""

LIMITS: Final = HttpLimits(
    timeout_s=5.0, connect_timeout_s=2.0, retries_max=0, redirects_max=0, body_bytes_max=1 << 20, is_repeatable=False
)
REFUSED: Final = range(400, 500)
RETRIED: Final = frozenset({408, 425, 429})

ADDRESS: Final = re.compile(r"[\w.-]+:\d+(/.*)?")
"""Host and port, which are hardly ever meant as the name of a file."""


class LineageWriter:
    """Writer of one driver. ``note`` may be called in any thread, and never waits."""

    def __init__(self, target: str, graph: JobGraph) -> None:
        """Starts the thread. ``target``: URL of a server, path of a file, or ``environment``.

        Raises: JobError: no variable names the server, or the file cannot be written.
        """
        variables = os.environ
        namespace = variables.get("OPENLINEAGE_NAMESPACE") or "default"
        parent = variables.get("OPENLINEAGE_PARENT_ID", "")
        self._events = LineageEvents(graph, namespace, parent, version_of("clonos"))
        self._announced: deque[Event] = deque()
        self._waiting: deque[bytes] = deque(maxlen=WAITING_MAX)
        self._closing, self._wake = threading.Event(), threading.Event()
        self._is_failing = False
        self._url, self._path = _target(target)
        self._client = HttpClient()
        self._headers = [("Content-Type", "application/json")]
        if key := variables.get("OPENLINEAGE_API_KEY"):
            self._headers.append(("Authorization", f"Bearer {key}"))
        self._is_on = variables.get("OPENLINEAGE_DISABLED", "").lower() != "true"
        self._thread = threading.Thread(target=self._write_on, name="lineage", daemon=True)
        self._thread.start()

    def note(self, event: Event) -> None:
        """Takes an event of the history."""
        self._announced.append(event)
        self._wake.set()

    @property
    def is_waiting(self) -> bool:
        """Returns whether there are events that were not taken yet."""
        return bool(self._announced or self._waiting)

    def close(self, limit_s: float = CLOSE_S) -> None:
        """Sends what is left, for at most ``limit_s`` seconds, and ends the thread."""
        self._closing.set()
        self._wake.set()
        self._thread.join(limit_s)
        if self._thread.is_alive() or self.is_waiting:
            logger.warning("the last events of lineage were not taken by %s", self._shown)
        self._client.close()

    # ------------------------------------------------------------------ the thread

    @property
    def _shown(self) -> str:
        return redacted_url(self._url) if self._url else self._path

    def _write_on(self) -> None:
        due_s, is_last = 0.0, False
        while not is_last:
            self._wake.wait(None if not self._waiting else LOOK_EVERY_S)
            self._wake.clear()
            is_last = self._closing.is_set()
            while self._announced:
                found = self._events.add(self._announced.popleft())
                self._waiting += [msgspec.json.encode(each) for each in found]
            if not self._is_on:
                self._waiting.clear()
            if is_last or time.monotonic() >= due_s:
                due_s = 0.0 if self._send() else time.monotonic() + RETRY_EVERY_S

    def _send(self) -> bool:
        """Sends what waits, in order; returns whether all was taken."""
        while self._waiting:
            problem, is_refused = self._sent(self._waiting[0])
            if problem and not self._is_failing:
                logger.warning("%s does not take events of lineage: %s; the job goes on", self._shown, problem)
            self._is_failing = bool(problem)
            if problem and not is_refused:
                return False
            self._waiting.popleft()
        return True

    def _sent(self, body: bytes) -> tuple[str, bool]:
        """Returns why an event was not taken, "" if it was, and whether it never will be."""
        if self._path:
            try:
                with open(self._path, "ab") as file:
                    file.write(body + b"\n")
            except OSError as error:
                return error.strerror or str(error), False
            return "", False
        try:
            reply = self._client.send(HttpRequest("POST", self._url, tuple(self._headers), body), LIMITS)
        except HttpError as error:
            return str(error), False
        status = reply.status_code
        if status < 300:
            return "", False
        return f"status {status} {reply.reason}".strip(), status in REFUSED and status not in RETRIED


def _target(target: str) -> tuple[str, str]:
    """Returns the URL to which events are sent, or the path of the file that gets them; the other one is "".

    Raises: JobError.
    """
    base = target
    if target == FROM_ENVIRONMENT and not (base := os.environ.get("OPENLINEAGE_URL", "")):
        raise JobError('lineage="environment" needs the variable OPENLINEAGE_URL. Set it, or name a URL or a file.')
    if base.startswith(("http://", "https://")):
        path = os.environ.get("OPENLINEAGE_ENDPOINT") or "api/v1/lineage"
        return f"{base.rstrip('/')}/{path.lstrip('/')}", ""
    if ADDRESS.fullmatch(base):
        raise JobError(
            f'lineage={target!r} is an address without a scheme: write "http://{base}", or "./{base}" for a file.'
        )
    path = os.path.abspath(os.path.expanduser(base.removeprefix("file://")))
    if not os.path.isdir(folder := os.path.dirname(path)):
        raise JobError(f"lineage={target!r}: the folder {folder} is missing. Create it, or name another file.")
    return "", path
