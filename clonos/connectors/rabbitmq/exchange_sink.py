"""``rabbitmq.exchange``: an immediate sink that publishes rows, each confirmed by the broker and under its own id.

A broker has no memory of the task that publishes, so a task that takes over publishes the rows since the last snapshot
again. Each row has the same id then: its job, task, generation and number. A consumer, or a queue with the plugin for
deduplication, that ignores an id that it has seen gets each row once. After a rollback rows have new ids, because their
content may differ.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from clonos.connectors.codecs import Codec, for_encoding
from clonos.connectors.connector_errors import InvalidConnector, part_not_writable, row_not_writable
from clonos.connectors.json_text import json_lines
from clonos.connectors.kit.external_system import MessageRefused, SystemRefused, SystemUnreachable
from clonos.connectors.rabbitmq.broker import Broker
from clonos.connectors.rabbitmq.link import Link
from clonos.connectors.rabbitmq.publishing import Outgoing, Publisher, exchange_name
from clonos.connectors.rabbitmq.rabbitmq_errors import RABBITMQ, ROUTE_ADVICE, SIZE_ADVICE, TOO_LARGE
from clonos.connectors.secrets import Secret
from clonos.connectors.tls_context import PemFile, Trust
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.connector_contract import Registration, WriterIdentity
from clonos.operators.event_time.durations import NANOSECONDS, Duration, duration_ns
from clonos.operators.row_errors import RowNotWritable

CONNECTOR: Final = "rabbitmq.exchange"
DEDUPLICATION_HEADER: Final = "x-deduplication-header"
"""Header by which the plugin ``rabbitmq-message-deduplication`` recognises a message."""

PERSISTENT, TRANSIENT = 2, 1
ROUTING_KEY_BYTES_MAX: Final = 255
BACKOFF_FIRST_S, BACKOFF_S_MAX = 0.05, 1.0

RoutingKey = str | Callable[[Any], str]
RowHeaders = Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] | None


class ExchangeSink:
    """Description of an exchange and of how rows become messages (``ImmediateSink``)."""

    connector = CONNECTOR

    def __init__(
        self,
        name: str,
        broker: Broker,
        *,
        routing_key: RoutingKey,
        encode: Any,
        headers: RowHeaders,
        is_persistent: bool,
        is_mandatory: bool,
        patience_s: float,
    ) -> None:
        self.name, self.broker = name, broker
        self.routing_key = routing_key
        self.codec: Codec[bytes, Any] | None = None if encode is None else for_encoding(CONNECTOR, encode)
        self.headers = headers
        self.is_persistent, self.is_mandatory = is_persistent, is_mandatory
        self.patience_s = patience_s

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self.name!r}, url={self.broker.place!r})"

    def describe_output(self) -> list[tuple[str, str]]:
        """Returns what a resume compares."""
        return [("broker", self.broker.place), ("exchange", self.name)]

    def check_start(self) -> None:
        """Looks up the exchange, or the queue that the default exchange is to give all rows to.

        Raises: SystemRefused: it does not exist, or the credentials are wrong. SystemUnreachable.
        """
        link = Link(self.broker)
        try:
            doing = f"looking up {exchange_name(self.name)}"
            if self.name:
                link.ask(doing, lambda at, reply: at.exchange_declare(self.name, passive=True, callback=reply))
            elif isinstance(self.routing_key, str):
                name = self.routing_key
                link.ask(f"looking up {name!r}", lambda at, reply: at.queue_declare(name, passive=True, callback=reply))
        finally:
            link.close()

    def check_row(self, row: Any) -> None:
        """Raises: RowNotWritable: the row cannot be a message."""
        self.outgoing("", 0, row, is_trial=True)

    def immediate_writer(self) -> ExchangeWriter:
        """Creates a writer, in the slot of the sink task."""
        return ExchangeWriter(self)

    def outgoing(self, id_space: str, number: int, row: Any, is_trial: bool = False) -> Outgoing:
        """Returns the message of a row. ``is_trial``: it is not sent, so no other system is asked.

        Raises: RowNotWritable: a part of the row cannot be part of a message.
        """
        pika = self.broker.library()
        part = "body"
        try:
            codec = self.codec
            body, content_type = (codec.trial(row), None) if is_trial and codec else _body(codec, row)
            part = "routing key"
            routing_key = _routing_key(self.routing_key if isinstance(self.routing_key, str) else self.routing_key(row))
            part = "headers"
            message_id = f"{id_space}/{number}"
            headers = {DEDUPLICATION_HEADER: message_id}
            if self.headers is not None:
                headers |= self.headers(row) if callable(self.headers) else self.headers
                pika.data.encode_table([], headers)
        except (RowNotWritable, EnvironmentFault):
            raise
        except Exception as error:
            raise part_not_writable(CONNECTOR, 0, row, part, error) from error
        properties = pika.BasicProperties(
            message_id=message_id,
            headers=headers,
            content_type=content_type,
            delivery_mode=PERSISTENT if self.is_persistent else TRANSIENT,
        )
        return Outgoing(number, routing_key, properties, body)


class ExchangeWriter:
    """Publisher of one incarnation of a sink task (``ImmediateWriter``)."""

    def __init__(self, sink: ExchangeSink) -> None:
        self._sink = sink
        self._key = ""
        self._next = 0
        self._publisher: Publisher | None = None
        self._pause = threading.Event()  # never set

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        """Continues after the snapshot, because no broker says what it has of this task."""
        self._key = identity.id_space
        self._next = restored_number
        self._connect()
        return Registration(restored_number, None, knows_output=False)

    def write(self, first_number: int, rows: list[Any]) -> int:
        """Publishes rows until the broker has confirmed each; returns the number of the next row.

        Raises: SystemUnreachable: it did not for longer than ``timeout``. SystemRefused. MessageRefused: there is no
            queue for a row, or it is too large. RowNotWritable: a row cannot be a message.
        """
        skipped = max(0, self._next - first_number)
        numbered = enumerate(rows[skipped:], first_number + skipped)
        pending = {number: self._sink.outgoing(self._key, number, row) for number, row in numbered}
        deadline_s, backoff_s = time.monotonic() + self._sink.patience_s, BACKOFF_FIRST_S
        while pending:
            confirmed, failure = self._publish(list(pending.values()), first_number, rows)
            for number in confirmed:
                del pending[number]
            if confirmed:
                deadline_s, backoff_s = time.monotonic() + self._sink.patience_s, BACKOFF_FIRST_S
            if pending:
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
            self._publisher = Publisher(self._sink.broker, self._sink.name, self._sink.is_mandatory)
        return self._publisher

    def _publish(self, batch: list[Outgoing], first_number: int, rows: list[Any]) -> tuple[set[int], EnvironmentFault]:
        """Returns the numbers that are confirmed, and why the others are not.

        Raises: MessageRefused: there is no queue for a row, or it is too large. SystemRefused.
        """
        sink = self._sink
        publisher = self._publisher
        failure: EnvironmentFault
        try:
            publisher = self._connect()
            publisher.publish(batch)
        except EnvironmentFault as error:
            failure = error
            self.close()
            return (set() if publisher is None else set(publisher.confirmed)), failure
        except SystemRefused as error:
            if TOO_LARGE not in error.reason:
                raise
            largest = max(batch, key=lambda each: len(each.body))
            raise self._refused(rows[largest.number - first_number], error.reason) from None
        if publisher.returned:
            number, reason = min(publisher.returned.items())
            key = next(each.routing_key for each in batch if each.number == number)
            shown = row_not_writable(CONNECTOR, 0, rows[number - first_number], "").row
            problem = f"it has no queue for the routing key {key!r}: {reason}"
            raise MessageRefused(exchange_name(sink.name), shown, problem, ROUTE_ADVICE)
        reason = "it refuses messages, because a queue is full (overflow reject-publish)"
        failure = SystemUnreachable(RABBITMQ, sink.broker.place, f"publishing to {exchange_name(sink.name)}", reason)
        return publisher.confirmed, failure

    def _refused(self, row: Any, reason: str) -> MessageRefused:
        shown = row_not_writable(CONNECTOR, 0, row, "").row
        return MessageRefused(exchange_name(self._sink.name), shown, reason, SIZE_ADVICE)


def _routing_key(found: Any) -> str:
    if not isinstance(found, str) or len(found.encode()) > ROUTING_KEY_BYTES_MAX:
        raise TypeError(f"{found!r:.80} is not a str of at most {ROUTING_KEY_BYTES_MAX} bytes")
    return found


def _body(codec: Codec[bytes, Any] | None, row: Any) -> tuple[bytes, str | None]:
    """Returns the body of a row and its type: bytes as they are, a str in UTF-8, everything else as JSON."""
    if codec is not None:
        return codec.encode(row), None
    if isinstance(row, bytes):
        return row, None
    if type(row) is str:
        return row.encode(), "text/plain"
    return json_lines((row,), CONNECTOR)[:-1], "application/json"


@explains_calls
def exchange(
    name: str,
    *,
    url: str | Secret,
    routing_key: RoutingKey = "",
    password: str | Secret | None = None,
    ca: PemFile | None = None,
    certificate: PemFile | None = None,
    encode: Any = None,
    headers: RowHeaders = None,
    persistent: bool = True,
    mandatory: bool = True,
    timeout: Duration = "30s",
) -> ExchangeSink:
    """Immediate sink that publishes each row to an exchange, under a message id of its own.

    A row is published at least once, and under one id as long as the job is not rolled back.

    Args:
        name: the exchange, which must exist; "" for the default one, which gives a message to the queue that its
            routing key names.
        url: amqp://user@host/vhost, or amqps:// for TLS.
        routing_key: the routing key of all rows, or a function of the row.
        password: password of the user, in place of that of the URL.
        ca: file with the certificates of the authorities to trust, in place of those of the system.
        certificate: file with the certificate and the key of the client, if the broker asks for one.
        encode: a codec, a type or a function that makes the body. None: bytes as they are, a str in UTF-8, all else as
            JSON.
        headers: further headers, or a function of the row that returns them.
        persistent: False for messages that need not outlast the broker.
        mandatory: False to drop rows for which the exchange has no queue; else such a row ends the job.
        timeout: time for which the broker may confirm nothing, because a queue is full or it cannot be reached.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        stream.sink(rabbitmq.exchange("shop", url="amqp://shop@localhost", routing_key=lambda order: order["city"]))
    """
    _check(name, routing_key, headers, {"persistent": persistent, "mandatory": mandatory})
    return ExchangeSink(
        name,
        Broker(CONNECTOR, url, password, Trust(CONNECTOR, ca, certificate)),
        routing_key=routing_key,
        encode=encode,
        headers=headers,
        is_persistent=persistent,
        is_mandatory=mandatory,
        patience_s=duration_ns(timeout) / NANOSECONDS["s"],
    )


def _check(name: str, routing_key: RoutingKey, headers: RowHeaders, switches: Mapping[str, bool]) -> None:
    """Raises: InvalidConnector: these options cannot work."""
    if type(name) is not str:
        raise InvalidConnector(CONNECTOR, f"the exchange is {name!r:.80}", "Give the name of an exchange.")
    if not isinstance(routing_key, str) and not callable(routing_key):
        raise InvalidConnector(CONNECTOR, f"routing_key is {routing_key!r:.80}", "Give a str, or a function.")
    if not name and routing_key == "":
        raise InvalidConnector(CONNECTOR, "the default exchange without a routing_key", "Give the name of a queue.")
    if headers is not None and not isinstance(headers, Mapping) and not callable(headers):
        raise InvalidConnector(CONNECTOR, f"headers is {headers!r:.80}", "Give a dict, or a function of the row.")
    for option, value in switches.items():
        if type(value) is not bool:
            raise InvalidConnector(CONNECTOR, f"{option} is {value!r:.80}", "Give True or False.")
