"""``postgres.table``: an immediate sink into a table of PostgreSQL, with the rules of ``sqlite`` and ``dbapi``.

Appended rows go in by COPY. Rows under a key are read and restored as the text that the server makes of them, so a
column may have any type.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.external_system import SystemRefused, SystemUnreachable
from clonos.connectors.postgres import exact_types
from clonos.connectors.postgres.postgres_address import POSTGRESQL, PostgresAddress
from clonos.connectors.postgres.vectors import vector_type, with_texts
from clonos.connectors.secrets import Secret
from clonos.connectors.tables.exact_columns import ColumnChecks, TableColumn
from clonos.connectors.tables.table_database import Query
from clonos.connectors.tables.table_sink import TableSink
from clonos.connectors.tables.table_statements import PREVIOUS_TABLE, PREVIOUS_TYPES, Dialect, SqlStatement
from clonos.core.model.wrong_calls import explains_calls
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.lineage import Dataset

logger = logging.getLogger("clonos.run")

CONNECTOR: Final = "postgres.table"

FIND_COLUMNS: Final = """
SELECT attname, has_table_privilege(attrelid, 'INSERT, UPDATE'), has_table_privilege(attrelid, 'SELECT')
FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""

COLUMN_TYPES: Final = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = to_regclass(:table) AND attnum > 0 AND NOT attisdropped
"""

BASE_TYPES: Final = """
SELECT attname,
  CASE typtype WHEN 'd' THEN format_type(typbasetype, typtypmod) ELSE format_type(atttypid, atttypmod) END,
  (attnotnull OR typnotnull) AND NOT atthasdef AND attidentity = ''
FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
WHERE attrelid = to_regclass(:table) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
"""The columns of a table with their types, that of a domain below it, and whether they refuse NULL."""


TYPES_TABLE: Final = "pg_temp.clonos_types"
UNDEFINED_OBJECT: Final = "42704"


class PostgresDialect(Dialect):
    """SQL of PostgreSQL."""

    keys_per_query = 5_000

    def __init__(self) -> None:
        super().__init__(CONNECTOR, "pyformat", '"')

    def insert_rows(self, cursor: Any, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Inserts rows by COPY."""
        with cursor.copy(f"COPY {self.table(table)} ({self.names(columns)}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def insert_columns(self, cursor: Any, table: str, batch: RecordBatch) -> None:
        """Inserts the rows of a batch by COPY of CSV, in which Arrow quotes each text, and NULL is nothing.

        Its lists are vectors.
        """
        import pyarrow
        from pyarrow import csv

        sink = pyarrow.BufferOutputStream()
        csv.write_csv(with_texts(batch), sink, csv.WriteOptions(include_header=False, quoting_style="needed"))
        names = self.names(batch.schema.names)
        with cursor.copy(f"COPY {self.table(table)} ({names}) FROM STDIN (FORMAT csv)") as copy:
            copy.write(memoryview(sink.getvalue()))

    def find_rows(
        self,
        query: Callable[[SqlStatement, Mapping[str, Any]], list[Any]],
        table: str,
        columns: Sequence[str],
        key_columns: Sequence[str],
        keys: Sequence[tuple[Any, ...]],
    ) -> list[Any]:
        """Returns the rows of keys as text, each after the index of its key."""
        # Asked each time, because others may change the table.
        types = dict(query(self.statement(COLUMN_TYPES), {"table": self.table(table)}))
        arrays = ", ".join(f"CAST(:a{n} AS {types.get(name, 'text')}[])" for n, name in enumerate(key_columns))
        asked = ", ".join(f"k{n}" for n in range(len(key_columns)))
        names = ", ".join(f"CAST(found.{self.name(column)} AS text)" for column in columns)
        same = " AND ".join(f"found.{self.name(name)} = asked.k{n}" for n, name in enumerate(key_columns))
        selection = self.statement(
            f"SELECT asked.place - 1, {names} FROM unnest({arrays}) WITH ORDINALITY AS asked ({asked}, place)"
            f" JOIN {self.table(table)} AS found ON {same}"
        )
        return query(selection, {f"a{n}": _alike([key[n] for key in keys]) for n in range(len(key_columns))})

    def insert_history(self, cursor: Any, entries: Sequence[Mapping[str, Any]]) -> None:
        """Inserts what rows have replaced by COPY."""
        names = tuple(PREVIOUS_TYPES)
        self.insert_rows(cursor, PREVIOUS_TABLE, names, [[each[name] for name in names] for each in entries])


def _alike(values: list[Any]) -> list[Any]:
    """Returns numbers of different types as texts, because psycopg takes lists of one type."""
    types = set(map(type, values))
    return list(map(str, values)) if len(types) > 1 and types <= {int, float, Decimal} else values


class PostgresTable(TableSink):
    """Immediate sink into one table."""

    connector = CONNECTOR
    writes_columns = True

    def __init__(
        self,
        server: PostgresAddress,
        table: str,
        columns: Sequence[str] | Mapping[str, str] | None,
        upsert: str | Sequence[str] | None,
        round_vectors: bool,
    ) -> None:
        super().__init__(server.connect, table, columns, upsert, paramstyle="pyformat", quote='"')
        self.dialect = PostgresDialect()
        self.server, self.round_vectors = server, round_vectors

    def __repr__(self) -> str:
        return f"postgres.table({self.server!r}, {self.table!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return self.server.datasets([self.table])

    def describe_output(self) -> list[tuple[str, str]]:
        """Returns what a resume compares: the database, the table and its key."""
        return [("database", self.server.place), *super().describe_output()]

    def check_start(self) -> None:
        """Checks at the start, in the driver, that the database lets the job in and that the table can take its rows.

        Of a database that cannot be reached it warns: the slots may reach it, now or later.

        Raises: SystemRefused: it does not let the job in. InvalidConnector: the table or a column is missing.
        """
        try:
            connection = self.server.connect(autocommit=True)
        except SystemUnreachable as error:
            logger.warning("%s cannot be reached now, the job tries on: %s", self.server.place, error.reason)
            return
        try:
            found = connection.execute(FIND_COLUMNS, [self.dialect.table(self.table)]).fetchall()

            def query(asked: SqlStatement, values: Mapping[str, Any]) -> list[Any]:
                rows: list[Any] = connection.execute(asked.sql, asked.parameters(values)).fetchall()
                return rows

            known = self.known_columns(query) if found else self._columns_to_be(connection, query)
        except self.server.library().Error as error:
            raise SystemRefused(
                POSTGRESQL, self.server.place, "the job", self.server.clean(str(error)), "Correct the table's name."
            ) from None
        finally:
            connection.close()
        self._check_columns(found)
        self.checks = self.checks_of(known)

    def _columns_to_be(self, connection: Any, query: Query) -> Sequence[TableColumn]:
        """Returns the columns of a table that the tasks will create; none if the server does not let the job try it.

        They are those of a temporary table, which ends with the connection.

        Raises: InvalidConnector: the database has no such type.
        """
        defined = ", ".join(f"{self.dialect.name(name)} {kind}" for name, kind in (self.types or {}).items())
        try:
            connection.execute(f"CREATE TEMPORARY TABLE {self.dialect.table(TYPES_TABLE)} ({defined})")
        except self.server.library().Error as error:
            if error.sqlstate == UNDEFINED_OBJECT:
                raise self._without_type(str(error)) from None
            return ()
        return self._columns_of(TYPES_TABLE, query)

    def _without_type(self, text: str) -> InvalidConnector:
        reason = " ".join(text.split("\n")[0].split())
        is_vector = any(map(vector_type, (self.types or {}).values()))
        advice = "Run CREATE EXTENSION vector in the database." if is_vector else "Correct it in columns=."
        return InvalidConnector(CONNECTOR, f"the table {self.table} cannot be created: {reason}", advice)

    def takes_columns(self, batch: RecordBatch, checks: ColumnChecks | None) -> bool:
        """See ``TableSink``."""
        if checks is None or self.key_columns:
            return False
        targets = map(checks.column, batch.schema.names)
        pairs = zip(batch.columns, targets, strict=True)
        return all(target and exact_types.is_held(column, target) for column, target in pairs)

    def known_columns(self, query: Query) -> Sequence[TableColumn]:
        """See ``TableSink``."""
        return self._columns_of(self.table, query)

    def _columns_of(self, table: str, query: Query) -> Sequence[TableColumn]:
        found = query(self.dialect.statement(BASE_TYPES), {"table": self.dialect.table(table)})
        return [TableColumn(name, kind, is_required) for name, kind, is_required in found]

    def checks_of(self, columns: Sequence[TableColumn]) -> ColumnChecks | None:
        """See ``TableSink``."""
        check_of = partial(exact_types.check_of, round_vectors=self.round_vectors)
        return ColumnChecks(self.table, columns, check_of) if columns else None

    def _check_columns(self, found: list[tuple[str, bool, bool]]) -> None:
        where = f"{self.table} in {self.server.place}"
        if not found:
            if self.types is None:
                advice = "Create it, correct the name, or give columns= with types, as {'word': 'text'}."
                raise InvalidConnector(CONNECTOR, f"there is no table {where}", advice)
            return
        missing = [column for column in self.columns or () if column not in [name for name, _, _ in found]]
        if missing:
            advice = f"It has: {', '.join(name for name, _, _ in found)}."
            raise InvalidConnector(CONNECTOR, f"the table {where} has no column {missing[0]!r}", advice)
        if not all(found[0][1:]):
            advice = "The sink needs SELECT, INSERT, UPDATE and DELETE on it, and CREATE in its own schema."
            raise InvalidConnector(CONNECTOR, f"the user may not write to the table {where}", advice)


@explains_calls
def table(
    dsn: str | Secret,
    table: str,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    *,
    upsert: str | Sequence[str] | None = None,
    round_vectors: bool = False,
    password: str | Secret | None = None,
) -> PostgresTable:
    """Immediate sink into a table of PostgreSQL: each row is there once, and at once.

    The number of the next row is in the table ``clonos_registrations`` of the same database and changes in the same
    transaction as the rows. After a rollback or a resume the rows since the checkpoint are withdrawn. Lists, dicts and
    records are written as JSON.

    Args:
        dsn: the database, as ``postgresql://user@host/database`` or ``host=... dbname=...``; or a secret with that.
        table: the table, with its schema before a dot if it has one.
        columns: column names, or a dict from column name to SQL type, with which the table is created if it does not
            exist; without types it must exist. None for the fields of the first row.
        upsert: key column or columns. A row replaces the row with the same key, and the stream must be keyed by one of
            them. None: rows are appended.
        round_vectors: numbers in columns of the types ``vector`` and ``halfvec`` of pgvector become the nearest ones of
            32 and 16 bits. False: a row with a number that would be rounded is an error.
        password: the password, better a secret than a text.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        stream.sink(postgres.table("postgresql://ann@db/shop", "orders", password=secrets.env("SHOP_PASSWORD")))
    """
    return PostgresTable(PostgresAddress(CONNECTOR, dsn, password), table, columns, upsert, round_vectors)
