"""``rabbitmq.exchange``: an immediate sink that publishes rows, each confirmed by the broker and under its own id.

A consumer, or a queue with the plugin for deduplication, ignores an id that it has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Unpack

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.broker_sink import BrokerSink, SinkOptions, Target
from clonos.connectors.kit.source_options import AddressOptions
from clonos.connectors.rabbitmq.broker import Broker
from clonos.connectors.rabbitmq.exchange_publisher import ExchangePublisher, exchange_name
from clonos.connectors.rabbitmq.link import Link
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.lineage import Dataset

CONNECTOR: Final = "rabbitmq.exchange"
DEDUPLICATION_HEADER: Final = "x-deduplication-header"
"""Header by which the plugin ``rabbitmq-message-deduplication`` recognises a message."""

PERSISTENT, TRANSIENT = 2, 1
ROUTING_KEY_BYTES_MAX: Final = 255


class ExchangeOptions(AddressOptions, SinkOptions, total=False):
    """Options of ``rabbitmq.exchange``, which describes them."""

    routing_key: Annotated[Target, ""]
    persistent: Annotated[bool, True]
    mandatory: Annotated[bool, True]


class ExchangeSink(BrokerSink):
    """Description of an exchange and of how rows become messages."""

    connector, target_word, payload_word = CONNECTOR, "routing key", "body"

    def __init__(self, name: str, broker: Broker, options: ExchangeOptions) -> None:
        super().__init__(options["routing_key"], options)
        self.name, self.broker = name, broker
        self.is_persistent, self.is_mandatory = options["persistent"], options["mandatory"]

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self.name!r}, url={self.broker.place!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return self.broker.datasets([self.name or self.target])

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
            elif isinstance(self.target, str):
                name = self.target
                link.ask(f"looking up {name!r}", lambda at, reply: at.queue_declare(name, passive=True, callback=reply))
        finally:
            link.close()

    def publisher(self) -> ExchangePublisher:
        """See ``BrokerSink``."""
        return ExchangePublisher(self.broker, self.name, self.is_mandatory)

    def checked_target(self, found: Any) -> str:
        """See ``BrokerSink``. Raises: TypeError: it is not a str, or too long."""
        if not isinstance(found, str) or len(found.encode()) > ROUTING_KEY_BYTES_MAX:
            raise TypeError(f"{found!r:.80} is not a str of at most {ROUTING_KEY_BYTES_MAX} bytes")
        return found

    def properties(self, message_id: str, headers: Mapping[str, Any], content_type: str | None) -> Any:
        """See ``BrokerSink``."""
        pika = self.broker.library()
        given = {DEDUPLICATION_HEADER: message_id, **headers}
        if headers:
            pika.data.encode_table([], given)  # raises for a value that cannot be one
        return pika.BasicProperties(
            message_id=message_id,
            headers=given,
            content_type=content_type,
            delivery_mode=PERSISTENT if self.is_persistent else TRANSIENT,
        )


@explains_calls
def exchange(name: str, **options: Unpack[ExchangeOptions]) -> ExchangeSink:
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
    _check(name, options)
    return ExchangeSink(name, Broker(CONNECTOR, options), options)


def _check(name: str, options: ExchangeOptions) -> None:
    """Raises: InvalidConnector: these options cannot work."""
    routing_key = options["routing_key"]
    if type(name) is not str:
        raise InvalidConnector(CONNECTOR, f"the exchange is {name!r:.80}", "Give the name of an exchange.")
    if not isinstance(routing_key, str) and not callable(routing_key):
        raise InvalidConnector(CONNECTOR, f"routing_key is {routing_key!r:.80}", "Give a str, or a function.")
    if not name and routing_key == "":
        raise InvalidConnector(CONNECTOR, "the default exchange without a routing_key", "Give the name of a queue.")
    for option, value in (("persistent", options["persistent"]), ("mandatory", options["mandatory"])):
        if type(value) is not bool:
            raise InvalidConnector(CONNECTOR, f"{option} is {value!r:.80}", "Give True or False.")
