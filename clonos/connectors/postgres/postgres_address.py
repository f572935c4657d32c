"""Description of a PostgreSQL database that travels to the slots, and its connections, which psycopg 3 opens there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.broker_address import BrokerAddress
from clonos.connectors.kit.external_system import ExternalSystem, SystemRefused, SystemUnreachable
from clonos.connectors.secrets import Secret, revealed, without
from clonos.connectors.tables.database_text import PAIR
from clonos.core.model.errors import EnvironmentFault, JobError

CONNECT_TIMEOUT_S: Final = 10
SESSION: Final = "; ".join(
    f"SET {setting}"
    for setting in (
        "timezone = 'UTC'",
        "datestyle = 'ISO, YMD'",
        "intervalstyle = 'iso_8601'",
        # What a machine that vanished has begun must not hold its locks for hours.
        "idle_in_transaction_session_timeout = '60s'",
        "tcp_keepalives_idle = 20",
        "tcp_keepalives_interval = 5",
        "tcp_keepalives_count = 4",
    )
)
# A row that was confirmed must outlast a crash of the server.
DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
# A lock that somebody holds must not hold the job back without a word.
WAIT_FOR_LOCKS: Final = "SELECT set_config('lock_timeout', '30s', false) WHERE current_setting('lock_timeout') = '0'"
_REFUSED: Final = re.compile(
    r"password authentication failed|no password supplied|authentication method|no pg_hba\.conf entry"
    r'|(?:role|database) ".*" (?:does not exist|is not permitted)|permission denied for database'
)
_UNTRUSTED: Final = re.compile(
    r"certificate|server does not support SSL|does not match host name|sslmode|ssl alert|private key file"
)
"""Errors of libpq about TLS, which no retry changes."""

TLS_ADVICE: Final = "Correct sslmode, sslrootcert, sslcert or sslkey in the DSN, or the certificate of the server."
KEEPALIVES: Final = {"keepalives_idle": 20, "keepalives_interval": 5, "keepalives_count": 4, "tcp_user_timeout": 40_000}
"""Options of libpq by which a connection to a machine that has vanished ends in under a minute, not in hours."""

_UNKNOWN_OPTION: Final = re.compile(r'invalid (?:connection option|URI query parameter):? "(\w+)"')


POSTGRESQL: Final = ExternalSystem(
    "PostgreSQL",
    module="psycopg",
    package="psycopg",
    extra="postgres",
    unreachable_advice="No record is lost or counted twice: check that the server runs and that every process of the"
    " job reaches it, then resume.",
    refused_advice="Correct the user, the password or the database.",
)


def split_dsn(dsn: str) -> dict[str, str]:
    """Returns host, port, user and database of a URL or of name=value pairs, as far as it has them."""
    if "://" not in dsn:
        return {name: value.strip("'") for name, value in PAIR.findall(dsn)}
    parts = urlsplit(dsn.partition(",")[0] + "/" + dsn.partition(",")[2].partition("/")[2] if "," in dsn else dsn)
    found = {"host": parts.hostname, "port": parts.port, "user": parts.username, "dbname": parts.path.strip("/")}
    return {name: str(value) for name, value in found.items() if value}


class PostgresAddress(BrokerAddress):
    """PostgreSQL database. ``password`` replaces that of the DSN."""

    system, scheme, url_option = POSTGRESQL, "postgresql://", "dsn"

    def __init__(self, connector: str, dsn: str | Secret, password: str | Secret | None) -> None:
        super().__init__(connector, dsn, password)
        if isinstance(dsn, str) and not re.match(r"postgres(ql)?://|\s*\w+\s*=", dsn):
            advice = "Give postgresql://user@host/database, or host=... dbname=..., and the password as a secret."
            raise InvalidConnector(connector, "dsn is neither a URL of PostgreSQL nor name=value pairs", advice)

    @property
    def namespace(self) -> str:
        """See ``BrokerAddress``; the scheme is that of OpenLineage."""
        if isinstance(self._url, Secret):
            return f"postgres://{self.place}"
        parts = split_dsn(self._url)
        return f"postgres://{parts.get('host') or 'localhost'}:{parts.get('port') or '5432'}"

    def dataset_name(self, name: str) -> str:
        """See ``BrokerAddress``: database, schema and table."""
        if isinstance(self._url, Secret):
            return name
        parts = split_dsn(self._url)
        table = name if "." in name else f"public.{name}"
        return f"{parts.get('dbname') or parts.get('user') or ''}.{table}"

    def connect(self, **options: Any) -> Any:
        """Opens a connection. Rows are compared by their text, so the session has settings of its own.

        Raises: SystemRefused: the server does not let the job in. SystemUnreachable. ExtraMissing. SecretMissing.
        InvalidConnector: libpq cannot parse the DSN.
        """
        psycopg = self.library()
        named, values = self._parameters()
        problem: EnvironmentFault | JobError
        try:
            connection = psycopg.connect(**named, **options)
            self._prepare(connection)
            return connection
        except psycopg.OperationalError as error:
            text = without(" ".join(str(error).split()), values)
            if _UNTRUSTED.search(text):
                problem = SystemRefused(POSTGRESQL, self.place, "the job", text, TLS_ADVICE)
            elif _REFUSED.search(text):
                problem = SystemRefused(POSTGRESQL, self.place, "the job", text)
            else:
                problem = SystemUnreachable(POSTGRESQL, self.place, "connecting", text)
        raise problem

    def secret_texts(self) -> Iterable[str]:
        """See ``BrokerAddress``."""
        return self._parameters()[1]

    def _parameters(self) -> tuple[dict[str, Any], list[str]]:
        """Returns the parameters of a connection, and those of them that nobody may see."""
        conninfo = import_module("psycopg.conninfo")
        named: dict[str, Any] = {}
        is_parsed, unknown = True, None
        try:
            named = conninfo.conninfo_to_dict(revealed(self._url))
        except self.library().Error as error:  # its text has parts of the DSN
            is_parsed, unknown = False, _UNKNOWN_OPTION.search(str(error))
        if unknown is not None:
            raise InvalidConnector(
                self.connector, f"libpq has no option {unknown[1]!r}", "Correct its name in the dsn."
            )
        if not is_parsed:
            advice = "Write it as a URL, with special characters of the password as %XX, or give password= apart."
            raise InvalidConnector(self.connector, "libpq cannot parse the dsn", advice)
        if self._password is not None:
            named["password"] = revealed(self._password)
        secret = [str(named[name]) for name in ("password", "sslpassword") if named.get(name)]
        own = {"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "clonos", **KEEPALIVES}
        return {**own, **named}, secret

    def _prepare(self, connection: Any) -> None:
        """Sets the settings of the session."""
        try:
            connection.execute(f"{SESSION}; {DURABLE}; {WAIT_FOR_LOCKS}")
            if not connection.autocommit:
                connection.commit()
        except BaseException:
            connection.close()
            raise


def identifier(connector: str, name: str) -> str:
    """Quotes a name, with its schema before a dot if it has one.

    Raises: InvalidConnector: it cannot be a name.
    """
    parts = name.split(".")
    if not all(parts) or "\0" in name or "%" in name:
        raise InvalidConnector(connector, f"{name!r} is not a valid SQL identifier", "Choose another name.")
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)
