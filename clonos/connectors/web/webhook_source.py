"""``web.receive``: an HTTP server whose POST requests are the records of a job.

A request cannot be read again, so this is a ``PushSource``: requests are journalled before any step sees them, and each
is answered when a keeper holds it. A sender without an answer sends again; the repetition is recognised by its id among
the last ones, and counts once (``IdentifiedSource``).
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Final, Generic, TypedDict, TypeVar, Unpack, overload

from clonos.connectors.codecs import Codec, for_decoding
from clonos.connectors.connector_errors import InvalidConnector, check_number
from clonos.connectors.kit.journalled_source import IdentifiedJournal
from clonos.connectors.secrets import Secret, check_text, revealed
from clonos.connectors.web.http_server import Rules, WebhookServer, digest_of
from clonos.connectors.web.receipts import Receipts
from clonos.connectors.web.request import Request, request_in
from clonos.connectors.web.web_errors import PortUnavailable
from clonos.connectors.web.web_options import REMEMBERED
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.event_time.durations import NANOSECONDS, Duration, duration_ns

CONNECTOR: Final = "web.receive"
PORT_MAX: Final = 65_535
BODY_BYTES: Final = 1 << 20
BODY_BYTES_LIMIT: Final = 16 << 20
"""Largest ``body_bytes_max``, in bytes: a request travels to the keepers in one message."""

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

T = TypeVar("T")


class WebhookSource(IdentifiedJournal, Generic[T]):
    """Description of a server; the slot of the reading task opens its port."""

    def __init__(
        self,
        host: str,
        port: int,
        path: str,
        *,
        token: str | Secret | None,
        token_header: str,
        identity: str | None,
        identities_retained: int,
        decode: Any,
        body_bytes_max: int,
        answer_s: float,
    ) -> None:
        self.host, self.port, self.path = host, port, path
        self.codec: Codec[bytes, Any] | None = None if decode is None else for_decoding(CONNECTOR, decode)
        self.identified_by = identity
        self.identities_retained = identities_retained
        self._token, self._token_header = token, token_header
        self._body_bytes_max, self._answer_s = body_bytes_max, answer_s

    @property
    def address(self) -> str:
        """URL to which requests are sent."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}{self.path}"

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self.address!r})"

    def connect(self, offset_bytes: int) -> WebhookFeed:
        """Opens the port and begins to take requests.

        Raises: PortUnavailable, SecretMissing.
        """
        token = None if self._token is None else digest_of(revealed(self._token).encode())
        rules = Rules(self.path, self.identified_by, token, self._token_header, self._body_bytes_max, self._answer_s)
        receipts = Receipts(offset_bytes)
        try:
            return WebhookFeed(receipts, WebhookServer(self.host, self.port, rules, receipts))
        except OSError as error:
            raise PortUnavailable(self.address, error.strerror or str(error)) from error

    def message(self, record: bytes) -> Request:
        """See ``JournalledSource``."""
        return request_in(record)

    def payload(self, message: Request) -> bytes:
        """See ``JournalledSource``."""
        return message.body

    def where(self, message: Request) -> str:
        """See ``JournalledSource``."""
        which = f"the request {message.id}" if message.id else "a request without an id"
        return f"{which} to {self.address}"


class WebhookFeed:
    """Running server with the requests that wait (``ProducerConnection``)."""

    def __init__(self, receipts: Receipts, server: WebhookServer) -> None:
        self._receipts, self._server = receipts, server

    def receive(self, wait_ms: int) -> bytes | None:
        """Returns requests as soon as there are any, b"" if there are none within ``wait_ms``."""
        if self._server.failure is not None:
            raise self._server.failure
        return self._receipts.take(wait_ms / 1000)

    def acknowledge(self, offset_bytes: int) -> None:
        """Answers the requests that are journalled."""
        self._receipts.acknowledge(offset_bytes)

    def close(self) -> None:
        """Closes the port. Requests that wait are told to come again."""
        self._receipts.close()
        self._server.close()


class ReceiveOptions(TypedDict, total=False):
    """Options of ``web.receive``, which describes them."""

    host: Annotated[str, "127.0.0.1"]
    token: str | Secret | None
    token_header: Annotated[str, "Authorization"]
    identity: Annotated[str | None, "Idempotency-Key"]
    remember: Annotated[int, REMEMBERED]
    body_bytes_max: Annotated[int, BODY_BYTES]
    answer_within: Annotated[Duration, "10s"]


@overload
def receive(
    port: int, path: str = "/", *, decode: None = None, **options: Unpack[ReceiveOptions]
) -> WebhookSource[Request]: ...


@overload
def receive(port: int, path: str = "/", *, decode: Any, **options: Unpack[ReceiveOptions]) -> WebhookSource[Any]: ...


@explains_calls
def receive(port: int, path: str = "/", *, decode: Any = None, **options: Unpack[ReceiveOptions]) -> WebhookSource[Any]:
    """Source of the POST requests that a port receives. It has one task, never ends, and needs ``keepers``.

    A request is answered with 200 when a keeper holds it. Without this answer its sender sends it again.

    Args:
        port: port of the server, 1 to 65535.
        path: path of the requests.
        host: address of this machine on which requests arrive. An address that other machines reach needs a token.
        token: what senders have to give in ``token_header``, preferably a secret.
        token_header: header of the token. In ``Authorization`` it stands after "Bearer".
        identity: header whose value a repeated request has in common with the first. Requests without it are refused.
            None: each request counts, also a repeated one.
        remember: identities that are retained to recognise repetitions.
        decode: a codec, a type or a function of the body. Bodies that it does not decode go to ``errors=``. None:
            records are of the class ``Request``.
        body_bytes_max: longest body in bytes, 1 MiB by default and at most 16 MiB.
        answer_within: time after which a request that is not held is answered with 503.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        job.source(web.receive(8080, "/orders", token=secrets.env("SHOP_TOKEN"), decode=codecs.json()))
    """
    token, token_header, identity = options.get("token"), options["token_header"], options["identity"]
    _check_place(options["host"], port, path, token)
    _check_headers(token, token_header, identity)
    check_number(CONNECTOR, "remember", options["remember"], "identities")
    check_number(CONNECTOR, "body_bytes_max", options["body_bytes_max"], "bytes", BODY_BYTES_LIMIT)
    return WebhookSource(
        options["host"],
        port,
        path,
        token=token,
        token_header=token_header,
        identity=identity,
        identities_retained=options["remember"],
        decode=decode,
        body_bytes_max=options["body_bytes_max"],
        answer_s=duration_ns(options["answer_within"]) / NANOSECONDS["s"],
    )


def _check_place(host: str, port: int, path: str, token: str | Secret | None) -> None:
    """Raises: InvalidConnector: nothing can or may be received there."""
    if type(port) is not int or not 0 < port <= PORT_MAX:
        raise InvalidConnector(CONNECTOR, f"the port is {port!r:.80}", f"Give a port from 1 to {PORT_MAX}.")
    if type(path) is not str or not re.fullmatch(r"/[!-~]*", path) or set("?#") & set(path) or path.startswith("//"):
        advice = 'Give a path such as "/orders", without a query, special characters as %XX.'
        raise InvalidConnector(CONNECTOR, f"the path is {path!r:.80}", advice)
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        advice = 'Give an address of this machine, such as "127.0.0.1", or "0.0.0.0" for all of them.'
        raise InvalidConnector(CONNECTOR, f"host is {host!r:.80}, which is no address", advice) from None
    if not is_loopback and token is None:
        advice = 'Give token=, such as secrets.env("NAME"), or keep to host="127.0.0.1".'
        raise InvalidConnector(CONNECTOR, f"host is {host!r}, where everybody could send requests", advice)


def _check_headers(token: str | Secret | None, token_header: str, identity: str | None) -> None:
    """Raises: InvalidConnector: the token or a name of a header cannot work."""
    if token is not None:
        check_text(CONNECTOR, "token", token)
        if not isinstance(token, Secret) and (type(token) is not str or not token or token != token.strip()):
            advice = "Give a text without white space around it, or a secret."
            raise InvalidConnector(CONNECTOR, "the token is empty or no text of a header", advice)
    for option, name in (("token_header", token_header), ("identity", identity)):
        if name is not None and (type(name) is not str or not _HEADER_NAME.fullmatch(name)):
            raise InvalidConnector(CONNECTOR, f"{option} is {name!r:.80}", "Give the name of a header.")
    if identity is not None and identity.lower() == token_header.lower():
        raise InvalidConnector(CONNECTOR, f"identity and token_header are both {identity}", "Name different headers.")
