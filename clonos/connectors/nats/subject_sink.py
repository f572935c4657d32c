"""``nats.sink``: an immediate sink that publishes rows to a stream, each confirmed and under its own id.

A server has no memory of the task that publishes, so a task that takes over publishes the rows since the last snapshot
again. Each row has the same id then: its job, task, generation and number. A stream ignores an id that it has seen
within its duplicate window. After a rollback rows have new ids, because their content may differ.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from clonos.connectors.codecs import Codec, for_encoding
from clonos.connectors.connector_errors import InvalidConnector, part_not_writable
from clonos.connectors.json_text import json_lines
from clonos.connectors.kit.external_system import SystemRefused
from clonos.connectors.nats.loop_thread import LoopThread
from clonos.connectors.nats.nats_errors import NATS
from clonos.connectors.nats.publishing import Outgoing, Publisher
from clonos.connectors.nats.server import Connection, Server
from clonos.connectors.nats.stream_splits import is_subject
from clonos.connectors.secrets import Secret
from clonos.connectors.tls_context import PemFile, Trust
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.connector_contract import Registration, WriterIdentity
from clonos.operators.event_time.durations import NANOSECONDS, Duration, duration_ns
from clonos.operators.row_errors import RowNotWritable

logger = logging.getLogger("clonos.driver")

CONNECTOR: Final = "nats.sink"
ID_HEADER: Final = "Nats-Msg-Id"
SHORT_WINDOW_S: Final = 60.0
BACKOFF_FIRST_S, BACKOFF_S_MAX = 0.05, 1.0

Subject = str | Callable[[Any], str]
RowHeaders = Mapping[str, str] | Callable[[Any], Mapping[str, str]] | None


class SubjectSink:
    """Description of a subject and of how rows become messages (``ImmediateSink``)."""

    connector = CONNECTOR

    def __init__(
        self,
        subject: Subject,
        server: Server,
        *,
        stream: str | None,
        encode: Any,
        headers: RowHeaders,
        patience_s: float,
    ) -> None:
        self.subject, self.server, self.stream = subject, server, stream
        self.codec: Codec[bytes, Any] | None = None if encode is None else for_encoding(CONNECTOR, encode)
        self.headers = headers
        self.patience_s = patience_s

    def __repr__(self) -> str:
        subject = self.subject if isinstance(self.subject, str) else "a function"
        return f"{CONNECTOR}({subject!r}, url={self.server.place!r})"

    def describe_output(self) -> list[tuple[str, str]]:
        """Returns what a resume compares."""
        found = [("server", self.server.place)]
        if isinstance(self.subject, str):
            found.append(("subject", self.subject))
        return found

    def check_start(self) -> None:
        """Looks up the stream of the subject, if that is known before there are rows.

        Raises: SystemRefused: there is none, or it confirms nothing. SystemUnreachable.
        """
        thread = LoopThread(CONNECTOR)
        try:
            thread.run(self._check_stream())
        finally:
            thread.close()

    async def _check_stream(self) -> None:
        connection = await Connection.opened(self.server)
        jetstream, stream = connection.jetstream, self.stream
        try:
            if stream is None and isinstance(self.subject, str):
                doing = f"looking for a stream with the subject {self.subject!r}"
                stream = await connection.answer(doing, jetstream.find_stream_name_by_subject(self.subject))
            if stream is None:
                return
            info = await connection.answer(f"looking up the stream {stream}", jetstream.stream_info(stream))
        finally:
            await connection.close()
        if info.config.no_ack:
            raise SystemRefused(
                NATS, self.server.place, f"publishing to the stream {stream}", "its no_ack confirms no message"
            )
        if info.config.duplicate_window < SHORT_WINDOW_S:
            logger.warning(
                "the stream %s recognises a row that is published again for %g s only: a task that takes longer to be"
                " replaced may publish rows twice. Raise its duplicate_window",
                stream,
                info.config.duplicate_window,
            )

    def check_row(self, row: Any) -> None:
        """Raises: RowNotWritable: the row cannot be a message."""
        self.outgoing("", 0, row, is_trial=True)

    def immediate_writer(self) -> SubjectWriter:
        """Creates a writer, in the slot of the sink task."""
        return SubjectWriter(self)

    def outgoing(self, id_space: str, number: int, row: Any, is_trial: bool = False) -> Outgoing:
        """Returns the message of a row. ``is_trial``: it is not sent, so no other system is asked.

        Raises: RowNotWritable: a part of the row cannot be part of a message.
        """
        part = "payload"
        try:
            payload = self.codec.trial(row) if is_trial and self.codec is not None else _payload(self.codec, row)
            part = "subject"
            subject = _subject(self.subject if isinstance(self.subject, str) else self.subject(row))
            part = "headers"
            given = {} if self.headers is None else self.headers(row) if callable(self.headers) else self.headers
            headers = {str(name): _header(value) for name, value in given.items()}
        except (RowNotWritable, EnvironmentFault):
            raise
        except Exception as error:
            raise part_not_writable(CONNECTOR, 0, row, part, error) from error
        return Outgoing(number, subject, payload, {**headers, ID_HEADER: f"{id_space}/{number}"}, row)


class SubjectWriter:
    """Publisher of one incarnation of a sink task (``ImmediateWriter``)."""

    def __init__(self, sink: SubjectSink) -> None:
        self._sink = sink
        self._key = ""
        self._next = 0
        self._publisher: Publisher | None = None
        self._pause = threading.Event()  # never set

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        """Continues after the snapshot, because no server says what it has of this task."""
        self._key = identity.id_space
        self._next = restored_number
        self._connect()
        return Registration(restored_number, None, knows_output=False)

    def write(self, first_number: int, rows: list[Any]) -> int:
        """Publishes rows until a stream has confirmed each; returns the number of the next row.

        Raises: SystemUnreachable: it did not for longer than ``timeout``. SystemRefused. MessageRefused: the stream
            does not take a row. RowNotWritable: a row cannot be a message.
        """
        skipped = max(0, self._next - first_number)
        numbered = enumerate(rows[skipped:], first_number + skipped)
        pending = {number: self._sink.outgoing(self._key, number, row) for number, row in numbered}
        deadline_s, backoff_s = time.monotonic() + self._sink.patience_s, BACKOFF_FIRST_S
        while pending:
            confirmed, failure = self._publish(list(pending.values()))
            for number in confirmed:
                del pending[number]
            if confirmed:
                deadline_s, backoff_s = time.monotonic() + self._sink.patience_s, BACKOFF_FIRST_S
            if pending:
                assert failure is not None, "what is not confirmed has a reason"
                if time.monotonic() + backoff_s > deadline_s:
                    raise failure
                self._pause.wait(backoff_s)
                backoff_s = min(BACKOFF_S_MAX, 2 * backoff_s)
        self._next = max(self._next, first_number + len(rows))
        return self._next

    def close(self) -> None:
        """Closes the connection."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()

    def _connect(self) -> Publisher:
        if self._publisher is None:
            self._publisher = Publisher(self._sink.server, self._sink.stream)
        return self._publisher

    def _publish(self, batch: list[Outgoing]) -> tuple[set[int], EnvironmentFault | None]:
        """Returns the numbers that are confirmed, and why the others are not.

        Raises: MessageRefused. SystemRefused.
        """
        try:
            publisher = self._connect()
        except EnvironmentFault as error:
            return set(), error
        published = publisher.publish(batch)
        if not published.is_connected:
            self.close()
        return published.confirmed, published.failure


def is_literal(subject: str) -> bool:
    """Returns whether a text is a subject to which a message can be published."""
    return is_subject(subject) and not {"*", ">"} & set(subject.split("."))


def _subject(found: Any) -> str:
    if not isinstance(found, str) or not is_literal(found):
        raise TypeError(f"{found!r:.80} is not a subject without wildcards")
    return found


def _header(value: Any) -> str:
    if not isinstance(value, str) or {"\r", "\n"} & set(value):
        raise TypeError(f"{value!r:.80} is no str without line ends")
    return value


def _payload(codec: Codec[bytes, Any] | None, row: Any) -> bytes:
    """Returns the payload of a row: bytes as they are, a str in UTF-8, everything else as JSON."""
    if codec is not None:
        return codec.encode(row)
    if isinstance(row, bytes):
        return row
    return row.encode() if type(row) is str else json_lines((row,), CONNECTOR)[:-1]


@explains_calls
def sink(
    subject: Subject,
    *,
    url: str | Secret,
    password: str | Secret | None = None,
    token: str | Secret | None = None,
    ca: PemFile | None = None,
    certificate: PemFile | None = None,
    stream: str | None = None,
    encode: Any = None,
    headers: RowHeaders = None,
    timeout: Duration = "30s",
) -> SubjectSink:
    """Immediate sink that publishes each row to a stream of JetStream, under a message id of its own.

    A row is in the stream once if it is published again within the duplicate window of the stream.

    Args:
        subject: the subject of all rows, or a function of the row. A stream must take it.
        url: nats://user@host:4222, or tls:// for TLS; several servers of a cluster with commas.
        password: password of the user, in place of that of the URL.
        token: token of the server, in place of a user.
        ca: file with the certificates of the authorities to trust, in place of those of the system.
        certificate: file with the certificate and the key of the client, if the server asks for one.
        stream: the stream that must take all rows; None for whichever has the subject.
        encode: a codec, a type or a function that makes the payload. None: bytes as they are, a str in UTF-8, all else
            as JSON.
        headers: further headers, or a function of the row that returns them.
        timeout: time for which no row may be confirmed, because the stream is full or no server can be reached.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        stream.sink(nats.sink("totals", url="nats://shop@localhost", password=secrets.env("SHOP_PASSWORD")))
    """
    if not callable(subject) and not is_literal(subject):
        advice = "Give a subject without wildcards, or a function of the row."
        raise InvalidConnector(CONNECTOR, f"the subject is {subject!r:.80}", advice)
    if headers is not None and not isinstance(headers, Mapping) and not callable(headers):
        raise InvalidConnector(CONNECTOR, f"headers is {headers!r:.80}", "Give a dict, or a function of the row.")
    return SubjectSink(
        subject,
        Server(CONNECTOR, url, password, token, Trust(CONNECTOR, ca, certificate)),
        stream=stream,
        encode=encode,
        headers=headers,
        patience_s=duration_ns(timeout) / NANOSECONDS["s"],
    )
