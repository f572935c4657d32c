"""``postgres.nearest``: the rows of a table whose vectors are the nearest ones to a given vector, as a causal service.

The rows are the outcome of a recorded call, so a replay does not ask again, although the table has changed since.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from clonos.connectors.connector_errors import InvalidConnector, check_number
from clonos.connectors.json_text import json_text
from clonos.connectors.kit.attempts import Attempts
from clonos.connectors.kit.external_system import SystemRefused, SystemUnreachable
from clonos.connectors.postgres.column_values import Unreadable, register, register_vectors
from clonos.connectors.postgres.postgres_address import PostgresAddress, identifier
from clonos.connectors.postgres.vectors import VectorType
from clonos.connectors.secrets import Secret
from clonos.connectors.tables.exact_columns import NotStored
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.row_errors import RecordError
from clonos_services.service import Service

CONNECTOR: Final = "postgres.nearest"
OPERATORS: Final = {"cosine": "<=>", "l2": "<->", "inner": "<#>"}
DISTANCE: Final = "distance"
VECTOR: Final = "clonos_vector"
ROWS_MAX: Final = 10_000
ASKED: Final = VectorType("vector", "f", None)
"""What a vector that is asked for may be: the server rounds its numbers to those of the column."""


class VectorUnusable(RecordError):
    """A vector that is asked for is none."""

    reason: str

    def set_aside_text(self) -> str:
        """See ``RecordError``."""
        return f"{CONNECTOR}: the vector {self.reason}."


class NearestFailed(EnvironmentFault):
    """A table could not be asked for the nearest rows."""

    place: str
    table: str
    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{CONNECTOR} of {self.table} in {self.place} failed: {self.reason}. {self.advice}"


class VectorSearch:
    """Searches of one form in one table. Connections stay open for the next search, one for each that ran at once."""

    def __init__(self, server: PostgresAddress, table: str, sql: str) -> None:
        self.server, self.table, self.sql = server, table, sql
        self._idle: deque[Any] = deque()
        weakref.finalize(self, _close_all, self._idle)

    def __reduce__(self) -> tuple[Any, ...]:
        return VectorSearch, (self.server, self.table, self.sql)

    def request(self, vector: Sequence[float], **values: Any) -> object:
        """Returns what distinguishes a search from others."""
        return self.server.place, self.sql, vector, tuple(sorted(values.items()))

    def find(self, vector: Sequence[float], **values: Any) -> list[dict[str, Any]]:
        """Returns the rows with the nearest vectors, the nearest one first, each with its ``distance``.

        Args:
            vector: a list or a tuple of numbers, which are rounded to those of the column.
            values: the parameters of ``where=``.

        Raises: VectorUnusable; NearestFailed.
        """
        try:
            ASKED.check(True, vector)
        except NotStored as error:
            raise VectorUnusable(str(error)) from None
        asked = {**values, VECTOR: json_text(vector)}
        for attempt in Attempts():
            try:
                return self._found(asked)
            except SystemUnreachable as error:
                if attempt.is_last:
                    raise self._failure(
                        error.reason, "Check that every process of the job reaches the server."
                    ) from None
            except SystemRefused as error:
                raise self._failure(error.reason, error.advice or error.system.refused_advice) from None
        raise AssertionError("the last attempt returns or raises")

    def _found(self, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Asks once. Raises: SystemUnreachable; SystemRefused; NearestFailed."""
        psycopg = self.server.library()
        connection = self._connection()
        try:
            cursor = connection.execute(self.sql, asked)
            names = [column.name for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            connection.close()
            _close_all(self._idle)  # they are of the same server, which may have been restarted
            raise SystemUnreachable(self.server.system, self.server.place, "asking", self._text_of(error)) from None
        except (Unreadable, ValueError, ArithmeticError, psycopg.Error) as error:
            connection.close()
            advice = "Correct the names of the table and its columns, where=, or the dimensions of the vector."
            raise self._failure(self._text_of(error), advice) from None
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return rows

    def _connection(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            connection = self.server.connect(autocommit=True)
            register(connection)
            register_vectors(connection, connection)
            return connection

    def _text_of(self, error: Exception) -> str:
        return self.server.clean(" ".join(str(error).split())).rstrip(".")

    def _failure(self, reason: str, advice: str) -> NearestFailed:
        return NearestFailed(self.server.place, self.table, reason, advice)


def _close_all(connections: deque[Any]) -> None:
    while connections:
        connections.pop().close()


@explains_calls
def nearest(
    dsn: str | Secret,
    table: str,
    column: str,
    *,
    columns: Sequence[str],
    k: int = 5,
    metric: Literal["cosine", "l2", "inner"] = "cosine",
    where: str | None = None,
    password: str | Secret | None = None,
) -> Service[..., list[dict[str, Any]]]:
    """Nearest neighbours in a table of PostgreSQL with pgvector, as a service for the functions of steps.

    It is called with a list or a tuple of numbers, and the parameters of ``where=`` by name. It returns up to ``k``
    rows that have a vector, as dicts, the nearest one first, each with its ``distance``. The call is recorded: a replay
    returns the same rows and asks nothing.

    Args:
        dsn: the database, as ``postgresql://user@host/database`` or ``host=... dbname=...``; or a secret with that.
        table: the table, with its schema before a dot if it has one.
        column: the column with the vectors, of the type ``vector`` or ``halfvec``.
        columns: the columns of the answer.
        k: the most rows of an answer.
        metric: "cosine" for the cosine distance, "l2" for the Euclidean one, "inner" for the negative inner product. An
            index of the table helps if it is for the same.
        where: a condition in SQL for the rows, with parameters as ``%(name)s``; a percent sign is ``%%``.
        password: the password, better a secret than a text.

    Raises:
        InvalidConnector: an argument cannot work.

    Example::

        passages = postgres.nearest("postgresql://ann@db/shop", "passages", "embedding", columns=["text"])
        questions.map_async(lambda asked: {**asked, "passages": passages(asked["embedding"])})
    """
    check_number(CONNECTOR, "k", k, "rows", ROWS_MAX)
    if metric not in OPERATORS:
        raise InvalidConnector(CONNECTOR, f"metric is {metric!r:.80}", f"Give one of {', '.join(OPERATORS)}.")
    if isinstance(columns, str) or not columns or DISTANCE in columns:
        advice = f"Give a list of names; the answer has a field {DISTANCE!r} of its own."
        raise InvalidConnector(CONNECTOR, f"columns is {columns!r:.80}", advice)
    name = partial(identifier, CONNECTOR)
    selected = ", ".join(map(name, columns))
    condition = f" AND ({where})" if where else ""
    sql = (
        f"SELECT {selected}, {name(column)} {OPERATORS[metric]} %({VECTOR})s AS {DISTANCE}"
        f" FROM {name(table)} WHERE {name(column)} IS NOT NULL{condition} ORDER BY {DISTANCE} LIMIT {k}"
    )
    search = VectorSearch(PostgresAddress(CONNECTOR, dsn, password), table, sql)
    return Service(search.find, f"{CONNECTOR} {table}", False, False, None, search.request, ())
