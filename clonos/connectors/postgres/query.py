"""``postgres.query``: the rows of a query as a bounded source, in ranges of a unique key.

The driver asks for quantiles of the key when the job first starts; a range between two of them is a split, and stays
one. A reader reads its range in the order of the key, so the last key that it has read is the mark. Each time that it
opens a range, it reads in one snapshot (REPEATABLE READ).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from xxhash import xxh3_64_intdigest

from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed, check_number
from clonos.connectors.kit.attempts import Attempts
from clonos.connectors.kit.external_system import SystemRefused, SystemUnreachable
from clonos.connectors.kit.splits import decoded_split
from clonos.connectors.order_choice import OrderChoice, note_of_order
from clonos.connectors.postgres.column_values import Unreadable, Values, ValueUnreadable, register, register_vectors
from clonos.connectors.postgres.postgres_address import POSTGRESQL, PostgresAddress, identifier
from clonos.connectors.secrets import Secret
from clonos.core.model.errors import JobError
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed

CONNECTOR: Final = "postgres.query"
PARTS_PER_TASK: Final = 4
PARTS_MAX: Final = 10_000
FETCHED_ROWS: Final = 2_000
KEY: Final = "clonos_key"
CAST_ADVICE: Final = "Cast it in the query, as in CAST(%s AS text)."


class QueryKeyUnusable(JobError):
    """The key of a query does not order its rows."""

    query: str
    reason: str

    def __str__(self) -> str:
        return f"{CONNECTOR}: {self.reason}. Name a column in key= that is unique and never NULL: {self.query:.200}"


class QueryChanged(JobError):
    """The store has splits of another query."""

    query: str

    def __str__(self) -> str:
        return (
            f"{CONNECTOR}: the job was first started with another query or another key than {self.query:.200}. Resume"
            " with that one, or start afresh with --overwrite."
        )


class _Range(msgspec.Struct, frozen=True, array_like=True):
    """Split: rows whose key is above ``low``, or from it on if ``has_low``, up to ``high``, as texts of the server."""

    format: int
    query: int
    low: str
    has_low: bool
    high: str


_decoder: Final = msgspec.msgpack.Decoder(_Range)


class PostgresQuery(OrderChoice):
    """Source of the rows of a query, as dicts."""

    routes_malformed = True

    def __init__(self, server: PostgresAddress, sql: str, key: str, parts: int | None, ordered: bool | None) -> None:
        if parts is not None:
            check_number(CONNECTOR, "parts", parts, "ranges", PARTS_MAX)
        if ordered and parts is not None and parts > 1:
            raise InvalidConnector(CONNECTOR, "ordered=True reads the query as one part", "Leave out parts=.")
        if "." in key:
            raise InvalidConnector(CONNECTOR, f"key is {key!r}", "Give the name of a column of the result.")
        if not sql.strip():
            raise InvalidConnector(CONNECTOR, "the query is empty", "Give a SELECT.")
        self.server, self.sql, self.parts = server, sql.strip().rstrip(";"), parts
        self.key = identifier(CONNECTOR, key)
        self.ordered = False if ordered is None and parts is not None else ordered

    def __repr__(self) -> str:
        return f"postgres.query({self.server!r}, {self.sql[:60]!r})"

    @property
    def fingerprint(self) -> int:
        """Number that another query or another key does not have."""
        return xxh3_64_intdigest(f"{self.key}\n{self.sql}".encode()) >> 1

    def order_note(self, splits: Sequence[bytes], parallelism: int) -> str:
        """See ``connector_contract.OrderedSource``."""
        if parallelism == 1 or len(splits) > 1:
            return ""
        return note_of_order(CONNECTOR, 1, parallelism, "deals it to all")

    def splits(self, parallelism: int) -> list[bytes]:
        """Lists the ranges, with about as many rows each; none if the query has no rows.

        Raises: SystemRefused: the database does not run the query. QueryKeyUnusable. SystemUnreachable.
        """
        count = 1 if self.ordered else self.parts or PARTS_PER_TASK * parallelism
        connection = self.server.connect(autocommit=True)
        try:
            ends, has_null = connection.execute(self._ends_query(), [_quantiles(count)]).fetchone()
        except self.server.library().Error as error:
            raise self.refusal(error) from None
        finally:
            connection.close()
        if has_null:
            raise QueryKeyUnusable(self.sql, f"the key {self.key} of some row is NULL")
        if ends is None:
            return []
        ranges, low, has_low = [], ends[0], True
        for end in dict.fromkeys(ends[1:]):
            ranges.append(_Range(1, self.fingerprint, low, has_low, end))
            low, has_low = end, False
        return [msgspec.msgpack.encode(each) for each in ranges]

    def check_split(self, split: bytes) -> None:
        """Checks that a split from the store belongs to this query.

        Raises: QueryChanged: it belongs to another one. SplitMalformed: it is none.
        """
        self.range_of(split)

    def range_of(self, split: bytes) -> _Range:
        """Decodes a split.

        Raises: QueryChanged: it belongs to another query. SplitMalformed: it is none.
        """
        found = decoded_split(_decoder, "range of a query", split)
        if found.query != self.fingerprint:
            raise QueryChanged(self.sql)
        return found

    def reader(self) -> QueryReader:
        """Creates a reader, in the slot."""
        return QueryReader(self)

    def refusal(self, error: Exception) -> Exception:
        """Returns the error of the library for one of psycopg: a lost connection, or a query that cannot run."""
        text = self.server.clean(" ".join(str(error).split()))
        if isinstance(error, (self.server.library().OperationalError, self.server.library().InterfaceError)):
            return SystemUnreachable(POSTGRESQL, self.server.place, "running the query", text)
        return SystemRefused(POSTGRESQL, self.server.place, "the job", text, f"Correct the query: {self.sql:.200}")

    def rows_query(self, has_low: bool) -> str:
        """Returns SQL for the rows of a range in the order of their keys, each with its key as text at the end.

        Parameters: the ends of the range.
        """
        above = ">=" if has_low else ">"
        return (
            f"SELECT clonos_query.*, CAST({self.key} AS text) AS {KEY} FROM ({self._escaped}\n) AS clonos_query"
            f" WHERE {self.key} {above} %s AND {self.key} <= %s ORDER BY {self.key}"
        )

    def _ends_query(self) -> str:
        return (
            f"SELECT CAST(percentile_disc(%s::float8[]) WITHIN GROUP (ORDER BY {self.key}) AS text[]),"
            f" bool_or({self.key} IS NULL) FROM ({self._escaped}\n) AS clonos_query"
        )

    @property
    def _escaped(self) -> str:
        return self.sql.replace("%", "%%")


class QueryReader:
    """Reader of one range. A mark is the last key that was read; before the first one it is empty."""

    def __init__(self, source: PostgresQuery) -> None:
        self._source = source
        self._range = _Range(1, 0, "", True, "")
        self._last: str | None = None
        self._connection: Any = None
        self._cursor: Any = None
        self._names: list[str] = []
        self._values: Values | None = None
        self._unreadable: dict[int, ValueUnreadable] = {}  # by index in the rows that were fetched last

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a range at a mark.

        Raises: QueryChanged, SplitMalformed: the store's split or mark cannot be used.
        """
        self._range = self._source.range_of(split)
        try:
            self._last = mark.decode() if mark else None
        except UnicodeDecodeError as error:
            raise SplitMalformed("position in a query", mark or b"", str(error)) from None

    def read(self, records_max: int) -> list[dict[str, Any]] | None:
        """Returns the next rows. A lost connection is opened again after the last row, for about 15 s.

        Raises: SystemUnreachable, SystemRefused, QueryKeyUnusable.
        """
        driver = self._source.server.library()
        for attempt in Attempts():
            try:
                if self._cursor is None:
                    self._execute()
                rows = self._fetched(min(records_max, FETCHED_ROWS))
            except (driver.Error, SystemUnreachable) as error:
                self.close()
                problem = self._source.refusal(error) if isinstance(error, driver.Error) else error
                if isinstance(problem, SystemRefused) or attempt.is_last:
                    raise problem from None
            else:
                return self._records(rows) if rows else None
        raise AssertionError("the last attempt returns or raises")

    def mark(self) -> bytes:
        """Returns the last key, as text."""
        return b"" if self._last is None else self._last.encode()

    def close(self) -> None:
        """Closes the connection."""
        connection, cursor, self._connection, self._cursor = self._connection, self._cursor, None, None
        if connection is not None:
            connection.close()
        if cursor is not None:
            cursor.close()

    def _execute(self) -> None:
        server = self._source.server
        psycopg = server.library()
        self._connection = connection = server.connect()
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        register(connection)
        register_vectors(connection, connection)
        self._values = Values(connection)
        has_low = self._range.has_low and self._last is None
        connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")  # a job may be slowed down for hours
        self._cursor = connection.cursor(name="clonos")
        low = self._range.low if self._last is None else self._last
        self._cursor.execute(self._source.rows_query(has_low), [low, self._range.high])
        self._names = [column.name for column in self._cursor.description][:-1]
        if len(set(self._names)) < len(self._names):
            raise SystemRefused(
                POSTGRESQL, server.place, "the job", "two columns of the query have one name", "Name them by AS."
            )

    def _records(self, rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
        keys = [row[-1] for row in rows]
        if len(set(keys)) < len(keys) or keys[0] == self._last:
            raise QueryKeyUnusable(self._source.sql, f"several rows have the same {self._source.key}")
        self._last = keys[-1]
        names = self._names
        records = [dict(zip(names, row, strict=False)) for row in rows]
        if not self._unreadable:
            return records
        return PartlyMalformed(
            MalformedRecord(record, self._unreadable[index]) if index in self._unreadable else record
            for index, record in enumerate(records)
        )

    def _fetched(self, rows_max: int) -> list[tuple[Any, ...]]:
        """Returns rows, and notes those that cannot be read, whose values are the texts of the server."""
        self._unreadable = {}
        try:
            rows: list[tuple[Any, ...]] = self._cursor.fetchmany(rows_max)
        except (Unreadable, ValueError, ArithmeticError, self._source.server.library().DataError) as error:
            if getattr(error, "sqlstate", None) is not None:  # the server could not compute them
                raise
        else:
            return rows
        result = self._cursor.pgresult
        return [self._row_alone(result, index) for index in range(result.ntuples)]

    def _row_alone(self, result: Any, index: int) -> tuple[Any, ...]:
        assert self._values is not None, "a query is executed before its rows are read"
        found: list[Any] = []
        texts = [result.get_value(index, column) for column in range(result.nfields)]
        for column, text in enumerate(texts):
            try:
                found.append(None if text is None else self._values.value(result.ftype(column), bytes(text)))
            except Unreadable as error:
                found.append(bytes(text).decode())
                name, key = self._names[column], bytes(texts[-1]).decode()
                place = f"{CONNECTOR} of {self._source.server.place}"
                self._unreadable[index] = ValueUnreadable(
                    place, f"{self._source.key} = {key}", name, found[-1], str(error), CAST_ADVICE % name
                )
        return tuple(found)


def _quantiles(count: int) -> list[float]:
    return [number / count for number in range(count + 1)]


@explains_calls
def query(
    dsn: str | Secret,
    sql: str,
    *,
    key: str,
    parts: int | None = None,
    ordered: bool | None = None,
    password: str | Secret | None = None,
) -> PostgresQuery:
    """Source of the rows of a query, as dicts, in ranges of a unique key that several tasks read.

    The rows must not change while the job runs: see docs/connectors/postgres.md.

    Args:
        dsn: the database, as ``postgresql://user@host/database`` or ``host=... dbname=...``; or a secret with that.
        sql: a SELECT.
        key: a column of its result that is unique and never NULL. With an index on it a range is found quickly.
        parts: number of ranges; by default as ``ordered`` says.
        ordered: True for one range in the order of the key, False for four per task. By default it is one range if a
            step that follows depends on the order.
        password: the password, better a secret than a text.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        job.source(postgres.query("postgresql://ann@db/shop", "SELECT * FROM orders", key="id"))
    """
    return PostgresQuery(PostgresAddress(CONNECTOR, dsn, password), sql, key, parts, ordered)
