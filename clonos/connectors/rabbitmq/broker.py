"""Address of a RabbitMQ broker that travels to the slots, and the parameters of pika for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.broker_address import BrokerAddress
from clonos.connectors.kit.source_options import AddressOptions, trust_of
from clonos.connectors.rabbitmq.rabbitmq_errors import RABBITMQ
from clonos.connectors.secrets import revealed

CONNECT_TIMEOUT_S: Final = 10
HEARTBEAT_S: Final = 10
"""Interval of heartbeats. Twice this time after a machine has vanished, its queue can be read by another."""

_OPTION: Final = re.compile(r"Unknown URL parameter: '(\w+)'|Invalid (\w+) value")


class Broker(BrokerAddress):
    """RabbitMQ broker and virtual host."""

    system, scheme, ports = RABBITMQ, "amqp://", {"amqp": 5672, "amqps": 5671}

    def __init__(self, connector: str, options: AddressOptions) -> None:
        url = options["url"]
        super().__init__(connector, url, options.get("password"))
        self._trust = trust_of(connector, options)
        if isinstance(url, str) and not url.startswith(("amqp://", "amqps://")):
            advice = "Give amqp://user@host/vhost, amqps:// for TLS, and the password as a secret."
            raise InvalidConnector(connector, "url is no URL of RabbitMQ", advice)
        if isinstance(url, str):
            self._trust.check_url(url.startswith("amqps://"), "amqps://user@host/vhost")

    def parameters(self) -> Any:
        """Returns the parameters of a connection.

        Raises: ExtraMissing, SecretMissing. InvalidConnector: pika cannot parse the URL.
        """
        pika = self.library()
        url = revealed(self._url)
        found, option = None, None
        try:
            parts = urlsplit(url)
            if parts.username is not None and parts.password is None:  # pika insists on one
                url = url.replace("@", ":@", 1)
            found = pika.URLParameters(url)
        except (ValueError, TypeError) as error:  # its text has parts of the URL
            option = _OPTION.match(str(error))
        if option is not None:
            problem = f"pika does not take the option {option[1] or option[2]!r} of the url"
            raise InvalidConnector(self.connector, problem, "Correct its name or its value.")
        if found is None:
            advice = "Write special characters of the password as %XX, or give password= apart."
            raise InvalidConnector(self.connector, "pika cannot parse the url", advice)
        if self._password is not None:
            found.credentials = pika.PlainCredentials(found.credentials.username, revealed(self._password))
        if found.ssl_options is not None and "ssl_options=" not in url:
            found.ssl_options = pika.SSLOptions(self._trust.context())
        if found.heartbeat is None:
            found.heartbeat = HEARTBEAT_S
        found.socket_timeout, found.stack_timeout = CONNECT_TIMEOUT_S, CONNECT_TIMEOUT_S + 2
        found.client_properties = {"connection_name": f"clonos {self.connector}", **(found.client_properties or {})}
        return found

    def dataset_name(self, name: str) -> str:
        """See ``BrokerAddress``: after the virtual host, unless that is the default one."""
        return name if self.path in ("", "/") else f"{self.path}/{name}"

    def secret_texts(self) -> Iterable[str]:
        """See ``BrokerAddress``."""
        return [self.parameters().credentials.password]
