"""Address of a Redis server that travels to the slots, and what errors of redis-py mean for a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.broker_address import BrokerAddress
from clonos.connectors.kit.external_system import ExternalSystem, SystemRefused, SystemUnreachable
from clonos.connectors.kit.source_options import AddressOptions, trust_of
from clonos.connectors.secrets import revealed
from clonos.connectors.tls_context import is_of_tls, tls_advice

ANSWER_S: Final = 10.0
REDIS: Final = ExternalSystem(
    "Redis",
    module="redis",
    package="redis",
    extra="redis",
    unreachable_advice="Check that the server runs and that every process of the job reaches it, then resume.",
    refused_advice="Correct the key, the credentials or the rights. Streams to read must exist before the job starts.",
)
_PASSING: Final = (
    "OOM",
    "command not allowed when used memory",
    "MISCONF",
    "NOREPLICAS",
    "READONLY",
    "BUSY",
    "UNBLOCKED",
)
"""Begins of answers that may be others later."""

_PASSING_ERRORS: Final = ("ReadOnlyError", "BusyLoadingError", "ClusterDownError", "TryAgainError", "MasterDownError")


class RedisServer(BrokerAddress):
    """Redis server, and the number of its database."""

    system, scheme, ports = REDIS, "redis://", {"redis": 6379, "rediss": 6379}

    def __init__(self, connector: str, options: AddressOptions) -> None:
        url = options["url"]
        super().__init__(connector, url, options.get("password"))
        self._trust = trust_of(connector, options)
        if isinstance(url, str):
            if not url.startswith(("redis://", "rediss://")):
                advice = "Give redis://user@host:6379/0, rediss:// for TLS, and the password as a secret."
                raise InvalidConnector(connector, "url is no URL of Redis", advice)
            self._trust.check_url(url.startswith("rediss://"), "rediss://user@host:6379")

    def dataset_name(self, name: str) -> str:
        """See ``BrokerAddress``: after the number of the database."""
        return f"{self.path.strip('/') or 0}/{name}"

    def secret_texts(self) -> Iterable[str]:
        """See ``BrokerAddress``."""
        return [self._options()["password"] or ""]

    def client(self) -> Any:
        """Returns a client, which connects whenever it has to, repeats no request, and answers as the server does.

        Raises: ExtraMissing, SecretMissing, InvalidConnector.
        """
        library = self.library()
        retry = library.retry.Retry(library.backoff.NoBackoff(), 0)
        client = library.Redis(**self._options(), retry=retry, protocol=2, client_name="clonos")
        client.response_callbacks.clear()  # they drop a field that an entry has twice
        return client

    @contextmanager
    def asking(self, doing: str) -> Iterator[None]:
        """Turns errors of redis-py into those of the connectors.

        Raises: SystemRefused, SystemUnreachable.
        """
        try:
            yield
        except (self.library().RedisError, OSError) as error:
            failure = self.failure(doing, error)
        else:
            return
        raise failure

    def failure(self, doing: str, error: Exception) -> SystemRefused | SystemUnreachable:
        """Returns what an error of redis-py means: an error of the job, or a fault that may pass."""
        errors = self.library().exceptions
        text = self.clean(" ".join(str(error).split()).rstrip(".")) or type(error).__name__
        is_refused = isinstance(error, (errors.AuthenticationError, errors.AuthorizationError))
        if isinstance(error, errors.ResponseError) and type(error).__name__ not in _PASSING_ERRORS:
            is_refused = is_refused or not text.startswith(_PASSING)
        if is_refused or is_of_tls(text):
            return SystemRefused(REDIS, self.place, doing, text, tls_advice(text))
        return SystemUnreachable(REDIS, self.place, doing, text)

    def _options(self) -> dict[str, Any]:
        """Returns where to connect, and as whom.

        Raises: SecretMissing. InvalidConnector: the URL cannot be parsed, or a file of certificates cannot be used.
        """
        found: dict[str, Any] = {"socket_timeout": ANSWER_S, "socket_connect_timeout": ANSWER_S}
        try:
            parts = urlsplit(revealed(self._url))
            found |= {"host": parts.hostname or "", "port": parts.port or 6379, "db": int(parts.path.strip("/") or 0)}
        except ValueError:  # its text has parts of the URL
            parts = None
        if parts is None or not parts.hostname or parts.query:
            advice = "Give redis://user@host:6379/0, without options after it."
            raise InvalidConnector(self.connector, "the url cannot be parsed", advice)
        found["username"] = unquote(parts.username) if parts.username else None
        found["password"] = unquote(parts.password) if parts.password else None
        if self._password is not None:
            found["password"] = revealed(self._password)
        if parts.scheme == "rediss":
            self._trust.context()  # its files can be used
            found |= {"ssl": True, "ssl_ca_certs": self._trust.ca, "ssl_certfile": self._trust.certificate}
        return found
