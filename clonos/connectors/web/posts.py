"""``web.post``: an immediate sink that sends rows to a server by HTTP, in batches, each row with a key.

A server has no memory of the task that sends, so a task that takes over sends the rows since the last snapshot again.
Each row has the same key then: its job, task, generation and number. A server that ignores a key that it has seen gets
each row once. After a rollback rows have new keys, because their content may differ.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from clonos.connectors.codecs import Codec, for_encoding
from clonos.connectors.connector_errors import (
    InvalidConnector,
    OutputFailed,
    check_number,
    part_not_writable,
    row_not_writable,
)
from clonos.connectors.json_text import json_lines
from clonos.connectors.secrets import Secret, check_text, revealed, without_secrets
from clonos.connectors.web.web_options import checked_names
from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.core.model.wrong_calls import explains_calls
from clonos.io.http.http_client import HttpLimits, HttpReply, HttpRequest, shared_client
from clonos.io.http.http_errors import HttpError, HttpRequestInvalid, redacted_url
from clonos.io.http.http_requests import first_hop
from clonos.operators.connector_contract import Registration, WriterIdentity
from clonos.operators.event_time.durations import NANOSECONDS, Duration, duration_ns
from clonos.operators.lineage import Dataset, dataset_at

logger = logging.getLogger("clonos.run")

CONNECTOR: Final = "web.post"
CHECK_TIMEOUT_S: Final = 2.0
BATCH_ROWS_MAX: Final = 5_000
REFUSED_ROWS: Final = frozenset({400, 409, 410, 413, 415, 422})
"""Statuses that are about the rows of a request. Any other than these and 2xx is about the server or the address."""
TRANSIENT: Final = frozenset({408, 425, 429, *range(500, 600)})
BODY_CHARACTERS_MAX: Final = 500
KEY_HEADER: Final = "Idempotency-Key"


class PostFailed(EnvironmentFault):
    """A server does not take rows at the moment."""

    url: str
    reason: str

    def __str__(self) -> str:
        return f"sending rows to {self.url} failed: {self.reason}."


class PostRefused(JobError):
    """A server refuses rows, and would refuse them again."""

    url: str
    status: str
    body: str
    row: str
    advice: str

    def __str__(self) -> str:
        answer = f" with {self.body!r}" if self.body else ""
        return f"{self.url} answered {self.status}{answer} to the row {self.row}. {self.advice}"


class PostSink:
    """Description of a server and of how rows are sent to it."""

    connector = CONNECTOR

    def __init__(
        self,
        url: str,
        *,
        method: str,
        headers: Mapping[str, str | Secret],
        encode: Any,
        batch: int,
        key_field: str | None,
        timeout: Duration,
        dead_letters: str | os.PathLike[str] | None,
    ) -> None:
        check_text(CONNECTOR, "url", url)
        check_number(CONNECTOR, "batch", batch, "rows", BATCH_ROWS_MAX)
        if batch > 1 and encode is not None:
            raise InvalidConnector(
                CONNECTOR, "batch= and encode= exclude each other", "Several rows are sent as an array of JSON."
            )
        if key_field is not None and (type(key_field) is not str or not key_field):
            raise InvalidConnector(CONNECTOR, f"key_field is {key_field!r:.80}", "Give the name of a field.")
        folder: Any = dead_letters
        if folder is not None and not (isinstance(folder, (str, os.PathLike)) and os.fspath(folder)):
            raise InvalidConnector(CONNECTOR, f"dead_letters is {dead_letters!r:.80}", "Give the path of a folder.")
        self.url, self.shown_url = url, redacted_url(url)
        self.method = method
        self.headers = checked_names(CONNECTOR, headers)
        self.codec: Codec[bytes, Any] | None = None if encode is None else for_encoding(CONNECTOR, encode)
        self.batch = batch
        self.key_field = key_field
        self.timeout_s = duration_ns(timeout) / NANOSECONDS["s"]
        self.dead_letters = None if dead_letters is None else os.fspath(dead_letters)
        try:
            first_hop(HttpRequest(method, url, tuple((name, "x") for name in self.headers)))
        except HttpRequestInvalid as error:
            raise InvalidConnector(CONNECTOR, str(error).rstrip("."), "Correct it.") from None

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self.shown_url!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [dataset_at(self.url)]

    def describe_output(self) -> list[tuple[str, str]]:
        """Returns what a resume compares."""
        return [("url", self.shown_url), ("method", self.method)]

    def check_start(self) -> None:
        """Warns at the start, in the driver, that nobody listens at the address. The job waits for the server."""
        place = urlsplit(self.url)
        port = place.port or (443 if place.scheme == "https" else 80)
        try:
            socket.create_connection((place.hostname, port), CHECK_TIMEOUT_S).close()
        except OSError as error:  # a server that only the slots reach is not known here
            if isinstance(error, ConnectionRefusedError | socket.gaierror):
                logger.warning("%s cannot be reached now, the job tries on: %s", self.shown_url, error.strerror)

    def check_row(self, row: Any) -> None:
        """Raises: RowNotWritable: the row cannot be sent."""
        self.content("", [(0, row)], is_trial=True)

    def immediate_writer(self) -> PostWriter:
        """Creates a writer, in the slot of the sink task."""
        return PostWriter(self)

    def content(self, id_space: str, batch: list[tuple[int, Any]], is_trial: bool = False) -> bytes:
        """Returns the body of a request with rows. ``is_trial``: it is not sent, so no other system is asked.

        Raises: RowNotWritable: a row cannot be sent.
        """
        rows = [self._keyed(f"{id_space}/{number}", row) for number, row in batch]
        if self.codec is not None:
            try:
                return (self.codec.trial if is_trial else self.codec.encode)(rows[0])
            except EnvironmentFault:
                raise
            except Exception as error:
                raise part_not_writable(CONNECTOR, 0, rows[0], "body", error) from error
        lines = json_lines(rows, CONNECTOR)
        return lines[:-1] if self.batch == 1 else b"[" + lines[:-1].replace(b"\n", b",") + b"]"

    def _keyed(self, key: str, row: Any) -> Any:
        """Returns the row with its key in the field that the user has named."""
        field = self.key_field
        if field is None:
            return row
        if isinstance(row, Mapping):
            return {**row, field: key}
        if isinstance(row, msgspec.Struct):
            return {**msgspec.structs.asdict(row), field: key}
        if dataclasses.is_dataclass(row) and not isinstance(row, type):
            return {**dataclasses.asdict(row), field: key}
        raise row_not_writable(CONNECTOR, 0, row, f"key_field={field!r} needs rows with fields")


class PostWriter:
    """Sender of one incarnation of a sink task."""

    def __init__(self, sink: PostSink) -> None:
        self._sink = sink
        self._next = 0
        self._key = ""
        self._letters: DeadLetters | None = None
        self._limits = HttpLimits(
            timeout_s=sink.timeout_s,
            connect_timeout_s=min(10.0, sink.timeout_s),
            retries_max=8,
            redirects_max=3,
            body_bytes_max=1 << 20,
            is_repeatable=True,  # each row has a key
        )

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        """Continues after the snapshot, because no server says what it has of this task."""
        self._key = identity.id_space
        self._next = restored_number
        if self._sink.dead_letters is not None:
            self._letters = DeadLetters(self._sink.dead_letters, identity)
        return Registration(restored_number, None, knows_output=False)

    def write(self, first_number: int, rows: list[Any]) -> int:
        """Sends rows in order, as batches; returns the number of the next row.

        Raises: PostFailed: the server does not answer, or not now. PostRefused: it refuses rows for good.
        """
        skipped = max(0, self._next - first_number)
        pending = list(enumerate(rows[skipped:], first_number + skipped))
        for start in range(0, len(pending), self._sink.batch):
            self._send(pending[start : start + self._sink.batch])
        self._next = max(self._next, first_number + len(rows))
        return self._next

    def close(self) -> None:
        """Ends the writer; the connections belong to the process."""

    def _send(self, batch: list[tuple[int, Any]]) -> None:
        reply = self._reply(batch)
        if 200 <= reply.status_code < 300:
            return
        if reply.status_code in TRANSIENT:
            raise PostFailed(self._sink.shown_url, f"it answered {self._status(reply)}{self._body(reply)}")
        if reply.status_code in REFUSED_ROWS and len(batch) > 1:  # which of them is found by sending each alone
            for row in batch:
                self._send([row])
            return
        self._refuse(batch[0], reply)

    def _reply(self, batch: list[tuple[int, Any]]) -> HttpReply:
        sink = self._sink
        headers = {name: revealed(value) for name, value in sink.headers.items()}
        first, last = batch[0][0], batch[-1][0]
        headers[KEY_HEADER] = f"{self._key}/{first}" if first == last else f"{self._key}/{first}-{last}"
        if sink.codec is None:
            headers.setdefault("Content-Type", "application/json")
        try:
            return shared_client().send(
                HttpRequest(sink.method, sink.url, tuple(headers.items()), sink.content(self._key, batch)), self._limits
            )
        except HttpError as error:
            raise PostFailed(sink.shown_url, str(error).rstrip(".")) from error

    def _refuse(self, numbered: tuple[int, Any], reply: HttpReply) -> None:
        """Sets a row aside.

        Raises: PostRefused: there is no folder for it, or the refusal is not about this row.
        """
        number, row = numbered
        if reply.status_code not in REFUSED_ROWS:
            advice = "Correct the address, the method or the credentials, and resume the job: no row is lost."
        elif self._letters is None:
            advice = "Correct the row in a map, or give dead_letters=FOLDER for such rows, and resume the job."
        else:
            letter = {
                "key": f"{self._key}/{number}",
                "status": reply.status_code,
                "body": self._text(reply),
                "row": row,
            }
            self._letters.add(letter)
            return
        shown = row_not_writable(CONNECTOR, 0, row, "").row
        raise PostRefused(self._sink.shown_url, self._status(reply), self._text(reply), shown, advice)

    # ------------------------------------------------------------------ answers, which may repeat a secret

    def _status(self, reply: HttpReply) -> str:
        return without_secrets(f"{reply.status_code} {reply.reason}".strip(), self._sink.headers.values())

    def _text(self, reply: HttpReply) -> str:
        whole = reply.body[: 4 * BODY_CHARACTERS_MAX].decode("utf-8", "replace")
        return without_secrets(whole, self._sink.headers.values())[:BODY_CHARACTERS_MAX].strip()

    def _body(self, reply: HttpReply) -> str:
        text = self._text(reply)
        return f": {text}" if text else ""


@explains_calls
def post(
    url: str,
    *,
    method: str = "POST",
    headers: Mapping[str, str | Secret] | None = None,
    encode: Any = None,
    batch: int = 1,
    key_field: str | None = None,
    timeout: Duration = "30s",
    dead_letters: str | os.PathLike[str] | None = None,
) -> PostSink:
    """Immediate sink that sends each row to a server, with a header ``Idempotency-Key``.

    A row is delivered at least once, and under one key as long as the job is not rolled back.

    Args:
        url: where rows are sent; http or https.
        method: "POST", "PUT" or "PATCH".
        headers: further headers; a value may be a secret.
        encode: a codec, a type or a function that makes the body; None for JSON.
        batch: rows of one request, as an array of JSON if more than 1.
        key_field: field of each row that gets the key of the row; None if only the header has a key.
        timeout: time for one request with its retries, during which 429 and 5xx are retried; ``Retry-After`` is obeyed.
        dead_letters: folder for rows that the server refuses for good (400, 409, 410, 413, 415, 422); None ends the
            job with the first of them.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        stream.sink(clonos.web.post("https://shop/orders", headers={"Authorization": secrets.env("TOKEN")}))
    """
    return PostSink(
        url,
        method=method,
        headers=headers or {},
        encode=encode,
        batch=batch,
        key_field=key_field,
        timeout=timeout,
        dead_letters=dead_letters,
    )


class DeadLetters:
    """Rows that a server refuses for good: a file of JSON lines per writer, created with the first row.

    Each row is on the disk when ``add`` returns. A row may be there twice, since a row that was refused shortly before
    a failure is sent and refused again.
    """

    def __init__(self, folder: str, identity: WriterIdentity) -> None:
        task = identity.task_name.replace("/", "-")
        self._path = Path(folder) / f"{task}-{identity.generation}-{identity.incarnation}.jsonl"

    def add(self, letter: dict[str, Any]) -> None:
        """Appends a row with its reason.

        Raises: OutputFailed: the folder cannot be written.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "ab") as file:
                file.write(json_lines((letter,), "dead letters"))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OutputFailed(str(self._path), "written", error.strerror or str(error)) from error
