"""Stream of changes from a replication slot: one connection of psycopg in replication mode, and one open transaction.

A position is the end of the last whole transaction, and the number of changes that were taken since. Logical decoding
sends the transactions after an LSN in the order of their commits, so the same position always has the same changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

import msgspec

from clonos.connectors.kit.external_system import SystemRefused, SystemUnreachable
from clonos.connectors.postgres import pgoutput as p
from clonos.connectors.postgres.column_values import Unreadable, Values, ValueUnreadable, register_vectors
from clonos.connectors.postgres.column_values import register as register_loaders
from clonos.connectors.postgres.postgres_address import PostgresAddress
from clonos.core.values import register
from clonos.io.system.readiness import wait_readable, wait_writable
from clonos.io.system.wall_clock import monotonic_ns
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SILENCE_S, SILENCES_MAX = 2.0, 60
"""Time after which the server is asked whether it has more to send, and how often."""

ASK_EVERY_NS: Final = 2_000_000_000
"""Nanoseconds between two questions for the end of the log."""

OPTIONS: Final = "proto_version '1', publication_names '{}'"
FIRST_OWN_OID: Final = 16_384
BASE_TYPES: Final = """
WITH RECURSIVE base AS (
    SELECT oid AS type, oid, typtype, typbasetype FROM pg_type WHERE oid = ANY(%s::oid[])
    UNION ALL
    SELECT base.type, below.oid, below.typtype, below.typbasetype
    FROM base JOIN pg_type AS below ON below.oid = base.typbasetype WHERE base.typtype = 'd'
)
SELECT type::int8, oid::int8 FROM base WHERE typtype <> 'd'
"""
"""Types on which domains are based, also those on other domains."""

Kind = Literal["insert", "update", "delete", "truncate", "read"]


@register(name="clonos.postgres.Change")
class Change(msgspec.Struct, frozen=True):
    """Change of a row, or of a whole table by TRUNCATE; or a row as a snapshot has found it, of the kind "read".

    ``row`` is the row as it is now, a dict by column, or None if it is gone. ``old`` has what the server reports of the
    row before: with a deletion and with an update of the key the columns of the replica identity, else None. ``lsn``
    and ``committed`` are those of the transaction's commit, ``xid`` is its number. A
    row of a snapshot has those of the snapshot, and no number, 0.
    """

    kind: Kind
    table: str
    row: Any
    old: Any
    lsn: int
    xid: int
    committed: datetime


class ChangePosition(msgspec.Struct, frozen=True, array_like=True):
    """Position: ``taken`` changes after the end of the transaction at ``lsn``."""

    lsn: int
    taken: int


class Problem(NamedTuple):
    """Value of a column that cannot be read."""

    field: str
    text: str
    reason: str


class Tables:
    """Tables that a connection has described, and how their values are read."""

    def __init__(self, connection: Any, server: PostgresAddress, as_text: frozenset[str]) -> None:
        register_loaders(connection)
        self._connection = connection
        self._relations: dict[int, p.Relation] = {}
        self._values, self._server, self._as_text = Values(connection), server, as_text
        self._base_types: dict[int, int] = {}  # of the types that this server has on top of PostgreSQL's own

    def add(self, relation: p.Relation) -> None:
        """Takes in the description of a table, and asks for the types on which its domains are based, and for vectors.

        Raises: psycopg.Error, SystemUnreachable, SystemRefused: the server does not tell.
        """
        self._relations[relation.oid] = relation
        oids = {column.type_oid for column in relation.columns if column.type_oid >= FIRST_OWN_OID}
        if unknown := sorted(oids - set(self._base_types)):
            with self._server.connect(autocommit=True) as asking:
                found = dict(asking.execute(BASE_TYPES, [unknown]).fetchall())
                register_vectors(self._connection, asking)
            self._base_types |= {oid: found.get(oid, oid) for oid in unknown}

    def name(self, oid: int) -> str:
        """Returns schema and table, with a dot between them."""
        relation = self._relation(oid)
        return f"{relation.schema}.{relation.name}"

    def row(self, oid: int, fields: p.Fields, problems: list[Problem], only_key: bool = False) -> dict[str, Any]:
        """Returns the values by column, without those that the server has not sent.

        A value that cannot be read is the text of the server, and is added to ``problems``.

        Raises: ReplicationMalformed: the table is unknown or has another number of columns.
        """
        columns = self._relation(oid).columns
        if len(columns) != len(fields):
            raise p.ReplicationMalformed(f"a row of {self.name(oid)} has {len(fields)} of {len(columns)} columns")
        return {
            column.name: self._value(column, value, problems)
            for column, value in zip(columns, fields, strict=True)
            if not isinstance(value, msgspec.UnsetType) and (column.is_key or not only_key)
        }

    def _relation(self, oid: int) -> p.Relation:
        try:
            return self._relations[oid]
        except KeyError:
            raise p.ReplicationMalformed(f"the table {oid} was not described") from None

    def error(self, oid: int, row: dict[str, Any], lsn: int, problem: Problem) -> ValueUnreadable:
        """Returns the error of a change."""
        keys = [column.name for column in self._relation(oid).columns if column.is_key and column.name in row]
        named = (
            ", ".join(f"{key} = {row[key]}" for key in keys) or f"of the commit at {lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
        )
        place = f"postgres.changes of {self.name(oid)} in {self._server.place}"
        advice = f"as_text=[{problem.field!r}] reads this column as text."
        return ValueUnreadable(place, named, problem.field, problem.text, problem.reason, advice)

    def _value(self, column: p.RelationColumn, text: str | None, problems: list[Problem]) -> Any:
        if text is None or column.name in self._as_text:
            return text
        try:
            return self._values.value(self._base_types.get(column.type_oid, column.type_oid), text.encode())
        except Unreadable as error:
            problems.append(Problem(column.name, text, str(error)))
            return text


class ChangeStream:
    """Open replication connection. ``position`` is after the last change that ``take`` has returned."""

    def __init__(
        self,
        server: PostgresAddress,
        slot: str,
        publication: str,
        position: ChangePosition,
        end_lsn: int,
        as_text: frozenset[str] = frozenset(),
    ) -> None:
        """Connects and starts the replication. ``end_lsn``: what was committed before has to come.

        Raises: psycopg.Error: the server does not start it. SystemUnreachable, SystemRefused.
        """
        self.position = position
        self._to_skip = position.taken
        self._server, self._sent_lsn, self._end_lsn = server, position.lsn, end_lsn
        self._transaction: p.TransactionBegin | None = None
        self._ready: deque[Change | MalformedRecord] = deque()
        self._connection = server.connect(autocommit=True, replication="database")
        try:
            self._connection.execute("SET wal_sender_timeout = 0")  # a job may be slowed down for hours
            self._tables = Tables(self._connection, server, as_text)
            start = f"{position.lsn >> 32:X}/{position.lsn & 0xFFFFFFFF:X}"
            command = f'START_REPLICATION SLOT "{slot}" LOGICAL {start} ({OPTIONS.format(publication)})'
            self._start(command)
        except BaseException:
            self._connection.close()
            raise

    def take(self, changes_max: int, wait_s: float = 0.0) -> list[Any]:
        """Returns the changes that have arrived, at most ``changes_max``; waits up to ``wait_s`` for the first.

        Those with a value that cannot be read are a ``MalformedRecord``.

        Waits longer for what was committed before the stream was opened: a replay takes [] for a loss.

        Raises: psycopg.Error: the connection is lost. ReplicationMalformed.
        """
        found: list[Any] = []
        while len(found) < changes_max:
            if self._ready:
                found.append(self._ready.popleft())
                self.position = ChangePosition(self.position.lsn, self.position.taken + 1)
            elif (data := self._receive(0.0 if found else wait_s)) is None:
                if found or not self._must_have_more():
                    break
            else:
                self._take_in(p.decode_frame(data))
        return PartlyMalformed(found) if any(type(each) is MalformedRecord for each in found) else found

    def acknowledge(self, lsn: int) -> None:
        """Tells the server that it may drop everything before ``lsn``.

        Raises: psycopg.Error: the connection is lost.
        """
        raw = self._connection.pgconn
        raw.put_copy_data(p.encode_status(lsn, p.EPOCH_US))
        while raw.flush():
            wait_writable(raw.socket)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def _start(self, command: str) -> None:
        import psycopg

        result = self._connection.pgconn.exec_(command.encode())
        if result.status != psycopg.pq.ExecStatus.COPY_BOTH:
            raise psycopg.errors.error_from_result(result)

    def _receive(self, wait_s: float) -> bytes | None:
        """Returns the next frame, None if none arrives in time."""
        import psycopg

        raw = self._connection.pgconn
        for has_waited in (False, True):
            size, data = raw.get_copy_data(1)
            if size > 0:
                return bytes(data)
            if size < 0:
                raise psycopg.OperationalError("the server has ended the replication")
            if has_waited or not wait_readable(raw.socket, wait_s):
                return None
            raw.consume_input()
        return None

    def _must_have_more(self) -> bool:
        """Waits for something, if the server has not sent all that was committed before the stream was opened.

        Raises: psycopg.OperationalError: the server stays silent.
        """
        import psycopg

        raw, has_sent_all = self._connection.pgconn, False
        for _ in range(SILENCES_MAX):
            if self._sent_lsn >= self._end_lsn:
                return False
            if wait_readable(raw.socket, SILENCE_S):
                return True
            if has_sent_all:  # and nothing was on its way
                self._sent_lsn = self._end_lsn
                return False
            # The end of the log may lie after that of the last record, where no message ever reaches.
            with self._server.connect(autocommit=True) as asking:
                find = "SELECT state FROM pg_stat_replication WHERE pid = %s"
                has_sent_all = asking.execute(find, [raw.backend_pid]).fetchone() == ("streaming",)
        raise psycopg.OperationalError(f"the server has sent nothing for {SILENCES_MAX * SILENCE_S:.0f} s")

    def _take_in(self, frame: p.Frame) -> None:
        if isinstance(frame, p.Keepalive):
            self._sent_lsn = max(self._sent_lsn, frame.end_lsn)
            if self._transaction is None and frame.end_lsn > self.position.lsn:
                self.position = ChangePosition(frame.end_lsn, 0)
            return
        match message := p.decode(frame.payload):
            case p.TransactionBegin():
                self._transaction = message
            case p.TransactionCommit():
                self._transaction, self._to_skip = None, 0
                self.position = ChangePosition(message.end_lsn, 0)
            case p.Relation():
                self._tables.add(message)
            case p.Insert() | p.Update() | p.Delete() | p.Truncate():
                for change in self._of(message):
                    if self._to_skip:
                        self._to_skip -= 1
                    else:
                        self._ready.append(change)
            case p.Other():
                pass

    def _of(self, message: p.Insert | p.Update | p.Delete | p.Truncate) -> Iterator[Change | MalformedRecord]:
        begin, tables = self._transaction, self._tables
        if begin is None:
            raise p.ReplicationMalformed("a change is in no transaction")
        of_commit = begin.lsn, begin.xid, EPOCH + timedelta(microseconds=begin.committed_us)
        if isinstance(message, p.Truncate):
            for oid in message.relations:
                yield Change("truncate", tables.name(oid), None, None, *of_commit)
            return
        change, problems = self._of_row(message, of_commit)
        if problems:
            error = tables.error(message.relation, change.row or change.old or {}, begin.lsn, problems[0])
            yield MalformedRecord(change, error)
        else:
            yield change

    def _of_row(
        self, message: p.Insert | p.Update | p.Delete, of_commit: tuple[int, int, datetime]
    ) -> tuple[Change, list[Problem]]:
        tables, oid, problems = self._tables, message.relation, list[Problem]()
        name = tables.name(oid)
        if isinstance(message, p.Insert):
            return Change("insert", name, tables.row(oid, message.new, problems), None, *of_commit), problems
        if isinstance(message, p.Delete):
            old = tables.row(oid, message.old, problems, message.old_is_key)
            return Change("delete", name, None, old, *of_commit), problems
        before = None
        if message.old is not None:
            before = tables.row(oid, message.old, problems, message.old_is_key)
        row = {**(before or {}), **tables.row(oid, message.new, problems)}
        return Change("update", name, row, before, *of_commit), problems


class LogEnd:
    """Position after the last byte of the server's log, as of the last question. ``lsn``: None while the server does
    not tell it.

    The replication protocol tells how far the server has sent, and not how much it still has.
    """

    def __init__(self, server: PostgresAddress) -> None:
        self._server = server
        self._connection: Any = None
        self._asked_ns: int | None = None
        self.lsn: int | None = None

    def look(self) -> None:
        """Asks the server, if the last question is some time ago, over a connection that stays open."""
        now_ns = monotonic_ns()
        if self._asked_ns is not None and now_ns - self._asked_ns < ASK_EVERY_NS:
            return
        self._asked_ns = now_ns
        try:
            if self._connection is None:
                self._connection = self._server.connect(autocommit=True)
            (found,) = self._connection.execute("SELECT pg_current_wal_flush_lsn() - '0/0'").fetchone()
            self.lsn = int(found)
        except (self._server.library().Error, SystemUnreachable, SystemRefused):
            self.close()  # the stream of changes says what is wrong, if that lasts

    def close(self) -> None:
        """Closes the connection."""
        connection, self._connection, self.lsn = self._connection, None, None
        if connection is not None:
            connection.close()
