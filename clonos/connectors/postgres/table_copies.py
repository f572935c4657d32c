"""Rows that the tables of a publication had when a replication slot was created: the history of its changes.

The driver creates the slot and copies the tables in one transaction, whose snapshot is the place at which the slot
begins. The copies are materialized views, which nobody writes to and no publication tells of, with numbered rows: any
of them can be read again, also after the death of all sessions. They are in a schema of the slot's name, whose comment
says that schema and slot are the job's own, and that all copies are there. It is there before the slot, so that what a
start has left half-made is known, and made again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final

import msgspec
from xxhash import xxh3_64_hexdigest

from clonos.connectors.kit.attempts import Attempts
from clonos.connectors.kit.external_system import InputLost, SystemRefused, SystemUnreachable
from clonos.connectors.kit.splits import decoded_split
from clonos.connectors.postgres.change_stream import EPOCH, Change, Problem, Tables
from clonos.connectors.postgres.pgoutput import Relation, RelationColumn
from clonos.connectors.postgres.postgres_address import POSTGRESQL, PostgresAddress
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed

SYSTEM: Final = "(SELECT system_identifier FROM pg_control_system())"
OWN_SCHEMA: Final = "Copies that Clonos made of tables, for the replication slot of this name"
COPIES: Final = """
SELECT obj_description(pg_class.oid, 'pg_class') FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relkind = 'm' ORDER BY relname
"""
STATE: Final = """
SELECT (SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = %(name)s),
(SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = %(name)s)
"""
"""Position of the slot, and the comment of the schema."""

DROP_SLOT: Final = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
FIRST_VERSION: Final = 150_000
"""PostgreSQL 15 is the first that tells the columns and the rows of a publication."""

NUMBER: Final = "clonos_copied_number"
FETCHED_ROWS: Final = 2_000
LOST_STATES: Final = ("42P01", "3F000")
"""SQLSTATE for a relation and for a schema that do not exist."""

SELECTS: Final = f"""
SELECT CAST(schemaname AS text), CAST(tablename AS text), ARRAY(
    SELECT CAST(attname AS text) FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)
    WHERE indrelid = pg_class.oid AND indisprimary ORDER BY attnum
), format('SELECT row_number() OVER () AS {NUMBER}%s FROM %s%I.%I%s', (
    SELECT string_agg(', ' || quote_ident(attname), '' ORDER BY attnum) FROM pg_attribute
    WHERE attrelid = pg_class.oid AND attname = ANY(attnames) AND NOT attisdropped AND attgenerated = ''
), CASE relkind WHEN 'p' THEN '' ELSE 'ONLY ' END, schemaname, tablename, ' WHERE ' || rowfilter)
FROM pg_publication_tables JOIN pg_namespace ON nspname = schemaname
JOIN pg_class ON relnamespace = pg_namespace.oid AND relname = tablename
WHERE pubname = '{{}}' ORDER BY schemaname, tablename
"""
"""Tables of a publication, their primary keys, and queries for what the changes of a table tell of its rows."""


class SnapshotLost(InputLost):
    """The copy of a table does not have the rows that the job reads next."""

    table: str
    slot: str
    reason: str

    def loss(self) -> str:
        """See ``InputLost``."""
        return f"rows of {self.table} are lost: their copy in the schema {self.slot} {self.reason}"

    def __str__(self) -> str:
        return f"{self.loss()}. Start the job afresh with --overwrite, and let nobody change this schema."


class _Copy(msgspec.Struct, frozen=True, array_like=True):
    """Split: the copy of a table, its number of rows, when it was made, and the identifier of the server's data."""

    format: int
    slot: str
    view: str
    schema: str
    table: str
    keys: tuple[str, ...]
    rows: int
    lsn: int
    copied_us: int
    system: int


_decoder: Final = msgspec.msgpack.Decoder(_Copy)
_mark_decoder: Final = msgspec.msgpack.Decoder(Annotated[int, msgspec.Meta(ge=0)])


class TableCopies:
    """Source of the rows of the tables of a publication, as ``Change`` of the kind "read"."""

    routes_malformed = True

    def __init__(self, server: PostgresAddress, slot: str, publication: str, as_text: frozenset[str]) -> None:
        self.server, self.slot, self.publication, self.as_text = server, slot, publication, as_text

    def __repr__(self) -> str:
        return f"the tables of {self.publication} in {self.server!r}"

    def splits(self, parallelism: int) -> list[bytes]:
        """Creates the slot and copies the tables, unless an earlier start has done so; returns a split per copy.

        What a job may have begun to read is never made again: a start that the store refuses comes here too.

        Raises: SystemRefused: the server does not do so, the slot or the schema is not the job's, or the slot has moved
            on. SystemUnreachable.
        """
        driver = self.server.library()
        try:
            with self.server.connect(autocommit=True) as connection:
                if self._is_made(connection):
                    return self._found(connection)
                self._reserve_names(connection)
        except driver.Error as error:
            raise self.refusal(error) from None
        try:
            with self.server.connect(autocommit=True, replication="database") as connection:
                return self._copied(connection)
        except driver.Error as error:
            self._remove()
            raise self.refusal(error) from None
        except BaseException:
            self._remove()
            raise

    def check_split(self, split: bytes) -> None:
        """Checks that a split from the store is a copy for this slot.

        Raises: SplitMalformed, SnapshotLost: it is none.
        """
        self.copy_of(split)

    def copy_of(self, split: bytes) -> _Copy:
        """Decodes a split.

        Raises: SplitMalformed: it is none. SnapshotLost: it is for another slot.
        """
        copy = decoded_split(_decoder, "copy of a table", split)
        if copy.slot != self.slot:
            raise SnapshotLost(f"{copy.schema}.{copy.table}", self.slot, f"was made for the slot {copy.slot}")
        return copy

    def reader(self) -> CopyReader:
        """Creates a reader, in the slot."""
        return CopyReader(self)

    def drop(self, lsn: int) -> bool:
        """Drops the copies that were made with the slot at ``lsn``; returns False if they have to be dropped later."""
        find = "SELECT matviewname FROM pg_matviews WHERE schemaname = %s AND starts_with(matviewname, %s)"
        try:
            with self.server.connect(autocommit=True) as connection:
                connection.execute("SET lock_timeout = '1s'")
                for (view,) in connection.execute(find, [self.slot, _prefix(lsn)]).fetchall():
                    connection.execute(f'DROP MATERIALIZED VIEW "{self.slot}"."{view}"')
        except (self.server.library().Error, SystemUnreachable, SystemRefused):
            return False
        return True

    def refusal(self, error: Exception) -> Exception:
        """Returns the error of the library for one of psycopg."""
        text = self.server.clean(" ".join(str(error).split()))
        if getattr(error, "sqlstate", None) == "55006":
            advice = "End the job that reads it, or choose another slot=."
        elif isinstance(error, (self.server.library().OperationalError, self.server.library().InterfaceError)):
            return SystemUnreachable(POSTGRESQL, self.server.place, "copying tables", text)
        else:
            advice = (
                "snapshot=True needs a user with REPLICATION, with SELECT on all rows of the tables, and with CREATE on"
                " the database, for a schema with their copies; and wal_level=logical."
            )
        return SystemRefused(POSTGRESQL, self.server.place, "the job", text, advice)

    def _is_made(self, connection: Any) -> bool:
        """Returns whether an earlier start has made the slot and all copies, of which no job has let go.

        Raises: SystemRefused: the names are not the job's, or it has let go of some, or other tables are to be copied.
        """
        if connection.info.server_version < FIRST_VERSION:
            reason = f"the server has the version {connection.info.server_version // 10_000}"
            raise self._refused(reason, "snapshot=True needs PostgreSQL 15 or later")
        slot, schema = connection.execute(STATE, {"name": self.slot}).fetchone()
        anew = f"run SELECT pg_drop_replication_slot('{self.slot}')"
        if schema is None and slot is not None:
            reason = f"the slot {self.slot} exists already, and was not made with a snapshot"
            raise self._refused(reason, f"If no job needs it, {anew}, else choose another slot=")
        if schema is not None and not schema.startswith(OWN_SCHEMA):
            reason = f"the schema {self.slot} exists already, and was not made for a slot of this name"
            raise self._refused(reason, "Choose another slot=, after which the schema with the copies is named")
        if slot is None or schema == OWN_SCHEMA:
            return False
        if schema != self._comment(int(slot), self._tables(connection), len(self._found(connection))):
            reason = f"a job has gone on from the snapshot of the slot {self.slot}, or it is of other tables or columns"
            raise self._refused(reason, f"Resume that job with --resume; if it is gone for good, {anew} first")
        return True

    def _reserve_names(self, connection: Any) -> None:
        """Makes an empty schema, and lets go of what an earlier start has left half-made."""
        connection.execute(DROP_SLOT, [self.slot])
        with connection.transaction():
            connection.execute(f'DROP SCHEMA IF EXISTS "{self.slot}" CASCADE')
            connection.execute(f'CREATE SCHEMA "{self.slot}"')
            connection.execute(f"COMMENT ON SCHEMA \"{self.slot}\" IS '{OWN_SCHEMA}'")

    def _copied(self, connection: Any) -> list[bytes]:
        """Creates the slot and the copies in one transaction."""
        connection.execute("SET row_security = off")  # rows that the user may not see are an error
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        create = f'CREATE_REPLICATION_SLOT "{self.slot}" LOGICAL pgoutput USE_SNAPSHOT'
        high, low = connection.execute(create).fetchone()[1].split("/")
        lsn = (int(high, 16) << 32) + int(low, 16)
        find = f"SELECT CAST(extract(epoch FROM now()) * 1000000 AS int8), {SYSTEM}"
        copied_us, system = connection.execute(find).fetchone()
        splits, tables = [], self._tables(connection)
        for place, (schema, table, keys, select) in enumerate(tables):
            view = f"{_prefix(lsn)}{place:04}"
            quoted = f'"{self.slot}"."{view}"'
            rows = connection.execute(f"CREATE MATERIALIZED VIEW {quoted} AS {select}").rowcount
            connection.execute(f"CREATE UNIQUE INDEX ON {quoted} ({NUMBER})")
            copy = _Copy(1, self.slot, view, schema, table, tuple(keys), rows, lsn, copied_us, system)
            splits.append(msgspec.msgpack.encode(copy))
            connection.execute(f"COMMENT ON MATERIALIZED VIEW {quoted} IS '{splits[-1].hex()}'")
        comment = self._comment(lsn, tables, len(splits))
        connection.execute(f"COMMENT ON SCHEMA \"{self.slot}\" IS '{comment}'")
        connection.execute("COMMIT")
        return splits

    def _tables(self, connection: Any) -> list[Any]:
        found: list[Any] = connection.execute(SELECTS.format(self.publication)).fetchall()
        return found

    def _comment(self, lsn: int, tables: list[Any], copies: int) -> str:
        """Returns the comment of a schema with all copies."""
        return f"{OWN_SCHEMA}: {copies} copies at {lsn:x} of {xxh3_64_hexdigest(repr(tables).encode())}"

    def _found(self, connection: Any) -> list[bytes]:
        return [bytes.fromhex(comment) for (comment,) in connection.execute(COPIES, [self.slot]).fetchall()]

    def _remove(self) -> None:
        """Drops what a start that fails has made, of which the server would keep its log. A later start tries again."""
        try:
            with self.server.connect(autocommit=True) as connection:
                if connection.execute(STATE, {"name": self.slot}).fetchone()[1] == OWN_SCHEMA:
                    connection.execute(DROP_SLOT, [self.slot])
                    connection.execute(f'DROP SCHEMA "{self.slot}" CASCADE')
        except (self.server.library().Error, SystemUnreachable, SystemRefused):
            return

    def _refused(self, reason: str, advice: str) -> SystemRefused:
        return SystemRefused(POSTGRESQL, self.server.place, "the job", reason, f"{advice}.")


class CopyReader:
    """Reader of one copy. A mark is the number of the last row that was read."""

    def __init__(self, source: TableCopies) -> None:
        self._source = source
        self._copy: _Copy | None = None
        self._read = 0
        self._connection: Any = None
        self._tables: Tables | None = None

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a copy at a mark.

        Raises: SplitMalformed: the store's split or mark cannot be used. SnapshotLost: it is for another slot.
        """
        self._copy = self._source.copy_of(split)
        self._read = 0 if mark is None else decoded_split(_mark_decoder, "number of a row of a copy", mark)

    def read(self, records_max: int) -> list[Any] | None:
        """Returns the next rows. A lost connection is opened again for about 15 s.

        Raises: SnapshotLost: the copy does not have them any more. SystemRefused, SystemUnreachable.
        """
        assert self._copy is not None, "a copy is opened before it is read"
        driver = self._source.server.library()
        if self._read >= self._copy.rows:
            return None
        for attempt in Attempts():
            try:
                return self._rows(self._copy, min(records_max, FETCHED_ROWS))
            except (driver.Error, SystemUnreachable) as error:
                self.close()
                if getattr(error, "sqlstate", None) in LOST_STATES:
                    raise self._lost(self._copy, "does not exist any more") from None
                problem = self._source.refusal(error) if isinstance(error, driver.Error) else error
                if isinstance(problem, SystemRefused) or attempt.is_last:
                    raise problem from None
        raise AssertionError("the last attempt returns or raises")

    def mark(self) -> bytes:
        """Returns the number of the last row."""
        return msgspec.msgpack.encode(self._read)

    def close(self) -> None:
        """Closes the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _rows(self, copy: _Copy, rows_max: int) -> list[Any]:
        if self._connection is None:
            self._connection = self._source.server.connect(autocommit=True)
            if self._connection.execute(f"SELECT {SYSTEM}").fetchone() != (copy.system,):
                raise self._lost(copy, "is that of another server of this name")
        find = f'SELECT * FROM "{copy.slot}"."{copy.view}" WHERE {NUMBER} BETWEEN %s AND %s ORDER BY {NUMBER}'
        last = min(self._read + rows_max, copy.rows)
        cursor = self._connection.execute(find, [self._read + 1, last])
        result = cursor.pgresult
        if result.ntuples != last - self._read:
            raise self._lost(copy, "has fewer rows than at first")
        if self._tables is None:
            self._tables = Tables(self._connection, self._source.server, self._source.as_text)
            columns = [RelationColumn(each.name, each.type_code, each.name in copy.keys) for each in cursor.description]
            self._tables.add(Relation(0, copy.schema, copy.table, tuple(columns[1:])))
        found = [self._record(copy, self._tables, result, row) for row in range(result.ntuples)]
        self._read = last
        return PartlyMalformed(found) if any(type(each) is MalformedRecord for each in found) else found

    def _record(self, copy: _Copy, tables: Tables, result: Any, row: int) -> Change | MalformedRecord:
        texts = (result.get_value(row, column) for column in range(1, result.nfields))
        fields = tuple(None if text is None else bytes(text).decode() for text in texts)
        problems: list[Problem] = []
        copied = EPOCH + timedelta(microseconds=copy.copied_us)
        change = Change("read", tables.name(0), tables.row(0, fields, problems), None, copy.lsn, 0, copied)
        return MalformedRecord(change, tables.error(0, change.row, copy.lsn, problems[0])) if problems else change

    def _lost(self, copy: _Copy, reason: str) -> SnapshotLost:
        return SnapshotLost(f"{copy.schema}.{copy.table}", copy.slot, reason)


def _prefix(lsn: int) -> str:
    """Returns how the names of copies begin, which differs from those for an earlier slot of this name."""
    return f"copy_{lsn:x}_"
