"""``mqtt.source``: the messages of topics, by a session that the broker keeps (``QueuedJournal``).

It subscribes with QoS 1. With QoS 2 the broker forgets a message when the client has its number, before a keeper has
the message, so that the death of the client would lose it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import combinations, zip_longest
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar, Unpack, overload

import msgspec

from clonos.connectors.codecs import Codec, for_decoding
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.journal_records import data_in, record_of
from clonos.connectors.kit.queued_feed import (
    CheckpointedJournal,
    QueuedFeed,
    QueuedJournal,
    QueueLimits,
    QueueOptions,
    queue_limits,
)
from clonos.connectors.kit.source_options import AddressOptions
from clonos.connectors.mqtt.mqtt_link import CONNECT_S, FAILURE, MqttBroker, MqttLink
from clonos.connectors.mqtt.topic_sink import ID_PROPERTY, is_text
from clonos.core.model.wrong_calls import explains_calls
from clonos.core.values import register
from clonos.operators.event_time.durations import NANOSECONDS, Duration, duration_ns
from clonos.operators.lineage import Dataset

CONNECTOR: Final = "mqtt.source"
FILTER: Final = re.compile(r"(\$share/[^/+#]+/)?([^/+#]*|\+)(/([^/+#]*|\+))*(/#)?|(\$share/[^/+#]+/)?#")
"""Topics that a subscription may have: wildcards are whole levels, and a # is the last one."""
SHARE: Final = re.compile(r"^\$share/[^/]+/")
EXPIRY_S_MAX: Final = 0xFFFFFFFF
ONLY_NEW, NEVER = 1, 2
"""When a subscription is sent retained messages: if it is new, or never."""

T = TypeVar("T")
Topics: TypeAlias = str | Sequence[str]

logger = logging.getLogger("clonos.slot")


@register(name="clonos.mqtt.Message")
class Message(msgspec.Struct, frozen=True):
    """Message of a topic.

    ``retained``: the broker had it from before the subscription. ``redelivered``: it was sent before, and may not have
    been journalled. ``properties`` are those of the publisher, which may repeat a name.
    """

    topic: str
    payload: bytes
    qos: int
    retained: bool
    redelivered: bool
    content_type: str | None = None
    response_topic: str | None = None
    correlation: bytes | None = None
    properties: tuple[tuple[str, str], ...] = ()


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)


class TopicSource(QueuedJournal, Generic[T]):
    """Description of topics and of a session; the slot of the reading task connects."""

    def __init__(
        self,
        topics: tuple[str, ...],
        session: str,
        broker: MqttBroker,
        *,
        decode: Any,
        limits: QueueLimits,
        identity: str | None,
        expiry_s: int,
        retained: bool,
    ) -> None:
        self.topics, self.session, self.broker = topics, session, broker
        self.codec: Codec[bytes, Any] | None = None if decode is None else for_decoding(CONNECTOR, decode)
        self.prefetch, self.identities_retained = limits.prefetch, limits.identities_retained
        self.identified_by, self.expiry_s, self.retained = identity, expiry_s, retained

    def __repr__(self) -> str:
        return f"{CONNECTOR}({', '.join(self.topics)!r}, session={self.session!r}, url={self.broker.place!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return self.broker.datasets(SHARE.sub("", topic) for topic in self.topics)

    def feed(self, offset_bytes: int, waits_for_checkpoints: bool) -> SessionFeed:
        """Connects and subscribes. Raises: as ``QueuedJournal``."""
        return SessionFeed(self, offset_bytes, waits_for_checkpoints)

    def message(self, record: bytes) -> Message:
        """See ``JournalledSource``."""
        return _decoder.decode(data_in(record))

    def payload(self, message: Message) -> bytes:
        """See ``JournalledSource``."""
        return message.payload

    def where(self, message: Message) -> str:
        """See ``JournalledSource``."""
        return f"a message of the topic {message.topic}"


class CheckpointedTopicSource(CheckpointedJournal, TopicSource[T]):
    """Topics whose messages are acknowledged when checkpoints have them."""


class SessionFeed(QueuedFeed[tuple[int, int]]):
    """Connection that a session has. A tag is the number of a packet, and its QoS."""

    def __init__(self, source: TopicSource[Any], offset_bytes: int, waits_for_checkpoints: bool) -> None:
        super().__init__(offset_bytes, waits_for_checkpoints)
        self._source = source
        self._has_warned = False
        self._subscribed: Future[list[Any]] = Future()
        self._doing = f"subscribing to {', '.join(source.topics)}"
        properties = {"SessionExpiryInterval": source.expiry_s, "ReceiveMaximum": source.prefetch}
        self._link = MqttLink(
            source.broker, source.session, clean_start=False, properties=properties, set_up=self._set_up
        )
        try:
            if offset_bytes and not self._link.has_session:
                logger.warning(
                    "the broker has forgotten the session %s: messages that came since are lost", source.session
                )
            self._subscribe()
        except BaseException:
            self._link.close()
            raise

    def _set_up(self, client: Any) -> None:
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe

    def _subscribe(self) -> None:
        library = self._source.broker.library()
        handling = ONLY_NEW if self._source.retained else NEVER
        options = library.SubscribeOptions(qos=1, retainHandling=handling, retainAsPublished=True)
        self._link.client.subscribe([(topic, options) for topic in self._source.topics])
        for reason in self._link.wait(self._subscribed, self._doing, CONNECT_S):
            if reason.value >= FAILURE:
                raise self._source.broker.failure(self._doing, reason, reason.value)

    def check(self) -> None:
        """See ``QueuedFeed``."""
        self._link.check(f"reading {', '.join(self._source.topics)}")

    def confirm(self, tags: list[tuple[int, int]]) -> None:
        """See ``QueuedFeed``."""
        for packet, qos in tags if self._link.client is not None else ():
            self._link.client.ack(packet, qos)

    def close(self) -> None:
        """See ``QueuedFeed``."""
        self._link.close()

    # ------------------------------------------------------------------ the thread of the connection

    def _on_subscribe(self, _client: Any, _data: Any, _packet: int, reasons: list[Any], _properties: Any) -> None:
        if not self._subscribed.done():
            self._subscribed.set_result(reasons)

    def _on_message(self, _client: Any, _data: Any, found: Any) -> None:
        message = message_of(found)
        by = self._source.identified_by
        identity = None if by is None else dict(message.properties).get(by)
        if by is not None and identity is None and message.redelivered and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the topic %s delivers a message again that has no property %s: it may count twice", message.topic, by
            )
        self.arrived((found.mid, found.qos), record_of(_encoder.encode(message), identity))


def message_of(found: Any) -> Message:
    """Returns a message of paho."""
    given = found.properties
    return Message(
        found.topic,
        bytes(found.payload),
        found.qos,
        bool(found.retain),
        bool(found.dup),
        getattr(given, "ContentType", None),
        getattr(given, "ResponseTopic", None),
        getattr(given, "CorrelationData", None),
        tuple(getattr(given, "UserProperty", ())),
    )


class SessionOptions(AddressOptions, QueueOptions, total=False):
    """Options of ``mqtt.source``, which describes them."""

    identity: Annotated[str | None, ID_PROPERTY]
    expires_after: Annotated[Duration, "7d"]
    retained: Annotated[bool, True]


@overload
def source(
    topics: Topics, *, session: str, decode: None = None, **options: Unpack[SessionOptions]
) -> TopicSource[Message]: ...


@overload
def source(topics: Topics, *, session: str, decode: Any, **options: Unpack[SessionOptions]) -> TopicSource[Any]: ...


@explains_calls
def source(topics: Topics, *, session: str, decode: Any = None, **options: Unpack[SessionOptions]) -> TopicSource[Any]:
    """Source of the messages of topics, as the broker delivers them. It has one task, and needs ``keepers``.

    Args:
        topics: a topic, or several; with the wildcards + and # if need be, or $share/group/topic for a part of the
            messages.
        session: the id of the client, by which the broker keeps the session. It belongs to this job alone.
        url: mqtt://user@host:1883, or mqtts:// for TLS.
        password: password of the user, in place of that of the URL.
        ca: file with the certificates of the authorities to trust, in place of those of the system.
        certificate: file with the certificate and the key of the client, if the broker asks for one.
        decode: a codec, a type or a function of the payload. Payloads that it does not decode go to ``errors=``. None:
            records are of the class ``Message``.
        prefetch: messages that the broker sends ahead of acknowledgements, 1 to 65535. None: 1,000, or 10,000 if they
            wait for checkpoints.
        acknowledge: "journal": a message is acknowledged when a keeper has it. "checkpoint": when no restart of the job
            needs it any more, so that nothing is lost even if all processes die at once.
        identity: the user property that a repeated message has in common with the first. None: a message that the
            broker delivers again counts again.
        remember: identities that are retained to recognise repetitions; None for four times ``prefetch``.
        expires_after: time for which the broker keeps the session, and messages for it, while nobody is connected.
        retained: False to leave out the messages that the broker has retained when the session begins.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        job.source(mqtt.source("plant/+/temperature", session="averages", url="mqtt://localhost", decode=codecs.json()))
    """
    found = (topics,) if isinstance(topics, str) else tuple(topics)
    if not found or not all(each and is_text(each) for each in found) or len(set(found)) < len(found):
        raise InvalidConnector(CONNECTOR, f"the topics are {topics!r:.80}", "Give a topic, or several.")
    if wrong := next((each for each in found if not FILTER.fullmatch(each)), None):
        advice = "A + stands for one whole level, and a # for all levels from there on: plant/+/heat, orders/#."
        raise InvalidConnector(CONNECTOR, f"the topic is {wrong!r:.80}", advice)
    if pair := next((pair for pair in combinations(found, 2) if _overlap(*pair)), None):
        advice = "A broker sends a message once for each. Give a topic for both, or two sources with a session each."
        raise InvalidConnector(CONNECTOR, f"the topics {pair[0]!r:.80} and {pair[1]!r:.80} overlap", advice)
    if not session or not is_text(session):
        raise InvalidConnector(CONNECTOR, f"the session is {session!r:.80}", "Give a name that only this job has.")
    expiry_s = duration_ns(options["expires_after"]) // NANOSECONDS["s"]
    if not 1 <= expiry_s <= EXPIRY_S_MAX:
        problem = f"expires_after is {options['expires_after']!r:.80}"
        raise InvalidConnector(CONNECTOR, problem, 'Give a second or more, such as "7d".')
    limits = queue_limits(CONNECTOR, options, options["identity"])
    return (CheckpointedTopicSource if limits.waits_for_checkpoints else TopicSource)(
        found,
        session,
        MqttBroker(CONNECTOR, options),
        decode=decode,
        limits=limits,
        identity=options["identity"],
        expiry_s=expiry_s,
        retained=options["retained"],
    )


def _overlap(one: str, other: str) -> bool:
    """Returns whether a message may have both topics, which may have wildcards and be shared."""
    levels = [SHARE.sub("", each).split("/") for each in (one, other)]
    for first, second in zip_longest(*levels):
        if "#" in (first, second):
            return True
        if first != second and (None in (first, second) or "+" not in (first, second)):
            return False
    return True
