"""``mqtt.sink``: an immediate sink that publishes rows, each confirmed by the broker and under its own id.

The id is a user property of the message. A subscriber ignores an id that it has seen, as ``mqtt.source`` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Annotated, Any, Final, Unpack

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.broker_sink import CONFIRM_S, BrokerSink, Outgoing, Published, SinkOptions, Target
from clonos.connectors.kit.external_system import MessageRefused, SystemRefused, SystemUnreachable
from clonos.connectors.kit.source_options import AddressOptions
from clonos.connectors.mqtt.mqtt_link import FAILURE, MQTT, REFUSED, MqttBroker, MqttLink
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.lineage import Dataset

CONNECTOR: Final = "mqtt.sink"
ID_PROPERTY: Final = "clonos-id"
TEXT_BYTES_MAX: Final = 65_535
_NONE: Final = "".join(chr(plane + end) for plane in range(0, 0x110000, 0x10000) for end in (0xFFFE, 0xFFFF))
NOT_IN_TEXTS: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{_NONE}]")
"""Characters for which brokers may end the connection: control characters, and those that are none."""

TOO_LARGE: Final = 149
HEAD_BYTES: Final = 16
SIZE_ADVICE: Final = (
    "Drop or cut such rows in a step before the sink, or raise the largest packet of the broker, and resume the job: no"
    " row is lost."
)


class TopicSinkOptions(AddressOptions, SinkOptions, total=False):
    """Options of ``mqtt.sink``, which describes them."""

    retain: Annotated[bool, False]


class TopicSink(BrokerSink):
    """Description of a topic and of how rows become messages."""

    connector, target_word = CONNECTOR, "topic"

    def __init__(self, topic: Target, broker: MqttBroker, options: TopicSinkOptions) -> None:
        super().__init__(topic, options)
        self.broker, self.retain = broker, options["retain"]

    def __repr__(self) -> str:
        topic = self.target if isinstance(self.target, str) else "a function"
        return f"{CONNECTOR}({topic!r}, url={self.broker.place!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return self.broker.datasets([self.target])

    def describe_output(self) -> list[tuple[str, str]]:
        """Returns what a resume compares."""
        return [("broker", self.broker.place), *([("topic", self.target)] if isinstance(self.target, str) else [])]

    def check_start(self) -> None:
        """Connects. Raises: SystemRefused, SystemUnreachable."""
        self.publisher().close()

    def publisher(self) -> TopicPublisher:
        """See ``BrokerSink``."""
        return TopicPublisher(self.broker, self.retain)

    def checked_target(self, found: Any) -> str:
        """See ``BrokerSink``. Raises: TypeError, UnicodeEncodeError: it is not a topic without wildcards."""
        if not is_topic(found):
            raise TypeError(f"{found!r:.80} is not a topic without wildcards")
        return str(found)

    def properties(self, message_id: str, headers: Mapping[str, Any], content_type: str | None) -> Any:
        """See ``BrokerSink``. Raises: TypeError, UnicodeEncodeError: a header cannot be a user property."""
        pairs = [(ID_PROPERTY, message_id), *headers.items()]
        for name, value in pairs:
            if not is_text(name) or not is_text(value) or (name == ID_PROPERTY and value is not message_id):
                raise TypeError(f"{name!r:.80}: {value!r:.80} cannot be a user property")
        kind = {} if content_type is None else {"ContentType": content_type}
        return self.broker.properties("PUBLISH", UserProperty=pairs, **kind)


class TopicPublisher:
    """Connection of one sink task."""

    def __init__(self, broker: MqttBroker, retain: bool) -> None:
        """Connects. Raises: as ``MqttLink``."""
        self._broker, self._retain = broker, retain
        self._outcomes: dict[int, Any] = {}  # reasons by the number of the packet
        self._waiting = 0
        self._all: Future[None] = Future()
        self._link = MqttLink(broker, "", clean_start=True, properties={}, set_up=self._set_up)

    def _set_up(self, client: Any) -> None:
        client.on_publish = self._on_publish

    def publish(self, batch: list[Outgoing]) -> Published:
        """Publishes messages, and waits until each is confirmed or refused. Raises: MessageRefused, SystemRefused."""
        confirmed: set[int] = set()
        failure: SystemUnreachable | None = None
        most = self._link.unconfirmed_max
        for begin in range(0, len(batch), most):
            part = batch[begin : begin + most]
            packets: dict[int, Outgoing] = {}
            try:
                self._publish(part, packets)
            except SystemUnreachable as error:
                failure = error
            reasons = [
                (packets[packet], reason) for packet, reason in list(self._outcomes.items()) if packet in packets
            ]
            confirmed |= {message.number for message, reason in reasons if reason.value < FAILURE}
            if failure is not None:
                return Published(confirmed, failure, is_connected=False)
            for message, reason in reasons:
                if reason.value >= FAILURE:
                    return Published(confirmed, self._refused(message, reason))
        return Published(confirmed, None)

    def _publish(self, part: list[Outgoing], packets: dict[int, Outgoing]) -> None:
        """Publishes messages, whose packets get numbers, and waits for the outcomes. Raises: SystemUnreachable."""
        doing = f"publishing to the topic {part[0].target!r}"
        self._outcomes, self._all, self._waiting = {}, Future(), len(part)
        self._link.check(doing)
        for each in part:
            if len(each.payload) + HEAD_BYTES > self._link.packet_bytes_max:
                reason = f"the broker takes packets of {self._link.packet_bytes_max} bytes"
                raise MessageRefused(f"the topic {each.target!r}", each.shown_row, reason, SIZE_ADVICE)
            found = self._link.client.publish(
                each.target, each.payload, qos=1, retain=self._retain, properties=each.properties
            )
            packets[found.mid] = each
        self._link.wait(self._all, doing, CONFIRM_S)

    def _refused(self, message: Outgoing, reason: Any) -> SystemUnreachable:
        """Raises: MessageRefused: it is too large. SystemRefused."""
        if reason.value == TOO_LARGE:
            raise MessageRefused(f"the topic {message.target!r}", message.shown_row, str(reason), SIZE_ADVICE)
        doing = f"publishing to the topic {message.target!r}"
        if reason.value in REFUSED:
            raise SystemRefused(MQTT, self._broker.place, doing, str(reason))
        return SystemUnreachable(MQTT, self._broker.place, doing, str(reason))

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()

    def _on_publish(self, _client: Any, _data: Any, packet: int, reason: Any, _properties: Any) -> None:
        """Called in the thread of the connection."""
        self._outcomes[packet] = reason
        if len(self._outcomes) == self._waiting and not self._all.done():
            self._all.set_result(None)


def is_text(found: Any) -> bool:
    """Returns whether a value is a text of MQTT. Raises: UnicodeEncodeError: it has half of a character."""
    return isinstance(found, str) and not NOT_IN_TEXTS.search(found) and len(found.encode()) <= TEXT_BYTES_MAX


def is_topic(found: Any) -> bool:
    """Returns whether messages can be published to a value. Raises: UnicodeEncodeError."""
    return is_text(found) and found != "" and not {"+", "#"} & set(found)


@explains_calls
def sink(topic: Target, **options: Unpack[TopicSinkOptions]) -> TopicSink:
    """Immediate sink that publishes each row to a topic, with an id of its own in the user property ``clonos-id``.

    A row is published at least once, and under one id as long as the job is not rolled back.

    Args:
        topic: the topic of all rows, or a function of the row.
        url: mqtt://user@host:1883, or mqtts:// for TLS.
        password: password of the user, in place of that of the URL.
        ca: file with the certificates of the authorities to trust, in place of those of the system.
        certificate: file with the certificate and the key of the client, if the broker asks for one.
        encode: a codec, a type or a function that makes the payload. None: bytes as they are, a str in UTF-8, all else
            as JSON.
        headers: further user properties, or a function of the row that returns them.
        retain: the broker keeps the last row of each topic for later subscribers.
        timeout: time for which the broker may confirm nothing.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        stream.sink(mqtt.sink("totals", url="mqtt://shop@localhost", password=secrets.env("SHOP_PASSWORD")))
    """
    if not callable(topic) and not is_topic(topic):
        advice = "Give a topic without wildcards, or a function of the row."
        raise InvalidConnector(CONNECTOR, f"the topic is {topic!r:.80}", advice)
    return TopicSink(topic, MqttBroker(CONNECTOR, options), options)
