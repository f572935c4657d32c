"""Base of immediate sinks that publish rows to a broker, each confirmed and under its own id.

Most brokers have no memory of the task that publishes, so a task that takes over publishes the rows since the last
snapshot again. Each row has the same id then: its job, task, generation and number. A consumer that ignores an id it
has seen gets each row once. After a rollback rows have new ids, because their content may differ. A broker that can
keep the number of the next row together with the rows has a ``NumberingPublisher``: there each row is once.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypedDict,
    runtime_checkable,
)

from clonos.connectors.codecs import Codec, for_encoding
from clonos.connectors.connector_errors import InvalidConnector, part_not_writable, row_not_writable
from clonos.connectors.json_text import json_lines
from clonos.core.model.errors import EnvironmentFault
from clonos.operators.connector_contract import Registration, WriterIdentity
from clonos.operators.event_time.durations import NANOSECONDS, Duration, duration_ns
from clonos.operators.row_errors import RowNotWritable

BACKOFF_FIRST_S, BACKOFF_S_MAX = 0.05, 1.0
CONFIRM_S: Final = 30.0
"""Time in which a broker has to confirm a batch."""

Target: TypeAlias = str | Callable[[Any], str]
"""Place of all rows within a broker, such as a subject; or a function of the row."""

RowHeaders: TypeAlias = Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] | None


class SinkOptions(TypedDict, total=False):
    """Rows as messages, and the time for which a broker may confirm none of them."""

    encode: Any
    headers: RowHeaders
    timeout: Annotated[Duration, "30s"]


class Outgoing(NamedTuple):
    """Row as a message. ``properties`` has its id and its headers, as the client library takes them."""

    number: int
    target: str
    payload: bytes
    properties: Any
    row: Any

    @property
    def shown_row(self) -> str:
        """Returns the row as an error shows it."""
        return row_not_writable("", 0, self.row, "").row


class Published(NamedTuple):
    """Result of a batch: the numbers that are confirmed, why others are not, and whether the connection goes on."""

    confirmed: set[int]
    failure: EnvironmentFault | None
    is_connected: bool = True


class Publisher(Protocol):
    """Connection of one sink task."""

    def publish(self, batch: list[Outgoing]) -> Published:
        """Publishes messages, and waits until each is confirmed or refused.

        Raises: MessageRefused: the broker refuses a row for good. SystemRefused.
        """

    def close(self) -> None:
        """Closes the connection."""


@runtime_checkable
class NumberingPublisher(Publisher, Protocol):
    """``Publisher`` to a broker that keeps the next number of each task, and drops rows below it. It reconnects."""

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        """See ``ImmediateWriter``.

        Raises: WriterFenced, NumberLost. SystemRefused, SystemUnreachable.
        """


class BrokerSink(ABC):
    """Description of where rows go and of how they become messages (``ImmediateSink``, ``RefusingSink``)."""

    connector: ClassVar[str]
    target_word: ClassVar[str]
    payload_word: ClassVar[str] = "payload"

    def __init__(self, target: Target, options: SinkOptions) -> None:
        encode: Any = options.get("encode")
        given: Any = options.get("headers")
        if given is not None and not isinstance(given, Mapping) and not callable(given):
            problem = f"headers is {given!r:.80}"
            raise InvalidConnector(self.connector, problem, "Give a dict, or a function of the row.")
        self.target = target
        self.codec: Codec[bytes, Any] | None = None if encode is None else for_encoding(self.connector, encode)
        self.headers = given
        self.patience_s = duration_ns(options["timeout"]) / NANOSECONDS["s"]

    @abstractmethod
    def publisher(self) -> Publisher:
        """Connects, in the slot of the sink task.

        Raises: SystemRefused, SystemUnreachable, ExtraMissing, SecretMissing, InvalidConnector.
        """

    @abstractmethod
    def checked_target(self, found: Any) -> str:
        """Returns what ``target`` is or has returned.

        Raises: TypeError: no message can go there.
        """

    @abstractmethod
    def properties(self, message_id: str, headers: Mapping[str, Any], content_type: str | None) -> Any:
        """Returns the id and the headers of a message, as the client library takes them.

        Raises: TypeError: a header cannot be one.
        """

    def check_row(self, row: Any) -> None:
        """Raises: RowNotWritable: the row cannot be a message."""
        self.outgoing("", 0, row, is_trial=True)

    def immediate_writer(self) -> ConfirmedWriter:
        """Creates a writer, in the slot of the sink task."""
        return ConfirmedWriter(self)

    def outgoing(self, id_space: str, number: int, row: Any, is_trial: bool = False) -> Outgoing:
        """Returns the message of a row. ``is_trial``: it is not sent, so no other system is asked.

        Raises: RowNotWritable: a part of the row cannot be part of a message.
        """
        part = self.payload_word
        try:
            payload, content_type = encoded_row(self.connector, self.codec, row, is_trial)
            part = self.target_word
            target = self.checked_target(self.target if isinstance(self.target, str) else self.target(row))
            part = "headers"
            headers = (self.headers(row) if callable(self.headers) else self.headers) or {}
            properties = self.properties(f"{id_space}/{number}", headers, content_type)
        except (RowNotWritable, EnvironmentFault):
            raise
        except Exception as error:
            raise part_not_writable(self.connector, 0, row, part, error) from error
        return Outgoing(number, target, payload, properties, row)


class ConfirmedWriter:
    """Publisher of one incarnation of a sink task (``ImmediateWriter``)."""

    def __init__(self, sink: BrokerSink) -> None:
        self._sink = sink
        self._key = ""
        self._next = 0
        self._publisher: Publisher | None = None
        self._pause = threading.Event()  # never set

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        """Continues where the broker says, or after the snapshot if it does not say what it has of this task.

        Raises: as ``NumberingPublisher``.
        """
        self._key = identity.id_space
        publisher = self._connect()
        if isinstance(publisher, NumberingPublisher):
            registration = publisher.register(identity, restored_number)
        else:
            registration = Registration(restored_number, None, knows_output=False)
        self._next = registration.next_number
        return registration

    def write(self, first_number: int, rows: list[Any]) -> int:
        """Publishes rows until the broker has confirmed each; returns the number of the next row.

        Raises: SystemUnreachable: it did not for longer than ``timeout``. SystemRefused. MessageRefused: it never will
            take a row. RowNotWritable: a row cannot be a message.
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
            self._publisher = self._sink.publisher()
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


def encoded_row(
    connector: str, codec: Codec[bytes, Any] | None, row: Any, is_trial: bool = False
) -> tuple[bytes, str | None]:
    """Returns the payload of a row and its media type: bytes as they are, a str in UTF-8, everything else as JSON."""
    if codec is not None:
        return (codec.trial if is_trial else codec.encode)(row), None
    if isinstance(row, bytes):
        return row, None
    if type(row) is str:
        return row.encode(), "text/plain"
    return json_lines((row,), connector)[:-1], "application/json"
