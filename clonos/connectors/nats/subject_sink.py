"""``nats.sink``: an immediate sink that publishes rows to a stream, each confirmed and under its own id.

A stream ignores an id that it has seen within its duplicate window.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, Unpack

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.broker_sink import BrokerSink, SinkOptions, Target
from clonos.connectors.kit.external_system import SystemRefused
from clonos.connectors.nats.loop_thread import LoopThread
from clonos.connectors.nats.nats_address import Connection, NatsAddress, NatsAddressOptions
from clonos.connectors.nats.nats_errors import NATS
from clonos.connectors.nats.stream_splits import is_subject
from clonos.connectors.nats.subject_publisher import SubjectPublisher
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.lineage import Dataset

logger = logging.getLogger("clonos.driver")

CONNECTOR: Final = "nats.sink"
ID_HEADER: Final = "Nats-Msg-Id"
SHORT_WINDOW_S: Final = 60.0


class SubjectOptions(NatsAddressOptions, SinkOptions, total=False):
    """Options of ``nats.sink``, which describes them."""


class SubjectSink(BrokerSink):
    """Description of a subject and of how rows become messages."""

    connector, target_word = CONNECTOR, "subject"

    def __init__(self, subject: Target, server: NatsAddress, stream: str | None, options: SinkOptions) -> None:
        super().__init__(subject, options)
        self.server, self.stream = server, stream

    def __repr__(self) -> str:
        subject = self.target if isinstance(self.target, str) else "a function"
        return f"{CONNECTOR}({subject!r}, url={self.server.place!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return self.server.datasets([self.target])

    def describe_output(self) -> list[tuple[str, str]]:
        """Returns what a resume compares."""
        found = [("server", self.server.place)]
        if isinstance(self.target, str):
            found.append(("subject", self.target))
        return found

    def check_start(self) -> None:
        """Looks up the stream of the subject, if that is known before there are rows.

        Raises: SystemRefused: there is none, or it confirms nothing. SystemUnreachable.
        """
        thread = LoopThread(CONNECTOR)
        try:
            thread.run(self._check_stream())
        finally:
            thread.close()

    async def _check_stream(self) -> None:
        connection = await Connection.opened(self.server)
        jetstream, stream = connection.jetstream, self.stream
        try:
            if stream is None and isinstance(self.target, str):
                doing = f"looking for a stream with the subject {self.target!r}"
                stream = await connection.answer(doing, jetstream.find_stream_name_by_subject(self.target))
            if stream is None:
                return
            info = await connection.answer(f"looking up the stream {stream}", jetstream.stream_info(stream))
        finally:
            await connection.close()
        if info.config.no_ack:
            raise SystemRefused(
                NATS, self.server.place, f"publishing to the stream {stream}", "its no_ack confirms no message"
            )
        if info.config.duplicate_window < SHORT_WINDOW_S:
            logger.warning(
                "the stream %s recognises a row that is published again for %g s only: a task that takes longer to be"
                " replaced may publish rows twice. Raise its duplicate_window",
                stream,
                info.config.duplicate_window,
            )

    def publisher(self) -> SubjectPublisher:
        """See ``BrokerSink``."""
        return SubjectPublisher(self.server, self.stream)

    def checked_target(self, found: Any) -> str:
        """See ``BrokerSink``. Raises: TypeError: it is not a subject without wildcards."""
        if not isinstance(found, str) or not is_literal(found):
            raise TypeError(f"{found!r:.80} is not a subject without wildcards")
        return found

    def properties(self, message_id: str, headers: Mapping[str, Any], content_type: str | None) -> dict[str, str]:
        """See ``BrokerSink``."""
        return {**{str(name): _header(value) for name, value in headers.items()}, ID_HEADER: message_id}


def is_literal(subject: str) -> bool:
    """Returns whether a text is a subject to which a message can be published."""
    return is_subject(subject) and not {"*", ">"} & set(subject.split("."))


def _header(value: Any) -> str:
    if not isinstance(value, str) or {"\r", "\n"} & set(value):
        raise TypeError(f"{value!r:.80} is no str without line ends")
    return value


@explains_calls
def sink(
    subject: Target,
    *,
    stream: str | None = None,
    **options: Unpack[SubjectOptions],
) -> SubjectSink:
    """Immediate sink that publishes each row to a stream of JetStream, under a message id of its own.

    A row is in the stream once if it is published again within the duplicate window of the stream.

    Args:
        subject: the subject of all rows, or a function of the row. A stream must take it.
        url: nats://user@host:4222, or tls:// for TLS; several servers of a cluster with commas.
        password: password of the user, in place of that of the URL.
        token: token of the server, in place of a user.
        ca: file with the certificates of the authorities to trust, in place of those of the system.
        certificate: file with the certificate and the key of the client, if the server asks for one.
        stream: the stream that must take all rows; None for whichever has the subject.
        encode: a codec, a type or a function that makes the payload. None: bytes as they are, a str in UTF-8, all else
            as JSON.
        headers: further headers, or a function of the row that returns them.
        timeout: time for which no row may be confirmed, because the stream is full or no server can be reached.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        stream.sink(nats.sink("totals", url="nats://shop@localhost", password=secrets.env("SHOP_PASSWORD")))
    """
    if not callable(subject) and not is_literal(subject):
        advice = "Give a subject without wildcards, or a function of the row."
        raise InvalidConnector(CONNECTOR, f"the subject is {subject!r:.80}", advice)
    return SubjectSink(subject, NatsAddress(CONNECTOR, options), stream, options)
