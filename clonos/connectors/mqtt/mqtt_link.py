"""Address of a broker of MQTT 5, connections to it, each with a thread, and what their ends mean for a job."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.broker_address import BrokerAddress
from clonos.connectors.kit.external_system import ExternalSystem, SystemRefused, SystemUnreachable
from clonos.connectors.kit.source_options import AddressOptions, trust_of
from clonos.connectors.secrets import revealed
from clonos.connectors.tls_context import is_of_tls, tls_advice

CONNECT_S: Final = 10.0
LOOP_S: Final = 0.5
PING_S: Final = 10
UNCONFIRMED_MAX: Final = 1_000
FAILURE: Final = 128
"""Smallest reason code of MQTT that says a failure."""

REFUSED: Final = frozenset({129, 130, 132, 133, 134, 135, 138, 140, 143, 144, 149, 153, 154, 155, 158, 161, 162})
"""Reason codes that no retry changes."""

MQTT: Final = ExternalSystem(
    "MQTT",
    module="paho.mqtt.client",
    package="paho-mqtt",
    extra="mqtt",
    unreachable_advice="Check that the broker runs with MQTT 5 and that every process of the job reaches it, then"
    " resume.",
    refused_advice="Correct the topic, the credentials or the rights.",
)


class HandshakeSocket(ssl.SSLSocket):
    """Socket that is closed when its handshake fails. paho would leave it open until a collection of garbage."""

    def do_handshake(self, block: bool = False) -> None:
        """See ``SSLSocket``."""
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


class MqttBroker(BrokerAddress):
    """Broker of MQTT 5."""

    system, scheme, ports = MQTT, "mqtt://", {"mqtt": 1883, "mqtts": 8883}

    def __init__(self, connector: str, options: AddressOptions) -> None:
        url = options["url"]
        super().__init__(connector, url, options.get("password"))
        self._trust = trust_of(connector, options)
        if isinstance(url, str):
            if not url.startswith(("mqtt://", "mqtts://")):
                advice = "Give mqtt://user@host:1883, mqtts:// for TLS, and the password as a secret."
                raise InvalidConnector(connector, "url is no URL of MQTT", advice)
            self._trust.check_url(url.startswith("mqtts://"), "mqtts://user@host:8883")

    def secret_texts(self) -> Iterable[str]:
        """See ``BrokerAddress``."""
        return [self._parts()[3] or ""]

    def properties(self, packet: str, **values: Any) -> Any:
        """Returns properties of a kind of packet, as paho takes them. Raises: TypeError, ValueError: one cannot be."""
        self.library()
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        found: Any = Properties(getattr(PacketTypes, packet))  # type: ignore[no-untyped-call]
        for name, value in values.items():
            setattr(found, name, value)
        return found

    def client(self, client_id: str) -> tuple[Any, str, int]:
        """Returns a client that is not connected and acknowledges nothing by itself, with a host and a port.

        Raises: ExtraMissing, SecretMissing, InvalidConnector.
        """
        library = self.library()
        host, port, user, password, is_encrypted = self._parts()
        client = library.Client(
            library.CallbackAPIVersion.VERSION2, client_id, protocol=library.MQTTv5, manual_ack=True
        )
        client.connect_timeout = CONNECT_S
        if user is not None:
            client.username_pw_set(user, password)
        if is_encrypted:
            context = self._trust.context()
            context.sslsocket_class = HandshakeSocket
            client.tls_set_context(context)
        return client, host, port

    def failure(self, doing: str, reason: object, code: int = 0) -> SystemRefused | SystemUnreachable:
        """Returns what a reason means: an error of the job, or a fault that may pass."""
        text = self.clean(" ".join(str(reason).split()).rstrip(".")) or type(reason).__name__
        if code in REFUSED or is_of_tls(text):
            return SystemRefused(MQTT, self.place, doing, text, tls_advice(text))
        return SystemUnreachable(MQTT, self.place, doing, text)

    def _parts(self) -> tuple[str, int, str | None, str | None, bool]:
        """Returns host, port, user, password, and whether the connection is encrypted.

        Raises: SecretMissing. InvalidConnector: the URL cannot be parsed.
        """
        try:
            parts = urlsplit(revealed(self._url))
            port = parts.port or (8883 if parts.scheme == "mqtts" else 1883)
        except ValueError:  # its text has parts of the URL
            parts, port = None, 0
        if parts is None or not parts.hostname or parts.query or parts.path.strip("/"):
            raise InvalidConnector(self.connector, "the url cannot be parsed", "Give mqtt://user@host:1883.")
        password = unquote(parts.password) if parts.password else None
        if self._password is not None:
            password = revealed(self._password)
        user = unquote(parts.username) if parts.username else None
        return parts.hostname, port, user, password, parts.scheme == "mqtts"


class MqttLink:
    """Connection with a thread of its own, which calls the callbacks of ``client``. It does not reconnect."""

    def __init__(
        self,
        broker: MqttBroker,
        client_id: str,
        *,
        clean_start: bool,
        properties: dict[str, Any],
        set_up: Callable[[Any], None],
    ) -> None:
        """Connects. ``set_up`` gets the client before, to set its callbacks.

        Raises: SystemRefused, SystemUnreachable, ExtraMissing, SecretMissing, InvalidConnector.
        """
        self._broker = broker
        self.client: Any = None
        self.client, host, port = broker.client(client_id)
        self._connected: Future[Any] = Future()
        self._ended: Future[None] = Future()
        self.unconfirmed_max = 1
        self.packet_bytes_max = 1 << 28
        self.client.max_inflight_messages_set(0)  # of paho, which does not know that of the broker
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        set_up(self.client)
        refused: Exception | None = None
        try:
            given = broker.properties("CONNECT", **properties)
            self.client.connect(host, port, PING_S, clean_start=clean_start, properties=given)
        except (OSError, ValueError) as error:
            refused = error
        if refused is not None:
            raise broker.failure("connecting", refused)
        self._thread = threading.Thread(target=self._run, name=f"{broker.connector} link", daemon=True)
        self._thread.start()
        try:
            self.has_session = self.wait(self._connected, "connecting", CONNECT_S)
        except BaseException:
            self.close()
            raise

    def check(self, doing: str) -> None:
        """Raises: SystemUnreachable, SystemRefused: the connection has ended."""
        if self._ended.done():
            self._raise_end(doing)

    def wait(self, answer: Future[Any], doing: str, wait_s: float) -> Any:
        """Returns an answer. Raises: SystemUnreachable, SystemRefused."""
        self._ended.add_done_callback(lambda _: answer.done() or answer.cancel())
        try:
            return answer.result(wait_s)
        except FutureTimeout:
            raise self._broker.failure(doing, f"no answer in {wait_s:g} s") from None
        except BaseException:
            if not self._ended.done():
                raise
        self._raise_end(doing)
        raise AssertionError("an end has a reason")

    def close(self) -> None:
        """Ends the connection, after what was sent, and its thread. The session stays at the broker."""
        client, self.client = self.client, None
        if client is not None:
            client.disconnect()
            self._thread.join()
            for name in ("connect", "disconnect", "message", "subscribe", "publish"):
                setattr(client, f"on_{name}", None)  # else it would have its sockets until a collection of garbage

    def _raise_end(self, doing: str) -> None:
        error = self._ended.exception()
        code = getattr(error, "code", 0)
        raise self._broker.failure(doing, error, code) from None

    # ------------------------------------------------------------------ the thread of the connection

    def _run(self) -> None:
        client = self.client
        try:
            while (code := client.loop(LOOP_S)) == 0 and not self._ended.done():
                pass
            error: Exception = LinkEnded(self._broker.library().error_string(code), 0)
        except Exception as found:  # noqa: BLE001  a callback has raised
            error = found
        self._end(error)

    def _on_connect(self, _client: Any, _data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.value >= FAILURE:
            self._end(LinkEnded(str(reason), reason.value))
        elif not self._connected.done():
            self.unconfirmed_max = min(UNCONFIRMED_MAX, getattr(properties, "ReceiveMaximum", UNCONFIRMED_MAX))
            self.packet_bytes_max = getattr(properties, "MaximumPacketSize", self.packet_bytes_max)
            self._connected.set_result(bool(flags.session_present))

    def _on_disconnect(self, _client: Any, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        self._end(LinkEnded(str(reason), reason.value if flags.is_disconnect_packet_from_server else 0))

    def _end(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)


class LinkEnded(Exception):
    """The connection has ended. ``code``: the reason code of the broker, 0 if it has given none."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code
