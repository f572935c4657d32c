"""Publisher of one sink task to RabbitMQ: a channel on which the broker confirms each message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clonos.connectors.kit.broker_sink import CONFIRM_S, Outgoing, Published
from clonos.connectors.kit.external_system import MessageRefused, SystemRefused, SystemUnreachable
from clonos.connectors.rabbitmq.broker import Broker
from clonos.connectors.rabbitmq.link import Link
from clonos.connectors.rabbitmq.rabbitmq_errors import RABBITMQ, ROUTE_ADVICE, SIZE_ADVICE, TOO_LARGE
from clonos.core.model.errors import EnvironmentFault


class ExchangePublisher:
    """Connection that publishes to one exchange. ``confirmed`` are the numbers of the last batch that are safe."""

    def __init__(self, broker: Broker, exchange: str, is_mandatory: bool) -> None:
        """Connects.

        Raises: as ``Link``.
        """
        self._broker, self._exchange, self._is_mandatory = broker, exchange, is_mandatory
        self._doing = f"publishing to {exchange_name(exchange)}"
        self._tag = 0  # of the last message on this channel
        self._unconfirmed: dict[int, int] = {}  # numbers by tag
        self._numbers: dict[str, int] = {}  # by message id
        self._reply: Callable[..., None] | None = None
        self.confirmed: set[int] = set()
        self.returned: dict[int, str] = {}
        self._link = Link(broker)
        try:
            self._link.ask(self._doing, self._confirm)
        except BaseException:
            self._link.close()
            raise

    def _confirm(self, channel: Any, reply: Callable[..., None]) -> None:
        channel.add_on_return_callback(self._on_returned)
        channel.confirm_delivery(self._on_confirmed, callback=reply)

    def publish(self, batch: list[Outgoing]) -> Published:
        """Publishes messages, and waits until each is confirmed or refused.

        Raises: MessageRefused: there is no queue for a row, or it is too large. SystemRefused.
        """
        self.confirmed, self.returned = set(), {}
        target = exchange_name(self._exchange)
        try:
            self._link.ask(self._doing, lambda channel, reply: self._send(channel, batch, reply), CONFIRM_S)
        except EnvironmentFault as error:
            return Published(self.confirmed, error, is_connected=False)
        except SystemRefused as error:
            if TOO_LARGE not in error.reason:
                raise
            largest = max(batch, key=lambda each: len(each.payload))
            raise MessageRefused(target, largest.shown_row, error.reason, SIZE_ADVICE) from None
        if self.returned:
            number, reason = min(self.returned.items())
            lost = next(each for each in batch if each.number == number)
            problem = f"it has no queue for the routing key {lost.target!r}: {reason}"
            raise MessageRefused(target, lost.shown_row, problem, ROUTE_ADVICE)
        reason = "it refuses messages, because a queue is full (overflow reject-publish)"
        return Published(self.confirmed, SystemUnreachable(RABBITMQ, self._broker.place, self._doing, reason))

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()

    # ------------------------------------------------------------------ the thread of the connection

    def _send(self, channel: Any, batch: list[Outgoing], reply: Callable[..., None]) -> None:
        self._reply = reply
        self._numbers = {each.properties.message_id: each.number for each in batch}
        self._unconfirmed = dict(enumerate((each.number for each in batch), self._tag + 1))
        self._tag += len(batch)
        for each in batch:
            channel.basic_publish(
                self._exchange, each.target, each.payload, each.properties, mandatory=self._is_mandatory
            )

    def _on_returned(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        number = self._numbers.get(properties.message_id)
        if number is not None:
            self.returned[number] = f"{method.reply_code} {method.reply_text}"

    def _on_confirmed(self, frame: Any) -> None:
        method = frame.method
        tags = [method.delivery_tag]
        if method.multiple:
            tags = [tag for tag in self._unconfirmed if tag <= method.delivery_tag]
        is_safe = method.NAME == "Basic.Ack"
        for tag in tags:
            number = self._unconfirmed.pop(tag, None)
            if is_safe and number is not None and number not in self.returned:
                self.confirmed.add(number)
        if not self._unconfirmed and self._reply is not None:
            reply, self._reply = self._reply, None
            reply()


def exchange_name(exchange: str) -> str:
    """Returns how messages name an exchange."""
    return f"the exchange {exchange!r}" if exchange else "the default exchange"
