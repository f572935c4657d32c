"""``rabbitmq.queue``: the messages of a queue, in its order, for its only consumer (``QueuedJournal``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, Unpack, overload

from clonos.connectors.codecs import Codec, for_decoding
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.queued_feed import (
    CheckpointedJournal,
    QueuedFeed,
    QueuedJournal,
    QueueLimits,
    QueueOptions,
    queue_limits,
)
from clonos.connectors.kit.source_options import AddressOptions, is_bounded
from clonos.connectors.rabbitmq.broker import Broker
from clonos.connectors.rabbitmq.link import Link
from clonos.connectors.rabbitmq.message import Message, journalled, message_in, message_of
from clonos.core.model.wrong_calls import explains_calls
from clonos.io.system.wall_clock import monotonic_ns
from clonos.operators.lineage import Dataset

CONNECTOR: Final = "rabbitmq.queue"
EMPTY_ANSWERS: Final = 2
"""How often the broker must say that nothing is left: its first answer may overtake deliveries."""

COUNT_EVERY_NS: Final = 2_000_000_000
"""Nanoseconds after which the broker is asked again how many messages wait."""

T = TypeVar("T")

logger = logging.getLogger("clonos.slot")


class RabbitQueue(QueuedJournal, Generic[T]):
    """Description of a queue; the slot of the reading task connects."""

    def __init__(
        self,
        name: str,
        broker: Broker,
        *,
        decode: Any,
        limits: QueueLimits,
        identity: str | None,
        is_bounded: bool,
    ) -> None:
        self.name, self.broker = name, broker
        self.codec: Codec[bytes, Any] | None = None if decode is None else for_decoding(CONNECTOR, decode)
        self.prefetch, self.identities_retained = limits.prefetch, limits.identities_retained
        self.identified_by = identity
        self.is_bounded = is_bounded
        self.consumer: QueueFeed | None = None  # in the process that reads the queue

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "consumer": None}

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self.name!r}, url={self.broker.place!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return self.broker.datasets([self.name])

    def feed(self, offset_bytes: int, waits_for_checkpoints: bool) -> QueueFeed:
        """Connects and begins to consume, as the only consumer of the queue. Raises: as ``QueuedJournal``."""
        return QueueFeed(self, offset_bytes, waits_for_checkpoints)

    def pending_records(self) -> int | None:
        """See ``journal_source.PendingProducer``: messages in the queue, and those that it has sent ahead."""
        consumer = self.consumer
        return None if consumer is None else consumer.waiting_count

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


class CheckpointedRabbitQueue(CheckpointedJournal, RabbitQueue[T]):
    """Queue whose messages are acknowledged when checkpoints have them."""


class QueueFeed(QueuedFeed[int]):
    """Consumer of a queue. A tag is that of a delivery on its channel."""

    def __init__(self, source: RabbitQueue[Any], offset_bytes: int, waits_for_checkpoints: bool = False) -> None:
        super().__init__(offset_bytes, waits_for_checkpoints)
        self._source = source
        self._has_warned = False
        self._empty_answers = 0
        self._asked_ns: int | None = None
        self._delivered_count = self._delivered_at_count = 0
        self._counted: int | None = None  # in the queue, when the broker was last asked
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
        source.consumer = self

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
        self._delivered_count += 1
        self.arrived(method.delivery_tag, journalled(message, identity))

    def check(self) -> None:
        """See ``QueuedFeed``."""
        self._link.check()

    def receive(self, wait_ms: int) -> bytes | None:
        """Returns None if the queue is empty and is read only up to its end, else as ``QueuedFeed``."""
        now_ns = monotonic_ns()
        if self._asked_ns is None or now_ns - self._asked_ns >= COUNT_EVERY_NS:
            self._asked_ns = now_ns
            self._count()
        found = super().receive(wait_ms)
        if found:
            self._empty_answers = 0
        elif self._source.is_bounded and self._is_empty():
            return None
        return found

    def confirm(self, tags: list[int]) -> None:
        """See ``QueuedFeed``."""
        self._link.run("acknowledging", lambda channel: channel.basic_ack(tags[-1], multiple=True))

    def close(self) -> None:
        """Closes the connection, after the acknowledgements."""
        if self._source.consumer is self:
            self._source.consumer = None
        self._link.close()

    @property
    def waiting_count(self) -> int | None:
        """Messages that wait for ``receive``: those in the queue when last counted, and those that have come since."""
        if self._counted is None:
            return None
        left = self._counted - (self._delivered_count - self._delivered_at_count)
        return max(0, left) + self._arrived.qsize()

    def _count(self) -> int:
        """Returns how many messages the broker has to deliver."""

        def ask(channel: Any, reply: Callable[..., None]) -> None:
            def counted(frame: Any) -> None:
                self._counted, self._delivered_at_count = int(frame.method.message_count), self._delivered_count
                reply(frame)

            channel.queue_declare(self._source.name, passive=True, callback=counted)

        return int(self._link.ask("counting its messages", ask).method.message_count)

    def _is_empty(self) -> bool:
        """Returns whether the broker has said often enough that it has nothing more to deliver."""
        is_empty = self._count() == 0 and self._arrived.empty()
        self._empty_answers = self._empty_answers + 1 if is_empty else 0
        return self._empty_answers >= EMPTY_ANSWERS


class RabbitQueueOptions(AddressOptions, QueueOptions, total=False):
    """Options of ``rabbitmq.queue``, which describes them."""

    identity: Annotated[str | None, "message_id"]
    until: Literal["empty"] | None


@overload
def queue(name: str, *, decode: None = None, **options: Unpack[RabbitQueueOptions]) -> RabbitQueue[Message]: ...


@overload
def queue(name: str, *, decode: Any, **options: Unpack[RabbitQueueOptions]) -> RabbitQueue[Any]: ...


@explains_calls
def queue(name: str, *, decode: Any = None, **options: Unpack[RabbitQueueOptions]) -> RabbitQueue[Any]:
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
    until, identity = options.get("until"), options["identity"]
    if type(name) is not str or not name:
        raise InvalidConnector(CONNECTOR, f"the queue is {name!r:.80}", "Give the name of a queue.")
    limits = queue_limits(CONNECTOR, options, identity)
    if limits.waits_for_checkpoints and until is not None:
        problem = "acknowledge='checkpoint' does not go with until='empty'"
        raise InvalidConnector(CONNECTOR, problem, "Leave one of them out.")
    return (CheckpointedRabbitQueue if limits.waits_for_checkpoints else RabbitQueue)(
        name,
        Broker(CONNECTOR, options),
        decode=decode,
        limits=limits,
        identity=identity,
        is_bounded=is_bounded(CONNECTOR, until, "empty"),
    )
