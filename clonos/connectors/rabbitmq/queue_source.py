"""``rabbitmq.queue``: the messages of a queue, acknowledged once a keeper holds them.

A queue cannot be read again, so this is a ``PushSource``: messages are journalled before any step sees them, and the
broker drops a message when the journal has it, or on request when checkpoints have it. A message whose acknowledgement
was lost with its connection is delivered again. It is recognised by its identity among the last ones, and counts once
(``IdentifiedSource``).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, Unpack, overload

from clonos.connectors.codecs import Codec, for_decoding
from clonos.connectors.connector_errors import InvalidConnector, check_number
from clonos.connectors.kit.journalled_source import IdentifiedJournal
from clonos.connectors.kit.source_options import AddressOptions, is_bounded
from clonos.connectors.rabbitmq.broker import Broker
from clonos.connectors.rabbitmq.link import Link
from clonos.connectors.rabbitmq.message import Message, journalled, message_in, message_of
from clonos.core.model.wrong_calls import explains_calls

CONNECTOR: Final = "rabbitmq.queue"
PREFETCH: Final = 1_000
CHECKPOINTED_PREFETCH: Final = 10_000
PREFETCH_MAX: Final = 65_535
REMEMBERED_PER_CREDIT: Final = 4
RECEIVE_BYTES: Final = 256 << 10
EMPTY_ANSWERS: Final = 2
"""How often the broker must say that nothing is left: its first answer may overtake deliveries."""

T = TypeVar("T")

logger = logging.getLogger("clonos.slot")


class RabbitQueue(IdentifiedJournal, Generic[T]):
    """Description of a queue; the slot of the reading task connects."""

    def __init__(
        self,
        name: str,
        broker: Broker,
        *,
        decode: Any,
        prefetch: int,
        identity: str | None,
        identities_retained: int,
        is_bounded: bool,
    ) -> None:
        self.name, self.broker = name, broker
        self.codec: Codec[bytes, Any] | None = None if decode is None else for_decoding(CONNECTOR, decode)
        self.prefetch = prefetch
        self.identified_by = identity
        self.identities_retained = identities_retained
        self.is_bounded = is_bounded

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self.name!r}, url={self.broker.place!r})"

    def connect(self, offset_bytes: int) -> QueueFeed:
        """Connects and begins to consume, as the only consumer of the queue.

        Raises: SystemRefused, SystemUnreachable, ExtraMissing, SecretMissing, InvalidConnector.
        """
        return QueueFeed(self, offset_bytes)

    def message(self, record: bytes) -> Message:
        """See ``JournalledSource``."""
        return message_in(record)

    def payload(self, message: Message) -> bytes:
        """See ``JournalledSource``."""
        return message.body

    def where(self, message: Message) -> str:
        """See ``JournalledSource``."""
        which = f"the message {message.message_id}" if message.message_id else "a message without an id"
        return f"{which} of the queue {self.name}"


class CheckpointedRabbitQueue(RabbitQueue[T]):
    """Queue whose messages are acknowledged when checkpoints have them (``AcknowledgedSource``)."""

    _feed: QueueFeed | None = None  # of this process

    def connect(self, offset_bytes: int) -> QueueFeed:
        """See ``RabbitQueue``."""
        self._feed = QueueFeed(self, offset_bytes, waits_for_checkpoints=True)
        return self._feed

    def acknowledge(self, _split: bytes, mark: bytes) -> None:
        """Acknowledges the messages that are in the state of checkpoints."""
        if self._feed is not None:
            self._feed.acknowledge_to(int(mark))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_feed"}


class QueueFeed:
    """Consumer of a queue (``ProducerConnection``)."""

    def __init__(self, source: RabbitQueue[Any], offset_bytes: int, waits_for_checkpoints: bool = False) -> None:
        self._source = source
        self._waits_for_checkpoints = waits_for_checkpoints
        self._received_bytes = offset_bytes
        self._arrived: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self._unacknowledged: deque[tuple[int, int]] = deque()  # offsets after messages, and their delivery tags
        self._has_warned = False
        self._empty_answers = 0
        self._link = Link(source.broker)
        try:
            doing = f"consuming from the queue {source.name!r}"
            self._link.ask(
                doing, lambda channel, reply: channel.basic_qos(prefetch_count=source.prefetch, callback=reply)
            )
            self._link.ask(doing, self._consume)
        except BaseException:
            self._link.close()
            raise

    def _consume(self, channel: Any, reply: Callable[..., None]) -> None:
        channel.basic_consume(self._source.name, self._on_message, exclusive=True, callback=reply)

    def _on_message(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Called in the thread of the connection."""
        message = message_of(method, properties, body)
        by = self._source.identified_by
        identity = None
        if by is not None:
            identity = message.message_id if by == "message_id" else message.headers.get(by)
            if identity is None and message.redelivered and not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "the queue %s delivers a message again that has no %s: it may count twice", self._source.name, by
                )
        self._arrived.put((method.delivery_tag, journalled(message, identity)))

    def receive(self, wait_ms: int) -> bytes | None:
        """Returns messages as soon as there are any, b"" if there are none within ``wait_ms``.

        Returns None if the queue is empty and is read only up to its end.

        Raises: SystemUnreachable, SystemRefused: the connection has ended.
        """
        self._link.check()  # what has arrived and is not journalled is delivered again
        records: list[bytes] = []
        size = 0
        try:
            tag, record = self._arrived.get(timeout=wait_ms / 1000)
            while True:
                records.append(record)
                size += len(record)
                self._unacknowledged.append((self._received_bytes + size, tag))
                if size >= RECEIVE_BYTES:
                    break
                tag, record = self._arrived.get_nowait()
        except Empty:
            pass
        self._received_bytes += size
        if records:
            self._empty_answers = 0
        elif self._source.is_bounded and self._is_empty():
            return None
        return b"".join(records)

    def acknowledge(self, offset_bytes: int) -> None:
        """Acknowledges the messages that are journalled, unless checkpoints decide."""
        if not self._waits_for_checkpoints:
            self.acknowledge_to(offset_bytes)

    def acknowledge_to(self, offset_bytes: int) -> None:
        """Acknowledges the messages before an offset of the journal."""
        tag = 0
        while self._unacknowledged and self._unacknowledged[0][0] <= offset_bytes:
            tag = self._unacknowledged.popleft()[1]
        if tag:
            self._link.run("acknowledging", lambda channel: channel.basic_ack(tag, multiple=True))

    def close(self) -> None:
        """Closes the connection, after the acknowledgements."""
        self._link.close()

    def _is_empty(self) -> bool:
        """Returns whether the broker has said often enough that it has nothing more to deliver."""
        asked = self._link.ask(
            "counting its messages",
            lambda channel, reply: channel.queue_declare(self._source.name, passive=True, callback=reply),
        )
        is_empty = asked.method.message_count == 0 and self._arrived.empty()
        self._empty_answers = self._empty_answers + 1 if is_empty else 0
        return self._empty_answers >= EMPTY_ANSWERS


class QueueOptions(AddressOptions, total=False):
    """Options of ``rabbitmq.queue``, which describes them."""

    prefetch: int | None
    acknowledge: Annotated[Literal["journal", "checkpoint"], "journal"]
    identity: Annotated[str | None, "message_id"]
    remember: int | None
    until: Literal["empty"] | None


@overload
def queue(name: str, *, decode: None = None, **options: Unpack[QueueOptions]) -> RabbitQueue[Message]: ...


@overload
def queue(name: str, *, decode: Any, **options: Unpack[QueueOptions]) -> RabbitQueue[Any]: ...


@explains_calls
def queue(name: str, *, decode: Any = None, **options: Unpack[QueueOptions]) -> RabbitQueue[Any]:
    """Source of the messages of a queue, in its order. It has one task, is the only consumer, and needs ``keepers``.

    Args:
        name: the queue, which must exist.
        url: amqp://user@host/vhost, or amqps:// for TLS.
        password: password of the user, in place of that of the URL.
        ca: file with the certificates of the authorities to trust, in place of those of the system.
        certificate: file with the certificate and the key of the client, if the broker asks for one.
        decode: a codec, a type or a function of the body. Bodies that it does not decode go to ``errors=``. None:
            records are of the class ``Message``.
        prefetch: messages that the broker sends ahead of acknowledgements, 1 to 65535. None: 1,000, or 10,000 if they
            wait for checkpoints.
        acknowledge: "journal": a message is acknowledged when a keeper has it. "checkpoint": when no restart of the job
            needs it any more, so that nothing is lost even if all processes die at once.
        identity: what a repeated message has in common with the first: "message_id" or the name of a header. None: a
            message that the broker delivers again counts again.
        remember: identities that are retained to recognise repetitions; None for four times ``prefetch``.
        until: "empty": the source ends when the queue is empty. None: it never ends.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        job.source(rabbitmq.queue("orders", url="amqp://shop@localhost", password=secrets.env("SHOP_PASSWORD")))
    """
    acknowledge, until, identity = options["acknowledge"], options.get("until"), options["identity"]
    waits, prefetch, remember = acknowledge == "checkpoint", options.get("prefetch"), options.get("remember")
    if prefetch is None:
        prefetch = CHECKPOINTED_PREFETCH if waits else PREFETCH
    _check(name, acknowledge, until, identity, prefetch)
    retained = REMEMBERED_PER_CREDIT * prefetch if remember is None else remember
    check_number(CONNECTOR, "remember", retained, "identities")
    return (CheckpointedRabbitQueue if waits else RabbitQueue)(
        name,
        Broker(CONNECTOR, options),
        decode=decode,
        prefetch=prefetch,
        identity=identity,
        identities_retained=retained,
        is_bounded=is_bounded(CONNECTOR, until, "empty"),
    )


def _check(name: str, acknowledge: str, until: str | None, identity: str | None, prefetch: int) -> None:
    """Raises: InvalidConnector: these options cannot work."""
    if type(name) is not str or not name:
        raise InvalidConnector(CONNECTOR, f"the queue is {name!r:.80}", "Give the name of a queue.")
    if acknowledge not in ("journal", "checkpoint"):
        raise InvalidConnector(CONNECTOR, f"acknowledge is {acknowledge!r:.80}", 'Give "journal" or "checkpoint".')
    if acknowledge == "checkpoint" and (until is not None or identity is None):
        problem = "acknowledge='checkpoint' goes neither with until='empty' nor with identity=None"
        raise InvalidConnector(CONNECTOR, problem, "Leave one of them out.")
    check_number(CONNECTOR, "prefetch", prefetch, "messages", PREFETCH_MAX)
