"""Address of NATS servers that travels to the slots, and the connections of nats-py to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.broker_address import BrokerAddress
from clonos.connectors.kit.source_options import AddressOptions, trust_of
from clonos.connectors.nats.nats_errors import NATS, failure_of, is_of_rights, refusal_of
from clonos.connectors.secrets import Secret, revealed
from clonos.connectors.tls_context import TlsContext
from clonos.core.model.errors import ClonosError

CONNECT_S: Final = 10
ANSWER_S: Final = 10.0
"""Time in which a server has to answer a request."""

CLOSE_S: Final = 2.0
PING_S: Final = 10
SCHEMES: Final = ("nats://", "tls://")


class TlsMissing(Exception):
    """A server does not offer TLS, although the URL asks for it. Nothing secret has been sent to it."""

    def __init__(self) -> None:
        super().__init__("it does not offer TLS, which tls:// asks for")


class CertificateMissing(Exception):
    """A server asks for a certificate of the client, and the connector has none."""

    def __init__(self) -> None:
        super().__init__("it asks for a certificate of the client")


class NatsAddressOptions(AddressOptions, total=False):
    """Address of NATS servers. ``token`` is in place of a user."""

    token: str | Secret | None


class NatsAddress(BrokerAddress):
    """NATS servers of one cluster. ``password`` and ``token`` replace those of the URLs."""

    system, scheme, ports = NATS, "nats://", {"nats": 4222, "tls": 4222}

    def __init__(self, connector: str, options: NatsAddressOptions) -> None:
        url, password, token = options["url"], options.get("password"), options.get("token")
        super().__init__(connector, url, password)
        self._trust, self._token = trust_of(connector, options), token
        if isinstance(url, str) and not all(each.startswith(SCHEMES) for each in _each(url)):
            advice = "Give nats://user@host:4222, tls:// for TLS, several with commas, and the password as a secret."
            raise InvalidConnector(connector, "url is no URL of NATS", advice)
        if isinstance(url, str):
            if password is not None and not any("@" in each for each in _each(url)):
                raise InvalidConnector(connector, "password= without a user", "Give nats://user@host:4222.")
            self._trust.check_url(_is_encrypted(url), "tls://user@host:4222")
        if password is not None and token is not None:
            raise InvalidConnector(connector, "password= and token= exclude each other", "Leave one of them out.")

    def parts(self, url: str) -> list[str]:
        """See ``BrokerAddress``."""
        return _each(url)

    def failure(self, doing: str, error: BaseException) -> ClonosError:
        """Returns what an exception of nats-py means."""
        return failure_of(self.place, doing, error, self.clean)

    def refusal(self, doing: str, text: str, code: int | None) -> ClonosError:
        """Returns what an answer of the server means."""
        return refusal_of(self.place, doing, self.clean(text), code)

    def secret_texts(self) -> Iterable[str]:
        """See ``BrokerAddress``."""
        options = self._options()
        return [options.get(name) or "" for name in ("password", "token")]

    async def connected(self, on_failure: Callable[[BaseException], None]) -> Any:
        """Connects once; calls ``on_failure`` when the connection ends or the server refuses a publication.

        Raises: SystemRefused, SystemUnreachable, ExtraMissing, SecretMissing, InvalidConnector.
        """
        library, options = self.library(), self._options()
        context, must_encrypt = self._trust.context(), _is_encrypted(revealed(self._url))
        is_anonymous = options["password"] is None and options["token"] is None
        if must_encrypt:
            options = _only_encrypted(options, context)
        last: list[BaseException] = []

        async def failed(error: BaseException) -> None:
            last.append(error)
            if "permissions violation" in str(error).lower():
                on_failure(error)

        async def closed() -> None:
            on_failure(last[-1] if last else ConnectionError("the server has closed the connection"))

        connection = library.NATS()
        try:
            await asyncio.wait_for(
                connection.connect(
                    **options,
                    tls=context,
                    name=f"clonos {self.connector}",
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=CONNECT_S,
                    ping_interval=PING_S,
                    error_cb=failed,
                    closed_cb=closed,
                ),
                CONNECT_S + 2,
            )
            if must_encrypt and is_anonymous and not context.take_encrypted():
                raise TlsMissing
        except (OSError, ValueError, TimeoutError, TlsMissing, library.errors.Error) as error:
            await closing(connection)
            seen = [each for each in (*last, connection.last_error, error) if each is not None and str(each)]
            if self._lacks_certificate(connection):
                seen.append(CertificateMissing())
            refusals = [each for each in seen if is_of_rights(each)]  # the end of the connection may follow it
            cause = (refusals or seen or [TimeoutError("no answer")])[0]
            raise self.failure("connecting", cause) from None
        return connection

    def _lacks_certificate(self, connection: Any) -> bool:
        """Returns whether the server has asked for a certificate of the client, and there is none.

        The server may end the connection before its alert arrives, so the error need not say it.
        """
        announced = getattr(connection, "_server_info", {})  # nats-py has no public name for it
        return self._trust.certificate is None and bool(announced.get("tls_verify"))

    def _options(self) -> dict[str, Any]:
        """Returns where to connect, and as whom.

        Raises: SecretMissing. InvalidConnector: a URL cannot be parsed.
        """
        servers, user, password, token = [], None, None, None
        for each in _each(revealed(self._url)):
            try:
                parts = urlsplit(each)
                host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
                servers.append(f"{parts.scheme}://{host}:{parts.port or 4222}")
            except ValueError:  # its text has parts of the URL
                parts = None
            if parts is None or not parts.hostname:
                raise InvalidConnector(self.connector, "the url cannot be parsed", "Give nats://user@host:4222.")
            if parts.username and parts.password is None and self._password is None:
                token = unquote(parts.username)
            elif parts.username:
                user, password = unquote(parts.username), unquote(parts.password or "")
        if self._password is not None:
            password = revealed(self._password)
        if self._token is not None:
            user, password, token = None, None, revealed(self._token)
        return {"servers": servers, "user": user, "password": password, "token": token}


async def closing(connection: Any) -> None:
    """Ends a connection, after what was published."""
    try:
        await asyncio.wait_for(connection.close(), CLOSE_S)
    except Exception:  # noqa: BLE001  the server may have gone
        pass


class Connection:
    """Connection whose requests end when it ends."""

    def __init__(self, server: NatsAddress, raw: Any, ended: asyncio.Future[None]) -> None:
        self._server = server
        self.raw = raw
        self._ended = ended
        self._errors: Any = server.library().errors.Error
        self.jetstream = raw.jetstream(timeout=ANSWER_S)

    @classmethod
    async def opened(cls, server: NatsAddress) -> Connection:
        """Connects.

        Raises: as ``NatsAddress.connected``.
        """
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ended.add_done_callback(lambda future: future.exception())  # it need not be awaited

        def fail(error: BaseException) -> None:
            if not ended.done():
                ended.set_exception(error)

        return cls(server, await server.connected(fail), ended)

    async def answer(self, doing: str, request: Awaitable[Any]) -> Any:
        """Returns what the server answers.

        Raises: SystemRefused, SystemUnreachable.
        """
        asked = asyncio.ensure_future(request)
        try:
            await asyncio.wait({asked, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            first = asked if asked.done() else self._ended
            return first.result()
        except TimeoutError:
            raise self._server.failure(doing, TimeoutError(f"no answer in {ANSWER_S:g} s")) from None
        except (OSError, self._errors) as error:
            raise self._server.failure(doing, error) from None
        finally:
            asked.cancel()

    async def close(self) -> None:
        """Ends the connection, after what was published."""
        await closing(self.raw)


def _is_encrypted(url: str) -> bool:
    return any(each.startswith("tls://") for each in _each(url))


def _only_encrypted(options: dict[str, Any], context: TlsContext) -> dict[str, Any]:
    """Returns options that give secrets to an encrypted connection only: nats-py does without TLS if a server has none.

    nats-py calls them when it sends them.
    """

    def guarded(secret: str) -> Callable[[], str]:
        def given() -> str:
            if not context.take_encrypted():
                raise TlsMissing
            return secret

        return given

    secrets = {name: guarded(options[name]) for name in ("password", "token") if options[name] is not None}
    return {**options, **secrets}


def _each(url: str) -> list[str]:
    return [each.strip() for each in url.split(",")]
