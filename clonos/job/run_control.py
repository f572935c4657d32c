"""Requests from another terminal to a job of ``clonos run`` or ``Job.run``: a thread that answers at a Unix socket.

A request is one line of JSON with ``method``, ``path``, ``query`` and ``body``; so is its answer, with ``status`` and
``document``. Paths and documents are those of a server's API (docs/console.md). One connection carries one request.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from clonos.core.model.errors import ClonosError, JobError
from clonos.io.system.process_identity import machine, started_at
from clonos.io.system.wall_clock import wall_ns
from clonos.job.handle import Handle
from clonos.job.last_lines import collecting
from clonos.job.run_documents import RunDocuments, RunLog
from clonos.job.run_register import RegisteredRun, absolute, folder_of_runs, write_record
from clonos.job.stack_documents import FLAME_S

logger = logging.getLogger("clonos.run")

REQUEST_S_MAX: Final = 1.0
"""Seconds in which a request must have come, and its answer must have been taken."""
CAPTURE_S_MAX: Final = 20.0
"""Seconds for a capture; a client waits longer for its answer."""
REQUEST_BYTES_MAX: Final = 64 << 10
REQUESTS_MAX: Final = 16
"""Requests that are answered at one time."""
LINES_LEFT: Final = 200
"""Log lines that a run leaves when it has ended."""

_numbers = itertools.count(1)


class RunRequestRefused(JobError):
    """A request that cannot be fulfilled. ``status``: of HTTP."""

    status: int
    message: str

    def __str__(self) -> str:
        return self.message


def run_log() -> AbstractContextManager[RunLog]:
    """Returns a context in which a log keeps the lines of this process. Where nobody has configured logging, warnings
    are printed as they are without it."""
    return collecting(RunLog(None if logger.hasHandlers() else logging.lastResort))


@contextmanager
def controlled(handle: Handle, log: RunLog) -> Iterator[None]:
    """Context in which other terminals can reach a job, by its name or its store. Without a folder for its socket the
    job runs all the same, and a warning says so."""
    with ExitStack() as stack:
        try:
            control = RunControl(handle, log, folder_of_runs() / f"{os.getpid()}-{next(_numbers)}.json")
        except (OSError, ClonosError) as error:
            logger.warning("other terminals cannot reach %s: %s", handle.graph.name, error)
            yield
            return
        stack.callback(control.close)
        try:
            yield
        except BaseException as error:
            control.error = str(error) or type(error).__name__
            raise


class RunControl:
    """Thread that answers requests to one job. ``error``: by which the run has ended."""

    def __init__(self, handle: Handle, log: RunLog, file: Path) -> None:
        """Writes the record ``file``, and listens at the socket beside it. Raises: OSError."""
        self._handle, self._log, self._file = handle, log, file
        self._documents = RunDocuments(handle)
        self.error: str | None = None
        self._socket_path = file.with_suffix(".sock")
        pid = os.getpid()
        store = absolute(handle.store_url)
        self._record = RegisteredRun(
            *(handle.graph.name, handle.job_id, store, os.getcwd(), pid, machine(), started_at(pid), wall_ns())
        )
        self._requests: set[threading.Thread] = set()
        with ExitStack() as on_failure:
            self._listener = on_failure.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            self._socket_path.unlink(missing_ok=True)  # of an earlier process with this number
            self._listener.bind(str(self._socket_path))
            self._listener.listen(REQUESTS_MAX)
            self._listener.setblocking(False)
            self._wake, self._woken = socket.socketpair()
            on_failure.callback(self._wake.close)
            on_failure.callback(self._woken.close)
            write_record(file, self._record)
            on_failure.pop_all()
        self._thread = threading.Thread(target=self._listen, name="run control", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._woken in ready:
                    return
                with suppress(OSError):  # it has gone again
                    connection, _ = self._listener.accept()
                    self._answer_in_thread(connection)

    def _answer_in_thread(self, connection: socket.socket) -> None:
        self._requests = {thread for thread in self._requests if thread.is_alive()}
        if len(self._requests) >= REQUESTS_MAX:
            connection.close()
            return
        thread = threading.Thread(target=self._answer, args=(connection,), name="run request", daemon=True)
        self._requests.add(thread)
        thread.start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(REQUEST_S_MAX)
            with connection.makefile("rb") as requests:
                line = requests.readline(REQUEST_BYTES_MAX)
            try:
                request = json.loads(line)
                reply = {"status": 200, "document": self._reply(request)}
            except RunRequestRefused as refused:
                reply = {"status": refused.status, "message": refused.message}
            except ClonosError as error:
                reply = {"status": 409, "message": str(error)}
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                reply = {"status": 400, "message": f"the request cannot be read: {error!r}"}
            connection.sendall(msgspec.json.encode(reply) + b"\n")

    def _reply(self, request: dict[str, Any]) -> Any:
        """Returns the document that answers a request. Raises: RunRequestRefused, and other errors of clonos."""
        job, verb = f"/jobs/{self._handle.job_id}", ""
        path, body = request["path"], request.get("body") or {}
        if path.startswith(f"{job}/"):
            verb = path.removeprefix(f"{job}/")
        elif path != job:
            raise RunRequestRefused(404, f"there is no {path!r:.100} here.")
        match request["method"], verb:
            case "GET", "":
                return self._documents.summary(self._handle.status())
            case "GET", "status":
                return self._documents.status()
            case "GET", "logs":
                query = request.get("query") or {}
                return self._log.document(int(query.get("after", 0)))
            case "POST", "savepoint" | "rescale" | "stop" | "cancel" | "capture" | "threads" | "flame":
                return self._change(verb, body)
        raise RunRequestRefused(404, f"a job of clonos run has no {verb!r:.100}.")

    def _change(self, verb: str, body: dict[str, Any]) -> Any:
        if self._handle.end() is not None:
            raise RunRequestRefused(409, f"the job {self._handle.graph.name} has ended.")
        if verb == "savepoint":
            return {"savepoint": self._handle.begin_savepoint(body.get("path") or None)}
        if verb == "rescale":
            is_placed_anew = body.get("place_anew", False)
            if not isinstance(is_placed_anew, bool):
                raise RunRequestRefused(400, f"place_anew is {is_placed_anew!r:.100}, and not true or false.")
            number, widths = self._handle.begin_rescale(body.get("widths") or {}, is_placed_anew=is_placed_anew)
            return {"number": number, "widths": widths}
        if verb == "threads":
            return self._handle.threads(body.get("task") or None)
        if verb == "flame":
            return self._handle.flame(str(body.get("task")), float(body.get("seconds", FLAME_S)))
        if verb == "capture":
            return {
                "epoch": str(self._handle.capture(str(body.get("task")), body.get("folder") or None, CAPTURE_S_MAX))
            }
        drain = verb == "stop"
        logger.warning("another terminal has requested to %s %s", verb, self._handle.graph.name)
        self._handle.stop(drain, savepoint=body.get("savepoint"))
        self._documents.is_cancelling |= not drain
        return {}

    def close(self) -> None:
        """Ends the thread, and leaves the last documents of the job in its record."""
        self._wake.send(b"x")
        self._thread.join()
        for thread in self._requests:
            thread.join()
        self._handle.finish_savepoints()  # the last lines of the log say whether they were written
        for each in (self._listener, self._wake, self._woken):
            each.close()
        error = self.error
        last = self._documents.status(error, rates_over_s=0)
        lines = self._log.document(limit=1 << 30)
        lines["lines"] = lines["lines"][-LINES_LEFT:]
        record = msgspec.structs.replace(self._record, last={"": last["job"], "status": last, "logs": lines})
        with suppress(OSError):  # then the record says that the process has gone
            self._socket_path.unlink(missing_ok=True)
            write_record(self._file, record)
